# SPDX-License-Identifier: Apache-2.0
"""The operators under PyTorch's own checks, compiled, exported, with autocast, checkpoints, and bad input."""
import copy
import io
import warnings

import pytest
import torch
import torch._dynamo.testing
from swiglu.torch import FFN, ffn
from torch import float16, float32
from torch import bfloat16 as bf16
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

OPS = torch.ops.swiglu
D, F, N = 16, 24, 16


def parts(dtype=float32, bias=True, layout="separate"):
    first = F if layout in ("separate", "ungated") else 2 * F
    shapes = [(first, D), (F, D), (N, F), (first,), (F,), (N,)]
    unused = {"separate": (), "ungated": (0, 3)}.get(layout, (1, 4))
    return [None if i in unused or (i > 2 and not bias) else (torch.randn(s) / 4).to(dtype).requires_grad_()
            for i, s in enumerate(shapes)]


def detached(values):
    return [v.detach() if isinstance(v, torch.Tensor) else v for v in values]


def assert_opcheck(op, arguments):
    assert set(opcheck(op, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("op", [OPS.ffn.default, OPS.ffn_keep.default])
@pytest.mark.parametrize("dtype", [float32, bf16, float16])
@pytest.mark.parametrize("layout", ["separate", "interleaved", "ungated"])
def test_opcheck_with_gradients(op, dtype, layout):
    for shape, bias in (((2, 3, D), True), ((0, D), False)):
        x = torch.randn(shape).to(dtype).requires_grad_()
        assert_opcheck(op, (x, *parts(dtype, bias, layout), "silu", layout, "auto"))


@pytest.mark.parametrize("dtype", [float32, bf16, float16])
def test_opcheck_without_gradients(dtype):
    x, config = torch.randn(2, 3, D).to(dtype), ("gelu", "separate", "auto")
    p = detached(parts(dtype))
    assert_opcheck(OPS.ffn_packed.default, (x, *p, *config))
    dy = torch.randn(2, 3, N).to(dtype)
    _, kept = OPS.ffn_keep(x, *p, *config)
    for keep in (None, kept):
        assert_opcheck(OPS.ffn_backward.default, (dy, keep, x, *p, *config, 127, 0))
        assert_opcheck(OPS.ffn_backward.default, (dy, keep, x, *p, *config, 0b0100100, 0b1111110))


def test_c151_fake_and_real_strides_agree():
    """pytorch's check on [2, 3, H], transposed and sliced inputs; backward too."""
    config = ("silu", "separate", "auto")
    for x in (torch.randn(2, 3, D), torch.randn(D, 5).t(), torch.randn(5, 3 * D)[:, D : 2 * D], torch.randn(4, 2 * D)[:, ::2]):
        p = parts()
        p[0] = torch.randn(D, F).t().requires_grad_()
        p[2] = torch.randn(N, 2 * F)[:, ::2].requires_grad_()
        assert_opcheck(OPS.ffn.default, (x.requires_grad_(), *p, *config))
        dy = torch.randn(N, *x.shape[:-1]).movedim(0, -1)
        assert_opcheck(OPS.ffn_backward.default, (dy, None, x.detach(), *detached(p), *config, 127, 0))


def compare(module, compiled, x):
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    y1, y2 = module(x1), compiled(x2)
    assert torch.equal(y1, y2)
    g1 = torch.autograd.grad(y1.square().sum(), [x1, *module.parameters()])
    g2 = torch.autograd.grad(y2.square().sum(), [x2, *module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(g1, g2))


@pytest.mark.parametrize("policy", ["recompute", "keep"])
def test_c149_compiled_geglu(policy):
    torch._dynamo.reset()
    module = FFN(D, F, activation="gelu", bias=True, policy=policy)
    compare(module, torch.compile(module, fullgraph=True), torch.randn(5, D))


def test_c152_fullgraph_on_the_first_call_and_no_recompile():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    module = FFN(D, F)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    for rows in (2, 7, 64):
        compare(module, compiled, torch.randn(rows, D))
    assert counter.frame_count == 1
    compare(module, compiled, torch.randn(1, D))  # PyTorch may treat a size of 1 apart
    assert counter.frame_count <= 2


def test_compiled_inference_uses_the_packed_copy():
    from swiglu.torch import packed

    torch._dynamo.reset()
    module = FFN(D, F).eval()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, D)
    with torch.no_grad():
        y = compiled(x)
        block = packed._blocks[module.down_proj.weight.data_ptr()]
        assert torch.equal(y, module(x))
        assert packed._blocks[module.down_proj.weight.data_ptr()] is block
        module.up_proj.weight.mul_(2)
        assert torch.equal(compiled(x), module(x)) and not torch.equal(compiled(x), y)


def test_export():
    module, x = FFN(D, F, bias=True).eval(), torch.randn(4, D)
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: rows},))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for n in (4, 9):
        x = torch.randn(n, D)
        assert torch.equal(again(x), module(x))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("policy", ["recompute", "keep"])
