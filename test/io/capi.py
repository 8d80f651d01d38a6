# SPDX-License-Identifier: Apache-2.0
"""The part of the public C API that the file tests use, through ctypes on the shared library."""
import ctypes as c
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
from swiglu._c import abi
from swiglu._c.abi import (  # noqa: F401 - tests take these from here
    BF16, E_ARGUMENT, E_FORMAT, E_OPEN, E_READ, E_UNSUPPORTED, F16, F32, OK, Rows, Work, new)
from swiglu._c.library import lib as library

from hostile import rewriting

SEPARATE, GATE_UP, UP_GATE, INTERLEAVED, UNGATED = range(5)
NO_OFFSET = 2**64 - 1


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
        options = new(abi.ModelOptions, strict=int(strict), activation=activation.encode() if activation else None,
                      scan=int(scan), experts=int(experts))
        error = new(abi.Error)
        status = library.swiglu_model_open(os.fsencode(path), c.byref(options), c.byref(self.pointer), c.byref(error))
        assert (status == OK) == bool(self.pointer)
        assert status == OK or (error.status == status and error.text)
        _check(status, error)
        self.info = new(abi.ModelInfo)
        assert library.swiglu_model_query(self.pointer, c.byref(self.info)) == OK

    def close(self):
        library.swiglu_model_close(self.pointer)
        self.pointer = None

    def warnings(self):
        found = [library.swiglu_model_warning(self.pointer, i).decode() for i in range(self.info.n_warnings)]
        assert library.swiglu_model_warning(self.pointer, self.info.n_warnings) is None
        return found

    def tensor(self, i):
        info = new(abi.TensorInfo)
        assert library.swiglu_model_tensor(self.pointer, i, c.byref(info)) == OK
        return info

    def tensors(self):
        return [self.tensor(i) for i in range(self.info.n_tensors)]

    def read(self, i, byte, n):
        data, error = c.create_string_buffer(n), new(abi.Error)
        _check(library.swiglu_model_read(self.pointer, i, byte, data, n, c.byref(error)), error)
        return data.raw

    def block(self, i):
        info = new(abi.ModelBlockInfo)
        assert library.swiglu_model_block(self.pointer, i, c.byref(info)) == OK
        return info

    def blocks(self):
        return [self.block(i) for i in range(self.info.n_blocks)]

    def desc(self, i):
        desc, error = new(abi.Desc), new(abi.Error)
        _check(library.swiglu_model_desc(self.pointer, i, c.byref(desc), c.byref(error)), error)
        return desc

    def prepare(self, i):
        return Block(self.desc(i))


class Block:
    def __init__(self, desc):
        self.pointer, error = c.c_void_p(), new(abi.Error)
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
    """What forward computes, in double precision, the bound of its error, and the block in plain double precision from the
    weights in the file (bf16 compute rounds h, the plain one does not)."""
    x, error = np.ascontiguousarray(x, np.float32), new(abi.Error)
    y, bound, plain = (np.empty((x.shape[0], desc.d_out)) for _ in range(3))
    out = new(abi.Reference, y=y.ctypes.data, bound=bound.ctypes.data, plain=plain.ctypes.data)
    _check(library.swiglu_reference_run(c.byref(desc), x.shape[0], Rows(x.ctypes.data, F32, 0), c.byref(out),
                                        c.byref(error)), error)
    return y, bound, plain


@contextmanager
def opened(path, **options):
    model = Model(path, **options)
    try:
        yield model
    finally:
        model.close()


def statuses_of_opening(path, times, places):
    """What opening the file gives while another process keeps rewriting it (hostile.rewriting)."""
    seen = set()
    with rewriting(path, places):
        for _ in range(times):
            try:
                Model(path).close()
                seen.add(OK)
            except Failure as failure:
                seen.add(failure.status)
    return seen
