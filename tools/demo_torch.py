#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real model in transformers, with and without the drop-in.

demo_torch.py MODEL.gguf [--chart out/demo_torch.png] [--new-tokens 64] [--threads N]

Loads the model, generates the same text both ways, and measures decoding, prefill, one training step and what is kept for
backward, the latter two under both policies of training; then decoding and prefill once more with the file's own quantised
weights. Every figure is the median of interleaved runs. Prints tables and draws the first as one chart.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TQDM_DISABLE", "1")

import torch
import transformers

import swiglu

PROMPT = "Explain in two sentences why the sky is blue."
PREFILL, TRAINED = 512, 256  # tokens
ROUNDS = 3
SIDES = ("PyTorch", "with swiglu")
POLICIES = (None, "recompute", "keep")  # by way: the model as it is, and patched for each policy of training


def load(path: Path) -> tuple[Any, Any]:
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(**where)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prompt_of(tokenizer: Any) -> torch.Tensor:
    messages = [{"role": "user", "content": PROMPT}]
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    return tokenizer(PROMPT, return_tensors="pt").input_ids


def generate(model: Any, ids: torch.Tensor, n: int) -> torch.Tensor:
    return model.generate(ids, max_new_tokens=n, do_sample=False, eos_token_id=None, pad_token_id=0)


def kept_bytes(model: Any, ids: torch.Tensor) -> int:
    """What one training step keeps for backward in the feed-forward blocks, besides parameters; each memory once."""
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks: list[Any] = []

    def enter(*_: Any) -> None:
        hooks.append(torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor))
        hooks[-1].__enter__()

    def leave(*_: Any) -> None:
        hooks.pop().__exit__()

    blocks = [module for name, module in model.named_modules() if name.endswith(".mlp")]
    handles = [h for block in blocks for h in (block.register_forward_pre_hook(enter), block.register_forward_hook(leave))]
    loss = model(ids, labels=ids).loss  # alive until all is counted, so that no memory is used twice
    for handle in handles:
        handle.remove()
    del loss
    return sum(kept.values())


def train_step(model: Any, ids: torch.Tensor) -> None:
    model.zero_grad()
    model(ids, labels=ids).loss.backward()


def inference(
    model: Any, ids: torch.Tensor, long: torch.Tensor, n: int, tokens: list[torch.Tensor], way: int
) -> dict[str, float]:
    """Seconds of one decoded token and of the prefill; tokens[way] gets what was generated."""
    with torch.inference_mode():
        model(ids)  # packs
        first = seconds(lambda: model(ids))
        whole = seconds(lambda: tokens.__setitem__(way, generate(model, ids, n)))
        return {"decode": (whole - first) / (n - 1), "prefill": seconds(lambda: model(long[:, :PREFILL]))}