def test_c064_checkpoints(reentrant, policy):
    """128 -> 256 -> 128, bias, packed, bf16: gradients as without."""
    gate = (torch.randn(512, 128) / 11).to(bf16).requires_grad_()
    down = (torch.randn(128, 256) / 16).to(bf16).requires_grad_()
    gate_bias, down_bias = torch.randn(512).to(bf16).requires_grad_(), torch.randn(128).to(bf16).requires_grad_()
    leaves = [torch.randn(3, 128).to(bf16).requires_grad_(), gate, down, gate_bias, down_bias]

    def block(x):
        return ffn(x, gate, None, down, gate_bias, None, down_bias, layout="gate_up", policy=policy)

    dy = torch.randn(3, 128).to(bf16)

    def gradients(y):
        for leaf in leaves:
            leaf.grad = None
        y.backward(dy)
        return [leaf.grad for leaf in leaves]

    plain = gradients(block(leaves[0]))
    saved = gradients(checkpoint(block, leaves[0], use_reentrant=reentrant))
    assert all(torch.equal(a, b) for a, b in zip(plain, saved))


@pytest.mark.parametrize("dtype", [bf16, float16])
@pytest.mark.parametrize("reentrant", [False, True])
def test_c065_autocast_with_checkpoint_and_loss_scaler(dtype, reentrant):
    module, x = FFN(D, F, bias=True), torch.randn(6, D)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step(call):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            y = call(x.clone().requires_grad_())
        assert y.dtype == dtype
        scaler.scale(y.float().square().mean()).backward()
        scaler.unscale_(optimizer)
        scaler.update()
        return [p.grad for p in module.parameters()]

    plain = step(module)
    saved = step(lambda x: checkpoint(module, x, use_reentrant=reentrant))
    assert all(g.dtype == float32 for g in plain)
    assert all(torch.equal(a, b) for a, b in zip(plain, saved))
    y = module(x)
    eager = torch.autograd.grad(y.square().mean(), list(module.parameters()))
    for ours, full in zip(plain, eager):  # x, y, dy (and in bf16 the weights, h, dg, du) are rounded once each
        assert (ours - full).norm() <= 8 * (2.0**-8 if dtype == bf16 else 2.0**-11) * full.norm()


@pytest.mark.parametrize("dtype", [bf16, float16])
def test_c076_autocast_behaves_as_linear(dtype):
    """f32 x with low-precision weights: low-precision output inside autocast; outside y has the dtype of x."""
    p, x = parts(dtype), torch.randn(3, D)
    with torch.autocast("cpu", dtype=dtype):
        assert ffn(x, *p).dtype == dtype
        assert torch.equal(ffn(x, *p), ffn(x.to(dtype), *p))
    y = ffn(x, *p)
    assert y.dtype == float32
    wide = ffn(x, *[t.float() for t in p])
    assert (y - wide).norm() <= 4 * 2.0**-8 * wide.norm()


def test_c077_half_on_the_cpu():
    module = FFN(D, F, bias=True, dtype=float16)
    wide = copy.deepcopy(module).float()
    x = torch.randn(5, D, dtype=float16)
    ours, full = module(x), wide(x.float())
    assert torch.allclose(ours.float(), full, rtol=1e-2, atol=1e-2)
    ours.sum().backward()
    full.sum().backward()
    for a, b in zip(module.parameters(), wide.parameters()):
        assert a.grad.dtype == float16
        assert torch.allclose(a.grad.float(), b.grad, rtol=1e-2, atol=1e-2)


