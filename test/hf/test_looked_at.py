# SPDX-License-Identifier: Apache-2.0
"""Whoever looks at a patched block (inspect, torch.fx, torch.jit.script) finds the original, and it stays patched."""
import inspect
import warnings

import pytest
import swiglu
import torch
import torch.nn.functional as F
from families import blocks, make
from swiglu.dropin.classes import Patched
from torch import nn


class Gated(nn.Module):
    width: int

    def __init__(self):
        super().__init__()
        self.width = 12
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(hidden_states)) * self.up(hidden_states))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.norm = Gated(), nn.LayerNorm(8)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def script(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(module)


@pytest.mark.parametrize("cls", [Gated, Layer])
@pytest.mark.parametrize("look", [torch.fx.symbolic_trace, script])
def test_tracers_see_the_original(cls, look):
    module, x = cls().eval(), torch.randn(3, 8)
    expected = module(x)
    report = swiglu.patch(module)
    assert len(report.replaced) == 1
    seen = look(module)
    assert torch.equal(seen(x), expected) and report.fallbacks == 0
    assert sum(isinstance(m, Patched) for m in module.modules()) == 1
    y = module(x)
    assert torch.allclose(y, expected, atol=1e-6) and report.fallbacks == 0
    assert not any(isinstance(m, Patched) for m in seen.modules()) or look is torch.fx.symbolic_trace
    swiglu.restore(module)
    assert torch.equal(look(module)(x), expected)


def test_fx_keeps_the_names_of_the_original():
    module = Gated()
    before = torch.fx.symbolic_trace(module).code
    swiglu.patch(module)
    assert torch.fx.symbolic_trace(module).code == before


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi3"])
def test_signatures_are_the_originals(family):
    model = make(family)
    before = [inspect.signature(block.forward) for _, block in blocks(model)]
    sources = [inspect.getsource(type(block).forward) for _, block in blocks(model)]
    swiglu.patch(model)
    assert [inspect.signature(block.forward) for _, block in blocks(model)] == before
    assert [inspect.getsource(type(block).forward) for _, block in blocks(model)] == sources
    traced = [torch.fx.symbolic_trace(block) for _, block in blocks(model)]
    x = torch.randn(2, 3, model.config.hidden_size)
    for (_, block), seen in zip(blocks(model), traced):
        with torch.no_grad():
            assert torch.allclose(block.eval()(x), seen.eval()(x), atol=1e-6)
