# SPDX-License-Identifier: Apache-2.0
"""Forms that other people write a block in: replaced by what their forward computes, and right."""
import copy
import functools

import numpy as np
import pytest
import swiglu
import torch
import torch.nn.functional as F
from swiglu.torch.recipe import parts_of
from test_families import array, assert_as_good_as
from torch import nn

D, FF = 8, 12


class Two(nn.Module):
    """fc1, fc2 and what stands between them."""

    def __init__(self, width=FF, bias=True):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(D, width, bias=bias), nn.Linear(FF, D, bias=bias)
        self.act, self.function = nn.SiLU(), F.silu
        self.drop = nn.Dropout(0.5)
        self.scale, self.more, self.p = 0.5, 3.0, 0.25


class Three(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.gate, self.up = nn.Linear(D, FF, bias=bias), nn.Linear(D, FF, bias=bias)
        self.down = nn.Linear(FF, D, bias=bias)
        self.act = nn.SiLU()
        self.drop = nn.Dropout(0.5)
        self.scale, self.more, self.limit, self.p = 0.5, 3.0, 0.75, 0.25


def form(base, **options):
    """A class with this forward, and a made module of it."""

    def decorate(forward):
        cls = type(forward.__name__, (base,), {"forward": forward})
        return functools.partial(cls, **options)

    return decorate


packed = functools.partial(form, Two, width=2 * FF)
FORMS = {}


def block(layout, activation, maker=None):
    def add(make):
        FORMS[make.func.__name__ if hasattr(make, "func") else make.__name__] = (make, layout, activation)
        return make

    return add if maker is None else add(maker)


# ---- halves of one product ----


@block("gate_up", "silu")
@packed()
def split_by_number(self, x):
    gate, up = self.fc1(x).split(FF, dim=-1)
    return self.fc2(F.silu(gate) * up)


@block("up_gate", "gelu")
@packed()
def split_by_list(self, x):
    up, gate = torch.split(self.fc1(x), [FF, FF], -1)
    return self.fc2(up * F.gelu(gate))


@block("gate_up", "relu")
@packed()
def slices(self, x):
    both = self.fc1(x)
    return self.fc2(F.relu(both[..., :FF]) * both[..., FF:])


@block("interleaved", "silu")
@packed()
def every_second(self, x):
    both = self.fc1(x)
    return self.fc2(F.silu(both[..., ::2]) * both[..., 1::2])


@block("up_gate", "sigmoid")
@packed()
def glu(self, x):
    return self.fc2(F.glu(self.fc1(x), dim=-1))


@block("up_gate", "sigmoid")
@packed()
def glu_module(self, x):
    return self.fc2(nn.GLU.forward(nn.GLU(), self.fc1(x)))


@block("gate_up", "silu")
@packed(bias=False)
def third_dimension(self, x):
    gate, up = self.fc1(x).chunk(2, dim=2)
    return self.fc2(F.silu(gate) * up)


# ---- activations ----


@block("separate", "silu")
@form(Three)
def x_times_sigmoid(self, x):
    gate = self.gate(x)
    return self.down(gate * torch.sigmoid(gate) * self.up(x))


@block("separate", "silu(alpha=1.702)")
@form(Three, bias=True)
def gpt_oss(self, x):
    gate, up = self.gate(x).clamp(max=self.limit), self.up(x).clamp(min=-self.limit, max=self.limit)
    return self.down((up + 1) * (gate * torch.sigmoid(gate * 1.702)))


FORMS["gpt_oss"] = (FORMS["gpt_oss"][0], "separate", "silu(alpha=1.702, up_offset=1.0, gate_hi=0.75, up_lo=-0.75, up_hi=0.75)")


@block("ungated", "relu2")
@form(Two)
def relu_square(self, x):
    return self.fc2(F.relu(self.fc1(x)).square())


@block("ungated", "relu2")
@form(Two)
def relu_to_the_power(self, x):
    return self.fc2(torch.pow(torch.relu(self.fc1(x)), 2))


@block("separate", "relu2")
@form(Three)
def relu_times_relu(self, x):
    r = self.gate(x).relu()
    return self.down(r * r * self.up(x))


@block("ungated", "silu")
@form(Two)
def function_as_attribute(self, x):
    return self.fc2(self.function(self.fc1(x)))


class Helpers(Two):
    @staticmethod
    def activate(h):
        return F.gelu(h, approximate="tanh")

    def first(self, x):
        return self.activate(self.fc1(x))

    def forward(self, x):
        return self.fc2(self.first(x))


block("ungated", "gelu_tanh", Helpers)


@block("ungated", "relu")
@form(Two)
def relu_in_place(self, x):
    return self.fc2(F.relu(self.fc1(x), inplace=True))


@block("separate", "identity")
@form(Three)
def bilinear(self, x):
    return self.down(self.gate(x) * self.up(x))


@block("separate", "step")
@form(Three)
def clamped_after(self, x):
    return self.down(F.silu(self.gate(x)).clamp(max=self.limit) * self.up(x).clamp(-self.limit, self.limit))


FORMS["clamped_after"] = (FORMS["clamped_after"][0], "separate", "silu(gate_hi=0.75, up_lo=-0.75, up_hi=0.75, clamp_after=True)")


# ---- constants ----


@block("separate", "silu(alpha=0.5)")
@form(Three)
def multipliers(self, x):
    """Falcon-H1."""
    y = self.up(x) * self.act(self.gate(x) * self.scale)
    return self.down(y) * self.more


@block("separate", "relu")
@form(Three)
def multipliers_elsewhere(self, x):
    return -self.down(F.relu(self.gate(x) / 4) * (2 * self.up(x)) * self.scale)


@block("ungated", "silu")
@form(Two)
def multiplier_behind_a_bias(self, x):
    return self.fc2(self.act(self.fc1(x))) * self.more


# ---- shapes around ----


@block("ungated", "silu")
@form(Two)
def rows_and_back(self, x):
    b, s, d = x.shape
    return self.fc2(self.act(self.fc1(x.view(-1, d)))).view(b, s, d)


@block("ungated", "silu")
@form(Two)
def rows_only(self, x):
    return self.fc2(self.act(self.fc1(x.flatten(0, 1))))


@block("gate_up", "silu")
@packed()
def shape_of_x(self, x):
    shape = x.shape
    gate, up = self.fc1(x.reshape(-1, shape[-1])).chunk(2, -1)
    return self.fc2(self.act(gate) * up).reshape(*shape[:-1], -1).contiguous()


@block("ungated", "silu")
@form(Two)
def view_as(self, x):
    return self.fc2(self.act(self.fc1(x.reshape(x.size(0) * x.size(1), x.size(2))))).view_as(x)


# ---- dropouts that are inactive ----


@block("separate", "silu")
@form(Three)
def dropouts(self, x):
    h = F.dropout(self.act(self.gate(x)) * self.up(x), self.p, self.training)
    return self.drop(self.down(self.drop(h)))


@block("separate", "silu")
@form(Three)
def t5(self, x):
    h = self.drop(self.act(self.gate(x)) * self.up(x))
    if isinstance(self.down.weight, torch.Tensor) and h.dtype != self.down.weight.dtype and self.down.weight.dtype != torch.int8:
        h = h.to(self.down.weight.dtype)
    return self.down(h)


# ---- children that stand deeper ----


def sequential():
    return nn.Sequential(nn.Linear(D, FF), nn.GELU("tanh"), nn.Dropout(0.5), nn.Linear(FF, D), nn.Dropout(0.5))


def relu_sequential():
    return nn.Sequential(nn.Linear(D, FF), nn.ReLU(inplace=True), nn.Linear(FF, D))


def glu_sequential():
    return nn.Sequential(nn.Linear(D, 2 * FF), nn.GLU(), nn.Linear(FF, D))


block("ungated", "gelu_tanh", sequential)
block("ungated", "relu", relu_sequential)
block("up_gate", "sigmoid", glu_sequential)


class Geglu(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(D, 2 * FF)

    def gelu(self, gate):
        if gate.device.type == "mps":
            return F.gelu(gate.to(dtype=torch.float32)).to(dtype=gate.dtype)
        return F.gelu(gate)

    def forward(self, hidden_states, *args, **kwargs):
        hidden_states = self.proj(hidden_states)
        hidden_states, gate = hidden_states.chunk(2, dim=-1)
        return hidden_states * self.gelu(gate)


class Diffusers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.ModuleList([Geglu(), nn.Dropout(0.0), nn.Linear(FF, D)])

    def forward(self, hidden_states, *args, **kwargs):
        for module in self.net:
            hidden_states = module(hidden_states)
        return hidden_states


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"in": nn.Linear(D, FF), "act": nn.Identity(), "out": nn.Linear(FF, D)})

    def forward(self, x):
        return self.parts["out"](F.gelu(self.parts["act"](self.parts["in"](x))))


