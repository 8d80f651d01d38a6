# SPDX-License-Identifier: Apache-2.0
"""The gated feed-forward block of language models, exact to a written contract.

    block = swiglu.Block(gate, up, down)      # NumPy arrays [d_ff, d_in], [d_ff, d_in], [d_out, d_ff]; packs once
    y = block(x)                              # [..., d_in] -> [..., d_out]

    model = swiglu.load("model.gguf")         # every feed-forward block of a checkpoint
    y = model[0](x)

    swiglu.torch.ffn(x, gate, up, down)       # PyTorch, with gradients; imported when first used

Everything computes in libswiglu, found inside this package or at SWIGLU_LIBRARY.
"""

from __future__ import annotations

import ctypes as _ctypes
import importlib as _importlib
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING, Any

from ._c import abi as _abi
from ._c.activation import Activation, act, act_derivative, activation_names
from ._c.handle import BlockInfo
from ._c.library import check as _check
from ._c.library import lib as _lib
from ._c.sizes import Counts, count, width
from .arrays import Block, LayerInfo, Model, ModelInfo, TensorInfo, decode, encode, ffn, load, reference
from .planning import FFNParams, calculate_ffn_params

if TYPE_CHECKING:
    from . import mlp, nn, torch
    from .dropin import FreedWeightError, compare, patch, patched, restore
    from .torch import repack


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
    "FFNParams",
    "LayerInfo",
    "Model",
    "ModelInfo",
    "TensorInfo",
    "act",
    "act_derivative",
    "activation_names",
    "calculate_ffn_params",
    "count",
    "decode",
    "encode",
    "ffn",
    "load",
    "reference",
    "width",
]

# What needs PyTorch is imported when it is first asked for: name -> (module, attribute or None for the module itself).
_LAZY = {
    "torch": (".torch", None),
    "nn": (".nn", None),
    "mlp": (".mlp", None),
    "repack": (".torch", "repack"),
    "patch": (".dropin", "patch"),
    "patched": (".dropin", "patched"),
    "restore": (".dropin", "restore"),
    "compare": (".dropin", "compare"),
    "FreedWeightError": (".dropin", "FreedWeightError"),
}
_HAS_TORCH = _find_spec("torch") is not None  # found, not imported
if _HAS_TORCH:
    __all__ += ["FreedWeightError", "compare", "mlp", "nn", "patch", "patched", "repack", "restore", "torch"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'swiglu' has no attribute {name!r}")
    if not _HAS_TORCH:
        raise AttributeError(f"swiglu.{name} needs PyTorch: pip install torch (or 'swiglu[torch]')")
    module, attribute = _LAZY[name]
    loaded = _importlib.import_module(module, __name__)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_LAZY})
