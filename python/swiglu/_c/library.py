# SPDX-License-Identifier: Apache-2.0
"""Finds, loads and checks the shared library. Importing this module is what loads it."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from . import abi

_NAMES = ("libswiglu.so", "libswiglu.dylib")


def _find() -> Path:
    override = os.environ.get("SWIGLU_LIBRARY")
    if override:
        return Path(override)
    folders = [Path(folder) for folder in sys.modules["swiglu"].__path__]  # two where the package is installed with -e
    for folder in folders:
        for name in _NAMES:
            if (folder / name).exists():
                return folder / name
    raise ImportError(
        f"swiglu: no {' or '.join(_NAMES)} in {' or '.join(map(str, folders))}; install the package (pip install .) or set"
        " SWIGLU_LIBRARY to the path of the shared library"
    )


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"swiglu: {path} cannot be loaded: {error}") from None
    try:
        abi.declare(library)
    except AttributeError as error:
        raise ImportError(f"swiglu: {path} is another version of the library: {error}") from None
    build = abi.new(abi.Build)
    if library.swiglu_version(ctypes.byref(build)) != abi.OK or build.abi != abi.ABI:
        raise ImportError(f"swiglu: {path} has ABI {build.abi}, this package speaks ABI {abi.ABI}")
    desc = abi.Desc()
    library.swiglu_desc_init(ctypes.byref(desc))
    for name, struct, size in (("desc", abi.Desc, desc.struct_size), ("act", abi.Act, desc.act.struct_size)):
        if size != ctypes.sizeof(struct):
            raise ImportError(f"swiglu: {path} has a struct swiglu_{name} of {size} bytes, not {ctypes.sizeof(struct)}")
    return library


path = _find()
lib: Any = _load(path)


def _dtypes() -> dict[str, int]:
    numbers: dict[str, int] = {}
    info = abi.new(abi.DtypeInfo)
    while lib.swiglu_dtype_query(lib.swiglu_dtype_at(len(numbers)), ctypes.byref(info)) == abi.OK:
        numbers[info.name.decode()] = lib.swiglu_dtype_at(len(numbers))
    return numbers


DTYPES = _dtypes()  # the name of every weight format: its number


def error_record() -> Any:
    return abi.new(abi.Error)


def raise_status(status: int, text: str, os_errno: int = 0) -> NoReturn:
    """Turns a status into a Python exception: OSError for files, MemoryError, RuntimeError for what is not the caller's
    fault, ValueError for everything that is wrong with the input."""
    name = lib.swiglu_status_name(status).decode()
    message = f"{text} ({name})"
    if status in (abi.E_OPEN, abi.E_READ, abi.E_WRITE):
        raise OSError(os_errno, message)
    if status == abi.E_MEMORY:
        raise MemoryError(message)
    if status in (abi.E_WORKSPACE, abi.E_HARDWARE, abi.E_CANCELLED):
        raise RuntimeError(message)
    raise ValueError(message)


def check(status: int, what: str, error: Any = None) -> None:
    """Raises unless status is OK. `what` names the call; the library's own text, where there is one, follows it."""
    if status == abi.OK:
        return
    detail = error.text.decode("utf-8", "replace") if error is not None else ""
    raise_status(status, f"{what}: {detail}" if detail else what, error.os_errno if error is not None else 0)
