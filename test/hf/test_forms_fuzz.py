# SPDX-License-Identifier: Apache-2.0
"""Random compositions of the operations that a followed forward may hold: whatever is replaced computes what it did."""
import copy
import random

import pytest
import swiglu
import torch
import torch.nn.functional as F
from test_families import assert_as_good_as
from test_forms import D, FF
from torch import nn

ON_HIDDEN = {  # of one tensor [..., FF]
    "silu": F.silu, "relu": F.relu, "sigmoid": torch.sigmoid, "gelu": F.gelu,
    "gelu_tanh": lambda h: F.gelu(h, approximate="tanh"),
    "x*sigmoid": lambda h: h * torch.sigmoid(h), "x*sigmoid(cx)": lambda h: torch.sigmoid(1.5 * h) * h,
    "relu^2": lambda h: F.relu(h).square(), "relu*relu": lambda h: F.relu(h) * F.relu(h), "square": torch.square,
    "clamp": lambda h: h.clamp(-0.5, 0.75), "clamp_max": lambda h: torch.clamp(h, max=0.5), "half": lambda h: h * 0.5,
    "third": lambda h: h / 3, "minus": lambda h: -h, "plus": lambda h: 1 + h, "double": lambda h: 2.0 * h,
    "contiguous": lambda h: h.contiguous(), "dropout": lambda h: F.dropout(h, 0.25, False), "to": lambda h: h.to(h.dtype),
    "tanh": torch.tanh, "mish": F.mish, "in place": lambda h: F.relu(h, inplace=True), "plus x": lambda h: h + h,
}  # fmt: skip
COMMON = ["silu", "relu", "sigmoid", "gelu", "x*sigmoid", "relu^2", "half", "clamp", "contiguous", "gelu_tanh"]


class Random(nn.Module):
    """A program of random operations on gate and up, joined, and on y."""

    def __init__(self, draw):
        super().__init__()
        self.packed, bias = draw.random() < 0.4, draw.random() < 0.3
        self.first = nn.Linear(D, 2 * FF if self.packed else FF, bias=bias)
        self.second = nn.Linear(D, FF, bias=bias)
        self.last = nn.Linear(FF, D, bias=bias)
        self.join = draw.choice(["gate only", "a*b", "a*b", "b*a", "a*b*c"])
        self.cut = draw.choice(["chunk", "split", "slices", "stripes"])
        names = COMMON if draw.random() < 0.7 else list(ON_HIDDEN)
        pick = lambda most: tuple(draw.choice(names) for _ in range(draw.randint(0, most)))  # noqa: E731
        self.on_gate, self.on_h = pick(3), pick(1)
        if self.packed and self.cut in ("chunk", "split"):  # PyTorch allows no writes into their views
            self.on_gate = tuple(n for n in self.on_gate if n != "in place")
        self.on_up = tuple(n for n in pick(2) if n in ("half", "clamp", "plus", "minus", "contiguous", "relu"))
        self.on_y = draw.choice([(), (), ("half",), ("minus", "third"), ("plus",)])
        self.rows = draw.random() < 0.3

    def both(self, x):
        h = self.first(x)
        if not self.packed:
            return h, self.second(x)
        if self.cut == "chunk":
            return h.chunk(2, -1)
        if self.cut == "split":
            return h.split(FF, dim=-1)
        return (h[..., :FF], h[..., FF:]) if self.cut == "slices" else (h[..., ::2], h[..., 1::2])

    def forward(self, x):
        b, s, d = x.shape
        gate, up = self.both(x.reshape(-1, d) if self.rows else x)
        for name in self.on_gate:
            gate = ON_HIDDEN[name](gate)
        for name in self.on_up:
            up = ON_HIDDEN[name](up)
        h = {"gate only": lambda: gate, "a*b": lambda: gate * up, "b*a": lambda: up * gate, "a*b*c": lambda: gate * up * gate}[
            self.join
        ]()
        for name in self.on_h:
            h = ON_HIDDEN[name](h)
        y = self.last(h)
        for name in self.on_y:
            y = ON_HIDDEN[name](y)
        return y.view(b, s, d) if self.rows else y

    def program(self):
        return (self.packed, self.cut, self.on_gate, self.on_up, self.join, self.on_h, self.on_y, self.rows)


@pytest.mark.parametrize("seed", range(8))
def test_random_forwards(seed):
    draw = random.Random(seed)
    replaced = 0
    for _ in range(60):
        torch.manual_seed(draw.randrange(1 << 30))
        module = Random(draw)
        holder, x = nn.ModuleDict({"mlp": module}).eval(), torch.randn(2, 3, D)
        exact, eager = gradients(copy.deepcopy(holder).double(), x.double()), gradients(holder, x)
        report = swiglu.patch(holder)
        replaced += len(report.replaced)
        for ours, theirs, truth in zip(gradients(holder, x), eager, exact):
            assert_as_good_as(ours, theirs, truth, (module.program(), str(report)))
    assert replaced >= 6  # otherwise nothing was tried


def gradients(holder, x):
    for p in holder.parameters():
        p.grad = torch.zeros_like(p)
    x = x.clone().requires_grad_()
    y = holder["mlp"](x)
    y.square().sum().backward()
    return [y.detach().double(), x.grad.double(), *(p.grad.double() for p in holder.parameters())]


def test_the_comparison_is_sharp():
    """A wrong program is told from a right one."""
    draw = random.Random(0)
    module = Random(draw)
    module.on_gate, module.on_h, module.on_y, module.join, module.rows = ("silu",), (), (), "a*b", False
    holder, x = nn.ModuleDict({"mlp": module}), torch.randn(2, 3, D)
    exact, eager = gradients(copy.deepcopy(holder).double(), x.double()), gradients(holder, x)
    module.on_gate = ("silu", "double")
    with pytest.raises(AssertionError):
        assert_as_good_as(gradients(holder, x)[0], eager[0], exact[0], "")
