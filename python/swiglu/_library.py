# SPDX-License-Identifier: Apache-2.0
"""Finds, loads and checks the shared library. Importing this module is what loads it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, NoReturn

from . import _abi

_NAMES = ("libswiglu.so", "libswiglu.dylib")


def _find() -> Path:
    override = os.environ.get("SWIGLU_LIBRARY")
    if override:
        return Path(override)
    here = Path(__file__).resolve().parent
    for name in _NAMES:
        if (here / name).exists():
            return here / name
    raise ImportError(
        f"swiglu: no {' or '.join(_NAMES)} in {here}; install the package (pip install .) or set SWIGLU_LIBRARY to the path"
        " of the shared library"
    )


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"swiglu: {path} cannot be loaded: {error}") from None
    try:
        _abi.declare(library)
    except AttributeError as error:
        raise ImportError(f"swiglu: {path} is another version of the library: {error}") from None
    build = _abi.new(_abi.Build)
    if library.swiglu_version(ctypes.byref(build)) != _abi.OK or build.abi != _abi.ABI:
        raise ImportError(f"swiglu: {path} has ABI {build.abi}, this package speaks ABI {_abi.ABI}")
    desc = _abi.Desc()
    library.swiglu_desc_init(ctypes.byref(desc))
    for name, struct, size in (("desc", _abi.Desc, desc.struct_size), ("act", _abi.Act, desc.act.struct_size)):
        if size != ctypes.sizeof(struct):
            raise ImportError(f"swiglu: {path} has a struct swiglu_{name} of {size} bytes, not {ctypes.sizeof(struct)}")
    return library


path = _find()
lib: Any = _load(path)


def _dtypes() -> dict[str, int]:
    numbers: dict[str, int] = {}
    info = _abi.new(_abi.DtypeInfo)
    while lib.swiglu_dtype_query(lib.swiglu_dtype_at(len(numbers)), ctypes.byref(info)) == _abi.OK:
        numbers[info.name.decode()] = lib.swiglu_dtype_at(len(numbers))
    return numbers


DTYPES = _dtypes()  # the name of every weight format: its number


def error_record() -> Any:
    return _abi.new(_abi.Error)


def raise_status(status: int, text: str, os_errno: int = 0) -> NoReturn:
    """Turns a status into a Python exception: OSError for files, MemoryError, RuntimeError for what is not the caller's
    fault, ValueError for everything that is wrong with the input."""
    name = lib.swiglu_status_name(status).decode()
    message = f"{text} ({name})"
    if status in (_abi.E_OPEN, _abi.E_READ, _abi.E_WRITE):
        raise OSError(os_errno, message)
    if status == _abi.E_MEMORY:
        raise MemoryError(message)
    if status in (_abi.E_WORKSPACE, _abi.E_HARDWARE, _abi.E_CANCELLED):
        raise RuntimeError(message)
    raise ValueError(message)


def check(status: int, what: str, error: Any = None) -> None:
    """Raises unless status is OK. `what` names the call; the library's own text, where there is one, follows it."""
    if status == _abi.OK:
        return
    detail = error.text.decode("utf-8", "replace") if error is not None else ""
    raise_status(status, f"{what}: {detail}" if detail else what, error.os_errno if error is not None else 0)
