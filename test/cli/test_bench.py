# SPDX-License-Identifier: Apache-2.0
"""`swiglu bench`: what it measures, and in which forms it says so. No figure of time is judged."""
import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tool import fails, objects, ok

ROOT = Path(__file__).parents[2]
OUTCOMES = ("measured", "noisy", "void")


def test_bench_cell():
    keys = {"shape", "tokens", "dtype", "compute", "threads", "isa", "time_ms", "share", "share_p10", "share_p90", "limit",
            "peak_gflops", "read_gbs"}
    cells = objects("bench", "--shape", "256,512", "--tokens", "1,33", "--dtype", "bf16")
    assert [c["tokens"] for c in cells] == [1, 33] and [c["state"] for c in cells] == ["cold", "warm"]
    for cell in cells:
        assert keys <= cell.keys() and cell["kind"] == "cell"
        assert cell["shape"] == [256, 512] and cell["dtype"] == "bf16" and cell["compute"] == "bf16" and cell["threads"] == 1
        assert cell["limit"] in ("flops", "bandwidth") and cell["time_ms"] > 0 and cell["peak_gflops"] > 0
        assert cell["pairs"] in (11, 22, 33) and cell["outcome"] in OUTCOMES
        assert 0 < cell["share_p10"] <= cell["share"] <= cell["share_p90"]
        assert (cell["outcome"] == "noisy") == (cell["uncertainty"] > 0.04)
        assert (cell["outcome"] == "void") == (cell["uncertainty"] <= 0.04 and cell["share"] > 1.05)
        assert (cell["outcome"] == "measured") or (cell["pairs"] == 33 and "stop what else runs" in cell["note"])
        assert not [k for k, v in cell.items() if v is None and k != "must"]  # which is null where no target is set


def test_bench_of_training():
    for policy in ("recompute", "keep"):
        cells = objects("bench", "--mode", "train", "--policy", policy, "--shape", "128,256", "--tokens", "3,64",
                        "--dtype", "f16")
        assert [c["state"] for c in cells] == ["cold", "warm"]
        for cell in cells:
            assert cell["mode"] == "train" and cell["policy"] == policy and cell["compute"] == "f32"
            assert cell["kernel_first"].startswith("f32_") and cell["time_ms"] > 0
            assert cell["outcome"] in OUTCOMES
            if cell["outcome"] == "measured" and cell["limit"] == "flops":  # 18 or 22 operations, by the documented formula
                factor = 18 if policy == "keep" else 22
                limit_ms = factor * cell["tokens"] * 128 * 256 / (cell["peak_gflops"] * 1e6)
                assert abs(limit_ms / cell["time_ms"] - cell["share"]) < 0.1 * cell["share"]
    assert "policy" not in objects("bench", "--shape", "16,16", "--tokens", "16", "--dtype", "f32")[0]


def test_bench_level_is_the_lower_of_both_limits():
    for args, isa in ((["--isa", "generic"], None), (["--isa", "avx512"], "generic")):
        cell = objects("bench", "--shape", "16,16", "--tokens", "16", "--dtype", "f32", *args, isa=isa)[0]
        assert cell["isa"] == "generic"


TINY = ["--shape", "16,16", "--dtype", "f32"]


def test_bench_sweeps_and_draws_a_curve():
    text = ok("bench", *TINY, "--tokens", "9-12,40")
    assert re.findall(r"^ *(\d+)  f32 ", text, re.M) == ["9", "10", "11", "12", "40"]
    plot, axis = re.search(r"share of the limit over rows: f f32\n((?:.*\|.*\n)+) +\+-+ rows\n(.*)\n", text).groups()
    assert axis.split() == ["9", "10", "11", "12", "40"]
    lines = [line.partition("|")[2] for line in plot.splitlines()]
    for i in range(5):  # one mark in each column
        assert sorted(line[3 * i] for line in lines if len(line) > 3 * i)[-2:] in ([" ", "f"], ["f"])


def test_bench_csv():
    lines = list(csv.reader(io.StringIO(ok("bench", *TINY, "--tokens", "9,10", "--csv"))))
    assert len(lines) == 3
    for values, tokens in zip(lines[1:], (9, 10), strict=True):
        row = dict(zip(lines[0], values, strict=True))
        assert row["tokens"] == str(tokens) and row["shape"] == "16/16" and row["must"] == "" and float(row["share"]) > 0


def test_bench_markdown_is_a_table():
    lines = ok("bench", *TINY, "--tokens", "9", "--markdown").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 3 and len({len(re.findall(r"\|", line)) for line in table}) == 1
    assert table[0].startswith("| tokens | weights |") and set(table[1]) <= set("|-:") and table[2].startswith("| 9 | f32 |")
    assert lines[-1] == table[-1]  # nothing but the table after its heading


def test_formats_exclude_each_other():
    fails("bench", "--csv", "--json", saying="exclude each other")
    fails("bench", "--markdown", "--csv", saying="exclude each other")


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_curve_of_a_file(tmp_path, kind):
    """bench/curve.py, with whichever of the two environments has matplotlib."""
    pythons = [p for p in (sys.executable, ROOT / ".venv-torch/bin/python") if os.path.exists(p) and not subprocess.run(
        [p, "-c", "import matplotlib"], stderr=subprocess.DEVNULL).returncode]
    same = {"shape": [64, 96], "threads": 1, "isa": "avx2", "mode": "forward", "share_p10": 0.4, "share_p90": 0.9}
    cells = [{**same, "tokens": m, "dtype": dtype, "share": 0.5 + m / 100, "outcome": "measured" if m > 1 else "noisy"}
             for dtype in ("f32", "bf16") for m in (1, 2, 4)]
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    script = [ROOT / "bench/curve.py", tmp_path / "cells.jsonl", tmp_path / f"curve.{kind}"]
    if not pythons:
        done = subprocess.run([sys.executable, *script], capture_output=True, text=True)
        assert done.returncode == 2 and "matplotlib" in done.stderr
        pytest.skip("no matplotlib")
    subprocess.run([pythons[0], *script], check=True)
    head = (tmp_path / f"curve.{kind}").read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if kind == "png" else b"<?xml" in head
