# SPDX-License-Identifier: Apache-2.0
"""The part of the C API that the benchmarks need, through ctypes: any number of builds of the library in one process."""
import ctypes as c
import mmap
import os
import shutil
import tempfile

import numpy as np

DTYPES = {"f32": 0, "f16": 1, "bf16": 30}
NUMPY_DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}  # bf16: its bits
COMPUTE_BF16 = 2
LEVELS = {1: "generic", 2: "avx2", 4: "avx512", 8: "avx512bf16", 16: "neon"}
HUGE_PAGE = 2 << 20


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


class Options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("compute", c.c_int), ("isa_mask", c.c_uint64), ("progress", c.c_void_p),
                ("progress_ctx", c.c_void_p)]


class BlockInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("d_in", c.c_size_t), ("d_ff", c.c_size_t), ("d_out", c.c_size_t),
                ("gated", c.c_int), ("compute_up", c.c_int), ("compute_down", c.c_int), ("isa", c.c_uint64),
                ("kernel_up", c.c_char_p), ("kernel_down", c.c_char_p), ("why", c.c_char_p),
                ("packed_bytes", c.c_uint64), ("file_bytes", c.c_uint64), ("expanded", c.c_int)]


class Rows(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("ld_elems", c.c_size_t)]


class Work(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t)]


class Runner(c.Structure):
    _fields_ = [("run", c.c_void_p), ("ctx", c.c_void_p), ("n_threads", c.c_uint)]


class Limits(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("f32_flops", c.c_double), ("bf16_flops", c.c_double),
                ("read_bytes", c.c_double)]


class Build(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("version", c.c_char_p), ("compiler", c.c_char_p), ("abi", c.c_int)]


_ARGUMENTS = {
    "swiglu_act_init": [c.c_void_p, c.c_char_p],
    "swiglu_encode": [c.c_int, c.c_void_p, c.c_size_t, c.c_void_p],
    "swiglu_decode": [c.c_int, c.c_void_p, c.c_size_t, c.c_void_p],
    "swiglu_block_create": [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p],
    "swiglu_block_query": [c.c_void_p, c.c_void_p],
    "swiglu_forward_bytes": [c.c_void_p, c.c_size_t, c.c_uint, c.c_void_p],
    "swiglu_forward": [c.c_void_p, c.c_size_t, Rows, Rows, Work, c.c_void_p],
    "swiglu_pool_create": [c.c_uint, c.c_void_p],
    "swiglu_measure": [c.c_uint64, c.c_double, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p],
    "swiglu_version": [c.c_void_p],
}


class Library:
    """One build, with a pool of threads."""

    def __init__(self, path, n_threads):
        self._lib = self._load(path)
        pool = c.c_void_p()
        self.call("swiglu_pool_create", n_threads, c.byref(pool))
        self.runner, self.n_threads = self._lib.swiglu_pool_runner(pool), n_threads
        build = Build()
        self.call("swiglu_version", c.byref(build))
        self.version, self.compiler = build.version.decode(), build.compiler.decode()

    @staticmethod
    def _load(path):
        """Loads a copy: the loader takes the same file, or another under the same name, for one library."""
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, os.path.join(folder, "libswiglu.so"))
            lib = c.CDLL(copy, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        for name, arguments in _ARGUMENTS.items():
            getattr(lib, name).argtypes = arguments
            getattr(lib, name).restype = c.c_int
        lib.swiglu_status_name.restype = c.c_char_p
        lib.swiglu_pool_runner.argtypes, lib.swiglu_pool_runner.restype = [c.c_void_p], Runner
        lib.swiglu_desc_init.argtypes = lib.swiglu_block_destroy.argtypes = [c.c_void_p]
        lib.swiglu_desc_init.restype = lib.swiglu_block_destroy.restype = None
        return lib

    def call(self, name, *args, error=None):
        status = getattr(self._lib, name)(*args)
        if status:
            text = error.text.decode() if error else self._lib.swiglu_status_name(status).decode()
            raise RuntimeError(f"{name}: {text}")

    def encode(self, values, dtype):
        """f32 values in a weight type; bf16 as its bits."""
        values = np.ascontiguousarray(values, np.float32)
        out = np.empty(values.shape, NUMPY_DTYPES[dtype])
        self.call("swiglu_encode", DTYPES[dtype], values.ctypes.data, values.size, out.ctypes.data)
        return out

    def decode(self, stored, dtype):
        out = np.empty(stored.shape, np.float32)
        self.call("swiglu_decode", DTYPES[dtype], stored.ctypes.data, stored.size, out.ctypes.data)
        return out

    def measure(self, memory, seconds, isa_mask=0):
        limits = Limits()
        self.call("swiglu_measure", isa_mask, seconds, memory.ctypes.data, memory.nbytes, c.byref(self.runner),
                  c.byref(limits))
        return limits


class Block:
    """Prepared weights: gate, up [f, d] and down [d, f] as Library.encode gives them."""

    def __init__(self, library, gate, up, down, dtype, activation, isa_mask=0):
        desc, error, self._pointer = Desc(), Error(), c.c_void_p()
        self.library = library
        library._lib.swiglu_desc_init(c.byref(desc))
        library.call("swiglu_act_init", c.byref(desc.act), activation.encode())
        desc.d_ff, desc.d_in = gate.shape
        desc.d_out = desc.d_in
        desc.gate, desc.up, desc.down = (Matrix(data=w.ctypes.data, dtype=DTYPES[dtype], rows=w.shape[0],
                                                cols=w.shape[1]) for w in (gate, up, down))
        library.call("swiglu_block_create", c.byref(desc), c.byref(Options(isa_mask=isa_mask)),
                     c.byref(self._pointer), c.byref(error), error=error)
        self.info = BlockInfo()
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
        args = (self._pointer, x.shape[0], Rows(x.ctypes.data, DTYPES[dtype], 0), Rows(y.ctypes.data, DTYPES[dtype], 0),
                Work(work.ctypes.data, work.nbytes), runner)

        def run():
            if function(*args):
                raise RuntimeError("swiglu_forward failed")

        return run


def big_memory(most_bytes):
    """Bytes that are really there, a quarter of free memory between 256 MiB and most_bytes, on huge pages if possible."""
    quarter = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    n_bytes = max(min(quarter, most_bytes), 256 << 20) // HUGE_PAGE * HUGE_PAGE
    pages = mmap.mmap(-1, n_bytes + HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    first = -memory.ctypes.data % HUGE_PAGE
    memory = memory[first:first + n_bytes]
    memory[:] = 1
    return memory
