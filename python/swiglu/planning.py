# SPDX-License-Identifier: Apache-2.0
"""Comparing kinds of feed-forward blocks at the same number of parameters. PyTorch is not needed."""

from __future__ import annotations

from ._c.planning import FFNParams, calculate_ffn_params

__all__ = ["FFNParams", "calculate_ffn_params"]
