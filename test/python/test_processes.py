# SPDX-License-Identifier: Apache-2.0
"""Threads, forks and imports of the NumPy side."""
import os
import subprocess
import sys
import threading
import time

import numpy as np
import swiglu

RNG = np.random.default_rng(0)
W = [RNG.standard_normal(s).astype(np.float32) for s in ((96, 64), (96, 64), (64, 96))]
X = RNG.standard_normal((40, 64)).astype(np.float32)


def test_many_threads_on_one_block():
    block = swiglu.Block(*W, threads=2)
    expected, wrong = block(X), []

    def work():
        for _ in range(50):
            if not np.array_equal(block(X), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gil_is_released():
    """While one thread computes for long, another one gets to run Python."""
    x = np.tile(X, (4000, 1))
    block = swiglu.Block(*W, threads=1)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    time.sleep(0.01)
    start = time.perf_counter()
    block(x)
    end = time.perf_counter()
    done.set()
    ticker.join()
    assert end - start > 0.01, "too short a call to tell"
    assert sum(start < t < end for t in ticks) >= 2


def test_fork_after_use():
    block = swiglu.Block(*W, threads=2)
    expected = block(X)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if np.array_equal(block(X), expected) and np.array_equal(swiglu.ffn(X, *W), expected) else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


def run(code, **environment):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


def test_without_pytorch():
    """Everything that looks around in the package works, and what needs PyTorch says so."""
    result = run("""
import importlib.util, inspect, pydoc
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "torch" else found(name, *a)
import swiglu
from swiglu import *
assert not hasattr(swiglu, "nn") and "patch" in dir(swiglu) and "patch" not in swiglu.__all__ and width(768) == 2048
inspect.getmembers(swiglu), pydoc.render_doc(swiglu)
try:
    swiglu.patch
except AttributeError as error:
    assert "swiglu.patch needs PyTorch: pip install" in str(error)
""")
    assert result.returncode == 0, result.stderr


def test_import_leaves_pytorch_alone():
    result = run("import sys, swiglu; swiglu.count(2, 3); sys.exit('torch' in sys.modules)")
    assert result.returncode == 0, result.stderr


def test_missing_library_is_named():
    result = run("import swiglu", SWIGLU_LIBRARY="/nowhere/libswiglu.so")
    assert result.returncode != 0
    assert "ImportError: swiglu: /nowhere/libswiglu.so cannot be loaded" in result.stderr


def test_affinity_is_the_default():
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); import swiglu._c.threads as t; print(t.n_cores())"
    assert run(code).stdout.strip() == "1"
