#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of families in docs/files.md from the lists in the code: src/io/family.def (GGUF) and src/io/hf_family.def
(safetensors). With --check it only compares, and fails where docs/files.md is not in step."""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- families: written by tools/families.py -->\n", "<!-- end of families -->\n"
SAME = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}  # names of one function
FORMS = {"GATED": "gated", "PACKED": "gated, packed", "PLAIN": "plain"}


def rows(name: str, form_at: int, reason_at: int) -> dict[tuple[str, str], list[str]]:
    """(activation, form) -> the families that a list evaluates."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in (ROOT / "src/io" / name).read_text().splitlines():
        match = re.match(r"FAMILY\((.*)\)", re.sub(r"/\*.*?\*/", "", line).strip())
        if not match:
            continue
        fields = [field.strip().strip('"') for field in match.group(1).split(",")]
        if fields[reason_at] != "NULL" or fields[0] in ("NULL", "") or fields[form_at] not in FORMS:
            continue
        key = (SAME.get(fields[1], fields[1]), FORMS[fields[form_at]])
        if fields[0] not in found.setdefault(key, []):
            found[key].append(fields[0])
    return found


def table() -> str:
    gguf, hf = rows("family.def", 2, 5), rows("hf_family.def", 3, 7)
    lines = ["| activation | block | GGUF architectures | safetensors model types |", "|---|---|---|---|"]
    for key in dict.fromkeys([*gguf, *hf]):
        activation = "the config's" if key[0] == "NULL" else key[0]
        lines.append(f"| {activation} | {key[1]} | {', '.join(gguf.get(key, [])) or '-'} | {', '.join(hf.get(key, [])) or '-'} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    page = ROOT / "docs/files.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    new = before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]
    if "--check" in sys.argv:
        if new != text:
            print("docs/files.md: the table of families is not in step; run tools/families.py")
        return int(new != text)
    page.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
