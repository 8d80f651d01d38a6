# SPDX-License-Identifier: Apache-2.0
"""ggml as a side of a comparison: the CPU back end in the libraries of an installed llama-cpp-python, called as llama.cpp
does: weights repacked where the back end can, one graph of four operations, a pool of threads that stays."""
import ctypes as c
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cell import Side

NAME, DTYPES = "ggml", None  # all: the numbers of GGML_TYPE_* are those of enum swiglu_dtype
SUCCESS = 0
SILENCE = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, ctx: None)  # a line for each repacked tensor


class InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool)]


# Function -> (result, arguments); all objects are addresses.
P, INT, N = c.c_void_p, c.c_int, c.c_int64
PROTOTYPES = {
    "ggml_backend_cpu_init": (P, []),
    "ggml_backend_cpu_set_threadpool": (None, [P, P]),
    "ggml_backend_cpu_set_n_threads": (None, [P, INT]),
    "ggml_backend_cpu_reg": (P, []),
    "ggml_backend_free": (None, [P]),
    "ggml_backend_reg_dev_get": (P, [P, c.c_size_t]),
    "ggml_backend_reg_get_proc_address": (P, [P, c.c_char_p]),
    "ggml_backend_get_default_buffer_type": (P, [P]),
    "ggml_backend_buft_name": (c.c_char_p, [P]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (P, [P, P]),
    "ggml_backend_buffer_free": (None, [P]),
    "ggml_backend_tensor_set": (None, [P, P, c.c_size_t, c.c_size_t]),
    "ggml_backend_tensor_get": (None, [P, P, c.c_size_t, c.c_size_t]),
    "ggml_backend_supports_op": (c.c_bool, [P, P]),
    "ggml_backend_graph_compute": (INT, [P, P]),
    "ggml_init": (P, [InitParams]),
    "ggml_free": (None, [P]),
    "ggml_tensor_overhead": (c.c_size_t, []),
    "ggml_graph_overhead": (c.c_size_t, []),
    "ggml_new_tensor_2d": (P, [P, INT, N, N]),
    "ggml_nbytes": (c.c_size_t, [P]),
    "ggml_mul_mat": (P, [P, P, P]),
    "ggml_swiglu_split": (P, [P, P, P]),
    "ggml_geglu_split": (P, [P, P, P]),
    "ggml_new_graph": (P, [P]),
    "ggml_build_forward_expand": (None, [P, P]),
    "ggml_log_set": (None, [P, P]),
    "ggml_threadpool_params_default": (None, None),
    "ggml_threadpool_new": (P, [P]),
    "ggml_threadpool_free": (None, [P]),
}


class ThreadpoolParams(c.Structure):
    _fields_ = [("cpumask", c.c_bool * 512), ("n_threads", INT), ("prio", INT), ("poll", c.c_uint32),
                ("strict_cpu", c.c_bool), ("paused", c.c_bool)]


def _folder():
    spec = find_spec("llama_cpp")
    return Path(spec.origin).parent / "lib" if spec else None


def missing():
    return "" if _folder() else "llama-cpp-python is not installed here"


def about():
    return f"ggml of llama-cpp-python {version('llama_cpp_python')}"


def _load():
    """One namespace of the functions in its three libraries."""
    libraries = [c.CDLL(str(_folder() / f"lib{name}.so"), mode=c.RTLD_GLOBAL) for name in ("ggml-base", "ggml-cpu", "ggml")]
    functions = {}
    for name, (result, arguments) in PROTOTYPES.items():
        function = next(getattr(library, name) for library in libraries if hasattr(library, name))
        function.restype, function.argtypes = (ThreadpoolParams, [INT]) if arguments is None else (result, arguments)
        functions[name.removeprefix("ggml_")] = function
    return type("Ggml", (), {name: staticmethod(function) for name, function in functions.items()})


class Machine:
    """Back end, threads, and the kinds of buffers that weights may be in, the best first."""

    def __init__(self, n_threads):
        self.ggml = ggml = _load()
        ggml.log_set(SILENCE, None)
        self.backend = ggml.backend_cpu_init()
        self.params = ggml.threadpool_params_default(n_threads)
        self.pool = ggml.threadpool_new(c.byref(self.params))
        ggml.backend_cpu_set_threadpool(self.backend, self.pool)
        ggml.backend_cpu_set_n_threads(self.backend, n_threads)
        registry = ggml.backend_cpu_reg()
        address = ggml.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        extra = c.CFUNCTYPE(c.POINTER(P), P)(address)(ggml.backend_reg_dev_get(registry, 0))
        self.plain = ggml.backend_get_default_buffer_type(self.backend)
        self.buffer_types, i = [], 0
        while extra and extra[i]:
            self.buffer_types.append(extra[i])
            i += 1
        self.buffer_types.append(self.plain)

    def close(self):
        self.ggml.backend_free(self.backend)
        self.ggml.threadpool_free(self.pool)


class Block:
    """One copy of the weights and the graph over it."""

    def __init__(self, machine, cell, data, number, buffer_type):
        self.machine, self.ggml, ggml = machine, machine.ggml, machine.ggml
        f, d = data.shape
        room = 16 * ggml.tensor_overhead() + ggml.graph_overhead()
        self.contexts = [ggml.init(InitParams(room, None, True)) for _ in range(2)]
        weights, values = self.contexts
        arrays = (data.gate, data.up, data.down)
        tensors = [ggml.new_tensor_2d(weights, number, cols, rows) for cols, rows in ((d, f), (d, f), (f, d))]
        self.buffers = [ggml.backend_alloc_ctx_tensors_from_buft(weights, buffer_type)]
        gate, up, down = tensors
        self.x = ggml.new_tensor_2d(values, 0, d, cell.rows)
        products = ggml.mul_mat(values, gate, self.x), ggml.mul_mat(values, up, self.x)
        glu = {"silu": ggml.swiglu_split, "gelu_tanh": ggml.geglu_split}[data.activation]
        self.y = ggml.mul_mat(values, down, glu(values, *products))
        self.graph = ggml.new_graph(values)
        ggml.build_forward_expand(self.graph, self.y)
        self.supported = all(ggml.backend_supports_op(machine.backend, node) for node in (*products, self.y))
        if not self.supported:
            return
        for tensor, array in zip(tensors, arrays, strict=True):
            if ggml.nbytes(tensor) != array.nbytes:
                raise RuntimeError(f"ggml: {ggml.nbytes(tensor)} bytes where {array.nbytes} are stored")
            ggml.backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)
        self.buffers.append(ggml.backend_alloc_ctx_tensors_from_buft(values, machine.plain))
        ggml.backend_tensor_set(self.x, data.x32.ctypes.data, 0, data.x32.nbytes)

    def run(self):
        if self.ggml.backend_graph_compute(self.machine.backend, self.graph) != SUCCESS:
            raise RuntimeError("ggml_backend_graph_compute failed")

    def close(self):
        for buffer in self.buffers:
            self.ggml.backend_buffer_free(buffer)
        for context in self.contexts:
            self.ggml.free(context)


class GgmlSide(Side):
    def __init__(self, cell, data):
        super().__init__(NAME)
        self.data, self.machine, self.blocks = data, Machine(cell.threads), []
        for buffer_type in self.machine.buffer_types:
            block = Block(self.machine, cell, data, data.number, buffer_type)
            if block.supported:
                break
            block.close()
        self.how = self.machine.ggml.backend_buft_name(buffer_type).decode()
        self.blocks = [block] + [Block(self.machine, cell, data, data.number, buffer_type)
                                 for _ in range(self.n_copies(cell, data.weight_bytes) - 1)]
        self.runs = [block.run for block in self.blocks]

    def output(self):
        self.next = 0
        self.run(1)
        y = np.empty(self.data.x32.shape, np.float32)
        self.machine.ggml.backend_tensor_get(self.blocks[0].y, y.ctypes.data, 0, y.nbytes)
        return y

    def close(self):
        for block in self.blocks:
            block.close()
        self.machine.close()


side = GgmlSide
