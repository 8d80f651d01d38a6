# SPDX-License-Identifier: Apache-2.0
"""The part of the C API that the benchmarks need, through ctypes: any number of builds of the library in one process."""
import ctypes as c
import importlib.util
import mmap
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

# The structs and prototypes of the Python package, without the package: that would load a library of its own.
_spec = importlib.util.spec_from_file_location("abi", Path(__file__).parents[1] / "python/swiglu/_c/abi.py")
abi = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(abi)

DTYPES = {"f32": abi.F32, "f16": abi.F16, "bf16": abi.BF16}
NUMPY_DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}  # bf16: its bits
COMPUTE_NAMES = abi.COMPUTE_NAMES
HUGE_PAGE = 2 << 20


class Library:
    """One build, with a pool of threads."""

    def __init__(self, path, n_threads):
        self._lib = self._load(path)
        pool = c.c_void_p()
        self.call("swiglu_pool_create", n_threads, c.byref(pool))
        self.runner, self.n_threads = self._lib.swiglu_pool_runner(pool), n_threads
        build = abi.new(abi.Build)
        self.call("swiglu_version", c.byref(build))
        self.version, self.compiler = build.version.decode(), build.compiler.decode()
        self.dtypes = self._dtypes()

    @staticmethod
    def _load(path):
        """Loads a copy: the loader takes the same file, or another under the same name, for one library."""
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, os.path.join(folder, "libswiglu.so"))
            lib = c.CDLL(copy, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        abi.declare(lib, older=True)
        return lib

    def _dtypes(self):
        """Weight formats by name. A build older than the list has the float types."""
        if not hasattr(self._lib, "swiglu_dtype_at"):
            return DTYPES
        numbers, info = {}, abi.new(abi.DtypeInfo)
        while not self._lib.swiglu_dtype_query(self._lib.swiglu_dtype_at(len(numbers)), c.byref(info)):
            numbers[info.name.decode()] = self._lib.swiglu_dtype_at(len(numbers))
        return numbers

    def block(self, dtype):
        """(values, bytes) of a block of a format."""
        info = abi.new(abi.DtypeInfo)
        self.call("swiglu_dtype_query", self.dtypes[dtype], c.byref(info))
        return info.block_elems, info.block_bytes

    def levels(self):
        """Instruction-set levels by name."""
        return {level.name.decode(): level for level in abi.levels(self._lib)}

    def call(self, name, *args, error=None):
        status = getattr(self._lib, name)(*args)
        if status:
            text = error.text.decode() if error else self._lib.swiglu_status_name(status).decode()
            raise RuntimeError(f"{name}: {text}")

    def encode(self, values, dtype):
        """f32 values in a weight type; bf16 as its bits, block formats as rows of bytes."""
        values = np.ascontiguousarray(values, np.float32)
        elems, size = self.block(dtype)
        out = np.empty((*values.shape[:-1], values.shape[-1] // elems * size), np.uint8)
        self.call("swiglu_encode", self.dtypes[dtype], values.ctypes.data, values.size, out.ctypes.data)
        return out.view(NUMPY_DTYPES.get(dtype, np.uint8))

    def decode(self, stored, dtype):
        out = np.empty(stored.shape, np.float32)
        self.call("swiglu_decode", self.dtypes[dtype], stored.ctypes.data, stored.size, out.ctypes.data)
        return out

    def measure(self, memory, seconds, isa_mask=0):
        limits = abi.new(abi.Limits)
        self.call("swiglu_measure", isa_mask, seconds, memory.ctypes.data, memory.nbytes, c.byref(self.runner),
                  c.byref(limits))
        return limits


class Block:
    """Prepared weights: gate, up [f, d] and down [d, f] as Library.encode gives them."""

    def __init__(self, library, gate, up, down, dtype, activation, isa_mask=0):
        elems, size = library.block(dtype)
        desc, error, self._pointer = abi.Desc(), abi.new(abi.Error), c.c_void_p()
        self.library = library
        library._lib.swiglu_desc_init(c.byref(desc))
        library.call("swiglu_act_init", c.byref(desc.act), activation.encode())
        desc.d_ff, desc.d_in = len(gate), len(down)
        desc.d_out = desc.d_in
        desc.gate, desc.up, desc.down = (
            abi.Matrix(data=w.ctypes.data, dtype=library.dtypes[dtype], rows=len(w), cols=w[0].nbytes // size * elems)
            for w in (gate, up, down))
        library.call("swiglu_block_create", c.byref(desc), c.byref(abi.new(abi.Options, isa_mask=isa_mask)),
                     c.byref(self._pointer), c.byref(error), error=error)
        self.info = abi.new(abi.BlockInfo)
        library.call("swiglu_block_query", self._pointer, c.byref(self.info))

    def close(self):
        self.library._lib.swiglu_block_destroy(self._pointer)
        self._pointer = None

    def work(self, m):
        need = c.c_size_t()
        self.library.call("swiglu_forward_bytes", self._pointer, m, self.library.n_threads, c.byref(need))
        return np.empty(need.value, np.uint8)

    def forward(self, x, y, work, dtype):
        """A function without arguments that computes y from x, both of the dtype."""
        function, runner = self.library._lib.swiglu_forward, c.byref(self.library.runner)
        x_rows, y_rows = (abi.Rows(a.ctypes.data, DTYPES[dtype], 0) for a in (x, y))
        args = (self._pointer, x.shape[0], x_rows, y_rows, abi.Work(work.ctypes.data, work.nbytes), runner)

        def run():
            if function(*args):
                raise RuntimeError("swiglu_forward failed")

        return run


def big_memory(most_bytes):
    """Bytes that are really there, a quarter of free memory between 256 MiB and most_bytes, on huge pages if possible."""
    quarter = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    n_bytes = max(min(quarter, most_bytes), 256 << 20) // HUGE_PAGE * HUGE_PAGE
    pages = mmap.mmap(-1, n_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared ones stay small
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    first = -memory.ctypes.data % HUGE_PAGE
    memory = memory[first:first + n_bytes]
    memory[:] = 1
    return memory