def test_meta_and_fake_tensors_tell_shapes():
    module = FFN(D, F, 7, device="meta")
    y = module(torch.empty(2, 3, D, device="meta"))
    assert y.shape == (2, 3, 7) and y.is_meta and y.requires_grad
    with torch._subclasses.FakeTensorMode():
        assert FFN(D, F)(torch.empty(4, D)).shape == (4, D)


def test_other_devices_say_so_once():
    """A device that this machine has not is stood in for by the branch's own functions."""
    from swiglu.torch import plain

    p, x = parts(), torch.randn(3, D)
    for activation in ("silu", "gelu", "gelu_tanh", "relu", "relu2", "sigmoid", "identity", "quick_gelu", "gpt_oss", "step",
                       "xielu", "situ"):
        assert torch.allclose(plain.plain_ffn(x, tuple(p), activation, "separate"), ffn(x, *p, activation=activation), atol=1e-4)
    for layout in ("gate_up", "up_gate", "interleaved", "ungated"):
        q = tuple(parts(layout=layout))
        assert torch.allclose(plain.plain_ffn(x, q, "silu", layout), ffn(x, *q, layout=layout), atol=1e-4)
    device = torch.device("xpu")
    with pytest.warns(UserWarning, match="tensors on xpu go through plain PyTorch operators"):
        plain.tell_once(device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.tell_once(device)


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"x": torch.zeros(3, D + 1)}, ValueError, r"x has shape \(3, 17\), expected \[..., 16\]"),
        ({"x": torch.zeros(3, D, dtype=torch.float64)}, TypeError, "x is torch.float64"),
        ({"x": torch.zeros(3, D, dtype=torch.int32)}, TypeError, "x is torch.int32"),
        ({"x": torch.zeros(())}, ValueError, r"x has shape \(\)"),
        ({"up": torch.zeros(F + 1, D)}, ValueError, r"up has shape \(25, 16\), expected \(24, 16\)"),
        ({"up": torch.zeros(F, D, dtype=torch.float64)}, TypeError, "up is torch.float64"),
        ({"up": torch.zeros(F, D, device="meta")}, ValueError, "up is on meta, x is on cpu"),
        ({"up": torch.zeros(F)}, ValueError, r"up has shape \(24,\)"),
        ({"up": None}, ValueError, "up is None: for a packed gate name its layout"),
        ({"down_bias": torch.zeros(3)}, ValueError, r"down_bias has shape \(3,\), expected \(16,\)"),
        ({"activation": "silly"}, ValueError, "unknown activation 'silly'"),
        ({"layout": "sideways"}, ValueError, "layout 'sideways'"),
        ({"layout": "ungated"}, ValueError, "gate is given, but layout 'ungated' does not use it"),
        ({"policy": "forget"}, ValueError, "policy 'forget'"),
        ({"compute": "f64"}, ValueError, "compute 'f64'"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_input(change, error, text, packed):
    arguments = dict(zip(("gate", "up", "down", "gate_bias", "up_bias", "down_bias"), parts()), x=torch.randn(3, D))
    ffn(**arguments, packed=packed)  # a plan and a packed copy are there already
    with torch.set_grad_enabled(not packed):
        ffn(**arguments, packed=packed)
        with pytest.raises(error, match=text):
            ffn(**{**arguments, **change}, packed=packed)


def test_bad_names_are_refused_when_a_module_is_made():
    for bad in ({"activation": "silly"}, {"policy": "forget"}, {"compute": "f64"}):
        with pytest.raises(ValueError, match=next(iter(bad.values()))):
            FFN(D, F, **bad)


def test_modes_and_profiles_see_the_operators():
    p, x = parts(bias=False), torch.randn(3, D)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ffn(x, *p).sum().backward()
        with torch.no_grad():
            ffn(x, *p, packed=True)
    names = {event.key for event in profile.key_averages()}
    assert {"swiglu::ffn", "swiglu::ffn_backward", "swiglu::ffn_packed"} <= names
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: ffn(x, *detached(p)))(x)
    assert any(node.target is OPS.ffn.default for node in graph.graph.nodes)
