# SPDX-License-Identifier: Apache-2.0
"""Values and gradients of every layout, activation, dtype, bias and policy against doubles with bounds."""
import pytest
import swiglu
import torch
from exact import ROUNDING, Exact, assert_close
from swiglu.torch import ffn
from torch import float16, float32
from torch import bfloat16 as bf16

D, F, N = 24, 40, 20
NAMES = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")
LAYOUTS = ("separate", "gate_up", "up_gate", "interleaved", "ungated")
SMOOTH = [n for n in swiglu.activation_names() if n not in ("xielu", "situ")]


def make(layout="separate", dtype=float32, bias=True, d=D, f=F, n=N):
    first = 2 * f if layout in LAYOUTS[1:4] else f
    shapes = [(first, d), (f, d), (n, f), (first,), (f,), (n,)]
    unused = {"separate": (), "ungated": (0, 3)}.get(layout, (1, 4))
    parts = []
    for i, shape in enumerate(shapes):
        absent = i in unused or (i > 2 and not bias)
        parts.append(None if absent else torch.nn.Parameter((torch.randn(shape) / shape[-1] ** 0.5).to(dtype)))
    return parts


def check(x, parts, activation="silu", layout="separate", policy="recompute", dy=None):
    x = x.requires_grad_()
    y = ffn(x, *parts, activation=activation, layout=layout, policy=policy)
    dy = torch.randn(y.shape).to(y.dtype) if dy is None else dy
    present = [i for i, p in enumerate(parts) if p is not None]
    dx, *grads = torch.autograd.grad(y, [x, *[parts[i] for i in present]], dy)
    low = parts[2].dtype == bf16
    exact = Exact(x, parts, dy, activation, layout, low)
    assert_close(y, exact.y, "y")
    assert_close(dx, exact.dx, "dx")
    for i, gradient in zip(present, grads):
        assert gradient.dtype == parts[i].dtype and gradient.shape == parts[i].shape
        assert_close(gradient, exact.parts[i], NAMES[i], ROUNDING[gradient.dtype])
    return y, dx, grads


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [float32, bf16, float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype, bias, policy):
    check(torch.randn(2, 5, D).to(dtype), make(layout, dtype, bias), "silu", layout, policy)


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("activation", SMOOTH)
def test_activations(activation, policy):
    check(3 * torch.randn(40, D), make(), activation, policy=policy)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", "relu2", "quick_gelu"])
def test_ungated_activations(activation):
    check(3 * torch.randn(40, D), make("ungated"), activation, "ungated")


@pytest.mark.parametrize("activation", ["xielu", "situ"])
def test_derivatives_against_differences(activation):
    """The two whose doubles are not written down here: gradients against central differences of the forward."""
    parts = [p.detach() for p in make(bias=False)[:3]]
    x, v, w = torch.randn(6, D), torch.randn(6, D), torch.randn(6, N)
    t = torch.zeros((), requires_grad=True)
    (slope,) = torch.autograd.grad((ffn(x + t * v, *parts, activation=activation) * w).sum(), t)
    step = 2.0**-8
    ends = [(ffn(x + s * v, *parts, activation=activation).double() * w).sum() for s in (step, -step)]
    assert abs((ends[0] - ends[1]) / (2 * step) - slope) < 2e-3 * (1 + abs(slope))


def test_policy_and_threads_change_no_bits():
    for dtype in (float32, bf16):
        results = []
        for threads in (1, 2, 3):
            for policy in ("recompute", "keep"):
                torch.set_num_threads(threads)
                torch.manual_seed(1)
                y, dx, grads = check(torch.randn(130, D).to(dtype), make(dtype=dtype), policy=policy)
                results.append([y, dx, *grads])
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("rows", [1, 2, 3, 511, 513, 1025])
def test_row_counts(rows):
    check(torch.randn(rows, 9), make(d=9, f=7, n=5))


@pytest.mark.parametrize("x_dtype", [float32, bf16, float16])
@pytest.mark.parametrize("w_dtype", [float32, float16])
def test_mixed_dtypes(x_dtype, w_dtype):
    """y has the dtype of x; gradients that of their parameter."""
    y, dx, _ = check(torch.randn(5, D).to(x_dtype), make(dtype=w_dtype))
    assert y.dtype == dx.dtype == x_dtype


def test_transposed_weights_are_used_as_they_lie():
    """Conv1D keeps [inputs, outputs]; its transposed view and its gradient need no copy."""
    plain = make(bias=False)
    stored = [None if p is None else torch.nn.Parameter(p.detach().t().contiguous()) for p in plain]
    x, dy = torch.randn(7, D), torch.randn(7, N)
    y1, dx1, g1 = check(x.clone(), plain, dy=dy)
    y2, dx2, g2 = check(x.clone(), [None if p is None else p.t() for p in stored], dy=dy)
    assert torch.equal(y1, y2) and torch.equal(dx1, dx2)
    assert all(torch.equal(a, b) for a, b in zip(g1, g2))
    gradient = torch.ops.swiglu.ffn_backward(torch.ones(7, N), None, x, *[p.t().detach() for p in stored[:3]],
                                             None, None, None, "silu", "separate", "auto", 2, 0)[0]
    assert gradient.shape == (F, D) and gradient.t().is_contiguous()


