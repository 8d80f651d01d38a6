#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libswiglu beside PyTorch and beside ggml in one process, interleaved. bench/README.md says how to run it and what
the numbers mean."""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import side_ggml
import side_torch
from cell import (SHAPES, Cell, Data, Machine, OurSide, choices, count, counts, cpu_name, difference, measure,
                  print_heading, print_row, progress, shared_library)
from library import Library

ROOT = Path(__file__).resolve().parent.parent
# Largest relative Frobenius distance between the two sides: both round sums of some thousand terms in f32, and in bf16
# also x, h and y (PyTorch gate, up and the activation too), 2^-9 each. ggml rounds x and h to the type of the weights, to
# 8 bits beside blocks: 2^-8 of the largest of 32 or 256. A wrong formula is off by about 1.
TOLERANCE = {"f32": 1e-5, "f16": 3e-3, "bf16": 1e-2}
BLOCK_TOLERANCE = 0.1
PEERS = {"torch": side_torch, "ggml": side_ggml}

FULL = {"models": ["smollm2-135m", "tinyllama", "llama-3-8b"], "threads": [1, 2], "pairs": 11, "processes": 3}
QUICK = {"models": ["smollm2-135m", "tinyllama"], "threads": [1], "pairs": 5, "processes": 1}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=shared_library, default=str(ROOT / "build" / "libswiglu.so"),
                        help="default build/libswiglu.so")
    parser.add_argument("--models", type=choices(SHAPES), metavar="A,B",
                        help=f"among {', '.join(SHAPES)}; default the first three")
    parser.add_argument("--peers", type=choices(PEERS), metavar="A,B", help="torch, ggml; default those installed")
    parser.add_argument("--dtypes", metavar="A,B", default="f32,bf16",
                        help="of the weights: names of 'swiglu cpu'; with block formats x and y are f32; default f32,bf16")
    parser.add_argument("--rows", type=counts, default=[1, 8, 128, 512], metavar="M,N")
    parser.add_argument("--threads", type=counts, metavar="N,M", help="default 1,2")
    parser.add_argument("--pairs", type=count, help="interleaved pairs a process; default 11")
    parser.add_argument("--processes", type=count, help="of which the middle one counts; default 3")
    parser.add_argument("--quick", action="store_true", help="defaults of two models, one thread, 5 pairs, one process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also append a JSON object a cell to FILE")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    missing = {name: peer.missing() for name, peer in PEERS.items()}
    args.peers = args.peers or [name for name in PEERS if not missing[name]]
    for why in (missing[name] for name in args.peers or PEERS):
        if why:
            parser.error(f"{why}; bench/README.md says how to get it")
    args.dtypes = choices(Library(args.library, 1).dtypes)(args.dtypes)
    for name, value in (QUICK if args.quick else FULL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


# ---- a process that measures ------------------------------------------------------------------------------------------


def compare(cell, peer, library, machine, n_pairs):
    data = Data(library, cell)
    ours, theirs = OurSide("libswiglu", library, cell, data), peer.side(cell, data)
    apart = difference(ours.output(), theirs.output())
    most = TOLERANCE.get(cell.dtype, BLOCK_TOLERANCE)
    if not apart <= most:
        raise SystemExit(f"peers: {cell.name()}: the sides differ by {apart:.2e}, at most {most} is expected")
    record = measure(cell, data, (ours, theirs), machine, ours.info, n_pairs)
    ours.close()
    theirs.close()
    return {**record, "difference": apart, "peer_how": getattr(theirs, "how", "")}


def cells(args):
    """(peer, model, dtype, rows) of all that a peer computes."""
    return [(name, model, dtype, rows) for model in args.models for dtype in args.dtypes for rows in args.rows
            for name in args.peers if PEERS[name].DTYPES is None or dtype in PEERS[name].DTYPES]


def child(args):
    """All cells of one number of threads; a JSON object each."""
    threads, = args.threads
    library = Library(args.library, threads)
    machine = Machine(library)
    about = {"cpu": cpu_name(), "cpus": len(os.sched_getaffinity(0)), "library": library.version,
             "compiler": library.compiler}
    for name, model, dtype, rows in cells(args):
        record = compare(Cell(model, dtype, rows, threads), PEERS[name], library, machine, args.pairs)
        print(json.dumps({**record, "peer": PEERS[name].about(), "machine": about}), flush=True)


# ---- the driver -------------------------------------------------------------------------------------------------------


def run_child(args, threads, about):
    command = [sys.executable, __file__, "--child", "--library", args.library, "--peers", ",".join(args.peers),
               "--models", ",".join(args.models), "--dtypes", ",".join(args.dtypes),
               "--rows", ",".join(map(str, args.rows)), "--threads", str(threads),
               "--pairs", str(args.pairs)]
    # PyTorch and malloc take huge pages for large tensors when asked; the library asks for its weights too.
    env = {**os.environ, "THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
           "OMP_NUM_THREADS": str(threads)}
    records = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        for line in process.stdout:
            records.append(json.loads(line))
            progress(f"{about}, cell {len(records)} of {len(cells(args))}")
    progress("")
    if process.returncode:
        raise SystemExit(process.returncode)
    return records


def middle(records):
    """Of the processes that could measure this cell the one in the middle."""
    measured = [r for r in records if r["outcome"] == "measured"]
    chosen = sorted(measured or records, key=lambda r: r["ratio"])
    return {**chosen[(len(chosen) - 1) // 2], "processes": len(records), "processes_measured": len(measured),
            "ratios": [r["ratio"] for r in records]}


def main():
    args = parse_args()
    if args.child:
        child(args)
        return
    begin, shown = time.monotonic(), False
    for threads in args.threads:
        runs = [run_child(args, threads, f"{threads} threads, process {i + 1} of {args.processes}")
                for i in range(args.processes)]
        for records in zip(*runs, strict=True):
            record = middle(records)
            if not shown:
                about = record["machine"]
                print(f"{about['cpu']}, {about['cpus']} CPUs; libswiglu {about['library']} ({about['compiler']}), "
                      f"level {record['isa']}; {'; '.join(PEERS[name].about() for name in args.peers)}\n")
                print_heading("libswiglu", "peer")
                shown = True
            print_row(record)
            if args.json:
                with args.json.open("a") as out:
                    print(json.dumps(record), file=out)
    print(f"\nratio: time of the peer over time of libswiglu, above 1 where libswiglu is faster. share: of the machine's limit."
          f"\nprocesses: {args.processes}, pairs in each: {args.pairs}; {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
