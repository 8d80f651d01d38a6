#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the share of the limit over the number of rows, as PNG or SVG, from what `swiglu bench --json` printed.

    swiglu bench --tokens 1-32 --json > cells.jsonl
    bench/curve.py cells.jsonl curve.svg

One curve for each weight type, level, number of threads and kind of work; bars are the 10 to 90 % range. Needs matplotlib."""

import argparse
import json
import sys
from pathlib import Path


def read(path):
    """The cells, by what tells curves apart; the last one counts where a number of rows stands twice."""
    curves = {}
    for line in sys.stdin if path == "-" else Path(path).read_text().splitlines():
        cell = json.loads(line)
        key = (f"{cell['shape'][0]}/{cell['shape'][1]}", cell["mode"], cell["dtype"], cell["isa"], cell["threads"])
        curves.setdefault(key, {})[cell["tokens"]] = cell
    return curves


def draw(curves, out):
    try:
        import matplotlib
    except ImportError:
        print("curve.py: matplotlib is not installed here: pip install matplotlib", file=sys.stderr)
        return 2
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    same = [len({key[i] for key in curves}) == 1 for i in range(5)]  # said once, in the title
    for key, cells in curves.items():
        cells = [cells[rows] for rows in sorted(cells)]
        rows, share = [c["tokens"] for c in cells], [c["share"] for c in cells]
        spread = [[s - c["share_p10"] for s, c in zip(share, cells, strict=True)],
                  [c["share_p90"] - s for s, c in zip(share, cells, strict=True)]]
        words = [str(word) for word, one in zip(key, same, strict=True) if not one]
        axes.errorbar(rows, share, yerr=spread, marker="o", markersize=3, capsize=2, label=" ".join(words) or key[2])
        noisy = [(c["tokens"], c["share"]) for c in cells if c["outcome"] != "measured"]
        if noisy:
            axes.plot(*zip(*noisy, strict=True), "x", color="black", label="_")
    title = [str(word) for word, one in zip(next(iter(curves)), same, strict=True) if one]
    axes.set(xlabel="rows", ylabel="share of the limit", title=", ".join(title), ylim=(0, 1.1))
    axes.axhline(1, linewidth=0.8, color="black")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, bbox_inches="tight")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", help="JSON lines; - for standard input")
    parser.add_argument("out", help="a file that ends with .png or .svg")
    args = parser.parse_args()
    if Path(args.out).suffix not in (".png", ".svg"):
        parser.error(f"{args.out}: a name that ends with .png or .svg is expected")
    curves = read(args.cells)
    if not curves:
        parser.error(f"{args.cells}: no cells")
    return draw(curves, args.out)


if __name__ == "__main__":
    sys.exit(main())
