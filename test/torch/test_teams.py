# SPDX-License-Identifier: Apache-2.0
"""Threads: PyTorch's own team, its number, Python threads, forks and workers."""
import concurrent.futures
import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest
import torch
from swiglu.torch import FFN, ffn, team, uses_openmp

D, F = 64, 96


def members(runner):
    """The threads that a runner really gives: each waits for the others for a moment."""
    seen, lock = set(), threading.Lock()
    gate = threading.Barrier(runner.n_threads)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def body(_):
        with lock:
            seen.add(threading.get_native_id())
        try:
            gate.wait(10)
        except threading.BrokenBarrierError:
            pass

    struct = runner._struct
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(struct.run)
    run(struct.ctx, runner.n_threads, ctypes.cast(body, ctypes.c_void_p), None)
    return seen


@pytest.mark.skipif(sys.platform != "linux", reason="native thread ids of /proc")
def test_the_team_is_pytorchs_own():
    """No thread comes into being that PyTorch has not made already."""
    torch.set_num_threads(2)
    assert uses_openmp(), "PyTorch on Linux has an OpenMP runtime"
    a = torch.randn(512, 512)
    for _ in range(3):
        torch.exp(a)
    before = set(os.listdir("/proc/self/task"))
    threads = members(team.team())
    assert len(threads) == 2 and {str(t) for t in threads} <= before
    assert set(os.listdir("/proc/self/task")) == before


def test_set_num_threads_is_obeyed():
    for n in (1, 2, 3, 5):
        torch.set_num_threads(n)
        runner = team.team()
        assert runner.n_threads == n and (runner.address is None) == (n == 1)
        assert n == 1 or len(members(runner)) == n


def test_without_openmp_the_pool_computes(monkeypatch):
    module, x = FFN(D, F), torch.randn(70, D, requires_grad=True)
    torch.set_num_threads(2)
    y = module(x)
    grads = torch.autograd.grad(y.sum(), [x, *module.parameters()])
    monkeypatch.setattr(team, "_gomp_parallel", None)
    monkeypatch.setattr(team, "_runners", {})
    assert not uses_openmp()
    again = module(x)
    assert torch.equal(y, again)
    assert all(torch.equal(a, b) for a, b in zip(grads, torch.autograd.grad(again.sum(), [x, *module.parameters()])))


@pytest.mark.parametrize("training", [False, True])
def test_c167_four_threads_on_one_module(training):
    module, x = FFN(D, F).train(training), torch.randn(9, D)
    params = list(module.parameters())

    def call(_):
        if training:
            y = module(x)
            return [y.detach(), *torch.autograd.grad(y.square().sum(), params)]
        with torch.no_grad():
            return [module(x)]

    expected = call(0)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for result in pool.map(call, range(100)):
            assert all(torch.equal(a, b) for a, b in zip(expected, result))


def test_threads_with_different_blocks():
    """Descriptions, workspaces and row structs are per thread."""
    cases = []
    for i in range(4):
        module = FFN(8 + i, 16 + 3 * i, bias=True)
        x = torch.randn(5 + i, 8 + i)
        cases.append((module, x, module(x).detach()))

    def work(case):
        module, x, expected = case
        return all(torch.equal(module(x).detach(), expected) for _ in range(50))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, cases))


FORKED = """
import os, sys, time, torch
from swiglu.torch import FFN, uses_openmp
torch.set_num_threads(2)
module, x = FFN(64, 96), torch.randn(70, 64)
y = module(x)
y.sum().backward()
module.eval()
with torch.no_grad():
    module(x)
pid = os.fork()
if pid == 0:
    assert not uses_openmp()
    with torch.no_grad():
        same = torch.equal(module(x), y.detach())
    module.zero_grad()
    module.train()(x).sum().backward()
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_c164_fork_after_use():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", FORKED], env=environment, timeout=120).returncode == 0


class Rows(torch.utils.data.Dataset):
    def __init__(self, module):
        self.module = module

    def __len__(self):
        return 8

    def __getitem__(self, i):
        with torch.no_grad():
            return self.module(torch.full((1, D), float(i)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_c164_workers_of_a_data_loader():
    module = FFN(D, F).eval()
    rows = Rows(module)
    expected = [rows[i] for i in range(8)]
    loader = torch.utils.data.DataLoader(rows, num_workers=2, batch_size=None, timeout=100,
                                         multiprocessing_context=multiprocessing.get_context("fork"))
    assert all(torch.equal(a, b) for a, b in zip(expected, loader))


def test_the_gil_is_released():
    torch.set_num_threads(1)
    x, w = torch.randn(60000, D), [torch.randn(s) for s in ((F, D), (F, D), (D, F))]
    ticks, done = [0], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    ffn(x, *w)
    after = ticks[0]
    done.set()
    thread.join()
    assert after - before >= 2
