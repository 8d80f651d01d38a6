# SPDX-License-Identifier: Apache-2.0
"""Blocks and checkpoints over NumPy arrays."""

from __future__ import annotations

from .block import Block, ffn, reference
from .convert import decode, encode
from .model import LayerInfo, Model, ModelInfo, TensorInfo, load

__all__ = ["Block", "LayerInfo", "Model", "ModelInfo", "TensorInfo", "decode", "encode", "ffn", "load", "reference"]
