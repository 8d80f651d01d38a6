# SPDX-License-Identifier: Apache-2.0
"""Checkpoint files: the feed-forward blocks in them, and their tensors."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NoReturn, Optional, Union

import numpy as np
import numpy.typing as npt

from .._c import abi
from .._c.activation import Activation
from .._c.desc import dtype_number, make_options
from .._c.library import check, error_record, lib
from .block import Block


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What a file says about itself."""

    format: str
    format_version: int
    architecture: str
    name: str
    file_bytes: int
    n_tensors: int
    n_blocks: int
    n_files: int


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """One tensor: dims outermost first, its place and size in the file in bytes."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    offset: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class LayerInfo:
    """One feed-forward block of a file. Where usable is False, reason says why. gate to norm are indices of tensors, -1
    where there is none; a packed layout has both halves in gate. expert is the number of an expert of a mixture, -2 for the
    one that all tokens go to, -1 for other blocks; in_out tells that the file has the matrices as [inputs, outputs]."""

    layer: int
    usable: bool
    reason: str
    kind: str
    activation: str
    activation_source: str
    layout: str
    d_in: int
    d_ff: int
    d_out: int
    gate: int
    up: int
    down: int
    gate_bias: int
    up_bias: int
    down_bias: int
    norm: int
    weight_bytes: int
    in_out: bool
    expert: int


def _text(value: Any) -> str:
    return (value or b"").decode("utf-8", "replace")


class _File:
    """Owns a struct swiglu_model; whoever reads holds a reference."""

    def __init__(self, path: str, options: Any) -> None:
        self.pointer = ctypes.c_void_p()
        error = error_record()
        status = lib.swiglu_model_open(
            os.fsencode(path), ctypes.byref(options), ctypes.byref(self.pointer), ctypes.byref(error)
        )
        check(status, "load", error)

    def __del__(self, _close: Any = lib.swiglu_model_close) -> None:
        _close(self.pointer)


class Model:
    """The feed-forward blocks of a checkpoint file. model[i] packs block i into a Block of its own, which outlives the
    model; layers tells of every block what it is before anything is read. Made by load()."""

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        strict: bool = False,
        activation: Optional[str] = None,
        scan: bool = False,
        experts: bool = False,
    ) -> None:
        options = abi.new(abi.ModelOptions, strict=strict, scan=scan, experts=experts)
        if activation is not None:
            if not isinstance(activation, str):
                raise TypeError(f"activation must be a name, not {type(activation).__name__}")
            Activation.named(activation)
            options.activation = activation.encode()
        name = os.fsdecode(path)
        if "\0" in name:
            raise ValueError("load: a path with a NUL byte")
        self._file: Optional[_File] = _File(name, options)
        info = abi.new(abi.ModelInfo)
        pointer = self._file.pointer
        check(lib.swiglu_model_query(pointer, ctypes.byref(info)), "model")
        self.info = ModelInfo(
            format=_text(info.format),
            format_version=info.format_version,
            architecture=_text(info.architecture),
            name=_text(info.name),
            file_bytes=info.file_bytes,
            n_tensors=info.n_tensors,
            n_blocks=info.n_blocks,
            n_files=info.n_files,
        )
        self.warnings = tuple(_text(lib.swiglu_model_warning(pointer, i)) for i in range(info.n_warnings))
        self.layers = tuple(self._layer(i) for i in range(info.n_blocks))
        self.tensors = tuple(self._tensor(i) for i in range(info.n_tensors))

    def _layer(self, i: int) -> LayerInfo:
        info = abi.new(abi.ModelBlockInfo)
        check(lib.swiglu_model_block(self._opened().pointer, i, ctypes.byref(info)), f"block {i}")
        values: dict[str, Any] = {}
        for field in dataclasses.fields(LayerInfo):
            value = getattr(info, "layout_name" if field.name == "layout" else field.name)
            values[field.name] = _text(value) if field.type == "str" else value
        values["usable"], values["in_out"] = bool(info.usable), bool(info.in_out)
        return LayerInfo(**values)

    def _tensor(self, i: int) -> TensorInfo:
        info = abi.new(abi.TensorInfo)
        check(lib.swiglu_model_tensor(self._opened().pointer, i, ctypes.byref(info)), f"tensor {i}")
        dims = tuple(info.dims[: info.n_dims])
        return TensorInfo(_text(info.name), _text(info.dtype_name), dims, info.offset, info.bytes)

    def _opened(self) -> _File:
        file = self._file
        if file is None:
            raise ValueError("the model is closed")
        return file

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: int) -> Block:
        return self.block(i)

    def __iter__(self) -> Iterator[Block]:
        return (self.block(i) for i in range(len(self)))

    def block(self, i: int, *, compute: str = "auto", threads: Optional[int] = None, isa: Optional[str] = None) -> Block:
        """Reads and packs block i. Raises IndexError, ValueError (a block that is left out, with the reason), OSError."""
        if not isinstance(i, (int, np.integer)):
            raise TypeError(f"a block is chosen by an integer, not {i!r}")
        if not -len(self) <= i < len(self):
            raise IndexError(f"block {i} of {len(self)}")
        return Block._of_desc(self._desc(int(i)), make_options(compute, isa), threads)

    def _desc(self, i: int) -> Any:
        """A struct swiglu_desc that reads from the file."""
        file, desc, error = self._opened(), abi.new(abi.Desc), error_record()
        status = lib.swiglu_model_desc(file.pointer, i % len(self), ctypes.byref(desc), ctypes.byref(error))
        check(status, f"block {i}", error)
        return desc

    def read(self, tensor: Union[int, str]) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, by index or name, as they are in the file. Raises KeyError, IndexError, OSError."""
        file = self._opened()
        if isinstance(tensor, str):
            names = [t.name for t in self.tensors]
            if tensor not in names:
                raise KeyError(tensor)
            tensor = names.index(tensor)
        n_bytes = self.tensors[tensor].bytes
        out, error = np.empty(n_bytes, np.uint8), error_record()
        index = tensor % len(self.tensors)
        status = lib.swiglu_model_read(file.pointer, index, 0, out.ctypes.data, n_bytes, ctypes.byref(error))
        check(status, f"tensor {tensor}", error)
        return out

    def _row(self, tensor: int, row: int) -> npt.NDArray[np.float32]:
        """A stored row of a matrix, decoded."""
        info, error = self.tensors[tensor], error_record()
        dtype = info.dtype.lower()
        out = np.empty(info.bytes // info.dims[0], np.uint8)
        status = lib.swiglu_model_read(
            self._opened().pointer, tensor, row * out.size, out.ctypes.data, out.size, ctypes.byref(error)
        )
        check(status, f"tensor {info.name}", error)
        values = np.empty(info.dims[1], np.float32)
        check(lib.swiglu_decode(dtype_number(dtype), out.ctypes.data, values.size, values.ctypes.data), f"decode {dtype}")
        return values

    def close(self) -> None:
        """Closes the file; blocks that were made stay usable."""
        self._file = None

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        i = self.info
        return f"<swiglu.Model {i.format} {i.architecture}, {i.n_blocks} blocks, {i.n_tensors} tensors>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a swiglu.Model cannot be copied or pickled: load the file again")


def load(
    path: Union[str, os.PathLike[str]],
    *,
    strict: bool = False,
    activation: Optional[str] = None,
    scan: bool = False,
    experts: bool = False,
) -> Model:
    """Opens a checkpoint, checks all of its headers and finds its feed-forward blocks: a GGUF file, a .safetensors file with
    the config.json beside it, or a folder of such shards (docs/files.md).

    strict       warnings become errors
    activation   a name that overrides what the file says
    scan         a folder's index is not read, but every *.safetensors file in it
    experts      each expert of a mixture is a block of its own too; nothing is routed

    Raises OSError (open, read), ValueError (the format, an unknown activation), MemoryError."""
    return Model(path, strict=strict, activation=activation, scan=scan, experts=experts)
