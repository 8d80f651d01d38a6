#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every cell that has a target, by `swiglu bench` in three processes each, of which the middle one by its share counts.

targets.py [--tool build/swiglu] [--processes 3] [--only TEXT] [--json FILE]

First the peak of each level, which must grow with the level. A target binds one thread of Zen 4 or Zen 5. Two threads are
listed for comparison: their P and B are measured with two.
Run it on a quiet machine; the exit status never depends on a time."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

SMALL, GELU, LARGE, EXPERT = "576,1536", "1152,6912", "2048,5632", "2048,768"
FORWARD = [
    (LARGE, "f32,bf16,f16", "1", "auto", 1),
    (LARGE, "f32,bf16", "8", "auto", 1),
    (LARGE, "f32,bf16", "32,128", "auto", 1),
    (LARGE, "f32,bf16,f16", "512", "auto", 1),
    (SMALL, "f32,bf16,f16", "512", "auto", 1),
    (GELU, "f32,bf16", "512", "auto", 1),
    (EXPERT, "f32,bf16", "512", "auto", 1),
    (LARGE, "f32,bf16,f16", "512", "avx2", 1),
    (SMALL, "f32,bf16", "512", "auto", 2),
    (LARGE, "f32,bf16", "1,512", "auto", 2),
]
TRAIN = [(shape, policy) for shape in (LARGE, SMALL) for policy in ("keep", "recompute")]


def commands():
    for shape, dtypes, tokens, isa, threads in FORWARD:
        for dtype in dtypes.split(","):
            for m in tokens.split(","):
                activation = ["--activation", "gelu_tanh"] if shape == GELU else []
                level = [] if isa == "auto" else ["--isa", isa]
                yield ["--shape", shape, "--tokens", m, "--dtype", dtype, "--threads", str(threads), *level, *activation]
    for shape, policy in TRAIN:
        for dtype in ("f32", "bf16"):
            yield ["--mode", "train", "--policy", policy, "--shape", shape, "--tokens", "512", "--dtype", dtype]


def levels(tool):
    """The measured peaks of the levels that run here, the lowest first: one that does not grow is no peak."""
    listed = [json.loads(line) for line in subprocess.run([tool, "cpu", "--json"], check=True, capture_output=True,
                                                          text=True).stdout.splitlines()]
    before = {}
    for level in (entry["level"] for entry in listed if entry.get("can") and entry["compiled"] and entry["allowed"]):
        peaks = {}
        for dtype in ("f32", "bf16"):
            cell = middle(tool, ["--isa", level, "--shape", "64,64", "--tokens", "16", "--dtype", dtype], 1)
            peaks[dtype] = cell["peak_gflops"]
        grows = all(peaks[dtype] > 0.95 * before.get(dtype, 0) for dtype in peaks)
        print(f"peak {level:11} f32 {peaks['f32']:8.1f} bf16 {peaks['bf16']:8.1f} GFLOP/s  {'' if grows else 'does not grow'}",
              flush=True)
        before = peaks


def middle(tool, command, processes):
    cells = []
    for _ in range(processes):
        done = subprocess.run([tool, "bench", "--json", *command], check=True, capture_output=True, text=True)
        cells.append(json.loads(done.stdout))
    cells.sort(key=lambda cell: cell["share"] or 0)
    return {**cells[len(cells) // 2], "shares": [cell["share"] for cell in cells]}


def row(cell):
    name = f"{cell['shape'][0]}/{cell['shape'][1]}"
    what = cell["mode"] if cell["mode"] == "forward" else f"train {cell['policy']}"
    shares = " ".join("-" if share is None else f"{share:.3f}" for share in cell["shares"])
    must = "" if cell["must"] is None else f"{cell['must']:.2f}" + ("" if (cell["share"] or 0) >= cell["must"] else "  below")
    return (f"{what:16} {name:10} m={cell['tokens']:<4} {cell['dtype']:5} {cell['isa']:11} {cell['threads']} thread(s) "
            f"{cell['share'] or 0:.3f} ({cell['share_p10'] or 0:.3f}-{cell['share_p90'] or 0:.3f})  [{shares}]  {must}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(Path(__file__).resolve().parent.parent / "build" / "swiglu"))
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--only", default="", help="cells whose command contains this")
    parser.add_argument("--json", type=Path, help="also append a JSON object a cell")
    args = parser.parse_args()
    if not args.only:
        levels(args.tool)
    for command in commands():
        if args.only not in " ".join(command):
            continue
        cell = middle(args.tool, command, args.processes)
        print(row(cell), flush=True)
        if args.json:
            with args.json.open("a") as out:
                out.write(json.dumps(cell) + "\n")


if __name__ == "__main__":
    sys.exit(main())
