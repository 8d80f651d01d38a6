# SPDX-License-Identifier: Apache-2.0
"""The drop-in: feed-forward blocks of a model that exists already, evaluated by libswiglu.

    report = swiglu.patch(model)          # print(report): what was replaced, what was not and why
    swiglu.restore(model)
    with swiglu.patched(model): ...
    print(swiglu.compare(model, inputs))  # error and time of each block, eager against patched
"""

from __future__ import annotations

from .freed import FreedWeightError
from .measure import Comparison, compare
from .patching import patch, patched, restore
from .report import Entry, Report

__all__ = ["Comparison", "Entry", "FreedWeightError", "Report", "compare", "patch", "patched", "restore"]