def measure(model: Any, tokenizer: Any, n: int) -> tuple[dict[str, list[float]], list[torch.Tensor], Any]:
    """(figure -> one value a way, the generated tokens, the report). Inference is the same under both policies."""
    ids = prompt_of(tokenizer)
    long = ids.repeat(1, -(-PREFILL // ids.shape[1]))
    times: dict[str, list[list[float]]] = {key: [[] for _ in POLICIES] for key in ("decode", "prefill", "train")}
    tokens: list[torch.Tensor] = [ids, ids]
    kept = [0 for _ in POLICIES]
    report = None
    for round_ in range(ROUNDS + 1):  # the first round warms up
        for way, policy in enumerate(POLICIES):
            if policy:
                report = swiglu.patch(model, policy=policy)
            for key, value in inference(model, ids, long, n, tokens, way).items() if way < len(SIDES) else ():
                if round_:
                    times[key][way].append(value)
            model.train()
            train = seconds(lambda: train_step(model, long[:, :TRAINED]))
            if round_ == 0:
                kept[way] = kept_bytes(model, long[:, :TRAINED])
            else:
                times["train"][way].append(train)
            model.zero_grad()
            model.eval()
            if policy:
                swiglu.restore(model)
    figures = {key: [statistics.median(values) for values in ways if values] for key, ways in times.items()}
    figures["kept"] = [float(value) for value in kept]
    return figures, tokens, report


def measure_formats(model: Any, tokenizer: Any, n: int, path: Path) -> tuple[dict[str, list[float]], Any]:
    """(figure -> one value a way: the model as it is, its weights packed as f32, the file's own weights; the last report).
    The file's weights decode to those of the model, so restoring brings back what was there."""
    ids = prompt_of(tokenizer)
    long = ids.repeat(1, -(-PREFILL // ids.shape[1]))
    ways: list[Any] = [None, {}, {"gguf": path}]
    times: dict[str, list[list[float]]] = {key: [[] for _ in ways] for key in ("decode", "prefill")}
    report = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for round_ in range(ROUNDS + 1):
            for way, options in enumerate(ways):
                if options is not None:
                    report = swiglu.patch(model, **options)
                for key, value in inference(model, ids, long, n, [ids] * len(ways), way).items():
                    if round_:
                        times[key][way].append(value)
                if options is not None:
                    swiglu.restore(model)
    return {key: [statistics.median(values) for values in ways_] for key, ways_ in times.items()}, report


def print_formats(figures: dict[str, list[float]], report: Any) -> None:
    infos = [entry.state.freed.handle.info() for entry in report.replaced]
    dtype, compute = report.replaced[0].dtype.upper(), "/".join(dict.fromkeys(infos[0].compute))
    in_file, packed = (sum(getattr(info, name) for info in infos) / 2**20 for name in ("file_bytes", "packed_bytes"))
    print(f"\nThe file's own weights, {dtype} in {compute} compute: {packed:.1f} MiB in memory, {in_file:.1f} MiB in the file")
    print(f"{'':42} {'PyTorch f32':>12} {'swiglu f32':>12} {'swiglu ' + dtype:>12}")
    for key, _, label, text, _, _ in ROWS[:2]:
        print(f"{label:42} " + " ".join(f"{text(value):>12}" for value in figures[key]))


ROWS = (
    # figure, way, label, how a value is printed, its size in a chart, whether larger is better
    ("decode", 1, "decoding, tokens a second", lambda v: f"{1 / v:.1f}", lambda v: 1 / v, True),
    ("prefill", 1, f"prefill of {PREFILL} tokens, ms", lambda v: f"{1e3 * v:.0f}", lambda v: 1e3 * v, False),
    *(
        row
        for way in (1, 2)
        for row in (
            ("train", way, f"training step of {TRAINED} tokens, policy {POLICIES[way]}, ms", lambda v: f"{1e3 * v:.0f}",
             lambda v: 1e3 * v, False),
            ("kept", way, f"kept for backward by the blocks, policy {POLICIES[way]}, MiB", lambda v: f"{v / 2**20:.1f}",
             lambda v: v / 2**20, False),
        )
    ),
)


def print_table(figures: dict[str, list[float]]) -> None:
    print(f"{'':56} {SIDES[0]:>12} {SIDES[1]:>12} {'gain':>7}")
    for key, way, label, text, _, _ in ROWS:
        eager, ours = figures[key][0], figures[key][way]
        print(f"{label:56} {text(eager):>12} {text(ours):>12} {eager / ours:6.2f}x")


def draw(figures: dict[str, list[float]], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(ROWS), figsize=(17, 3.6))
    for axis, (key, way, label, text, value, larger) in zip(axes, ROWS):
        shown = figures[key][0], figures[key][way]
        bars = axis.bar(SIDES, [value(v) for v in shown], color=("#9aa0a6", "#1a73e8"), width=0.6)
        axis.bar_label(bars, [text(v) for v in shown], padding=2)
        axis.set_title(label.replace(", ", ",\n").replace(" by the", "\nby the"), fontsize=10)
        axis.set_xlabel("more is better" if larger else "less is better", fontsize=9)
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.margins(y=0.15)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--chart", type=Path, default=Path("out/demo_torch.png"))
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    print(f"loading {args.model.name} with transformers {transformers.__version__}, torch {torch.__version__}", flush=True)
    model, tokenizer = load(args.model)
    figures, tokens, report = measure(model, tokenizer, args.new_tokens)
    same = torch.equal(*tokens)
    print(f"\nprompt: {PROMPT}\n{tokenizer.decode(tokens[1][0, prompt_of(tokenizer).shape[1] :], skip_special_tokens=True)}\n")
    print(report)
    verdict = "the same" if same else "NOT the same"
    print(f"{args.new_tokens} greedy tokens with and without: {verdict}; {torch.get_num_threads()} threads\n")
    print_table(figures)
    print_formats(*measure_formats(model, tokenizer, args.new_tokens, args.model))
    try:
        draw(figures, f"{args.model.stem} in transformers, {torch.get_num_threads()} threads, float32", args.chart)
        print(f"\nchart: {args.chart}")
    except ImportError:
        print("\nno chart: matplotlib is not installed")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
