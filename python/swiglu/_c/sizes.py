# SPDX-License-Identifier: Apache-2.0
"""Widths and counts, which need no weights."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Optional

from . import abi
from .desc import choice, dtype_number, whole
from .library import check, lib


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of one block: values in weights and biases, operations of a forward per row, bytes of the weights."""

    parameters: int
    flops_per_token: int
    weight_bytes: int


def width(d_model: int, *, multiple_of: int = 256, rule: str = "up", multiplier: float = 0.0) -> int:
    """The hidden width of a gated block with as many parameters as an ungated one of 4 d_model: int(8 d_model / 3), times
    multiplier where that is above 0, rounded "up" or to the "nearest" multiple_of, or "none"; the defaults are those of
    the tool's plan. Raises ValueError, TypeError (not an integer)."""
    d_ff = ctypes.c_size_t()
    number = choice("rule", rule, abi.WIDTH_RULES)
    sizes = whole("d_model", d_model), whole("multiple_of", multiple_of)
    status = lib.swiglu_width(number, *sizes, multiplier, ctypes.byref(d_ff))
    check(status, f"width of d_model {d_model}, multiple_of {multiple_of}, multiplier {multiplier}")
    return d_ff.value


def count(
    d_in: int,
    d_ff: int,
    d_out: Optional[int] = None,
    *,
    layout: str = "separate",
    bias: bool = False,
    dtype: str = "f32",
) -> Counts:
    """Counts of a block with these widths (d_out: d_in where None), with biases on all of its matrices or none. Raises
    ValueError, TypeError (not an integer)."""
    desc = abi.Desc()
    lib.swiglu_desc_init(ctypes.byref(desc))
    desc.layout = choice("layout", layout, abi.LAYOUTS)
    desc.d_in, desc.d_ff = whole("d_in", d_in), whole("d_ff", d_ff)
    desc.d_out = desc.d_in if d_out is None else whole("d_out", d_out)
    used = {"separate": ("gate", "up", "down"), "ungated": ("up", "down")}.get(layout, ("gate", "down"))
    for name in used:
        matrix = getattr(desc, name)
        matrix.dtype = dtype_number(dtype)
        if bias:
            getattr(desc, f"{name}_bias").data = ctypes.addressof(desc)  # only its presence is read
    counts = abi.new(abi.Counts)
    check(lib.swiglu_count(ctypes.byref(desc), ctypes.byref(counts)), f"count of {d_in}, {d_ff}, {d_out}")
    return Counts(counts.parameters, counts.flops_per_token, counts.weight_bytes)
