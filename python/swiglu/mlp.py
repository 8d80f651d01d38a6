# SPDX-License-Identifier: Apache-2.0
"""The feed-forward block of a small language model; its modules are described in swiglu.torch.mlp.

`python -m swiglu.mlp` prints the sizes of one and runs it.
"""

from __future__ import annotations

from .torch.mlp import FFN, SLLM_100M, Config, ConfigWithDropout, ModelConfig, SwiGLU, demo

__all__ = ["FFN", "SLLM_100M", "Config", "ConfigWithDropout", "ModelConfig", "SwiGLU"]

if __name__ == "__main__":
    demo()
