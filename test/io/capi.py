# SPDX-License-Identifier: Apache-2.0
"""The part of the public C API that the file tests use, through ctypes on the shared library."""
import ctypes as c
import os
from contextlib import contextmanager

import numpy as np

OK, E_ARGUMENT, E_SHAPE, E_FORMAT, E_UNSUPPORTED, E_OPEN, E_READ, E_MEMORY = 0, 10, 20, 30, 31, 40, 41, 50
F32, F16, BF16 = 0, 1, 30
SEPARATE, GATE_UP, UP_GATE, INTERLEAVED, UNGATED = range(5)
NO_OFFSET = 2**64 - 1

_floats = np.ctypeslib.ndpointer(np.float32, flags="C,W")


class Sized(c.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(self), **fields)


class Error(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("status", c.c_int), ("os_errno", c.c_int), ("offset", c.c_uint64),
                ("text", c.c_char * 448)]


class Act(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("kind", c.c_int)] + [
        (n, c.c_float) for n in ("alpha", "up_offset", "gate_lo", "gate_hi", "up_lo", "up_hi")
    ] + [("clamp_after", c.c_int), ("param", c.c_float * 6)]


class Matrix(c.Structure):
    _fields_ = [("data", c.c_void_p), ("read", c.c_void_p), ("ctx", c.c_void_p), ("dtype", c.c_int),
                ("in_out", c.c_int), ("rows", c.c_size_t), ("cols", c.c_size_t), ("ld_elems", c.c_size_t)]


class Vector(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int)]


class Desc(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("d_in", c.c_size_t), ("d_ff", c.c_size_t), ("d_out", c.c_size_t),
                ("layout", c.c_int), ("act", Act), ("gate", Matrix), ("up", Matrix), ("down", Matrix),
                ("gate_bias", Vector), ("up_bias", Vector), ("down_bias", Vector)]


class ModelOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("strict", c.c_int), ("activation", c.c_char_p),
                ("scan", c.c_int), ("experts", c.c_int)]


class ModelInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("format", c.c_char_p), ("format_version", c.c_uint),
                ("architecture", c.c_char_p), ("name", c.c_char_p), ("file_bytes", c.c_uint64),
                ("n_tensors", c.c_size_t), ("n_blocks", c.c_size_t), ("n_warnings", c.c_size_t)]


class TensorInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_int), ("dtype_name", c.c_char_p),
                ("n_dims", c.c_uint), ("dims", c.c_uint64 * 4), ("offset", c.c_uint64), ("bytes", c.c_uint64)]


class BlockInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("layer", c.c_size_t), ("usable", c.c_int), ("reason", c.c_char_p),
                ("kind", c.c_char_p), ("activation", c.c_char_p), ("activation_source", c.c_char_p),
                ("layout_name", c.c_char_p), ("d_in", c.c_size_t), ("d_ff", c.c_size_t), ("d_out", c.c_size_t),
                ("act", Act), ("layout", c.c_int)] + [
                    (n, c.c_long) for n in ("gate", "up", "down", "gate_bias", "up_bias", "down_bias", "norm")
                ] + [("weight_bytes", c.c_uint64), ("in_out", c.c_int), ("expert", c.c_int)]


class Rows(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("ld_elems", c.c_size_t)]


class Work(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t)]


class Reference(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("compute", c.c_int), ("y_dtype", c.c_int)] + [
        (n, c.c_void_p) for n in ("y", "bound", "typical", "plain", "hidden")]


_ARGUMENTS = {
    "swiglu_decode": [c.c_int, c.c_void_p, c.c_size_t, _floats],
    "swiglu_model_open": [c.c_char_p, c.c_void_p, c.POINTER(c.c_void_p), c.c_void_p],
    "swiglu_model_query": [c.c_void_p, c.c_void_p],
    "swiglu_model_tensor": [c.c_void_p, c.c_size_t, c.c_void_p],
    "swiglu_model_read": [c.c_void_p, c.c_size_t, c.c_uint64, c.c_void_p, c.c_size_t, c.c_void_p],
    "swiglu_model_block": [c.c_void_p, c.c_size_t, c.c_void_p],
    "swiglu_model_desc": [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p],
    "swiglu_block_create": [c.c_void_p, c.c_void_p, c.POINTER(c.c_void_p), c.c_void_p],
    "swiglu_forward_bytes": [c.c_void_p, c.c_size_t, c.c_uint, c.POINTER(c.c_size_t)],
    "swiglu_forward": [c.c_void_p, c.c_size_t, Rows, Rows, Work, c.c_void_p],
    "swiglu_reference_run": [c.c_void_p, c.c_size_t, Rows, c.c_void_p, c.c_void_p],
}


