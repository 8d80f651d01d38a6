# SPDX-License-Identifier: Apache-2.0
"""Second derivatives: those of PyTorch's operators, of first ones that stay the library's."""

import pytest
import torch
from swiglu.torch import ffn
from swiglu.torch.plain import plain_ffn

D, F, N = 24, 40, 20
# Of a chain of 8 products of depth F at most, each with a relative error of F eps, and 3 bits for what cancels
ROUNDING = 8 * F * 2**-24 * 8
LAYOUTS = {"separate": (F, F), "gate_up": (2 * F, None), "interleaved": (2 * F, None), "ungated": (None, F)}


def make(layout, bias, dtype=torch.float32):
    """x and the six parts, those that the layout has."""
    torch.manual_seed(3)
    gate, up = LAYOUTS[layout]
    shapes = [(7, D), gate and (gate, D), up and (up, D), (N, F), gate and bias and (gate,), up and bias and (up,), bias and (N,)]
    return [torch.randn(s, dtype=dtype).div_(4).requires_grad_() if s else None for s in shapes]


def present(block):
    return [t for t in block if t is not None]


def second(y, block, dy, directions):
    """Gradients of <first gradients, directions> with respect to dy and every tensor of the block."""
    first = torch.autograd.grad(y, present(block), dy, create_graph=True)
    total = sum((g * v).sum() for g, v in zip(first, directions))
    return torch.autograd.grad(total, [dy, *present(block)], allow_unused=True)


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", "gpt_oss"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_they_are_those_of_plain_operators(layout, activation, bias, policy):
    if layout == "ungated" and activation == "gpt_oss":
        return  # gpt_oss has an up side
    block = make(layout, bias)
    dy, directions = torch.randn(7, N, requires_grad=True), [torch.randn_like(t) for t in present(block)]
    ours = second(ffn(*block, activation=activation, layout=layout, policy=policy), block, dy, directions)
    theirs = second(plain_ffn(block[0], tuple(block[1:]), activation, layout), block, dy, directions)
    for a, b in zip(ours, theirs):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)  # the same operators on the same numbers
    assert any(g is not None and g.abs().max() > 0 for g in ours)


def test_first_ones_keep_their_bits():
    block = make("separate", True)
    y = ffn(*block)
    plain = torch.autograd.grad(y.sum(), block, retain_graph=True)
    graph = torch.autograd.grad(y.sum(), block, create_graph=True)
    assert all(torch.equal(a, b) and b.requires_grad for a, b in zip(plain, graph))


def test_a_hessian_vector_product_accumulates_in_parameters():
    """The use of it: backward() through a penalty on the gradient."""
    block = make("separate", False)
    (dx,) = torch.autograd.grad(ffn(*block).square().sum(), block[0], create_graph=True)
    dx.square().sum().backward()
    wide = [None if t is None else t.detach().double().requires_grad_() for t in block]
    x, gate, up, down = wide[:4]
    h = torch.nn.functional.silu(x @ gate.t()) * (x @ up.t())
    (dx,) = torch.autograd.grad((h @ down.t()).square().sum(), x, create_graph=True)
    dx.square().sum().backward()
    for a, b in zip(present(block), present(wide)):
        assert (a.grad - b.grad).norm() <= ROUNDING * b.grad.norm()


def test_third_ones():
    def third(function, x, parts):
        (g,) = torch.autograd.grad(function(x, parts).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), x, create_graph=True)
        return torch.autograd.grad(h.sum(), x)[0]

    x, *parts = make("separate", False)
    ours = third(lambda x, parts: ffn(x, *parts), x, parts)
    theirs = third(lambda x, parts: plain_ffn(x, tuple(parts), "silu", "separate"), x, parts)
    assert (ours - theirs).norm() <= ROUNDING * theirs.norm()
    assert theirs.norm() > 0


def test_of_mixed_dtypes():
    block = make("separate", False, torch.bfloat16)
    block = [t if i == 0 or t is None else t.detach().float().requires_grad_() for i, t in enumerate(block)]
    (dx,) = torch.autograd.grad(ffn(*block).sum(), block[0], create_graph=True)
    dx.float().sum().backward()
    assert block[1].grad.dtype is torch.float32 and block[1].grad.abs().max() > 0


def test_a_graph_that_is_made_and_not_used_does_no_harm():
    block = make("separate", False)
    (dx,) = torch.autograd.grad(ffn(*block).sum(), block[0], create_graph=True)
    (dx.detach().sum() + block[0].sum()).backward()
    assert torch.equal(block[0].grad, torch.ones_like(block[0]))