class Derived(Geglu):
    """By super(), and with a subclass of nn.Linear that writes the product out, as Falcon does."""

    class Linear(nn.Linear):
        def forward(self, input):
            hidden_states = input @ self.weight.T
            return hidden_states if self.bias is None else hidden_states + self.bias

    def __init__(self):
        super().__init__()
        self.proj, self.out = self.Linear(D, 2 * FF), self.Linear(FF, D, bias=False)

    def forward(self, x):
        return self.out(super().forward(x))


for made, layout, activation in [
    (Diffusers, "up_gate", "gelu"),
    (Dictionary, "ungated", "gelu"),
    (Derived, "up_gate", "gelu"),
]:
    block(layout, activation, made)


def made_of(make, dtype=torch.float32):
    torch.manual_seed(0)
    module = make()
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0, p.shape[-1] ** -0.5)
    return nn.ModuleDict({"mlp": module}).to(dtype).eval()


def gradients(holder, x):
    x = x.clone().requires_grad_()
    y = holder["mlp"](x)
    holder.zero_grad()
    y.square().sum().backward()
    return [y.detach().double(), x.grad.double(), *(p.grad.double() for p in holder.parameters())]


@pytest.mark.parametrize("name", FORMS)
def test_is_replaced_and_right(name):
    make, layout, activation = FORMS[name]
    holder, x = made_of(make), torch.randn(2, 5, D, generator=torch.Generator().manual_seed(1))
    exact, eager = gradients(copy.deepcopy(holder).double(), x.double()), gradients(holder, x)
    report = swiglu.patch(holder)
    assert [(e.layout, e.activation) for e in report.replaced] == [(layout, activation)] and not report.left
    for ours, theirs, truth in zip(gradients(holder, x), eager, exact):
        assert ours.shape == theirs.shape
        assert_as_good_as(ours, theirs, truth, name)
    with torch.no_grad():
        y = holder["mlp"](x)
    assert report.fallbacks == 0, report
    recipe = holder["mlp"]._swiglu.recipe
    parts = [array(t) for t in parts_of(holder["mlp"], recipe)]
    names = ("gate_bias", "up_bias", "down_bias")
    reference, bound = swiglu.reference(
        x.numpy(), *parts[:3], activation=recipe.activation, layout=recipe.layout, **dict(zip(names, parts[3:]))
    )
    # A constant that was moved behind the block is one rounding more.
    reference, bound = reference * recipe.scale, abs(recipe.scale) * bound + 2.0**-24 * abs(recipe.scale * reference)
    assert np.all(np.abs(y.numpy().reshape(reference.shape) - reference) <= bound)
    assert swiglu.restore(holder) == 1
    with torch.no_grad():
        assert torch.equal(holder["mlp"](x), eager[0].float())


