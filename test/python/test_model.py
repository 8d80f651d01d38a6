# SPDX-License-Identifier: Apache-2.0
"""swiglu.load: blocks of a GGUF file, made here with the gguf package, and of the real model where it is there."""
import os

import gguf
import numpy as np
import pytest
import swiglu

D, F = 32, 64


@pytest.fixture
def weights():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in
            (("gate", (F, D)), ("up", (F, D)), ("down", (D, F)))}


@pytest.fixture
def path(tmp_path, weights):
    file = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(F)
    for layer in range(2):
        for name, array in weights.items():
            writer.add_tensor(f"blk.{layer}.ffn_{name}.weight", array * np.float32(layer + 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_blocks_of_a_file(path, weights):
    with swiglu.load(path) as model:
        assert (model.info.format, model.info.architecture, len(model), model.info.n_tensors) == ("gguf", "llama", 2, 6)
        layer = model.layers[1]
        assert (layer.layer, layer.usable, layer.activation, layer.layout) == (1, True, "silu", "separate")
        assert (layer.d_in, layer.d_ff, layer.d_out) == (D, F, D)
        assert model.tensors[layer.down].name == "blk.1.ffn_down.weight"
        assert model.tensors[layer.down].dims == (D, F)
        assert np.array_equal(model.read(layer.up).view(np.float32).reshape(F, D), weights["up"] * np.float32(2))
        assert np.array_equal(model.read("blk.0.ffn_up.weight").view(np.float32).reshape(F, D), weights["up"])
        blocks = list(model)
    x = np.random.default_rng(1).standard_normal((3, D)).astype(np.float32)
    for i, block in enumerate(blocks):  # they outlive the model
        scaled = {name: array * np.float32(i + 1) for name, array in weights.items()}
        assert np.array_equal(block(x), swiglu.ffn(x, **scaled))


def test_errors(path, tmp_path):
    model = swiglu.load(path)
    with pytest.raises(IndexError, match="block 2 of 2"):
        model[2]
    with pytest.raises(KeyError):
        model.read("nothing")
    model.close()
    with pytest.raises(ValueError, match="the model is closed"):
        model[0]
    with pytest.raises(FileNotFoundError, match="load"):
        swiglu.load(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="unknown activation"):
        swiglu.load(path, activation="silly")
    (tmp_path / "cut.gguf").write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="E_FORMAT"):
        swiglu.load(tmp_path / "cut.gguf")
    with pytest.raises(ValueError, match="NUL"):
        swiglu.load("a\0b")


def test_real_model():
    if not os.environ.get("SWIGLU_MODEL"):
        pytest.skip("the model file is not here")
    model = swiglu.load(os.environ["SWIGLU_MODEL"])
    assert len(model) == 30 and all(layer.usable for layer in model.layers)
    y = model[0](np.ones((1, model.layers[0].d_in), np.float32))
    assert y.shape == (1, 576) and np.isfinite(y).all()
