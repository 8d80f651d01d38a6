# SPDX-License-Identifier: Apache-2.0
"""The C ABI of include/swiglu/swiglu.h and model.h: structs, enums and function prototypes, nothing else. It stands
alone, so that tests and benchmarks load it without the package.

test/python/test_abi.py compares every size and offset with what a C compiler says.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_long, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

ABI = 1  # SWIGLU_ABI of include/swiglu/version.h

# enum swiglu_status
OK = 0
E_ARGUMENT, E_CANCELLED, E_SHAPE, E_ALIAS, E_FORMAT, E_UNSUPPORTED = 10, 11, 20, 21, 30, 31
E_OPEN, E_READ, E_WRITE, E_MEMORY, E_WORKSPACE, E_HARDWARE = 40, 41, 42, 50, 51, 60

# enum swiglu_dtype, what rows may be; library.DTYPES has every format
F32, F16, BF16 = 0, 1, 30

# enum swiglu_act_kind, under the names that swiglu_act_init gives a kind without parameters
KINDS = {
    "identity": 0, "relu": 1, "relu2": 2, "sigmoid": 3, "silu": 4, "gelu": 5, "gelu_tanh": 6, "xielu": 7, "situ": 8,
}  # fmt: skip

LAYOUTS = {"separate": 0, "gate_up": 1, "up_gate": 2, "interleaved": 3, "ungated": 4}
COMPUTES = {"auto": 0, "f32": 1, "bf16": 2, "int8": 3}
COMPUTE_NAMES = {number: name for name, number in COMPUTES.items()}
PARTS = {"gate": 0, "up": 1, "down": 2}
WIDTH_RULES = {"none": 0, "up": 1, "nearest": 2}

# enum swiglu_train_flags
TRAIN_KEEP_X, TRAIN_KEEP_GATE_UP, TRAIN_ACCUMULATE, TRAIN_BF16_GRADIENTS = 0, 1, 2, 4


class Error(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int),
        ("os_errno", c_int),
        ("offset", c_uint64),
        ("text", ctypes.c_char * 448),
    ]


class Scales(ctypes.Structure):
    _fields_ = [("n_f16", c_uint), ("n_e8m0", c_uint), ("at", c_uint * 2)]


class DtypeInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("block_elems", c_size_t),
        ("block_bytes", c_size_t),
        ("scales", Scales),
    ]


class Act(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("alpha", c_float),
        ("up_offset", c_float),
        ("gate_lo", c_float),
        ("gate_hi", c_float),
        ("up_lo", c_float),
        ("up_hi", c_float),
        ("clamp_after", c_int),
        ("param", c_float * 6),
    ]


class Matrix(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("read", c_void_p),
        ("ctx", c_void_p),
        ("dtype", c_int),
        ("in_out", c_int),
        ("rows", c_size_t),
        ("cols", c_size_t),
        ("ld_elems", c_size_t),
        ("start", c_uint64),
        ("any_thread", c_int),
    ]


class Vector(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int)]


class Desc(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("d_in", c_size_t),
        ("d_ff", c_size_t),
        ("d_out", c_size_t),
        ("layout", c_int),
        ("act", Act),
        ("gate", Matrix),
        ("up", Matrix),
        ("down", Matrix),
        ("gate_bias", Vector),
        ("up_bias", Vector),
        ("down_bias", Vector),
        ("gate_head", Matrix),
        ("up_head", Matrix),
        ("down_head", Matrix),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("compute", c_int),
        ("isa_mask", c_uint64),
        ("progress", c_void_p),
        ("progress_ctx", c_void_p),
        ("runner", c_void_p),
        ("parts", c_int),
    ]


class BlockInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("d_in", c_size_t),
        ("d_ff", c_size_t),
        ("d_out", c_size_t),
        ("gated", c_int),
        ("compute_first", c_int),
        ("compute_down", c_int),
        ("isa", c_uint64),
        ("kernel_first", c_char_p),
        ("kernel_down", c_char_p),
        ("why", c_char_p),
        ("packed_bytes", c_uint64),
        ("file_bytes", c_uint64),
        ("expanded", c_int),
    ]


class Runner(ctypes.Structure):
    _fields_ = [("run", c_void_p), ("ctx", c_void_p), ("n_threads", c_uint)]


class Rows(ctypes.Structure):
    """struct swiglu_rows, and struct swiglu_crows, which differs in const only."""

    _fields_ = [("data", c_void_p), ("dtype", c_int), ("ld_elems", c_size_t)]


class Work(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class Reference(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("compute", c_int),
        ("y_dtype", c_int),
        ("y", c_void_p),
        ("bound", c_void_p),
        ("typical", c_void_p),
        ("plain", c_void_p),
        ("hidden", c_void_p),
        ("hidden_bound", c_void_p),
        ("h", c_void_p),
    ]


class CpuInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("can", c_uint64),
        ("compiled", c_uint64),
        ("n_cpus", c_uint),
        ("n_cores", c_uint),
    ]


class LevelInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("bit", c_uint64),
        ("limit", c_uint64),
        ("can", c_int),
        ("compiled", c_int),
        ("why", c_char_p),
    ]


class Counts(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("parameters", c_uint64),
        ("flops_per_token", c_uint64),
        ("weight_bytes", c_uint64),
    ]


class Limits(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("f32_flops", c_double),
        ("bf16_flops", c_double),
        ("read_bytes", c_double),
        ("int8_ops", c_double),
    ]


class Build(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", c_char_p), ("compiler", c_char_p), ("abi", c_int), ("contract", c_int)]


class Grads(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dx", Rows),
        ("gate", Rows),
        ("up", Rows),
        ("down", Rows),
        ("gate_bias", c_void_p),
        ("up_bias", c_void_p),
        ("down_bias", c_void_p),
    ]


class ModelOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("strict", c_int), ("activation", c_char_p), ("scan", c_int),
                ("experts", c_int)]


class ModelInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("format", c_char_p),
        ("format_version", c_uint),
        ("architecture", c_char_p),
        ("name", c_char_p),
        ("file_bytes", c_uint64),
        ("n_tensors", c_size_t),
        ("n_blocks", c_size_t),
        ("n_warnings", c_size_t),
        ("n_files", c_size_t),
        ("n_metadata", c_size_t),
    ]


class MetadataInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("key", c_char_p),
        ("type", c_char_p),
        ("is_array", c_int),
        ("kept", c_int),
        ("count", c_uint64),
    ]


class TensorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_int),
        ("dtype_name", c_char_p),
        ("n_dims", c_uint),
        ("dims", c_uint64 * 4),
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("file", c_char_p),
    ]


class ModelBlockInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", c_size_t),
        ("usable", c_int),
        ("reason", c_char_p),
        ("kind", c_char_p),
        ("activation", c_char_p),
        ("activation_source", c_char_p),
        ("layout_name", c_char_p),
        ("d_in", c_size_t),
        ("d_ff", c_size_t),
        ("d_out", c_size_t),
        ("act", Act),
        ("layout", c_int),
        ("gate", c_long),
        ("up", c_long),
        ("down", c_long),
        ("gate_bias", c_long),
        ("up_bias", c_long),
        ("down_bias", c_long),
        ("norm", c_long),
        ("weight_bytes", c_uint64),
        ("in_out", c_int),
        ("expert", c_int),
        ("storage", c_char_p),
    ]


# C name -> the struct, for the test that compares layouts.
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "swiglu_error": Error,
    "swiglu_scales": Scales,
    "swiglu_dtype_info": DtypeInfo,
    "swiglu_act": Act,
    "swiglu_matrix": Matrix,
    "swiglu_vector": Vector,
    "swiglu_desc": Desc,
    "swiglu_options": Options,
    "swiglu_block_info": BlockInfo,
    "swiglu_runner": Runner,
    "swiglu_rows": Rows,
    "swiglu_crows": Rows,
    "swiglu_work": Work,
    "swiglu_reference": Reference,
    "swiglu_cpu_info": CpuInfo,
    "swiglu_level_info": LevelInfo,
    "swiglu_counts": Counts,
    "swiglu_limits": Limits,
    "swiglu_build": Build,
    "swiglu_grads": Grads,
    "swiglu_model_options": ModelOptions,
    "swiglu_model_info": ModelInfo,
    "swiglu_metadata_info": MetadataInfo,
    "swiglu_tensor_info": TensorInfo,
    "swiglu_model_block_info": ModelBlockInfo,
}

_size_p = POINTER(c_size_t)
_float_p = c_void_p  # addresses of arrays travel as integers

# Function -> (result, arguments). A block, pool or model is an opaque address; out parameters go by reference.
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "swiglu_status_name": (c_char_p, [c_int]),
    "swiglu_dtype_at": (c_int, [c_size_t]),
    "swiglu_dtype_query": (c_int, [c_int, POINTER(DtypeInfo)]),
    "swiglu_decode": (c_int, [c_int, c_void_p, c_size_t, _float_p]),
    "swiglu_encode": (c_int, [c_int, _float_p, c_size_t, c_void_p]),
    "swiglu_act_init": (c_int, [POINTER(Act), c_char_p]),
    "swiglu_act_name": (c_char_p, [c_size_t, POINTER(c_char_p)]),
    "swiglu_act_eval": (c_int, [POINTER(Act), c_size_t, _float_p, _float_p]),
    "swiglu_desc_init": (None, [POINTER(Desc)]),
    "swiglu_block_create": (c_int, [POINTER(Desc), POINTER(Options), POINTER(c_void_p), POINTER(Error)]),
    "swiglu_block_destroy": (None, [c_void_p]),
    "swiglu_block_query": (c_int, [c_void_p, POINTER(BlockInfo)]),
    "swiglu_block_unpack": (c_int, [c_void_p, c_int, c_int, c_void_p, c_size_t]),
    "swiglu_pool_create": (c_int, [c_uint, POINTER(c_void_p)]),
    "swiglu_pool_destroy": (None, [c_void_p]),
    "swiglu_pool_runner": (Runner, [c_void_p]),
    "swiglu_runner_gomp": (Runner, [c_void_p, c_uint]),
    "swiglu_forward_bytes": (c_int, [c_void_p, c_size_t, c_uint, _size_p]),
    "swiglu_forward": (c_int, [c_void_p, c_size_t, Rows, Rows, Work, c_void_p]),
    "swiglu_hidden": (c_int, [c_void_p, c_size_t, Rows, Rows, Work, c_void_p]),
    "swiglu_down": (c_int, [c_void_p, c_size_t, Rows, Rows, Work, c_void_p]),
    "swiglu_train_bytes": (c_int, [POINTER(Desc), POINTER(Options), c_size_t, c_uint, c_uint, _size_p, _size_p]),
    "swiglu_train_forward": (
        c_int,
        [POINTER(Desc), POINTER(Options), c_size_t, c_uint, Rows, Rows, c_void_p, Work, c_void_p],
    ),
    "swiglu_train_backward": (
        c_int,
        [POINTER(Desc), POINTER(Options), c_size_t, c_uint, Rows, Rows, c_void_p, POINTER(Grads), Work, c_void_p],
    ),
    "swiglu_act_derivative": (c_int, [POINTER(Act), c_size_t, _float_p, _float_p]),
    "swiglu_reference_run": (c_int, [POINTER(Desc), c_size_t, Rows, POINTER(Reference), POINTER(Error)]),
    "swiglu_cpu_query": (c_int, [POINTER(CpuInfo)]),
    "swiglu_level_query": (c_int, [c_size_t, POINTER(LevelInfo)]),
    "swiglu_width": (c_int, [c_int, c_size_t, c_size_t, c_double, _size_p]),
    "swiglu_count": (c_int, [POINTER(Desc), POINTER(Counts)]),
    "swiglu_measure": (c_int, [c_uint64, c_double, c_void_p, c_size_t, c_void_p, POINTER(Limits)]),
    "swiglu_version": (c_int, [POINTER(Build)]),
    "swiglu_model_open": (c_int, [c_char_p, POINTER(ModelOptions), POINTER(c_void_p), POINTER(Error)]),
    "swiglu_model_close": (None, [c_void_p]),
    "swiglu_model_query": (c_int, [c_void_p, POINTER(ModelInfo)]),
    "swiglu_model_metadata": (c_int, [c_void_p, c_size_t, POINTER(MetadataInfo), c_void_p, c_size_t]),
    "swiglu_model_warning": (c_char_p, [c_void_p, c_size_t]),
    "swiglu_model_tensor": (c_int, [c_void_p, c_size_t, POINTER(TensorInfo)]),
    "swiglu_model_read": (c_int, [c_void_p, c_size_t, c_uint64, c_void_p, c_size_t, POINTER(Error)]),
    "swiglu_model_block": (c_int, [c_void_p, c_size_t, POINTER(ModelBlockInfo)]),
    "swiglu_model_desc": (c_int, [c_void_p, c_size_t, POINTER(Desc), POINTER(Error)]),
}


def levels(library: ctypes.CDLL) -> list[LevelInfo]:
    """The instruction-set levels of a library whose functions were declared, in its order."""
    found: list[LevelInfo] = []
    while library.swiglu_level_query(len(found), ctypes.byref(level := new(LevelInfo))) == OK:
        found.append(level)
    return found


def declare(library: ctypes.CDLL, older: bool = False) -> None:
    """Gives every function its prototype; AttributeError where the library lacks one, unless it may be older."""
    for name, (result, arguments) in PROTOTYPES.items():
        if older and not hasattr(library, name):
            continue
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def new(struct: type[Any], **fields: Any) -> Any:
    """A struct with its struct_size set; what is not named is zero."""
    return struct(struct_size=ctypes.sizeof(struct), **fields)
