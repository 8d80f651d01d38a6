# SPDX-License-Identifier: Apache-2.0
"""Gradients and calls that PyTorch batches with vmap."""
import pytest
import torch
from swiglu.torch import FFN, ffn

D, F = 6, 10
POLICIES = ("recompute", "keep")


def weights(dtype=torch.float32):
    shapes = ((F, D), (F, D), (D, F), (F,), (F,), (D,))
    return [(torch.randn(*shape) / 3).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_is_grads_batched(policy, dtype):
    """The gradients of each dy, bit for bit."""
    w, x = weights(dtype), torch.randn(4, D, dtype=dtype, requires_grad=True)
    y, many = ffn(x, *w, policy=policy), torch.randn(5, 4, D, dtype=dtype)
    batched = torch.autograd.grad(y, (x, *w), many, is_grads_batched=True, retain_graph=True)
    for i, dy in enumerate(many):
        single = torch.autograd.grad(y, (x, *w), dy, retain_graph=True)
        assert all(torch.equal(b[i], s) for b, s in zip(batched, single, strict=True))


def test_is_grads_batched_of_a_compiled_module():
    module = FFN(D, F, policy="keep").train()
    x = torch.randn(4, D, requires_grad=True)
    y, many = module(x), torch.randn(5, 4, D)
    expected = torch.autograd.grad(y, x, many, is_grads_batched=True)
    torch._dynamo.reset()
    y = torch.compile(module, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(torch.stack([torch.autograd.grad(y, x, dy, retain_graph=True)[0] for dy in many]), expected[0])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian(policy, vectorize):
    w, x = weights(), torch.randn(2, D)

    def run(x, gate, down):
        return ffn(x, gate, w[1], down, *w[3:], policy=policy)

    ours = torch.autograd.functional.jacobian(run, (x, w[0], w[2]), vectorize=vectorize)
    one_by_one = torch.autograd.functional.jacobian(run, (x, w[0], w[2]))
    assert all(torch.equal(a, b) for a, b in zip(ours, one_by_one, strict=True))


def test_jacobian_of_a_patched_block_and_of_forward_mode():
    """vectorize with forward mode goes through plain operators."""
    w, x = weights(), torch.randn(2, D)
    reverse = torch.autograd.functional.jacobian(lambda x: ffn(x, *w), x, vectorize=True)
    forward = torch.autograd.functional.jacobian(lambda x: ffn(x, *w), x, vectorize=True, strategy="forward-mode")
    assert torch.allclose(reverse, forward, atol=1e-5)


@pytest.mark.parametrize("dims", [(0, None), (1, None), (None, 0), (0, 0), (2, 1)])
@pytest.mark.parametrize("mode", ["packed", "recompute", "keep"])
def test_vmap(dims, mode):
    w = [p.detach() for p in weights()]
    x, gate = torch.randn(5, 5, D, 5)[..., 0], w[0]
    x = torch.randn(5, 5, 5, D) if dims[0] != 2 else torch.randn(3, 4, 5, D)
    if dims[1] is not None:
        gate = torch.stack([w[0] * (i + 1) for i in range(5)], dims[1])

    def run(x, gate):
        options = {"packed": True} if mode == "packed" else {"policy": mode}
        with torch.no_grad():
            return ffn(x, gate, *w[1:], **options)

    y = torch.func.vmap(run, in_dims=dims)(x, gate)
    for i in range(5):
        each = [t if dim is None else t.select(dim, i) for t, dim in zip((x, gate), dims)]
        assert torch.equal(y[i], run(*each))
