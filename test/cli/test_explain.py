# SPDX-License-Identifier: Apache-2.0
"""A check that fails explains itself. A library with a fault stands before the real one."""
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tool
from tool import noise, scaled

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bent(tmp_path_factory):
    """The tool linked with the shared library, and the environment that puts the fault in between."""
    folder = tmp_path_factory.mktemp("bent")
    library = Path(os.environ["SWIGLU_LIBRARY"])
    compiler = os.environ.get("CC") or shutil.which("cc") or pytest.skip("no C compiler")
    flags = ["-std=c11", "-O1", f"-I{ROOT}/include"]
    subprocess.run([compiler, *flags, *map(str, (ROOT / "cli").glob("*.c")), str(library), f"-Wl,-rpath,{library.parent}",
                    "-lm", "-o", folder / "swiglu"], check=True)
    subprocess.run([compiler, *flags, "-shared", "-fPIC", ROOT / "test/cli/bent_forward.c", "-ldl", "-o",
                    folder / "bent.so"], check=True)
    return folder / "swiglu", {**os.environ, "LD_PRELOAD": str(folder / "bent.so")}


def run_bent(bent, *args, value=None, hidden=None):
    env = bent[1] | ({"BENT": value} if value else {}) | ({"BENT_HIDDEN": hidden} if hidden else {})
    return subprocess.run([bent[0], *map(str, args)], env=env, capture_output=True, text=True, timeout=60)


def test_own_block(bent):
    done = run_bent(bent, "run", "--shape", "40,56", "--tokens", 3, "--check", "--digest")
    assert done.returncode == 1
    where, terms, again = done.stderr.splitlines()
    found = re.match(r"swiglu: check failed: layer 0, row 1, column 5: y (\S+), reference (\S+), bound (\S+), "
                     r"\|y - reference\| / bound (\S+)$", where)
    y, reference, bound, quotient = map(float, found.groups())
    assert y - reference == pytest.approx(1, abs=1e-5) and quotient == pytest.approx(1 / bound, rel=1e-2)

    x = noise(1, 0, 3 * 40).reshape(3, 40).astype(np.float64)[1]
    gate, up, down = (scaled(s, r, c).astype(np.float64) for s, r, c in ((1, 56, 40), (2, 56, 40), (3, 40, 56)))
    g = gate @ x
    products = g / (1 + np.exp(-g)) * (up @ x) * down[5]
    printed = [(int(i), float(v)) for i, v in re.findall(r"h\[(\d+)\] \S+ x \S+ = ([^,\s]+)", terms)]
    assert [i for i, _ in printed] == list(np.argsort(-np.abs(products))[:3])
    # the reference sums 40 terms in double from f32 inputs; seven digits are printed
    assert [v for _, v in printed] == pytest.approx([products[i] for i, _ in printed], rel=1e-6)

    command = shlex.split(again.split("to see it again: ")[1])
    assert command[0] == "swiglu"
    repeated = run_bent(bent, *command[1:])
    assert repeated.returncode == 1 and repeated.stderr.splitlines() == done.stderr.splitlines()
    assert tool.call(*command[1:]).returncode == 0  # the sound library passes


def test_a_hidden_value_is_judged_before_what_down_makes_of_it(bent):
    """An error that is small against a sum of 56 products of h, and large against h itself."""
    done = run_bent(bent, "run", "--shape", "40,56", "--tokens", 3, "--check", "--json", hidden="1e-4")
    assert done.returncode == 1
    assert re.search(r"row 1, hidden unit 7: h (\S+), reference (\S+), bound (\S+), \|h - reference\| / bound (\S+)$",
                     done.stderr, re.M)
    data = json.loads(done.stdout)
    assert not data["check_passed"] and data["check_worst"] == data["check_worst_hidden"] > 1
    assert "down sum" not in done.stderr and "to see it again" in done.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_value_that_is_no_number_where_the_reference_has_one(bent, value):
    done = run_bent(bent, "run", "--shape", "40,56", "--tokens", 3, "--check", value=value)
    assert done.returncode == 1 and "0 passed, 1 failed" in done.stdout
    assert re.search(r"FAILED \(1 (NaN|Inf)\)$", done.stdout, re.M)
    assert re.search(rf"layer 0, row 1, column 5: y -?{value}, reference -?[0-9.]+, bound \S+, .* inf$", done.stderr, re.M)
    data = json.loads(run_bent(bent, "run", "--shape", "40,56", "--tokens", 3, "--check", "--json", value=value).stdout)
    assert not data["check_passed"] and (data["nan"], data["inf"]) == ((1, 0) if value == "nan" else (0, 1))


def test_the_class_of_the_reference_decides(bent, tmp_path):
    """Where the reference is NaN only a NaN passes, where it is infinite only that infinity."""
    rows = np.ones((2, 40), np.float32)
    gate = scaled(1, 1, 40)[0, 0]
    for value, spoilt in ((np.nan, np.nan), (np.copysign(np.inf, gate), None)):  # the gate is +Inf, h and y infinite
        rows[1, 0] = value
        np.save(tmp_path / "x.npy", rows)
        args = ("run", "--shape", "40,1", "--input", tmp_path / "x.npy", "--check", "--output", tmp_path / "y.npy")
        text = tool.ok(*args)
        y = np.load(tmp_path / "y.npy")[1]
        assert np.isnan(y).all() if spoilt is not None else np.isinf(y).all()
        kind = "NaN" if spoilt is not None else "Inf"
        assert "1 passed, 0 failed" in text and f"But y holds values that are no numbers (40 {kind})" in text
        for bend in ("nan", "inf", "-inf", "0.5"):
            agrees = np.array_equal(np.float32(bend), y[5], equal_nan=True)
            assert run_bent(bent, *args, "--digest", value=bend).returncode == (0 if agrees else 1), (value, bend)


def test_model(bent, tmp_path):
    path = tool.write_llama(tmp_path / "it's a model.gguf")
    for verb in ("run", "check"):
        done = run_bent(bent, verb, path, "--tokens", 4, *(["--check", "--digest"] if verb == "run" else []))
        assert done.returncode == 1
        lines = done.stderr.splitlines()
        assert len(lines) == 9
        for layer in range(3):
            assert f"layer {layer}, row 1, column 5" in lines[3 * layer]
            command = shlex.split(lines[3 * layer + 2].split("to see it again: ")[1])
            assert str(path) in command and "--check" in command
            assert f"layer {layer}, row 1, column 5" in run_bent(bent, *command[1:]).stderr
    assert "failed" in done.stdout.splitlines()[-1] and not done.stdout.endswith(" 0 failed\n")


@pytest.mark.parametrize("length", [100, 1100, 2000, 4000])
def test_paths_of_any_length(bent, tmp_path, length):
    """The command is repeated whole, also where quoting makes it four times as long."""
    (tmp_path / "x").mkdir()
    np.save(tmp_path / "x.npy", np.ones((2, 40), np.float32))
    quotes = tmp_path / ("'" * 200)
    quotes.mkdir()
    np.save(quotes / "x.npy", np.ones((2, 40), np.float32))
    for path in (f"{tmp_path}/" + "./" * ((length - len(str(tmp_path))) // 2) + "x.npy", quotes / "x.npy"):
        done = run_bent(bent, "run", "--shape", "40,56", "--input", path, "--check", "--digest")
        assert done.returncode == 1, done.stderr
        command = shlex.split(re.search("to see it again: (.*)", done.stderr)[1])
        assert command[command.index("--input") + 1] == str(path) and command[-1] == "--check"
