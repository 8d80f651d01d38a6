# SPDX-License-Identifier: Apache-2.0
"""Blocks in the form in which other libraries write them: timm, torchvision, torchtune, DINOv2 and what xformers packs."""
import copy

import pytest
import swiglu
import torch
import torch.nn.functional as F
from test_families import assert_as_good_as
from test_forms import D, FF, gradients, made_of
from torch import nn


class Mlp(nn.Module):
    """timm: dropouts, and a norm that is nn.Identity unless it is asked for."""

    def __init__(self, act_layer=nn.GELU, norm_layer=None, drop=0.0):
        super().__init__()
        self.fc1, self.act, self.drop1 = nn.Linear(D, FF), act_layer(), nn.Dropout(drop)
        self.norm = norm_layer(FF) if norm_layer is not None else nn.Identity()
        self.fc2, self.drop2 = nn.Linear(FF, D), nn.Dropout(drop)

    def forward(self, x):
        x = self.fc1(x)
        x = self.act(x)
        x = self.drop1(x)
        x = self.norm(x)
        x = self.fc2(x)
        x = self.drop2(x)
        return x


class GluMlp(Mlp):
    def __init__(self, act_layer=nn.Sigmoid, gate_last=True, **options):
        super().__init__(act_layer, **options)
        self.fc1, self.chunk_dim, self.gate_last = nn.Linear(D, 2 * FF), -1, gate_last

    def forward(self, x):
        x = self.fc1(x)
        x1, x2 = x.chunk(2, dim=self.chunk_dim)
        x = x1 * self.act(x2) if self.gate_last else self.act(x1) * x2
        x = self.drop1(x)
        x = self.norm(x)
        x = self.fc2(x)
        x = self.drop2(x)
        return x


class SwiGLU(Mlp):
    def __init__(self, act_layer=nn.SiLU, **options):
        super().__init__(act_layer, **options)
        self.fc1_g, self.fc1_x = nn.Linear(D, FF), nn.Linear(D, FF)
        del self.fc1

    def forward(self, x):
        x_gate = self.fc1_g(x)
        x = self.fc1_x(x)
        x = self.act(x_gate) * x
        return self.drop2(self.fc2(self.norm(self.drop1(x))))


class TorchvisionMLP(nn.Sequential):
    """A subclass of nn.Sequential with dropouts that work in place."""

    def __init__(self, inplace=True):
        super().__init__(nn.Linear(D, FF), nn.ReLU(inplace), nn.Dropout(0.1, inplace), nn.Linear(FF, D), nn.Dropout(0.1, inplace))


class Torchtune(nn.Module):
    def __init__(self, gated=True, activation=nn.SiLU()):  # noqa: B008 # shared by all, as there
        super().__init__()
        self.w1, self.w2 = nn.Linear(D, FF, bias=False), nn.Linear(FF, D, bias=False)
        self.w3 = nn.Linear(D, FF, bias=False) if gated else None
        self.activation = activation

    def forward(self, x):
        h = self.activation(self.w1(x))
        if self.w3 is not None:
            h = h * self.w3(x)
        h = self.w2(h)
        return h


class SwiGLUFFN(nn.Module):
    """DINOv2, with the names of xformers."""

    def __init__(self):
        super().__init__()
        self.w12, self.w3 = nn.Linear(D, 2 * FF), nn.Linear(FF, D)

    def forward(self, x):
        x12 = self.w12(x)
        x1, x2 = x12.chunk(2, dim=-1)
        hidden = F.silu(x1) * x2
        return self.w3(hidden)


class OwnLinears(SwiGLUFFN):
    """xformers itself: its function is given the weights."""

    def forward(self, x):
        w1, w2 = torch.unbind(self.w12.weight.view([2, FF, D]), dim=0)
        return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w2), self.w3.weight, self.w3.bias)


TAKEN = {
    "timm Mlp": (Mlp, "ungated", "gelu"),
    "timm GluMlp": (GluMlp, "up_gate", "sigmoid"),
    "timm SwiGLUPacked": (lambda: GluMlp(nn.SiLU, gate_last=False), "gate_up", "silu"),
    "timm SwiGLU": (SwiGLU, "separate", "silu"),
    "torchvision MLP": (TorchvisionMLP, "ungated", "relu"),
    "torchtune": (Torchtune, "separate", "silu"),
    "torchtune ungated": (lambda: Torchtune(False), "ungated", "silu"),
    "DINOv2": (SwiGLUFFN, "gate_up", "silu"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_is_replaced_and_right(name):
    make, layout, activation = TAKEN[name]
    holder, x = made_of(make), torch.randn(2, 5, D, generator=torch.Generator().manual_seed(1))
    exact, eager = gradients(copy.deepcopy(holder).double(), x.double()), gradients(holder, x)
    report = swiglu.patch(holder)
    assert [(e.layout, e.activation) for e in report.replaced] == [(layout, activation)]
    for ours, theirs, truth in zip(gradients(holder, x), eager, exact):
        assert_as_good_as(ours, theirs, truth, name)
    assert report.fallbacks == 0


LEFT = {
    "a norm": (lambda: Mlp(norm_layer=nn.LayerNorm), r"norm is a LayerNorm"),
    "a norm behind a gate": (lambda: GluMlp(norm_layer=nn.LayerNorm), r"norm is a LayerNorm"),
    "another activation": (lambda: SwiGLU(nn.Mish), "act is a Mish"),
    "another axis": (lambda: setattr(m := GluMlp(), "chunk_dim", 1) or m, r"takes chunk\(2, 1\)"),
    "weights that it reads": (OwnLinears, "w12.weight"),
}


@pytest.mark.parametrize("name", LEFT)
def test_one_thing_more_is_left(name):
    make, reason = LEFT[name]
    report = swiglu.patch(made_of(make))
    assert not report.replaced
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(report.left[0].reason)
