# SPDX-License-Identifier: Apache-2.0
"""Modules that do one thing more than a block are left, with the operation in the reason; or their two products are
evaluated as one inside of their own forward."""
import copy
import re

import pytest
import swiglu
import torch
import torch.nn.functional as F
from test_families import assert_as_good_as
from test_forms import D, FF, Three, Two, form, gradients, made_of, packed

LEFT, INSIDE = {}, {}


def left(reason):
    def add(make):
        LEFT[make.func.__name__] = (make, reason)
        return make

    return add


def inside(make):
    INSIDE[make.func.__name__] = make
    return make


@left(r"computes fc2\(silu\(fc1\(x\)\) \+ fc1\(x\)\), which is not a block")
@form(Two)
def residual_inside(self, x):
    return self.fc2(F.silu(self.fc1(x)) + self.fc1(x))


@left("softmax")
@packed()
def softmax_of_a_half(self, x):
    gate, up = self.fc1(x).split(FF, dim=-1)
    return self.fc2(torch.softmax(gate, -1) * up)


@left("pad")
@packed()
def uneven_split(self, x):
    gate, up = self.fc1(x)[..., : 2 * FF - 4].split(FF - 2, -1)
    return F.pad(F.silu(gate) * up, (0, 2)) @ self.fc2.weight


@left(r"\[0:12\]")
@packed()
def same_half_twice(self, x):
    both = self.fc1(x)
    return self.fc2(F.silu(both[..., :FF]) * both[..., :FF])


@left(r"sigmoid\(up\(x\)\) \* up\(x\) \* gate\(x\)")
@form(Three)
def sigmoid_of_another(self, x):
    return self.down(self.gate(x) * torch.sigmoid(self.up(x)) * self.up(x) * self.gate(x))


@left(r"\*\* 3")
@form(Two)
def relu_cubed(self, x):
    return self.fc2(F.relu(self.fc1(x)) ** 3)


@left("in place")
@form(Two)
def changes_in_place(self, x):
    h = self.fc1(x)
    h += 1
    return self.fc2(F.silu(h))


@left("inplace=True")
@form(Two)
def relu_in_place_seen_by_others(self, x):
    h = self.fc1(x)
    return self.fc2(F.relu(h, inplace=True) * h)


@left(r"gelu\(gate\(x\) \* 0.5\)")
@form(Three)
def constant_in_a_gelu(self, x):
    return self.down(F.gelu(self.gate(x) * self.scale) * self.up(x))


@left("which has a bias")
@form(Two)
def constant_before_a_bias(self, x):
    return self.fc2(self.scale * self.act(self.fc1(x)))


@left("constants")
@form(Three)
def huge_constant(self, x):
    return self.down(self.act(self.gate(x) * 1e30) * self.up(x))


@inside
@form(Two)
def transposed(self, x):
    return self.fc2(self.act(self.fc1(x.transpose(0, 1))))


@inside
@form(Two)
def other_rows(self, x):
    b, s, d = x.shape
    return self.fc2(self.act(self.fc1(x))).view(s, b, d)


@inside
@form(Two)
def wider_rows(self, x):
    return self.fc2(self.act(self.fc1(x.reshape(-1, 2 * D)[:, :D])))


@left("layer_norm")
@form(Two)
def norm_inside(self, x):
    return self.fc2(F.layer_norm(self.act(self.fc1(x)), (FF,)))


@left(r"fc2\(act\(fc1\(fc2\(")
@form(Two)
def linear_once_more(self, x):
    return self.fc2(self.act(self.fc1(self.fc2(self.act(self.fc1(x))))))


@left("converts .* to torch.float64")
@form(Two)
def other_dtype(self, x):
    return self.fc2(self.act(self.fc1(x).double()).to(x.dtype))


@left("mish")
@form(Two)
def unknown_function(self, x):
    return self.fc2(F.mish(self.fc1(x)))


@pytest.mark.parametrize("name", INSIDE)
def test_other_shapes_are_evaluated_inside_of_the_forward(name):
    """No formula of x row by row: the forward itself runs, and its two products are one."""
    holder, x = made_of(INSIDE[name]), torch.randn(2, 4, D, generator=torch.Generator().manual_seed(1))
    exact, eager = gradients(copy.deepcopy(holder).double(), x.double()), gradients(holder, x)
    report = swiglu.patch(holder)
    assert [e.name for e in report.replaced] == ["mlp.fc1+fc2"] and not report.left
    for ours, theirs, truth in zip(gradients(holder, x), eager, exact):
        assert_as_good_as(ours, theirs, truth, name)
    assert report.fallbacks == 0 and swiglu.restore(holder) == 1


@pytest.mark.parametrize("name", LEFT)
def test_one_operation_more_is_left(name):
    make, reason = LEFT[name]
    holder = made_of(make)
    classes = [type(m) for m in holder.modules()]
    report = swiglu.patch(holder)
    assert not report.replaced and [type(m) for m in holder.modules()] == classes
    assert [e.name for e in report.left] == ["mlp"]
    assert re.search(reason, report.left[0].reason), report.left[0].reason
