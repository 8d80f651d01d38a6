# SPDX-License-Identifier: Apache-2.0
"""What pip makes of this project: a source distribution of a used tree, an installation from it with -e, and a wheel."""
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("SWIGLU_SOURCE", Path(__file__).parents[2]))
SHIPPED = ("include", "src", "cli", "cmake", "man", "docs", "python")
RUBBISH = [  # what a used tree holds besides
    "build/src/base/a.c", "build-asan/include/swiglu/b.h", ".venv-torch/src/base/c.h", "venv/docs/d.md", ".models/docs/e.md",
    "python/swiglu/__pycache__/f.pyc", "python/swiglu/libswiglu.so", "src/base/g.o", "notes.txt", "out/h.gguf", "dist/i.whl",
]  # fmt: skip


def run(*command, cwd, **env):
    """In an environment that knows nothing of this build; its output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SWIGLU_", "PYTHON"))}
    result = subprocess.run(command, cwd=cwd, env={**kept, **env}, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="module")
def backend():
    if "SWIGLU_LIBRARY" not in os.environ:
        pytest.skip("a sanitized build: pip would make a plain one")
    for name in ("scikit_build_core", "hatch_fancy_pypi_readme"):
        pytest.importorskip(name)
    if not shutil.which("cmake") or not shutil.which("cc"):
        pytest.skip("no CMake or no C compiler")


@pytest.fixture(scope="module")
def sdist(backend, tmp_path_factory):
    """(folder with the unpacked source distribution, its files), made in a tree that has been used."""
    place = tmp_path_factory.mktemp("sdist")
    tree = place / "tree"
    tree.mkdir()
    for name in SHIPPED:
        shutil.copytree(SOURCE / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for path in (*SOURCE.glob("*.md"), *(SOURCE / name for name in ("LICENSE", "CMakeLists.txt", "pyproject.toml"))):
        shutil.copy(path, tree)
    expected = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    for name in RUBBISH:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("rubbish")
    code = "import scikit_build_core.build as b; print(b.build_sdist('..'))"
    archive = place / run(sys.executable, "-c", code, cwd=tree).split()[-1]
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    (folder,) = (path for path in place.iterdir() if path.is_dir() and path.name.startswith("swiglu-"))
    return folder, expected


@pytest.fixture(scope="module")
def installed(sdist, tmp_path_factory):
    """Python of an environment in which the source distribution is installed with -e, and the folder of the build."""
    place = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", str(place / "env"), cwd=place)
    python = place / "env/bin/python"
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip()
    import numpy

    Path(site, "host.pth").write_text(str(Path(numpy.__file__).parents[1]))
    pip = (str(python), "-m", "pip", "--disable-pip-version-check")
    options = ("--no-build-isolation", "--no-deps", "--no-index", "-C", f"build-dir={place / 'build'}")
    run(*pip, "install", *options, "-e", str(sdist[0]), cwd=place)
    run(*pip, "wheel", *options, "-w", str(place), str(sdist[0]), cwd=place)
    return python, place


def test_a_source_distribution_holds_the_project_and_nothing_else(sdist):
    folder, expected = sdist
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == expected | {"PKG-INFO"}


def test_an_editable_installation_works(installed):
    python, place = installed
    code = """
import swiglu, swiglu._c.library as library, numpy as np
w = np.ones((4, 4), np.float32)
print(swiglu.Block(w, w, w)(w).shape, swiglu.__file__, library.path)
assert {"Block", "patch", "restore", "nn", "torch", "load"} <= set(dir(swiglu)), dir(swiglu)
assert not {"Any", "annotations", "_abi"} & set(dir(swiglu))
"""
    shape, file, library = run(str(python), "-c", code, cwd=place).rsplit(" ", 2)
    assert shape == "(4, 4)" and "sdist" in file and str(place) in library
    assert run(str(python.parent / "swiglu"), "--version", cwd=place).startswith("swiglu ")


def test_the_wheel(installed):
    _, place = installed
    (path,) = place.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        (metadata,) = (email.message_from_bytes(wheel.read(n)) for n in names if n.endswith("dist-info/METADATA"))
    ours = {str(p.relative_to(SOURCE / "python")) for p in (SOURCE / "python").rglob("*.py")}
    assert {n for n in names if n.startswith("swiglu/") and n.endswith(".py")} == ours
    assert any(re.fullmatch(r"swiglu/libswiglu\.(so|dylib)", n) for n in names) and "swiglu/py.typed" in names
    assert any(n.endswith("scripts/swiglu") for n in names) and any(n.endswith("man1/swiglu.1") for n in names)
    assert not [n for n in names if "__pycache__" in n]
    for field in ("Author", "License", "Summary", "Requires-Python", "Keywords", "Classifier"):
        assert metadata[field], field
    text = metadata.get_payload()
    assert "swiglu" in text and not re.findall(r"\]\((?!https?:)[^)]*\)", text), "dead links"
    minors = {c.rsplit(" ", 1)[1] for c in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", c)}
    oldest, too_new = re.search(r">=3\.(\d+)", metadata["Requires-Python"]), re.search(r"<3\.(\d+)", metadata["Requires-Python"])
    assert minors == {f"3.{i}" for i in range(int(oldest[1]), int(too_new[1]))}
