#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The block from PyTorch against PyTorch itself, interleaved in one process, and what a call costs besides the library.

measure_torch.py [--cells train,infer,overhead,lora] [--shape 2048,5632] [--threads N] [--pairs 11] [--processes 3] [--json]

A ratio is eager's time over ours: above 1 means faster. Each pair runs eager, ours, ours, eager; the median of the pairs
counts, with the range from 10 to 90 %. Of several processes the one in the middle counts. Inference with few rows rotates
over copies of the weights that no cache holds. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import torch
import torch.nn.functional as F
from torch import nn

COLD_BYTES = 256 << 20
WARM_UP_S = 0.05
OVERHEAD_CALLS = 10_000


class Eager(nn.Module):
    """The block as transformers writes it."""

    def __init__(self, d: int, f: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d, f, bias=False, dtype=dtype)
        self.up_proj = nn.Linear(d, f, bias=False, dtype=dtype)
        self.down_proj = nn.Linear(f, d, bias=False, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(eager: Callable[[], object], ours: Callable[[], object], pairs: int) -> dict[str, float]:
    for work in (eager, ours):
        end = time.perf_counter() + WARM_UP_S
        work()
        while time.perf_counter() < end:
            work()
    times: list[tuple[float, float]] = []
    for _ in range(pairs):
        a, b, c, d = seconds(eager), seconds(ours), seconds(ours), seconds(eager)
        times.append((a + d, b + c))
    ratios = sorted(a / b for a, b in times)
    return {
        "ratio": statistics.median(ratios),
        "p10": ratios[len(ratios) // 10],
        "p90": ratios[-1 - len(ratios) // 10],
        "eager_ms": 500 * statistics.median(a for a, _ in times),
        "ours_ms": 500 * statistics.median(b for _, b in times),
    }


def rotating(calls: list[Callable[[], object]], n: int) -> Callable[[], object]:
    """n calls, each with the next copy of the weights."""
    state = {"next": 0}

    def work() -> None:
        for _ in range(n):
            calls[state["next"]]()
            state["next"] = (state["next"] + 1) % len(calls)

    return work


def saved_bytes(module: nn.Module, x: torch.Tensor) -> int:
    """Bytes kept for backward, besides parameters; each memory once."""
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = module(x)
    del y
    return sum(kept.values())


def train_cells(
    eager: nn.Module, ours: nn.Module, what: str, d: int, dtype: torch.dtype, pairs: int, m: int = 512
) -> list[dict[str, Any]]:
    """Both policies of a block that is patched here."""
    import swiglu

    x, dy = torch.randn(m, d, dtype=dtype, requires_grad=True), torch.randn(m, d, dtype=dtype)

    def step_of(module: nn.Module) -> Callable[[], object]:
        def step() -> None:
            module.zero_grad()
            x.grad = None
            module(x).backward(dy)

        return step

    cells = []
    for policy in ("keep", "recompute"):
        report = swiglu.patch(nn.ModuleList([ours]), policy=policy)
        cells.append(
            {
                "cell": f"{what} m={m} {policy} {str(dtype)[6:]}",
                **interleaved(step_of(eager), step_of(ours), pairs),
                "eager_saved": saved_bytes(eager, x),
                "ours_saved": saved_bytes(ours, x),
            }
        )
        assert len(report.replaced) == 1 and not report.fallbacks, report
    return cells


def train(d: int, f: int, pairs: int) -> list[dict[str, Any]]:
    cells = []
    for dtype in (torch.float32, torch.bfloat16):
        eager, ours = Eager(d, f, dtype), Eager(d, f, dtype)
        for name, child in eager.named_children():
            setattr(ours, name, child)  # the same weights
        cells += train_cells(eager, ours, "train", d, dtype, pairs)
    return cells


def lora(d: int, f: int, pairs: int) -> list[dict[str, Any]]:
    """Adapters of rank 16 on all three. Inference: the time of the block without them over that of the block with them."""
    import peft
    import swiglu

    cells = []
    for dtype in (torch.float32, torch.bfloat16):
        targets = ["gate_proj", "up_proj", "down_proj"]
        config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=targets, init_lora_weights=False)
        eager, ours = (peft.get_peft_model(nn.ModuleDict({"mlp": Eager(d, f, dtype)}), config) for _ in range(2))
        adapted, mine = (module.base_model.model["mlp"] for module in (eager, ours))
        cells += train_cells(adapted, mine, "lora", d, dtype, pairs)
        without = Eager(d, f, dtype)
        swiglu.patch(nn.ModuleList([without]))
        without.eval(), ours.eval()
        for m in (1, 16, 512):
            x = torch.randn(m, d, dtype=dtype)
            with torch.no_grad():
                cell = interleaved(functools.partial(without, x), functools.partial(mine, x), pairs)
            cells.append({"cell": f"lora infer m={m} {str(dtype)[6:]}, without/with", **cell})
    return cells


def infer(d: int, f: int, pairs: int) -> list[dict[str, Any]]:
    import swiglu.torch

    cells = []
    for dtype in (torch.float32, torch.bfloat16):
        weight_bytes = 3 * d * f * torch.tensor([], dtype=dtype).element_size()
        modules = [Eager(d, f, dtype).eval() for _ in range(COLD_BYTES // weight_bytes + 2)]
        for m in (1, 8, 512):
            x = torch.randn(m, d, dtype=dtype)
            used = modules if m < 512 else modules[:1]

            def ours_of(module: Eager, x: torch.Tensor = x) -> Callable[[], object]:
                weights = [layer.weight for layer in (module.gate_proj, module.up_proj, module.down_proj)]
                return lambda: swiglu.torch.ffn(x, *weights, packed=True)

            def eager_of(module: Eager, x: torch.Tensor = x) -> Callable[[], object]:
                return lambda: module(x)

            with torch.no_grad():
                calls = len(used) if m < 512 else 1
                ours = rotating([ours_of(module) for module in used], calls)
                eager = rotating([eager_of(module) for module in used], calls)
                cell = interleaved(eager, ours, pairs)
            for key in ("eager_ms", "ours_ms"):
                cell[key] /= calls
            cells.append({"cell": f"infer m={m} {str(dtype)[6:]}{' cold' if m < 512 else ''}", **cell})
    return cells


def median_us(work: Callable[[], object], calls: int = OVERHEAD_CALLS) -> float:
    for _ in range(200):
        work()
    clock, times = time.perf_counter_ns, []
    for _ in range(calls):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times) / 1000


def c_call_us(x: torch.Tensor, weights: list[torch.Tensor], backward: bool) -> float:
    """The library's own time of a training step or a forward: a call through ctypes, less one that has nothing to do."""
    from swiglu._c import abi
    from swiglu._c.desc import make_options
    from swiglu._c.handle import Handle
    from swiglu._c.library import check, lib
    from swiglu._c.threads import workspace
    from swiglu.torch.plan import Plan

    plan = Plan(x, (*weights, None, None, None), "silu", "separate", "auto")
    held = plan.point((*weights, None, None, None))
    y, dx = torch.empty_like(x), torch.empty_like(x)
    grads = [torch.empty(w.shape) for w in weights]
    for name, gradient in zip(("gate", "up", "down"), grads):
        setattr(plan.grads, name, abi.Rows(gradient.data_ptr(), abi.F32, 0))
    plan.grads.dx = abi.Rows(dx.data_ptr(), abi.F32, 0)
    size, saved = ctypes.c_size_t(), ctypes.c_size_t()
    arguments = (plan.desc_ref, plan.options_ref)
    check(lib.swiglu_train_bytes(*arguments, 1, 0, 1, ctypes.byref(size), ctypes.byref(saved)), "sizes")
    handle = Handle(plan.desc, make_options("auto"))
    work = workspace.reserve(max(size.value, handle.work_bytes(1, 1)))
    rows, out = (abi.Rows(t.data_ptr(), abi.F32, 0) for t in (x, y))

    def step(m: int) -> Callable[[], object]:
        if not backward:
            return lambda: lib.swiglu_forward(handle.pointer, m, rows, out, work, None)

        def both() -> None:
            lib.swiglu_train_forward(*arguments, m, 0, rows, out, None, work, None)
            lib.swiglu_train_backward(*arguments, m, 0, rows, out, None, plan.grads_ref, work, None)

        return both

    took = median_us(step(1)) - median_us(step(0))
    del held, grads
    return took


def overhead() -> list[dict[str, Any]]:
    import swiglu.torch

    x = torch.randn(1, 8)
    weights = [torch.randn(8, 8) for _ in range(3)]
    ffn = swiglu.torch.ffn
    with torch.no_grad():
        without = median_us(lambda: ffn(x, *weights, packed=True)) - c_call_us(x, weights, False)
    parameters = [nn.Parameter(w) for w in weights]
    dy = torch.ones(1, 8)
    inputs = [x.requires_grad_(), *parameters]
    forward = median_us(lambda: ffn(x, *parameters))
    both = median_us(lambda: torch.autograd.grad(ffn(x, *parameters), inputs, dy))
    with torch.no_grad():
        both -= c_call_us(x.detach(), weights, True)
    return [
        {"cell": "overhead 8x8 without gradients", "us": without},
        {"cell": "overhead 8x8 with gradients, forward and backward", "us": both},
        {"cell": "8x8 with gradients, forward alone, C call included", "us": forward},
    ]


def show(cell: dict[str, Any]) -> str:
    if "us" in cell:
        return f"{cell['cell']:52} {cell['us']:7.1f} us"
    text = f"{cell['cell']:36} {cell['ratio']:6.3f}x  [{cell['p10']:.3f} {cell['p90']:.3f}]"
    text += f"  eager {cell['eager_ms']:9.3f} ms  ours {cell['ours_ms']:9.3f} ms"
    if "ours_saved" in cell:
        text += f"  saved {cell['eager_saved'] / 2**20:.1f} -> {cell['ours_saved'] / 2**20:.1f} MiB"
        text += f" ({cell['eager_saved'] / cell['ours_saved']:.1f}x)"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="train,infer,overhead")
    parser.add_argument("--shape", default="2048,5632")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one object a line")
    args = parser.parse_args()
    if args.processes > 1:
        own = [sys.executable, os.path.abspath(__file__), "--json", "--cells", args.cells, "--shape", args.shape]
        own += ["--threads", str(args.threads), "--pairs", str(args.pairs)]
        runs = [subprocess.run(own, stdout=subprocess.PIPE, text=True, check=True).stdout for _ in range(args.processes)]
        columns = zip(*([json.loads(line) for line in run.splitlines()] for run in runs))
        cells = [sorted(column, key=lambda c: c.get("ratio", c.get("us")))[len(column) // 2] for column in columns]
    else:
        torch.set_num_threads(args.threads)
        torch.manual_seed(0)
        d, f = map(int, args.shape.split(","))
        parts = {"train": lambda: train(d, f, args.pairs), "infer": lambda: infer(d, f, args.pairs), "overhead": overhead}
        parts["lora"] = lambda: lora(d, f, args.pairs)
        cells = [cell for name in args.cells.split(",") for cell in parts[name]()]
    for cell in cells:
        print(json.dumps(cell) if args.json else show(cell), flush=True)


if __name__ == "__main__":
    main()
