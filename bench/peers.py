#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libswiglu beside PyTorch in one process, interleaved. bench/README.md says how to run it and what the numbers mean."""
import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from cell import (SHAPES, Cell, Data, Machine, OurSide, Side, choices, count, counts, cpu_name, difference,
                  measure, print_heading, print_row, progress, shared_library)
from library import Library

ROOT = Path(__file__).resolve().parent.parent
# Largest relative Frobenius distance between the two sides: both round sums of some thousand terms in f32, and in bf16
# also x, h and y (PyTorch gate, up and the activation too), 2^-9 each. A wrong formula is off by about 1.
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2}


FULL = {"models": ["smollm2-135m", "tinyllama", "llama-3-8b"], "threads": [1, 2], "pairs": 11, "processes": 3}
QUICK = {"models": ["smollm2-135m", "tinyllama"], "threads": [1], "pairs": 5, "processes": 1}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=shared_library, default=str(ROOT / "build" / "libswiglu.so"),
                        help="default build/libswiglu.so")
    parser.add_argument("--models", type=choices(SHAPES), metavar="A,B",
                        help=f"among {', '.join(SHAPES)}; default the first three")
    parser.add_argument("--dtypes", type=choices(TOLERANCE), default=["f32", "bf16"], metavar="A,B")
    parser.add_argument("--rows", type=counts, default=[1, 8, 128, 512], metavar="M,N")
    parser.add_argument("--threads", type=counts, metavar="N,M", help="default 1,2")
    parser.add_argument("--pairs", type=count, help="interleaved pairs a process; default 11")
    parser.add_argument("--processes", type=count, help="of which the middle one counts; default 3")
    parser.add_argument("--quick", action="store_true", help="defaults of two models, one thread, 5 pairs, one process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also append a JSON object a cell to FILE")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not find_spec("torch"):
        parser.error("PyTorch is not installed here; bench/README.md says how to get it")
    for name, value in (QUICK if args.quick else FULL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


# ---- a process that measures ------------------------------------------------------------------------------------------


def torch_side(cell, data):
    import torch
    from torch.nn import functional

    activation = {"silu": functional.silu, "gelu_tanh": lambda g: functional.gelu(g, approximate="tanh")}[data.activation]

    def tensor(array):
        t = torch.from_numpy(array)
        return t.view(torch.bfloat16) if data.dtype == "bf16" else t

    class TorchSide(Side):
        def __init__(self):
            super().__init__("PyTorch")
            x, weights = tensor(data.x), [tensor(w) for w in (data.gate, data.up, data.down)]
            for _ in range(self.n_copies(cell, sum(w.nbytes for w in weights))):
                self.runs.append(self.forward(x, *(w.clone() for w in weights)))

        def forward(self, x, gate, up, down):
            def run():
                self.y = functional.linear(activation(functional.linear(x, gate)) * functional.linear(x, up), down)

            return run

        def output(self):
            self.run(1)
            return self.y.float().numpy()

    return TorchSide()


def compare(cell, library, machine, n_pairs):
    data = Data(library, cell)
    ours, theirs = OurSide("libswiglu", library, cell, data), torch_side(cell, data)
    apart = difference(ours.output(), theirs.output())
    if not apart <= TOLERANCE[cell.dtype]:
        raise SystemExit(f"peers: {cell.name()}: the sides differ by {apart:.2e}, at most {TOLERANCE[cell.dtype]} is expected")
    record = measure(cell, data, (ours, theirs), machine, ours.info, n_pairs)
    ours.close()
    return {**record, "difference": apart}


def child(args):
    """All cells of one number of threads; a JSON object each."""
    import torch


    threads, = args.threads
    torch.set_num_threads(threads)
    library = Library(args.library, threads)
    machine = Machine(library)
    about = {"cpu": cpu_name(), "cpus": len(os.sched_getaffinity(0)), "library": library.version,
             "compiler": library.compiler, "torch": torch.__version__}
    with torch.inference_mode():
        for model in args.models:
            for dtype in args.dtypes:
                for rows in args.rows:
                    record = compare(Cell(model, dtype, rows, threads), library, machine, args.pairs)
                    print(json.dumps({**record, "machine": about}), flush=True)


# ---- the driver -------------------------------------------------------------------------------------------------------


def run_child(args, threads, about):
    command = [sys.executable, __file__, "--child", "--library", args.library, "--models", ",".join(args.models),
               "--dtypes", ",".join(args.dtypes), "--rows", ",".join(map(str, args.rows)), "--threads", str(threads),
               "--pairs", str(args.pairs)]
    # PyTorch takes huge pages for large tensors when asked; the library asks for its weights too.
    env = {**os.environ, "THP_MEM_ALLOC_ENABLE": "1", "OMP_NUM_THREADS": str(threads)}
    records = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        for line in process.stdout:
            records.append(json.loads(line))
            progress(f"{about}, cell {len(records)} of {len(args.models) * len(args.dtypes) * len(args.rows)}")
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
                      f"level {record['isa']}; PyTorch {about['torch']}\n")
                print_heading("libswiglu", "PyTorch")
                shown = True
            print_row(record)
            if args.json:
                with args.json.open("a") as out:
                    print(json.dumps(record), file=out)
    print(f"\nratio: time of PyTorch over time of libswiglu, above 1 where libswiglu is faster. share: of the machine's limit."
          f"\nprocesses: {args.processes}, pairs in each: {args.pairs}; {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
