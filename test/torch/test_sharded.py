# SPDX-License-Identifier: Apache-2.0
"""Blocks of two ranks: tensor-parallel plans of DTensor and fully_shard, against the same block on one."""

import os
import subprocess
import sys

import pytest

RANK = """
import copy, sys, torch, torch.distributed as dist, swiglu
from swiglu.torch import packed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

what, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(32, 48, bias), nn.Linear(32, 48, bias), nn.Linear(48, 32, bias)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.down = nn.Linear(32, 96), nn.Linear(48, 32)

    def forward(self, x):
        gate, up = self.both(x).chunk(2, -1)
        return self.down(nn.functional.silu(gate) * up)


def whole(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


# Products of depth 48 at most, six after each other, with a relative error of depth * eps, and 2 bits for what cancels
ROUNDING = 6 * 48 * 2**-24 * 4


def assert_near(got, want, what):
    error = (got - want).norm()
    assert error <= ROUNDING * want.norm(), (what, float(error / want.norm()))


dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
by_columns, by_rows = ColwiseParallel, RowwiseParallel


def run(eager, model, report, fallbacks, first=slice(None), last=slice(None)):
    x = torch.randn(4, 6, 32)
    dy = torch.randn(4, 6, 32)
    for step in range(3):
        for training in (False, True):
            mine, theirs = x[:, first].clone().requires_grad_(), x.clone().requires_grad_()
            model.train(training), eager.train(training)
            model.zero_grad(), eager.zero_grad()
            y, z = model(mine), eager(theirs)
            assert_near(y, z[:, last], "y")
            y.backward(dy[:, last])
            z.backward(dy)
            assert_near(mine.grad, theirs.grad[:, first], "dx")
            for (name, p), q in zip(model.named_parameters(), eager.parameters()):
                assert_near(whole(p.grad), q.grad, name)
        for each in (model, eager):
            torch.optim.AdamW(each.parameters(), lr=0.01).step()  # the next inference notices it
            each.eval()
        with torch.no_grad():
            assert_near(model(x[:, first]), eager(x)[:, last], "inference")
    calls = 3 * 3
    assert report.fallbacks == (calls if fallbacks else 0), str(report)
    reasons = list(report.entries[0].fallbacks)
    assert (fallbacks in reasons[0]) if fallbacks else not reasons, reasons


def plan(model, columns=by_columns, rows=by_rows, names=("gate", "up")):
    return parallelize_module(model, mesh, {**{name: columns() for name in names}, "down": rows()})


if what == "plan":
    for bias in (False, True):
        for before in (True, False):
            eager = MLP(bias)
            model = copy.deepcopy(eager)
            holder = nn.ModuleDict({"mlp": model})
            report = swiglu.patch(holder) if before else None
            plan(model)
            report = report or swiglu.patch(holder)
            assert len(report.replaced) == 1, str(report)
            run(eager, model, report, None)
            assert sum(len(blocks) for blocks in packed._blocks.values()) <= 2  # of this and of the model before
            model.train(False)
            with torch.no_grad():
                model(torch.randn(1, 1, 32))
            assert packed._blocks
            model.train()
            del holder, eager
            swiglu.restore(nn.ModuleDict({"mlp": model}))
elif what == "sequence":
    eager = MLP(False)
    model = copy.deepcopy(eager)
    report = swiglu.patch(nn.ModuleDict({"mlp": model}))
    plan(model, lambda: by_columns(input_layouts=Shard(1)), lambda: by_rows(output_layouts=Shard(1)))
    mine = slice(3 * rank, 3 * rank + 3)
    run(eager, model, report, None, mine, mine)
elif what == "left":
    eager = Packed()
    model = copy.deepcopy(eager)
    report = swiglu.patch(nn.ModuleDict({"mlp": model}))
    plan(model, names=("both",), columns=lambda: by_columns(output_layouts=Replicate()),
         rows=lambda: by_rows(input_layouts=Replicate()))
    run(eager, model, report, "a shard of its packed product")
    eager = MLP(False)
    model = copy.deepcopy(eager)
    report = swiglu.patch(nn.ModuleDict({"mlp": model}))
    plan(model, lambda: by_columns(output_layouts=Replicate()), lambda: by_rows(input_layouts=Replicate()))
    run(eager, model, report, "exchanges hidden units")
    eager = MLP(False)
    model = copy.deepcopy(eager)
    report = swiglu.patch(nn.ModuleDict({"mlp": model}))
    plan(model)
    model.up.register_forward_hook(lambda *_: None)
    run(eager, model, report, "its hooks are not those of a tensor-parallel plan")
    eager = MLP(True)
    model = copy.deepcopy(eager)
    report = swiglu.patch(nn.ModuleDict({"mlp": model}))
    parallelize_module(model, mesh, {"up": by_columns(output_layouts=Replicate())})
    run(eager, model, report, "some of its weights are sharded and others not")
else:
    eager = nn.Sequential(MLP(True), MLP(False))
    model = copy.deepcopy(eager)
    report = swiglu.patch(model)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    run(eager, model, report, None)
dist.barrier()
dist.destroy_process_group()
print("done")
"""


@pytest.mark.parametrize("what", ["plan", "sequence", "left", "fully_shard"])
def test_two_ranks(what, tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", RANK, what, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen([*command, str(rank)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        results = [rank.communicate(timeout=150) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [out for out, _ in results] == ["done\n"] * 2, "\n".join(err[-2500:] for _, err in results)
