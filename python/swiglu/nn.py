# SPDX-License-Identifier: Apache-2.0
"""Feed-forward modules for PyTorch; they are described in swiglu.torch.nn.

`python -m swiglu.nn` compares the number of parameters of blocks and runs one.
"""

from __future__ import annotations

from ._c.planning import calculate_ffn_params
from .torch.nn import GeGLU, SwiGLU, SwiGLUMLP, SwiGLUParallel, demo

__all__ = ["GeGLU", "SwiGLU", "SwiGLUMLP", "SwiGLUParallel", "calculate_ffn_params"]

if __name__ == "__main__":
    demo()