def test_strided_inputs_and_gradients():
    parts = make()
    x = torch.randn(6, 2 * D)
    wide = torch.randn(6, 3 * N)
    for view in (x[:, D:], x[:, ::2], x.t().contiguous().t()[:, :D], torch.randn(D, 6).t(), x[:1, :D].expand(6, D),
                 torch.randn(2, 3, 2, D)[:, :, 0]):
        check(view.detach(), parts)
    for dy in (wide[:, N : 2 * N], wide[:, ::3], torch.randn(N, 6).t(), torch.ones(()).expand(6, N), wide[:1, :N].expand(6, N)):
        check(torch.randn(6, D), parts, dy=dy)


def test_strided_weights():
    parts = make()
    sliced = [torch.randn(2 * F, 2 * D)[::2, ::2], torch.randn(F, D + 3)[:, :D], torch.randn(1, F).expand(N, F), *parts[3:]]
    sliced[3] = torch.randn(2 * F)[::2]
    check(torch.randn(5, D), [p.detach().requires_grad_() for p in sliced])


@pytest.mark.parametrize("policy", ["recompute", "keep"])
def test_only_what_is_needed(policy):
    torch.set_num_threads(1)
    for wanted in range(1, 128):
        x, parts = torch.randn(3, D), make()
        tensors = [x, *parts]
        for i, tensor in enumerate(tensors):
            tensor.requires_grad_(bool(wanted >> i & 1))
        chosen = [t for t in tensors if t.requires_grad]
        grads = torch.autograd.grad(ffn(x, *parts, policy=policy).sum(), chosen)
        exact = Exact(x, parts, torch.ones(3, N))
        expected = [e for i, e in enumerate([exact.dx, *exact.parts]) if wanted >> i & 1]
        for gradient, e in zip(grads, expected):
            assert_close(gradient, e, f"mask {wanted}")


def test_no_gradient_is_recorded_without_need():
    parts = [p.detach() for p in make()]
    assert ffn(torch.randn(3, D), *parts).grad_fn is None
    with torch.no_grad():
        assert ffn(torch.randn(3, D), *make()).grad_fn is None
    with torch.inference_mode():
        assert ffn(torch.randn(3, D), *make()).is_inference()


def test_second_backward_and_graph_reuse():
    x, parts = torch.randn(4, D, requires_grad=True), make()
    for policy in ("recompute", "keep"):
        y = ffn(x, *parts, policy=policy)
        first = torch.autograd.grad(y.sum(), [x, *parts], retain_graph=True)
        second = torch.autograd.grad(y.sum(), [x, *parts])
        assert all(torch.equal(a, b) for a, b in zip(first, second))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y.sum(), x)


def test_saved_memory():
    """recompute keeps x and the parameters, keep also 8 bytes per row and hidden unit."""
    x, parts = torch.randn(64, D, requires_grad=True), make()

    def saved(policy):
        sizes = {}

        def pack(t):
            sizes[t.data_ptr()] = t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            ffn(x, *parts, policy=policy)
        return sum(sizes.values()) - sum(p.numel() * 4 for p in parts)

    assert saved("recompute") == 64 * D * 4
    assert saved("keep") == 64 * D * 4 + 64 * 2 * ((F + 63) // 64 * 64) * 4


def test_adjoint():
    """<dy, J v> = <J^T dy, v>, J v by differences of the forward."""
    x, parts = torch.randn(8, D), make(bias=False)
    v, w = torch.randn(8, D), torch.randn(8, N)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(ffn(x, *parts), x, w)
    step = 2.0**-9
    with torch.no_grad():
        forward = (ffn(x + step * v, *parts).double() - ffn(x - step * v, *parts).double()) / (2 * step)
    left, right = (forward * w).sum(), (dx.double() * v).sum()
    assert abs(left - right) < 2e-3 * (forward.abs() * w.abs()).sum() ** 0.5


def test_float32_gradients_of_bf16_parameters():
    """grad_dtype decides; without it the gradient is rounded once to the parameter's dtype."""
    x, parts = torch.randn(5, D).to(bf16), make(dtype=bf16, bias=False)
    for p in parts[:3]:
        p.grad_dtype = torch.float32
    dy = torch.randn(5, N).to(bf16)
    ffn(x, *parts).backward(dy)
    exact = Exact(x, parts, dy, low=True)
    for name, p, e in zip(NAMES, parts[:3], exact.parts):
        assert p.grad.dtype == torch.float32
        assert_close(p.grad, e, name)
