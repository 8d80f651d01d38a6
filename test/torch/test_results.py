# SPDX-License-Identifier: Apache-2.0
"""Memory of large results: reused once nobody holds the result, and never before."""

import concurrent.futures
import gc
from pathlib import Path

import pytest
import torch

import swiglu.torch
from swiglu.torch import results

LARGE = results.LARGE_FROM


@pytest.fixture(autouse=True)
def nothing_kept():
    swiglu.torch.release_memory()
    yield
    swiglu.torch.release_memory()


def large(dtype=torch.float32, n_bytes=LARGE):
    return results.empty(torch.empty(0), (n_bytes // dtype.itemsize // 4, 4), dtype)


HOLDERS = {
    "tensor": lambda t: t,
    "slice": lambda t: t[5:],
    "transposed": lambda t: t.t(),
    "detached": lambda t: t.detach(),
    "parameter": lambda t: torch.nn.Parameter(t),
    "storage": lambda t: t.untyped_storage(),
    "numpy": lambda t: t.numpy(),
    "numpy slice": lambda t: t.numpy()[3:, :2],
    "buffer": lambda t: memoryview(t.numpy()),
    "dlpack": lambda t: t.__dlpack__(),
    "saved for backward": lambda t: (t * torch.ones(1, requires_grad=True)).grad_fn,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_is_held_is_left_alone(name):
    first = large()
    address, held = first.data_ptr(), HOLDERS[name](first)
    del first
    assert large().data_ptr() != address
    del held
    gc.collect()
    assert large().data_ptr() == address


def test_live_results_never_share_memory():
    """Held in every way in which a program holds its results: names, lists, arguments, closures, other threads."""

    def as_argument(t):
        return t.data_ptr() not in {large().data_ptr() for _ in range(3)}

    tensor = large()
    assert as_argument(tensor) and as_argument(large()) and (lambda: as_argument(tensor))()
    many = [large() for _ in range(8)]
    assert len({t.data_ptr() for t in (*many, tensor)}) == 9
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            held = list(threads.map(lambda _: large(), range(8)))
            assert len({t.data_ptr() for t in held}) == 8


def test_nothing_counts_references():
    """A count that means "free" on one version of Python means "held" on another."""
    package = Path(swiglu.torch.__file__).parents[1]
    assert not [path.name for path in package.rglob("*.py") if "getrefcount" in path.read_text()]


def test_large_results_start_on_a_huge_page():
    assert large().data_ptr() % (2 << 20) == 0 and large(n_bytes=LARGE + 64).data_ptr() % (2 << 20) == 0


def test_dtypes_share_memory():
    address = large(torch.bfloat16).data_ptr()
    again = large(torch.float32)
    assert again.data_ptr() == address and again.shape == (LARGE // 16, 4) and again.dtype is torch.float32


def test_a_bounded_amount_is_kept():
    tensors = [large(n_bytes=LARGE + 64 * i) for i in range(12)]  # 384 MB
    assert sum(a.nbytes for a, _ in results._kept._arrays) <= results._MOST_KEPT
    for i, tensor in enumerate(tensors):
        tensor.view(-1)[0] = i
    assert [t.view(-1)[0].item() for t in tensors] == list(range(12))
    swiglu.torch.release_memory()
    assert results._kept._arrays == []
    assert tensors[11].view(-1)[0].item() == 11


def test_small_results_are_torchs_own():
    tensor = results.empty(torch.empty(0), (LARGE // 4 - 1,), torch.float32)
    assert results._kept._arrays == [] and tensor.numel() == LARGE // 4 - 1


def test_bf16_gradients_are_those_in_float32_rounded_once():
    torch.manual_seed(0)
    parts = [torch.randn(48, 20), torch.randn(48, 20), torch.randn(20, 48)]
    x, dy = torch.randn(1030, 20).bfloat16(), torch.randn(1030, 20).bfloat16()
    for policy in ("recompute", "keep"):
        weights = [p.bfloat16().requires_grad_() for p in parts]
        swiglu.torch.ffn(x, *weights, policy=policy).backward(dy)
        wide = [w.detach().clone() for w in weights]
        for w in wide:
            w.requires_grad_()
            w.grad_dtype = torch.float32
        swiglu.torch.ffn(x, *wide, policy=policy).backward(dy)
        for w, v in zip(weights, wide):
            assert w.grad.dtype is torch.bfloat16 and v.grad.dtype is torch.float32
            assert torch.equal(w.grad, v.grad.bfloat16())
