# SPDX-License-Identifier: Apache-2.0
"""Tensors, moments and callers that few think of: right, or refused by name."""
import concurrent.futures
import os
import signal
import subprocess
import sys

import pytest
import swiglu
import torch
from swiglu.torch import FFN, ffn, packed, results
from torch.autograd import forward_ad

D, F = 16, 24


def weights(*, d=D, f=F, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in ((f, d), (f, d), (d, f))]


def negated(tensor):
    """The same values behind PyTorch's negative bit."""
    view = torch._neg_view(-tensor)
    assert view.is_neg() and torch.equal(view, tensor)
    return view


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("packed", [False, True])
def test_negative_bit(which, packed):
    tensors = [torch.randn(5, D), *weights()]
    with torch.set_grad_enabled(not packed):
        expected = ffn(*tensors, packed=packed)
        tensors[which] = negated(tensors[which])
        assert torch.equal(ffn(*tensors, packed=packed), expected)


def test_negative_bit_of_gradients():
    x, dy, w = torch.randn(5, D, requires_grad=True), torch.randn(5, D), weights()
    expected = torch.autograd.grad(ffn(x, *w), x, dy)[0]
    assert torch.equal(torch.autograd.grad(ffn(x, *w), x, negated(dy))[0], expected)


def test_forward_mode_gradients_are_not_zero():
    x, t, w = torch.randn(5, D), torch.randn(5, D), weights()
    module = FFN(D, F).eval()

    def eager(x, gate, up, down):
        return torch.nn.functional.linear(torch.nn.functional.silu(x @ gate.T) * (x @ up.T), down)

    for ours, theirs in ((lambda x: ffn(x, *w), lambda x: eager(x, *w)),
                         (module, lambda x: eager(x, *(p.detach() for p in module.parameters())))):
        assert torch.allclose(torch.func.jvp(ours, (x,), (t,))[1], torch.func.jvp(theirs, (x,), (t,))[1], atol=1e-5)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(ffn(forward_ad.make_dual(x, t), *w))
    assert torch.allclose(dual.tangent, torch.func.jvp(lambda x: eager(x, *w), (x,), (t,))[1], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.float64, torch.complex64])
def test_autocast_casts_no_other_types(dtype):
    x = torch.ones(5, D).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(TypeError, match=f"x is {dtype}"):
            ffn(x, *weights())
        with pytest.raises(TypeError, match=f"x is {dtype}"):
            FFN(D, F)(x)


@pytest.mark.parametrize("change, error, text", [
    (lambda x, g, u, d: (x, g, u, None), ValueError, "down is None"),
    (lambda x, g, u, d: (None, g, u, d), TypeError, "x must be a torch.Tensor, not NoneType"),
    (lambda x, g, u, d: (x.numpy(), g, u, d), TypeError, "x must be a torch.Tensor, not ndarray"),
    (lambda x, g, u, d: (x, g.numpy(), u, d), TypeError, "gate must be a torch.Tensor, not ndarray"),
    (lambda x, g, u, d: (x.to_sparse(), g, u, d), TypeError, "x is torch.sparse_coo"),
    (lambda x, g, u, d: (x, g, u.to_sparse(), d), TypeError, "up is torch.sparse_coo"),
    (lambda x, g, u, d: (x, g, u, d.T), ValueError, r"down has shape \(24, 16\), expected \(24, 24\)"),
    (lambda x, g, u, d: (x, g[:-1], u, d), ValueError, r"gate has shape \(23, 16\), expected \(24, 16\)"),
])
def test_wrong_tensors_are_named(change, error, text):
    for inference in (False, True):
        with torch.set_grad_enabled(not inference), pytest.raises(error, match=text):
            ffn(*change(torch.randn(5, D), *weights()), packed=inference)


@pytest.mark.parametrize("activation", [None, 3, ["silu"]])
def test_wrong_activations_are_named(activation):
    with pytest.raises(TypeError, match="activation must be a name or a swiglu.Activation"):
        ffn(torch.randn(5, D), *weights(), activation=activation)


