# SPDX-License-Identifier: Apache-2.0
"""What the library takes as it lies in memory, and what has to be copied first. Strides count elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional


def matrix_order(rows: int, cols: int, row_stride: int, col_stride: int) -> Optional[tuple[int, int]]:
    """(in_out, ld_elems) of a weight, or None where it must be copied. A transposed view is in_out = 1, not a copy.
    A dimension of one element has no meaningful stride."""
    if (col_stride == 1 or cols <= 1) and (rows <= 1 or row_stride >= max(cols, 1)):
        return 0, row_stride if rows > 1 else 0
    if (row_stride == 1 or rows <= 1) and (cols <= 1 or col_stride >= max(rows, 1)):
        return 1, col_stride if cols > 1 else 0
    return None


def rows_order(shape: Sequence[int], strides: Sequence[int]) -> Optional[int]:
    """ld_elems with which the leading dimensions are one run of rows (0 = contiguous), or None where they are not: inner
    stride not 1, a negative or zero stride, rows that overlap, dimensions that do not fold."""
    width = shape[-1]
    if width > 1 and strides[-1] != 1:
        return None
    step = 0  # from one row to the next; 0 until a dimension of more than one row is seen
    rows = 1
    for n, stride in zip(reversed(shape[:-1]), reversed(strides[:-1])):
        if n == 1:
            continue
        if step == 0:
            if stride < max(width, 1):
                return None
            step = stride
        elif stride != step * rows:
            return None
        rows *= n
    return step