@pytest.mark.parametrize("name", ["dropouts", "t5", "sequential"])
def test_a_dropout_inside_runs_when_it_is_active(name):
    """The same outputs drop with the same seed; where its probability is 0 the block stays fused."""
    holder, x = made_of(FORMS[name][0]), torch.randn(2, 5, D)
    results = []
    for patched in (False, True):
        report = swiglu.patch(holder) if patched else None
        torch.manual_seed(3)
        results.append(holder.train()["mlp"](x))
    assert torch.equal(*results)
    assert report.fallbacks == 1 and "a dropout inside is active" in next(iter(report.replaced[0].fallbacks))
    for module in holder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
        if hasattr(module, "p") and isinstance(module, Three):
            module.p = 0.0
    holder["mlp"](x)
    assert report.fallbacks == 1


CHANGES = {
    "multipliers": (lambda m: setattr(m, "scale", 2.0), "scale is not what it was"),
    "multipliers bias": (lambda m: setattr(m.down, "bias", nn.Parameter(torch.ones(D))), "down has a bias"),
    "multipliers half": (lambda m: m.half(), "float16 could overflow"),
    "function_as_attribute": (lambda m: setattr(m, "function", F.gelu), "function is not what it was"),
    "t5": (lambda m: m.bfloat16(), "looks at dtypes"),
    "Dictionary": (lambda m: m.parts["act"].register_forward_hook(lambda *_: None), "parts.act has hooks"),
    "Diffusers": (lambda m: setattr(m.net[0].proj, "bias", None), None),
    "glu_sequential": (lambda m: m.__setitem__(1, nn.Identity()), "1 is another module now"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_proof_took_for_granted_is_asked_at_each_call(name):
    change, reason = CHANGES[name]
    holder, x = made_of(FORMS[name.split()[0]][0]), torch.randn(2, 5, D)
    report = swiglu.patch(holder)
    change(holder["mlp"])
    x = x.to(next(holder.parameters()).dtype)
    outcomes = []
    for patched in (True, False):
        if not patched:
            swiglu.restore(holder)
        try:
            with torch.no_grad():
                outcomes.append(holder["mlp"](x))
        except RuntimeError as error:  # widths no longer fit
            outcomes.append(str(error))
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        torch.testing.assert_close(*outcomes)
    found = list(report.replaced[0].fallbacks)
    assert (not found) if reason is None else (len(found) == 1 and reason in found[0])


def test_x_of_another_rank_falls_back():
    holder = made_of(FORMS["third_dimension"][0])
    report = swiglu.patch(holder)
    x = torch.randn(2, 3, 5, D)
    with torch.no_grad(), pytest.raises((RuntimeError, ValueError)):  # as the original does
        holder["mlp"](x)
    assert list(report.replaced[0].fallbacks) == ["x has 4 dimensions, its forward asks for 3"]


def test_slices_of_a_patched_sequential_are_ordinary():
    holder, x = made_of(sequential), torch.randn(2, D)
    swiglu.patch(holder)
    with torch.no_grad():
        assert torch.equal(holder["mlp"][:1](x), holder["mlp"][0](x))
    assert copy.deepcopy(holder)["mlp"]._swiglu.recipe == holder["mlp"]._swiglu.recipe


def test_xielu_has_values_that_it_learns():
    activations = pytest.importorskip("transformers.activations")
    holder, x = made_of(functools.partial(Two, bias=False)), torch.randn(2, 5, D)
    holder["mlp"].act = activations.XIELUActivation(dtype=torch.float32)
    type(holder["mlp"]).forward = lambda self, x: self.fc2(self.act(self.fc1(x)))
    try:
        with torch.no_grad():
            eager = holder["mlp"](x)
            report = swiglu.patch(holder)
            assert report.replaced[0].activation.startswith("xielu(param=")
            torch.testing.assert_close(holder["mlp"](x), eager)
            assert report.fallbacks == 0
            holder["mlp"].act.alpha_p += 1
            changed = holder["mlp"](x)
            assert not torch.allclose(changed, eager) and report.replaced[0].fallbacks == {"act is another activation now": 1}
            holder["mlp"].act.alpha_p -= 1
        holder["mlp"](x).sum().backward()
        assert holder["mlp"].act.alpha_p.grad is not None
        assert "parameters of act are trained" in report.replaced[0].fallbacks
    finally:
        del Two.forward