def test_kept_values_of_another_form_are_refused():
    x, w = torch.randn(8, D), weights()
    block = (x, *w, None, None, None, "silu", "separate", "auto")
    y, kept = torch.ops.swiglu.ffn_keep(*block)
    wide = torch.zeros(kept.numel(), 2)
    for wrong in (wide[:, 0], kept[:1].expand(kept.numel()), kept.double(), kept[:-1]):
        with pytest.raises(ValueError, match="kept has"):
            torch.ops.swiglu.ffn_backward(y, wrong, *block, 1, 0)
    with pytest.raises(TypeError, match="dy is torch.float64"):
        torch.ops.swiglu.ffn_backward(y.double(), kept, *block, 1, 0)


def test_rows_of_nothing():
    nothing, some = torch.empty(2**40, 0), torch.randn(F, 0)
    assert ffn(nothing, some, some, torch.randn(0, F)).shape == (2**40, 0)


def test_blocks_that_share_a_down_weight_keep_a_copy_each():
    gate, up, down = weights()
    x, other = torch.randn(3, D), torch.randn(F, D)
    with torch.no_grad():
        results = [ffn(x, g, up, down, packed=True, compute=c) for g in (gate, other) for c in ("f32", "bf16")]
        blocks = list(packed._blocks[down.data_ptr()])
        again = [ffn(x, g, up, down, packed=True, compute=c) for g in (gate, other) for c in ("f32", "bf16")]
        assert len(blocks) == 4 and list(packed._blocks[down.data_ptr()]) == blocks
        assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))
        for i in range(20):
            ffn(x, gate, up, down, packed=True, activation=f"silu(gate_hi={i + 1}.0)")
        assert len(packed._blocks[down.data_ptr()]) <= packed._MOST_OF_ONE
    address = down.data_ptr()
    ffn(x.requires_grad_(), gate, up, down)  # an optimiser may follow
    assert address not in packed._blocks


def test_a_call_within_a_call():
    """A signal handler computes at any moment of another computation of the same thread."""
    x, dy = torch.randn(33, 64), torch.randn(33, 64)
    blocks = [[p.to(torch.float16) for p in weights(d=64, f=128, seed=seed)] for seed in (0, 1)]

    def step(w):
        block = (x, *w, None, None, None, "silu", "separate", "auto")
        y, kept = torch.ops.swiglu.ffn_keep(*block)
        return [y, *torch.ops.swiglu.ffn_backward(dy, kept, *block, 15, 0), ffn(x, *w, packed=True)]

    def same(got, want):
        return all(torch.equal(p, q) for p, q in zip(got, want, strict=True))

    wrong, calls = [], []

    def handler(*_):
        calls.append(1)
        if not same(step(blocks[1]), expected[1]):
            wrong.append("inner")
        if len(calls) < 500:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with torch.no_grad():
            expected = [step(w) for w in blocks]
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            while len(calls) < 500 and not wrong:
                if not same(step(blocks[0]), expected[0]):
                    wrong.append("outer")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_does_not_wait_for_a_lock_of_its_parent():
    tensors = [torch.ones(shape) for shape in ((512, 4), (8, 4), (8, 4), (4096, 8))]  # PyTorch's own threads stay here
    with results._kept._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            large = ffn(*tensors)
            os._exit(0 if large.numel() * 4 >= swiglu._c.memory.LARGE_FROM else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_daemon_threads_may_compute_while_the_interpreter_ends():
    code = """
import threading, time, numpy as np, swiglu
g = np.ones((256, 256), np.float32)
b, x = swiglu.Block(g, g, g, threads=1), np.ones((64, 256), np.float32)
def work():
    while True:
        b(x)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(5):
        assert subprocess.run([sys.executable, "-c", code], env=env, timeout=60).returncode == 0


def test_every_thread_has_its_own():
    """Plans and scratch memory that are taken and given back do not travel between threads."""
    w = [p.to(torch.bfloat16).requires_grad_() for p in weights()]
    x = torch.randn(700, D, dtype=torch.bfloat16)
    expected = torch.autograd.grad(ffn(x, *w).sum(), w)

    def same(_):
        results = (torch.autograd.grad(ffn(x, *w).sum(), w) for _ in range(30))
        return all(torch.equal(p, q) for got in results for p, q in zip(got, expected, strict=True))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, range(4)))
