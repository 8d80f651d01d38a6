# SPDX-License-Identifier: Apache-2.0
"""swiglu.load: blocks of files made here with the gguf and safetensors packages, and of the real model where it is there."""
import json
import os

import gguf
import numpy as np
import pytest
import swiglu
from safetensors.numpy import save_file

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


def of_layer(weights, name="model.layers.0.mlp.{}_proj.weight"):
    return {name.format(part): array for part, array in weights.items()}


def test_folder_of_shards(tmp_path, weights):
    """As it is saved, and with an index that names a shard which is not there: scan finds the rest."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_act": "silu"}))
    shard, index = "model-00001-of-00001.safetensors", tmp_path / "model.safetensors.index.json"
    save_file(of_layer(weights), tmp_path / shard)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(of_layer(weights), shard)}))
    x = np.random.default_rng(1).standard_normal((3, D)).astype(np.float32)
    with swiglu.load(tmp_path) as model:
        assert (model.info.format, len(model), model.layers[0].in_out, model.layers[0].expert) == ("safetensors", 1, False, -1)
        assert np.array_equal(model[0](x), swiglu.ffn(x, **weights))
    index.write_text(json.dumps({"weight_map": dict.fromkeys(of_layer(weights), "gone.safetensors")}))
    with pytest.raises((OSError, ValueError), match="gone.safetensors"):
        swiglu.load(tmp_path)
    with swiglu.load(tmp_path, scan=True) as model:
        assert np.array_equal(model[0](x), swiglu.ffn(x, **weights))


def test_experts(tmp_path, weights):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", "hidden_act": "silu"}))
    tensors = {}
    for e in range(2):
        scaled = {part: array * np.float32(e + 1) for part, array in weights.items()}
        tensors.update(of_layer(scaled, f"model.layers.0.mlp.experts.{e}.{{}}_proj.weight"))
    save_file(tensors, tmp_path / "model.safetensors")
    with swiglu.load(tmp_path) as model:
        assert not any(layer.usable for layer in model.layers)
    x = np.random.default_rng(1).standard_normal((3, D)).astype(np.float32)
    with swiglu.load(tmp_path, experts=True) as model:
        usable = [i for i, layer in enumerate(model.layers) if layer.usable]
        assert [model.layers[i].expert for i in usable] == [0, 1]
        for e, i in enumerate(usable):
            scaled = {part: array * np.float32(e + 1) for part, array in weights.items()}
            assert np.array_equal(model[i](x), swiglu.ffn(x, **scaled))


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
