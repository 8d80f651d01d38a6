# SPDX-License-Identifier: Apache-2.0
"""The binding against the headers: sizes, offsets and numbers as a C compiler sees them."""
import ctypes
import re
import shutil
import subprocess

import pytest
from conftest import SOURCE
from swiglu._c import abi
from swiglu._c.library import DTYPES, lib


@pytest.fixture(scope="module")
def c_says(tmp_path_factory):
    """What one C program prints: lines of a name and a number."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")

    lines = []
    for name, struct in abi.STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field, _ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
            lines.append(f'printf("{name}.{field}# %zu\\n", sizeof(((struct {name} *)0)->{field}));')
    for constant in constants():
        lines.append(f'printf("{constant} %d\\n", (int){constant});')
    folder = tmp_path_factory.mktemp("abi")
    program = folder / "abi.c"
    program.write_text(
        '#include <stdio.h>\n#include "swiglu/swiglu.h"\n#include "swiglu/model.h"\n'
        + "\n".join(["int main(void) {", *lines, "}", ""])
    )
    subprocess.run([compiler, "-std=c11", f"-I{SOURCE}/include", program, "-o", folder / "abi"], check=True)
    output = subprocess.run([folder / "abi"], check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: int(line.split()[1]) for line in output.splitlines()}


def constants():
    kinds = {"gelu": "GELU_ERF"}
    named = {f"SWIGLU_ACT_{kinds.get(k, k.upper())}": v for k, v in abi.KINDS.items()}
    named.update({f"SWIGLU_{k.upper()}": v for k, v in abi.LAYOUTS.items()})
    named.update({f"SWIGLU_{k}": getattr(abi, k) for k in ("F32", "F16", "BF16")})
    named.update({f"SWIGLU_{k.upper()}": v for k, v in DTYPES.items()})
    named.update({f"SWIGLU_COMPUTE_{k.upper()}": v for k, v in abi.COMPUTES.items()})
    named.update({f"SWIGLU_ISA_{level.name.decode().upper()}": level.bit for level in abi.levels(lib)})
    named.update({f"SWIGLU_WIDTH_{k.upper()}": v for k, v in abi.WIDTH_RULES.items()})
    prefixes = ("E_", "TRAIN_")
    named.update({f"SWIGLU_{k}": v for k, v in vars(abi).items() if k.startswith(prefixes)})
    named["SWIGLU_ABI"] = abi.ABI
    return named


@pytest.mark.parametrize("name", abi.STRUCTS)
def test_struct_layout(c_says, name):
    struct = abi.STRUCTS[name]
    assert ctypes.sizeof(struct) == c_says[name]
    for field, _ in struct._fields_:
        descriptor = getattr(struct, field)
        assert (descriptor.offset, descriptor.size) == (c_says[f"{name}.{field}"], c_says[f"{name}.{field}#"]), field


def test_numbers(c_says):
    expected = constants()
    assert {name: c_says[name] for name in expected} == expected


def test_nothing_of_the_header_is_missing(source):
    """Every struct with a body that a caller fills or reads, and every field of it."""
    text = "".join((source / "include/swiglu" / name).read_text() for name in ("swiglu.h", "model.h"))
    declared = set(re.findall(r"^struct (swiglu_\w+) \{", text, re.M))
    assert declared - set(abi.STRUCTS) <= {"swiglu_convert_options", "swiglu_converted"}  # used by the tool alone


def test_prototypes_are_exported():
    from swiglu._c import library

    for name, (result, arguments) in abi.PROTOTYPES.items():
        function = getattr(library.lib, name)
        assert function.restype is result
        assert list(function.argtypes) == arguments


def test_other_abi_is_refused(monkeypatch):
    from swiglu._c import library

    monkeypatch.setattr(abi, "ABI", 99)
    with pytest.raises(ImportError, match="has ABI 1, this package speaks ABI 99"):
        library._load(library.path)


def test_other_struct_size_is_refused(monkeypatch):
    from swiglu._c import library

    class Grown(ctypes.Structure):
        _fields_ = [*abi.Desc._fields_, ("more", ctypes.c_size_t)]

    monkeypatch.setattr(abi, "Desc", Grown)
    prototypes = dict(abi.PROTOTYPES, swiglu_desc_init=(None, [ctypes.POINTER(Grown)]))
    monkeypatch.setattr(abi, "PROTOTYPES", prototypes)
    with pytest.raises(ImportError, match="struct swiglu_desc of"):
        library._load(library.path)


def test_library_that_is_missing(monkeypatch, tmp_path):
    from swiglu._c import library

    monkeypatch.setenv("SWIGLU_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(ImportError, match="none.so cannot be loaded"):
        library._load(library._find())
