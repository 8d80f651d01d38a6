#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_activations.py MODEL.gguf [--out test/data]: the x that real feed-forward blocks get.

Runs SmolLM2-135M-Instruct over a few fixed prompts and saves, for three layers, what enters the feed-forward block
(after its norm) as f16. The files are committed and made once; no test needs this script. It wants an environment of
its own, outside the tree:

    python3 -m venv /tmp/activations
    /tmp/activations/bin/pip install torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 gguf==0.19.0 numpy==2.4.6
    /tmp/activations/bin/python tools/make_activations.py "$(tools/fetch_model.sh)"
"""
import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
import transformers

LAYERS = (0, 11, 29)  # 11 makes the massive activations of a first token: |h| of 3065 and |y| of 24882, 29 undoes them
TOKENS = 24  # of each prompt
PROMPTS = (
    "<|im_start|>user\nWhy is the sky blue, and why are sunsets red?<|im_end|>\n<|im_start|>assistant\nThe light",
    "The lighthouse keeper wound the clock every evening before the lamp was lit, although nobody had asked the time "
    "for eleven years.",
    "int sum(const int *a, int n) {\n    int s = 0;\n    for (int i",
)


def capture(path):
    """layer -> x, one row a token, prompts one after another."""
    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    seen = {layer: [] for layer in LAYERS}
    for layer in LAYERS:
        model.model.layers[layer].mlp.register_forward_pre_hook(
            lambda module, args, layer=layer: seen[layer].append(args[0][0].clone()))
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
        if tokens.shape[1] != TOKENS:
            raise SystemExit(f"a prompt has {tokens.shape[1]} tokens, {TOKENS} are wanted: {prompt!r}")
        with torch.inference_mode():
            model(tokens)
    return {layer: torch.cat(rows).numpy() for layer, rows in seen.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "test" / "data")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for layer, x in capture(args.model.resolve()).items():
        half = x.astype("<f2")
        if not np.isfinite(half).all():
            raise SystemExit(f"layer {layer}: a value of {np.abs(x).max()} does not fit f16")
        path = args.out / f"smollm2-layer{layer:02d}.npy"
        np.save(path, half)
        rms = np.sqrt((x.astype(np.float64) ** 2).mean())
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}  {half.shape[0]} x {half.shape[1]}, "
              f"root mean square {rms:.4f}, largest |x| {np.abs(half).max():.4f}")


if __name__ == "__main__":
    main()
