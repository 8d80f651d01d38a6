# SPDX-License-Identifier: Apache-2.0
"""The gated feed-forward block of language models, exact to a written contract.

    block = swiglu.Block(gate, up, down)      # NumPy arrays [d_ff, d_in], [d_ff, d_in], [d_out, d_ff]; packs once
    y = block(x)                              # [..., d_in] -> [..., d_out]

    model = swiglu.load("model.gguf")         # every feed-forward block of a checkpoint
    y = model[0](x)

Everything computes in libswiglu, found inside this package or at SWIGLU_LIBRARY.
"""

from __future__ import annotations

import ctypes as _ctypes

from . import _abi
from ._activation import Activation, act, activation_names
from ._arrays import decode, encode
from ._block import Block, BlockInfo, Counts, count, ffn, reference, width
from ._library import check as _check
from ._library import lib as _lib
from ._model import LayerInfo, Model, ModelInfo, TensorInfo, load


def _version() -> str:
    build = _abi.new(_abi.Build)
    _check(_lib.swiglu_version(_ctypes.byref(build)), "version")
    return str(build.version.decode())


__version__ = _version()

__all__ = [
    "Activation",
    "Block",
    "BlockInfo",
    "Counts",
    "LayerInfo",
    "Model",
    "ModelInfo",
    "TensorInfo",
    "act",
    "activation_names",
    "count",
    "decode",
    "encode",
    "ffn",
    "load",
    "reference",
    "width",
]
