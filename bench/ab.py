#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of the library in one process, interleaved, with their bits compared. bench/README.md says how to run it
and what the numbers mean. Ends with 1 where bits differ, never because of a time."""
import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

from cell import (SHAPES, Cell, Data, Machine, OurSide, choices, count, counts, cpu_name, measure, print_heading,
                  print_row, progress, shared_library)
from library import DTYPES, Library


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=shared_library, help="a libswiglu.so")
    parser.add_argument("new", type=shared_library, help="another")
    parser.add_argument("--models", type=choices(SHAPES), default=["smollm2-135m", "tinyllama"], metavar="A,B",
                        help=", ".join(SHAPES))
    parser.add_argument("--dtypes", type=choices(DTYPES), default=["f32", "bf16", "f16"], metavar="A,B")
    parser.add_argument("--rows", type=counts, default=[1, 8, 128, 512], metavar="M,N")
    parser.add_argument("--threads", type=count, default=1)
    parser.add_argument("--isa", metavar="LEVEL", help="upper limit: a level that 'swiglu cpu' lists")
    parser.add_argument("--pairs", type=count, default=11)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also append a JSON object a cell to FILE")
    return parser.parse_args()


def compare(cell, libraries, machine, isa_mask, n_pairs):
    data = Data(libraries[1], cell)
    sides = [OurSide(name, library, cell, data, isa_mask)
             for name, library in zip(("new", "old"), libraries, strict=True)]
    new, old = (side.output() for side in sides)
    record = measure(cell, data, sides, machine, sides[0].info, n_pairs)
    for side in sides:
        side.close()
    return {**record, "same_bits": bool(np.array_equal(new.view(np.uint32), old.view(np.uint32)))}


def main():
    args = parse_args()
    libraries = [Library(path, args.threads) for path in (args.new, args.old)]
    isa_mask = libraries[0].levels()[args.isa].limit if args.isa else 0
    machine = Machine(libraries[0], isa_mask)
    new, old = (f"{library.version} ({library.compiler})" for library in libraries)
    about = {"cpu": cpu_name(), "cpus": len(os.sched_getaffinity(0)), "new": new, "old": old}
    print(f"{about['cpu']}, {about['cpus']} CPUs\nnew: {args.new}, {new}\nold: {args.old}, {old}\n")
    print_heading("new", "old")
    differ = []
    for model in args.models:
        for dtype in args.dtypes:
            for rows in args.rows:
                cell = Cell(model, dtype, rows, args.threads)
                progress(cell.name())
                record = compare(cell, libraries, machine, isa_mask, args.pairs)
                progress("")
                print_row(record)
                if not record["same_bits"]:
                    differ.append(cell.name())
                if args.json:
                    with args.json.open("a") as out:
                        print(json.dumps({**record, "machine": about}), file=out)
    print("\nratio: time of old over time of new, above 1 where new is faster. share: of the machine's limit.")
    if differ:
        sys.exit("the two builds give different bits: " + "; ".join(differ))
    print("both builds give the same bits in every cell")


if __name__ == "__main__":
    main()
