# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as the library's matrices, vectors and rows."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from .._c import abi
from .._c.desc import dtype_number
from .._c.library import check, lib
from .._c.strides import matrix_order, rows_order

Array = npt.NDArray[Any]
_FLOATS = {"float32": abi.F32, "float16": abi.F16, "bfloat16": abi.BF16}


def array_dtype(name: str, array: Array, dtype: Optional[str]) -> int:
    """The library's dtype of an array: float32 and float16 speak for themselves (so does bfloat16 of other packages),
    uint16 needs dtype="bf16", uint8 the name of a block format."""
    kind = array.dtype.name
    if kind in _FLOATS and array.dtype.isnative:
        return _FLOATS[kind]
    if kind == "uint16" and dtype == "bf16" and array.dtype.isnative:
        return abi.BF16
    if kind == "uint8" and dtype is not None and dtype_number(dtype) not in (abi.F32, abi.F16, abi.BF16):
        return dtype_number(dtype)
    asked = "" if dtype is None else f" with dtype={dtype!r}"
    raise TypeError(
        f"{name}: an array of {array.dtype}{asked}; it can be float32, float16, uint16 with dtype='bf16', or for a weight"
        " uint8 with the name of a block format"
    )


def check_dtype_used(dtype: Optional[str], numbers: list[int], what: str) -> None:
    """A dtype that no array has would be ignored without a word."""
    if dtype is not None and dtype_number(dtype) not in numbers:
        raise ValueError(f"dtype {dtype!r} says what uint16 and uint8 arrays hold, but {what} of such a type")


def _as_array(name: str, value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, not {type(value).__name__}")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; its mask would be ignored")
    return value


def _elem_strides(array: Array) -> Optional[tuple[int, ...]]:
    if not array.flags.aligned or any(s % array.itemsize for s in array.strides):
        return None
    return tuple(s // array.itemsize for s in array.strides)


def block_size(dtype: int) -> tuple[int, int]:
    """(values, bytes) of one block of a format."""
    info = abi.new(abi.DtypeInfo)
    check(lib.swiglu_dtype_query(dtype, ctypes.byref(info)), f"dtype {dtype}")
    return int(info.block_elems), int(info.block_bytes)


def fill_matrix(matrix: Any, name: str, value: Any, dtype: Optional[str]) -> Array:
    """Describes a weight [outputs, inputs]; returns the array that must live until the description is used up."""
    array = _as_array(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name}: {array.ndim} dimensions {array.shape}, a weight has two: [outputs, inputs]")
    matrix.dtype = array_dtype(name, array, dtype)
    elems, size = block_size(matrix.dtype)
    strides = _elem_strides(array)
    order = matrix_order(*array.shape, *strides) if strides is not None else None
    if order is None or (elems > 1 and order[0]):
        array, order = np.ascontiguousarray(array), (0, 0)
    matrix.rows = array.shape[0]
    if elems > 1:  # bytes of whole blocks
        if array.shape[1] % size or order[1] % size:
            raise ValueError(f"{name}: rows of {array.shape[1]} bytes are not whole {dtype} blocks of {size}")
        matrix.cols, matrix.ld_elems = array.shape[1] // size * elems, order[1] // size * elems
    else:
        matrix.cols, matrix.ld_elems = array.shape[1], order[1]
    matrix.in_out, matrix.data = order[0], array.ctypes.data
    return array


def fill_vector(vector: Any, name: str, value: Any, length: int, dtype: Optional[str]) -> Array:
    array = np.ascontiguousarray(_as_array(name, value))
    if value.shape != (length,):
        raise ValueError(f"{name}: shape {value.shape}, expected ({length},)")
    vector.dtype, vector.data = array_dtype(name, array, dtype), array.ctypes.data
    return array


def as_rows(name: str, value: Any, width: int, dtype: Optional[str]) -> tuple[Array, int, int, int]:
    """(array, dtype, rows, ld_elems) of an array [..., width]; the array is a copy where the library cannot walk it."""
    array = _as_array(name, value)
    number = array_dtype(name, array, dtype)
    check_dtype_used(dtype, [number], f"{name} is {array.dtype}, not")
    if array.ndim == 0 or array.shape[-1] != width:
        raise ValueError(f"{name}: shape {array.shape}, expected [..., {width}]")
    strides = _elem_strides(array)
    ld = rows_order(array.shape, strides) if strides is not None else None
    if ld is None:
        array, ld = np.ascontiguousarray(array), 0
    m = 1
    for n in array.shape[:-1]:
        m *= n
    return array, number, m, ld


def _other_shape(name: str, shape: tuple[int, ...], dtype: str, unit: str) -> tuple[int, ...]:
    """The shape of the bytes of values, or of the values of bytes: unit says which ones shape counts."""
    elems, size = block_size(dtype_number(dtype))
    if elems == 1:
        return shape
    n, becomes = (elems, size) if unit == "values" else (size, elems)
    if not shape or shape[-1] % n:
        raise ValueError(f"{name}: shape {shape}, the last dimension must be whole {dtype} blocks of {n} {unit}")
    return (*shape[:-1], shape[-1] // n * becomes)


def encode(x: npt.ArrayLike, dtype: str = "bf16") -> Array:
    """float32 values to "f32", "f16" or "bf16" (as uint16), rounded once to nearest even, subnormals kept, every NaN
    canonical; or to a block format such as "q8_0", as uint8 bytes of whole blocks along the last dimension. Raises ValueError
    for another dtype, rows that are no whole blocks, and values that a block format cannot hold: NaN and infinities."""
    number = dtype_number(dtype)
    values = np.ascontiguousarray(x, dtype=np.float32).reshape(np.shape(x))
    types = {abi.F32: np.float32, abi.F16: np.float16, abi.BF16: np.uint16}
    if number not in types and not np.isfinite(values).all():
        raise ValueError(f"x: NaN or infinite values, which {dtype} cannot hold")
    out: Array = np.empty(_other_shape("x", values.shape, dtype, "values"), types.get(number, np.uint8))
    check(lib.swiglu_encode(number, values.ctypes.data, values.size, out.ctypes.data), f"encode to {dtype}")
    return out


def decode(raw: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Stored values to float32, exactly. raw: float32, float16, uint16 (bf16), or uint8 bytes of whole blocks along the
    last dimension, such as rows of a GGUF tensor. Raises ValueError, TypeError."""
    number = dtype_number(dtype)
    array = np.ascontiguousarray(_as_array("raw", raw)).reshape(np.shape(raw))
    if array_dtype("raw", array, dtype) != number:
        raise TypeError(f"raw: an array of {array.dtype} is not {dtype}")
    out = np.empty(_other_shape("raw", array.shape, dtype, "bytes"), np.float32)
    check(lib.swiglu_decode(number, array.ctypes.data, out.size, out.ctypes.data), f"decode {dtype}")
    return out