def _load():
    lib = c.CDLL(os.environ["SWIGLU_LIBRARY"])
    for name, arguments in _ARGUMENTS.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = c.c_int
    lib.swiglu_model_warning.argtypes = [c.c_void_p, c.c_size_t]
    lib.swiglu_model_warning.restype = c.c_char_p
    lib.swiglu_model_close.argtypes = lib.swiglu_block_destroy.argtypes = [c.c_void_p]
    lib.swiglu_model_close.restype = lib.swiglu_block_destroy.restype = None
    return lib


library = _load()


class Failure(Exception):
    def __init__(self, status, error):
        self.status, self.errno, self.offset = status, error.os_errno, error.offset
        self.text = error.text.decode("ascii")  # whatever the file holds, the text is printable ASCII
        super().__init__(f"{status}: {self.text}")


def _check(status, error):
    if status != OK:
        raise Failure(status, error)


class Model:
    def __init__(self, path, strict=False, activation=None, scan=False, experts=False):
        self.pointer = c.c_void_p()
        options = ModelOptions(strict=int(strict), activation=activation.encode() if activation else None,
                               scan=int(scan), experts=int(experts))
        error = Error()
        status = library.swiglu_model_open(os.fsencode(path), c.byref(options), c.byref(self.pointer), c.byref(error))
        assert (status == OK) == bool(self.pointer)
        assert status == OK or (error.status == status and error.text)
        _check(status, error)
        self.info = ModelInfo()
        assert library.swiglu_model_query(self.pointer, c.byref(self.info)) == OK

    def close(self):
        library.swiglu_model_close(self.pointer)
        self.pointer = None

    def warnings(self):
        found = [library.swiglu_model_warning(self.pointer, i).decode() for i in range(self.info.n_warnings)]
        assert library.swiglu_model_warning(self.pointer, self.info.n_warnings) is None
        return found

    def tensor(self, i):
        info = TensorInfo()
        assert library.swiglu_model_tensor(self.pointer, i, c.byref(info)) == OK
        return info

    def tensors(self):
        return [self.tensor(i) for i in range(self.info.n_tensors)]

    def read(self, i, byte, n):
        data, error = c.create_string_buffer(n), Error()
        _check(library.swiglu_model_read(self.pointer, i, byte, data, n, c.byref(error)), error)
        return data.raw

    def block(self, i):
        info = BlockInfo()
        assert library.swiglu_model_block(self.pointer, i, c.byref(info)) == OK
        return info

    def blocks(self):
        return [self.block(i) for i in range(self.info.n_blocks)]

    def desc(self, i):
        desc, error = Desc(), Error()
        _check(library.swiglu_model_desc(self.pointer, i, c.byref(desc), c.byref(error)), error)
        return desc

    def prepare(self, i):
        return Block(self.desc(i))


class Block:
    def __init__(self, desc):
        self.pointer, error = c.c_void_p(), Error()
        self.d_in, self.d_out = desc.d_in, desc.d_out
        _check(library.swiglu_block_create(c.byref(desc), None, c.byref(self.pointer), c.byref(error)), error)

    def forward(self, x):
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty((x.shape[0], self.d_out), np.float32)
        need = c.c_size_t()
        assert library.swiglu_forward_bytes(self.pointer, x.shape[0], 1, c.byref(need)) == OK
        work = c.create_string_buffer(max(need.value, 1))
        status = library.swiglu_forward(self.pointer, x.shape[0], Rows(x.ctypes.data, F32, 0), Rows(y.ctypes.data, F32, 0),
                                        Work(c.cast(work, c.c_void_p), need.value), None)
        assert status == OK
        return y

    def close(self):
        library.swiglu_block_destroy(self.pointer)
        self.pointer = None


def reference(desc, x):
    """The bound of forward's error, and the block in plain double precision from the weights in the file."""
    x, error = np.ascontiguousarray(x, np.float32), Error()
    y, bound, plain = (np.empty((x.shape[0], desc.d_out)) for _ in range(3))
    out = Reference(y=y.ctypes.data, bound=bound.ctypes.data, plain=plain.ctypes.data)
    _check(library.swiglu_reference_run(c.byref(desc), x.shape[0], Rows(x.ctypes.data, F32, 0), c.byref(out),
                                        c.byref(error)), error)
    return bound, plain


@contextmanager
def opened(path, **options):
    model = Model(path, **options)
    try:
        yield model
    finally:
        model.close()
