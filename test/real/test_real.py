# SPDX-License-Identifier: Apache-2.0
"""A real model on real activations: test/data/README.md says where they come from."""
import hashlib
import os
import re
from pathlib import Path

import gguf
import numpy as np
import pytest
from tool import digest, objects, ok

DATA = Path(__file__).parents[1] / "data"
LAYERS = (0, 11, 29)
PROMPT_ROWS = 24  # three prompts a file
U = 2.0**-24

every_layer = pytest.mark.parametrize("layer", LAYERS)


def x_path(layer):
    return DATA / f"smollm2-layer{layer:02d}.npy"


@pytest.fixture(scope="module")
def model():
    path = os.environ.get("SWIGLU_MODEL")
    if not path:
        pytest.skip("SWIGLU_MODEL is not set")
    return path


@pytest.fixture(scope="module")
def tensors(model):
    return {t.name: t for t in gguf.GGUFReader(model).tensors}


@pytest.fixture(scope="module")
def levels():
    """The instruction-set levels that this build and this CPU have."""
    return [o["level"] for o in objects("cpu") if "level" in o and o["can"] and o["compiled"]]


@pytest.fixture(scope="module")
def forward(model, tmp_path_factory):
    """y of the rows of x in one call of the tool."""
    folder = tmp_path_factory.mktemp("real")

    def call(layer, x, *args, isa=None):
        np.save(folder / "x.npy", x)
        printed = ok("run", model, "--layers", layer, "--input", folder / "x.npy", "--output", folder / "y.npy",
                     "--digest", *args, isa=isa)
        y = np.load(folder / "y.npy")
        assert printed == f"layer-{layer:03d} {digest(y)}\n"
        return y

    return call


def test_data_is_what_its_readme_says():
    listed = re.findall(r"^\| (\S+\.npy) \|.*\| ([0-9a-f]{64}) \|$", (DATA / "README.md").read_text(), re.M)
    found = [(p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in sorted(DATA.glob("*.npy"))]
    assert listed == found and [name for name, _ in found] == [x_path(layer).name for layer in LAYERS]
    for layer in LAYERS:
        x = np.load(x_path(layer))
        assert x.shape == (3 * PROMPT_ROWS, 576) and x.dtype == np.float16 and np.isfinite(x).all()


@every_layer
def test_check_passes_on_every_row(model, tmp_path, layer):
    """A prompt at a time: of more rows than that the tool would check a sample."""
    x = np.load(x_path(layer))
    for first in range(0, len(x), PROMPT_ROWS):
        np.save(tmp_path / "x.npy", x[first:first + PROMPT_ROWS])
        result, = objects("run", model, "--layers", layer, "--input", tmp_path / "x.npy", "--check")
        assert result["check_passed"] and result["check_rows"] == PROMPT_ROWS
        assert 0 < result["check_worst"] <= 1


@every_layer
def test_digests_are_equal_everywhere(model, levels, layer):
    args = ("run", model, "--layers", layer, "--input", x_path(layer), "--digest")
    first = ok(*args, "--threads", 1)
    assert re.fullmatch(rf"layer-{layer:03d} [0-9a-f]{{16}}\n", first)
    assert ok(*args, "--threads", 2) == first
    for level in levels:
        assert ok(*args, "--threads", 1, isa=level) == first, level
        assert ok(*args, "--threads", 2, isa=level) == first, level


@every_layer
def test_a_row_alone_has_the_bits_it_has_in_a_batch(forward, layer):
    """First tokens, edges of tiles, the last row; then batches that cut the rows elsewhere."""
    x = np.load(x_path(layer))
    y = forward(layer, x)
    for row in (0, 1, 5, 6, 7, 23, 24, 47, 48, 71):
        assert forward(layer, x[row]).tobytes() == y[row].tobytes(), row
    for rows in (slice(0, 2), slice(3, 11), slice(11, 48), slice(48, 72)):
        assert forward(layer, x[rows], "--threads", 2).tobytes() == y[rows].tobytes(), rows


@pytest.mark.parametrize("compute", ["f32", "bf16"])
def test_every_compute_has_the_same_bits_at_every_level(forward, levels, compute):
    """First tokens and their neighbours through the layer that makes the massive activations."""
    x = np.load(x_path(11))[[0, 1, 24, 25, 48, 49]]
    y = forward(11, x, "--compute", compute)
    assert (np.abs(y[::2]).max(axis=1) > 20000).all() and np.abs(y[1::2]).max() < 1000
    for level in levels:
        assert forward(11, x, "--compute", compute, isa=level).tobytes() == y.tobytes(), level


@every_layer
def test_y_is_the_block_of_the_file(tensors, forward, layer):
    """Against weights as the package gguf decodes them, in double precision, with the error bound of f32 chains that
    restart every 1024 terms (docs/numerics.md, accuracy): no code is shared with the library or its reference."""
    def chain(k):
        return (min(k, 1024) + -(-k // 1024)) * U

    gate, up, down = (gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
                      for t in (tensors[f"blk.{layer}.ffn_{name}.weight"] for name in ("gate", "up", "down")))
    x = np.load(x_path(layer)).astype(np.float64)
    g, u = x @ gate.T, x @ up.T
    a = g / (1 + np.exp(-g))
    h = a * u
    y = h @ down.T
    g_error = chain(x.shape[1]) * (np.abs(x) @ np.abs(gate).T) + U * np.abs(g)
    u_error = chain(x.shape[1]) * (np.abs(x) @ np.abs(up).T) + U * np.abs(u)
    slope = 1.1  # of silu, at most 1.0999
    h_error = slope * np.abs(u) * g_error + np.abs(a) * u_error + slope * g_error * u_error + 5 * U * np.abs(h)
    y_error = h_error @ np.abs(down).T + chain(h.shape[1]) * (np.abs(h) @ np.abs(down).T) + U * np.abs(y)
    assert (np.abs(forward(layer, x.astype(np.float32)) - y) <= y_error).all()
