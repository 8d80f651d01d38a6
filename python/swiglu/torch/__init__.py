# SPDX-License-Identifier: Apache-2.0
"""The block for PyTorch on CPUs: a function and a module with gradients, over operators that eager mode, torch.compile,
torch.export, autocast and activation checkpoints all understand.

    y = swiglu.torch.ffn(x, gate, up, down)
    block = swiglu.torch.FFN(576, 1536)

The threads are PyTorch's own: torch.set_num_threads() is obeyed.
"""

from __future__ import annotations

from .block import FFN
from .results import release_memory
from .function import PackedWeights, ffn, repack
from .team import uses_openmp

__all__ = ["FFN", "PackedWeights", "ffn", "release_memory", "repack", "uses_openmp"]
