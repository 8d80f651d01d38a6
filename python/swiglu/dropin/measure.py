# SPDX-License-Identifier: Apache-2.0
"""Each block of a model, eager against patched, on the inputs that the model really gives it."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..torch.function import check_module
from ..torch.recipe import evaluate, obstacle
from .classes import Patched, State
from .proof import Proof, prove
from .trace import NotProven


@dataclasses.dataclass(frozen=True)
class Layer:
    """error: |patched - eager| in the Frobenius norm, as a share of |eager|; worst: the largest difference as a share of the
    largest |eager|. Times in milliseconds, medians."""

    name: str
    rows: int
    error: float
    worst: float
    eager_ms: float
    patched_ms: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """print(comparison) shows it."""

    layers: list[Layer]

    def __str__(self) -> str:
        lines = [f"{'block':32} {'rows':>6} {'error':>9} {'worst':>9} {'eager ms':>9} {'swiglu ms':>9} {'ratio':>6}"]
        for layer in self.layers:
            lines.append(
                f"{layer.name:32} {layer.rows:6} {layer.error:9.1e} {layer.worst:9.1e} {layer.eager_ms:9.3f}"
                f" {layer.patched_ms:9.3f} {layer.eager_ms / layer.patched_ms:6.2f}"
            )
        eager, ours = (sum(getattr(layer, key) for layer in self.layers) for key in ("eager_ms", "patched_ms"))
        lines.append(f"{'all blocks':32} {'':6} {'':9} {'':9} {eager:9.3f} {ours:9.3f} {eager / (ours or 1):6.2f}")
        return "\n".join(lines)


def compare(model: nn.Module, inputs: Any, repeats: int = 5) -> Comparison:
    """Runs model once on inputs (a tensor, a tuple, or keyword arguments in a mapping), keeps what each provable block was
    given, and evaluates each block both ways in inference, interleaved. The model is left as it was, patched or not.

    Raises TypeError (not a module), ValueError (repeats below 1, no such block was called, no rows) and FreedWeightError."""
    check_module("model", model)
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}, not at least 1")
    with torch.no_grad():
        given, recipes = _record(model, inputs)
        if not given:
            raise ValueError("no feed-forward block that swiglu evaluates was called")
        empty = next((name for name, (_, x) in given.items() if not x.numel()), None)
        if empty is not None:
            raise ValueError(f"{empty} was given no rows")
        layers = [_measure(name, module, recipes[name], x, repeats) for name, (module, x) in given.items()]
    return Comparison(layers)


def _record(model: nn.Module, inputs: Any) -> tuple[dict[str, tuple[nn.Module, Tensor]], dict[str, State]]:
    recipes: dict[str, State] = {}
    given: dict[str, tuple[nn.Module, Tensor]] = {}
    handles = []

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            x = args[0] if args else next(iter(kwargs.values()), None)
            if isinstance(x, Tensor):
                given[name] = module, x.detach().clone()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, Patched):
            if module._swiglu.freed is None and obstacle(module, module._swiglu.recipe):
                continue  # it runs the original forward
            recipes[name] = module._swiglu
        else:
            try:
                recipes[name] = _unpatched(prove(module))
            except NotProven:
                continue
        handles.append(module.register_forward_pre_hook(keep(name), with_kwargs=True))
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        if isinstance(inputs, Mapping):
            model(**inputs)
        else:
            model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in was_training.items():
            module.training = training
    return given, recipes


def _unpatched(proof: Proof) -> State:
    return State(proof.recipe, "", "recompute", proof)


def _measure(name: str, module: nn.Module, state: State, x: Tensor, repeats: int) -> Layer:
    original: Any = type(module)._swiglu_original if isinstance(module, Patched) else type(module)
    was_training, module.training = module.training, False
    try:
        times: tuple[list[float], list[float]] = ([], [])
        outputs: list[Any] = [None, None]
        ways: tuple[Callable[[], Any], ...] = (
            lambda: original.forward(module, x),
            lambda: evaluate(module, state.recipe, x),
        )
        for repeat in range(repeats + 1):  # the first round packs and warms up
            for i, way in enumerate(ways):
                start = time.perf_counter()
                outputs[i] = way()
                if repeat:
                    times[i].append(1e3 * (time.perf_counter() - start))
    finally:
        module.training = was_training
    eager, ours = (y.double() for y in outputs)
    difference = ours - eager
    return Layer(
        name=name,
        rows=x.numel() // x.shape[-1],
        error=float(difference.norm() / eager.norm()),
        worst=float(difference.abs().max() / eager.abs().max()),
        eager_ms=statistics.median(times[0]),
        patched_ms=statistics.median(times[1]),
    )
