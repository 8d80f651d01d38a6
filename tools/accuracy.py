#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""accuracy.py MODEL.gguf [--perplexity]: what block formats cost, as tables for docs/quantised.md.

Blocks of SmolLM2-135M on their real activations (test/data), in double precision: the error of the block's output from
rounding the weights, from rounding rows to 8 bits as int8 compute does, and from both; beside them what a format does to
normal noise. With --perplexity, which needs the
environment of tools/bootstrap_torch.sh, also the perplexity of test/data/text.txt, for eager f32 and for swiglu.patch with
each format. SWIGLU_LIBRARY names the library.

The base of everything is what MODEL.gguf, a Q4_1 file, decodes to."""
import argparse
import copy
import math
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("SWIGLU_LIBRARY", str(ROOT / "build" / "libswiglu.so"))
import swiglu  # noqa: E402
from swiglu.arrays.convert import block_size, dtype_number  # noqa: E402

LAYERS = (0, 11, 29)
FORMATS = ("q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "mxfp4", "q3_k", "q2_k")
STAGED, LEAST = 32, 2.0**-100  # values of a row that share a scale; below LEAST they count as zero


def rounded_rows(x):
    """Rows as int8 compute sees them (docs/numerics.md)."""
    parts = x.astype(np.float32).reshape(-1, STAGED)
    largest = np.abs(parts).max(axis=1, keepdims=True)
    counts = largest >= LEAST
    scale = np.where(counts, largest / np.float32(127), 0)
    inverse = np.float32(127) / np.where(counts, largest, 1)
    return (np.rint(parts * inverse) * scale).astype(np.float64).reshape(x.shape)


def rounded_weights(w, dtype):
    """What a format makes of a matrix. Rows that are no whole blocks are filled up with zeros."""
    block, _ = block_size(dtype_number(dtype))
    filled = np.zeros((w.shape[0], -(-w.shape[1] // block) * block), np.float32)
    filled[:, : w.shape[1]] = w
    return swiglu.decode(swiglu.encode(filled, dtype), dtype)[:, : w.shape[1]].astype(np.float64)


def block(x, weights, rows=lambda v: v):
    gate, up, down = weights
    x = rows(x)
    g = x @ gate.T
    return rows(g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


def percent(got, exact):
    """Median and largest over the rows of the relative error, in percent."""
    errors = 100 * np.linalg.norm(got - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return f"{np.median(errors):.2f} ({errors.max():.2f})"


def show_blocks(path):
    model = swiglu.load(path)
    print("| format | bytes a value | noise | " + " | ".join(f"layer {n}: weights | rows | both" for n in LAYERS) + " |")
    print("|---|---|---|" + "---|" * (3 * len(LAYERS)))
    noise = np.random.default_rng(1).standard_normal((256, 1536))
    data = []
    for n in LAYERS:
        layer = model.layers[n]
        stored = [model.tensors[t] for t in (layer.gate, layer.up, layer.down)]
        weights = [swiglu.decode(model.read(t.name).reshape(t.dims[0], -1), t.dtype.lower()).astype(np.float64) for t in stored]
        x = np.load(ROOT / "test" / "data" / f"smollm2-layer{n:02d}.npy").astype(np.float64)
        data.append((x, weights, block(x, weights)))
    for dtype in FORMATS:
        cells = []
        for x, weights, exact in data:
            quantised = [rounded_weights(w, dtype) for w in weights]
            alone, both = block(x, quantised), block(x, quantised, rounded_rows)
            cells += [percent(alone, exact), percent(both, alone), percent(both, exact)]
        values, size = block_size(dtype_number(dtype))
        apart = 100 * np.linalg.norm(rounded_weights(noise, dtype) - noise) / np.linalg.norm(noise)
        print(f"| {dtype.upper()} | {size / values:.3f} | {apart:.2f} | " + " | ".join(cells) + " |", flush=True)


def show_perplexity(path):
    import torch
    import transformers

    torch.set_num_threads(2)
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    ids = tokenizer((ROOT / "test" / "data" / "text.txt").read_text(), return_tensors="pt").input_ids

    original = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()

    def perplexity(model):
        with torch.no_grad():
            return math.exp(float(model(ids, labels=ids).loss))

    eager = perplexity(original)
    print(f"\n{ids.shape[1]} tokens\n\n| weights | compute | perplexity | of eager |\n|---|---|---|---|")
    print(f"| f32 | eager PyTorch | {eager:.3f} | |", flush=True)
    ways = [{"weights": "keep"}, {"gguf": path}, *({"weights": dtype} for dtype in FORMATS if not dtype.endswith("_k"))]
    for way in ways:
        model = copy.deepcopy(original)
        report = swiglu.patch(model, **way)
        value, entry = perplexity(model), report.replaced[0]
        name = "f32" if "keep" in way.values() else f"the file's {entry.dtype.upper()}" if "gguf" in way else entry.dtype.upper()
        compute = entry.state.freed.handle.info().compute[0] if entry.state.freed else "f32"
        print(f"| {name} | {compute} | {value:.3f} | {100 * (value / eager - 1):+.2f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--perplexity", action="store_true")
    args = parser.parse_args()
    show_blocks(args.model.resolve())
    if args.perplexity:
        show_perplexity(args.model.resolve())


if __name__ == "__main__":
    main()
