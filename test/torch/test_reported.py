# SPDX-License-Identifier: Apache-2.0
"""What users of other libraries reported, one test each; the numbers are those of the list of cases."""
import pytest
import torch
from swiglu.torch import FFN, ffn
from torch import nn


def eager(x, gate, up, down, gate_bias=None, up_bias=None, down_bias=None):
    linear = nn.functional.linear
    return linear(nn.functional.silu(linear(x, gate, gate_bias)) * linear(x, up, up_bias), down, down_bias)


def weights(d, f, bias=False):
    shapes = [(f, d), (f, d), (d, f)] + [(f,), (f,), (d,)] * bias
    return [nn.Parameter(torch.randn(s) / s[-1] ** 0.5) for s in shapes]


@pytest.mark.parametrize("policy", ["recompute", "keep"])
def test_c058_no_rows(policy):
    module = FFN(2100, 64, bias=True, policy=policy)
    x = torch.empty(0, 2100, requires_grad=True)
    y = module(x)
    y.sum().backward()
    assert y.shape == (0, 2100) and x.grad.shape == (0, 2100)
    for p in module.parameters():
        assert p.grad.shape == p.shape and torch.equal(p.grad, torch.zeros_like(p))
    with torch.no_grad():
        assert module.eval()(x).shape == (0, 2100)


@pytest.mark.parametrize("policy", ["recompute", "keep"])
def test_c062_saved_tensors_are_not_overwritten(policy):
    """exp saves its own output; both sides of the block read it."""
    one = torch.eye(4)
    x = torch.randn(3, 4, requires_grad=True)
    results = []
    for block in (lambda y: ffn(y, one, one, one, policy=policy), lambda y: eager(y, one, one, one)):
        y = x.exp()
        before = y.detach().clone()
        (dx,) = torch.autograd.grad(block(y).sum(), x)
        assert torch.equal(y, before)
        results.append(dx)
    assert torch.allclose(*results, rtol=1e-6, atol=1e-6)


def test_c067_narrow_gradients():
    """cat hands a view of a wider gradient down."""
    w = weights(6, 10)
    x, scale = torch.randn(3, 6, requires_grad=True), torch.randn(3, 12)
    results = []
    for block in (ffn, eager):
        z = torch.cat([block(x, *w), x], -1)
        results.append(torch.autograd.grad((z * scale).sum(), [x, *w]))
    for ours, theirs in zip(*results):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["recompute", "keep"])
def test_c068_bias_gradients_are_sums_over_rows(policy):
    from swiglu._c.threads import workspace

    w = weights(5, 9, bias=True)
    x, dy = torch.randn(4, 5), torch.randn(4, 5)
    ffn(x, *w, policy=policy).backward(dy)  # makes the workspace
    workspace._memory._array[:] = 0xFF  # NaN
    for p in w:
        p.grad = None
    ffn(x, *w, policy=policy).backward(dy)
    gate_bias, up_bias, down_bias = (p.grad for p in w[3:])
    assert gate_bias.shape == (9,) and up_bias.shape == (9,) and down_bias.shape == (5,)
    assert torch.allclose(down_bias, dy.sum(0), atol=1e-6)
    g, u = x @ w[0].T + w[3], x @ w[1].T + w[4]
    dh, s = dy @ w[2], torch.sigmoid(g)
    assert torch.allclose(up_bias, (dh * g * s).sum(0), atol=1e-5)
    assert torch.allclose(gate_bias, (dh * u * s * (1 + g * (1 - s))).sum(0), atol=1e-5)


def test_c070_gate_and_up_gradients_under_their_names():
    """gate = 1.5, up = 2, dy = 1: dgate = 2.08259, dup = 1.22636."""
    gate, up, down = torch.tensor([[1.5]]), torch.tensor([[2.0]]), torch.tensor([[1.0]])
    dgate, dup = torch.autograd.grad(ffn(torch.ones(1, 1), gate.requires_grad_(), up.requires_grad_(), down), [gate, up])
    assert abs(dgate.item() - 2.08259) < 1e-5 and abs(dup.item() - 1.22636) < 1e-5


def test_c071_micro_batches_in_float32():
    """Gradients 256 and 1 of a bf16 parameter: 257 with grad_dtype float32; bf16 cannot hold it."""
    def gradient(dtype):
        w = [torch.eye(1, dtype=torch.bfloat16) for _ in range(2)]
        down = nn.Parameter(torch.ones(1, 1, dtype=torch.bfloat16))
        if dtype is not None:
            down.grad_dtype = dtype
        for size in (256, 1):
            x = torch.ones(1, 1, dtype=torch.bfloat16)
            y = ffn(x, *w, down, activation="identity")
            y.backward(torch.full_like(y, size))
        return down.grad

    wide, plain = gradient(torch.float32), gradient(None)
    assert wide.dtype == torch.float32 and wide.item() == 257
    assert plain.dtype == torch.bfloat16 and plain.item() == 256


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("compiled", [False, True])
def test_c074_changes_in_place_are_an_error(compiled, policy):
    torch._dynamo.reset()
    module = FFN(4, 8, policy=policy)
    call = torch.compile(module, fullgraph=True, backend="aot_eager") if compiled else module
    for change in ("x", "weight"):
        x = torch.randn(3, 4)
        y = call(x)
        with torch.no_grad():
            (x if change == "x" else module.up_proj.weight).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
