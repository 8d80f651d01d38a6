# SPDX-License-Identifier: Apache-2.0
"""Arguments that all descriptions of a block share: names, sizes, layouts, options."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Optional

from . import abi
from .library import DTYPES, lib


def choice(name: str, value: str, table: dict[str, int]) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if value not in table:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(table)}")
    return table[value]


def whole(name: str, value: Any) -> int:
    """An integer that a size_t holds."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"{name} is {number}, not within 0 to 2^63 - 1")
    return number


def agreed(sizes: Sequence[Any]) -> Any:
    """The size that most of them have, else the first: an error then speaks of the one that differs."""
    return next((size for size in sizes if sum(1 for other in sizes if size == other) > 1), sizes[0])


def default_layout(gate: Any, up: Any) -> str:
    if gate is not None and up is not None:
        return "separate"
    if gate is None and up is not None:
        return "ungated"
    raise ValueError("up is None: for a packed gate name its layout ('gate_up', 'up_gate' or 'interleaved')")


def check_parts(layout: str, gate: Any, up: Any, gate_bias: Any, up_bias: Any) -> None:
    """Each layout uses its own parts: none may be missing, none ignored."""
    choice("layout", layout, abi.LAYOUTS)
    uses_gate, uses_up = layout != "ungated", layout in ("separate", "ungated")
    for name, uses, weight, bias in (("gate", uses_gate, gate, gate_bias), ("up", uses_up, up, up_bias)):
        if uses and weight is None:
            raise ValueError(f"{name} is None, but layout {layout!r} needs it")
        if not uses and weight is not None:
            raise ValueError(f"{name} is given, but layout {layout!r} does not use it")
        if not uses and bias is not None:
            raise ValueError(f"{name}_bias is given, but layout {layout!r} does not use {name}")


def make_options(compute: str, isa: Optional[str] = None) -> Any:
    options = abi.new(abi.Options)
    options.compute = choice("compute", compute, abi.COMPUTES)
    if isa is not None:
        options.isa_mask = choice("isa", isa, {level.name.decode(): level.limit for level in abi.levels(lib)})
    return options


def dtype_number(name: str) -> int:
    if not isinstance(name, str):
        raise TypeError(f"dtype must be a name such as 'bf16', not {type(name).__name__}")
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}; known are {', '.join(DTYPES)}")
    return DTYPES[name]
