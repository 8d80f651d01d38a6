# SPDX-License-Identifier: Apache-2.0
"""What swiglu.patch did, or would do."""

from __future__ import annotations

import dataclasses
from typing import Optional

from .classes import State


@dataclasses.dataclass
class Entry:
    """One module. Bytes: of its weights and biases, and of the packed copy that inference makes of them."""

    name: str
    cls: str
    reason: Optional[str] = None  # why it is left alone; None: replaced
    layout: str = ""
    activation: str = ""
    dtype: str = ""
    d_in: int = 0
    d_ff: int = 0
    d_out: int = 0
    weight_bytes: int = 0
    packed_bytes: int = 0
    freed: bool = False
    kept: Optional[str] = None  # why its weights were not freed although that was asked for
    state: Optional[State] = dataclasses.field(default=None, repr=False)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Reason -> number of calls in which the original forward ran."""
        return dict(self.state.fallbacks) if self.state is not None else {}


@dataclasses.dataclass(repr=False)
class Report:
    """print(report) shows it. The counts of fallbacks are live: they grow as the model is used."""

    entries: list[Entry]
    dry_run: bool = False
    nothing: str = ""  # why there are no entries

    @property
    def replaced(self) -> list[Entry]:
        """Modules that were replaced, or would be."""
        return [entry for entry in self.entries if entry.reason is None]

    @property
    def left(self) -> list[Entry]:
        """Modules that look like feed-forward blocks and were left alone, each with its reason."""
        return [entry for entry in self.entries if entry.reason is not None]

    @property
    def fallbacks(self) -> int:
        """Calls in which the original forward ran because something stood in the way."""
        return sum(sum(entry.fallbacks.values()) for entry in self.entries)

    @property
    def bytes_before(self) -> int:
        """Of the weights and biases of the replaced blocks."""
        return sum(entry.weight_bytes for entry in self.replaced)

    @property
    def bytes_after(self) -> int:
        """The same once every packed copy is there: with free, the packed copies alone."""
        return sum(entry.packed_bytes + (0 if entry.freed else entry.weight_bytes) for entry in self.replaced)

    def _saved(self) -> str:
        saved = self.bytes_before - self.bytes_after
        return f" ({_mib(saved)} saved)" if saved > 0 else ""

    def __repr__(self) -> str:
        return f"<swiglu report: {len(self.replaced)} replaced, {len(self.left)} left alone>"

    def __str__(self) -> str:
        n = len(self.replaced)
        verb = "would be replaced" if self.dry_run else "replaced"
        lines = [
            f"{n} of {len(self.entries)} feed-forward blocks {verb}; weights {_mib(self.bytes_before)},"
            f" after packing {_mib(self.bytes_after)}{self._saved()}; fallbacks {self.fallbacks}"
        ]
        kinds = []
        for entry in self.replaced:
            kind = f"{entry.cls}, {entry.layout}, {entry.activation}, {entry.dtype}"
            kinds.append((f"{kind}, {entry.d_in} -> {entry.d_ff} -> {entry.d_out}", entry.name))
        lines += [f"  {names}: {what}" for what, names in _alike(kinds)]
        left = _alike([(f"{entry.cls}): {entry.reason}", entry.name) for entry in self.left])
        lines += [f"  left alone: {names} ({what}" for what, names in left]
        kept = _alike([(entry.kept, entry.name) for entry in self.replaced if entry.kept])
        lines += [f"  not freed: {names}: {why}" for why, names in kept]
        if self.nothing:
            lines.append(f"  {self.nothing}")
        fell = [(f"{count} times: {why}", entry.name) for entry in self.replaced for why, count in entry.fallbacks.items()]
        lines += [f"  fell back: {names}, {what}" for what, names in _alike(fell)]
        if any(not entry.freed for entry in self.replaced):
            lines.append("  after writing to weights through .data or NumPy in eval mode, call swiglu.repack(model)")
        return "\n".join(lines)


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f} MiB"


def _alike(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(what, names) of each different thing that is said of names."""
    groups: dict[str, list[str]] = {}
    for what, name in named:
        groups.setdefault(what, []).append(name)
    return [(what, _span(names)) for what, names in groups.items()]


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)})"
