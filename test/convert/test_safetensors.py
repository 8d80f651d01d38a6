# SPDX-License-Identifier: Apache-2.0
"""Converted safetensors checkpoints, read back with the package safetensors."""
import json
import os

import numpy as np
import pytest
from checkpoints import write
from st_files import D, FF, LLAMA, METADATA, ODD, TORCH, WORDS, assert_layout, folder, is_weight, llama, load, save, tensor, wide
from tool import call, fails, ok


@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("source", TORCH)
def test_types(tmp_path, source, target):
    before = {**llama(source), **ODD}
    model = folder(tmp_path / "in", LLAMA, before)
    out = tmp_path / "in" / "out.safetensors"
    ok("convert", model, out, "--type", target)
    after, metadata = load(out)
    assert metadata == METADATA and set(after) == set(before)  # C119
    for name, (kind, shape, raw) in before.items():
        if is_weight(name) and TORCH[kind] != target:
            assert after[name] == ({v: k for k, v in TORCH.items()}[target], shape, WORDS[target](wide(before[name])).tobytes())
        else:
            assert after[name] == (kind, shape, raw), name
    assert_layout(out)
    if target == "f32":
        assert ok("run", out, "--digest") == ok("run", model, "--compute", "f32", "--digest")


@pytest.mark.parametrize("metadata", [None, {}, METADATA, {"long": "x" * 200000}])
def test_metadata_and_text_of_the_header(tmp_path, metadata):
    model = folder(tmp_path / "in", LLAMA, {**llama(), **ODD}, metadata=metadata, space=" \n  ")
    ok("convert", model, tmp_path / "out.safetensors", "--type", "f16")
    assert load(tmp_path / "out.safetensors")[1] == metadata
    assert_layout(tmp_path / "out.safetensors")


def shards(path, tensors, n, **how):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(LLAMA))
    index = {"metadata": {"total_size": 1}, "weight_map": {}}
    for i in range(n):
        name = f"model-{i + 1:05}-of-{n:05}.safetensors"
        part = dict(list(tensors.items())[i::n])
        save(path / name, part, **({k: v[i] for k, v in how.items()}))
        index["weight_map"].update(dict.fromkeys(part, name))
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def test_shards_become_one_file(tmp_path):
    tensors = {**llama("BF16"), **ODD}
    many = shards(tmp_path / "many", tensors, 3)
    one = folder(tmp_path / "one", LLAMA, tensors)
    ok("convert", many, tmp_path / "from_many.safetensors", "--type", "f16")
    ok("convert", one, tmp_path / "from_one.safetensors", "--type", "f16")
    assert (tmp_path / "from_many.safetensors").read_bytes() == (tmp_path / "from_one.safetensors").read_bytes()


def test_one_shard_is_not_replaced_by_the_whole(tmp_path):
    many = shards(tmp_path / "many", llama(), 2)
    shard = many / "model-00001-of-00002.safetensors"
    before = shard.read_bytes()
    (tmp_path / "link.safetensors").symlink_to(shard)
    for out in (shard, tmp_path / "link.safetensors"):
        fails("convert", many, out, "--type", "f16", saying="one of the 2 files of the input")
    assert shard.read_bytes() == before and len(os.listdir(many)) == 4


@pytest.mark.parametrize("metadata", [[METADATA, {"format": "np"}], [METADATA, None], [None, METADATA]])
def test_shards_that_disagree_about_the_metadata(tmp_path, metadata):
    many = shards(tmp_path / "many", llama(), 2, metadata=metadata)
    fails("convert", many, tmp_path / "out.safetensors", "--type", "f16", saying="__metadata__")
    assert os.listdir(tmp_path) == ["many"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("model_type", ["phi3", "glm4"])
def test_C097_packed_gate_and_up_become_two_tensors_and_back(tmp_path, model_type, bias):
    config = {**LLAMA, "model_type": model_type}
    before = llama("BF16", packed=True, bias=bias)
    packed = folder(tmp_path / "in", config, before)
    apart, again = tmp_path / "in" / "apart.safetensors", tmp_path / "in" / "again.safetensors"
    ok("convert", packed, apart, "--layout", "separate")
    two = load(apart)[0]
    for part in ("weight", "bias")[:1 + bias]:
        kind, shape, raw = before[f"model.layers.1.mlp.gate_up_proj.{part}"]
        halves = [two[f"model.layers.1.mlp.{name}.{part}"] for name in ("gate_proj", "up_proj")]
        assert halves == [(kind, [FF, *shape[1:]], raw[:len(raw) // 2]), (kind, [FF, *shape[1:]], raw[len(raw) // 2:])]
    assert len(two) == len(before) + 2 * (1 + bias)
    ok("convert", apart, again, "--layout", "gate_up")
    assert load(again)[0] == before
    assert ok("run", packed, "--digest") == ok("run", apart, "--digest") == ok("run", again, "--digest")


def test_layouts_without_a_name(tmp_path):
    model = folder(tmp_path / "in", LLAMA, llama())
    fails("convert", model, tmp_path / "out.safetensors", "--layout", "gate_up", saying="no name for a packed")
    olmo = {f"model.transformer.blocks.0.{name}.weight": tensor(np.ones(shape))
            for name, shape in (("ff_proj", (2 * FF, D)), ("ff_out", (D, FF)))}
    config = {"model_type": "olmo", "activation_type": "swiglu", "mlp_hidden_size": 2 * FF, "d_model": D}
    model = folder(tmp_path / "in", config, olmo)
    for layout in ("separate", "gate_up"):
        done = call("convert", model, tmp_path / "out.safetensors", "--layout", layout)
        assert done.returncode == 2 and "up|gate cannot be repacked" in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_transposed_weights(tmp_path):
    """GPT-2 stores [in, out]; a type is a matter of each value."""
    random = np.random.default_rng(1)
    stem = "h.0.mlp."
    before = {stem + "c_fc.weight": tensor(random.standard_normal((D, 4 * D)), "F16"),
              stem + "c_fc.bias": tensor(random.standard_normal(4 * D)),
              stem + "c_proj.weight": tensor(random.standard_normal((4 * D, D)), "F16"),
              stem + "c_proj.bias": tensor(random.standard_normal(D))}
    model = folder(tmp_path / "in", {"model_type": "gpt2", "n_embd": D, "activation_function": "gelu_new"}, before)
    out = tmp_path / "in" / "out.safetensors"
    ok("convert", model, out, "--type", "f32")
    after = load(out)[0]
    assert after[stem + "c_fc.weight"] == ("F32", [D, 4 * D], wide(before[stem + "c_fc.weight"]).tobytes())
    assert after[stem + "c_fc.bias"] == before[stem + "c_fc.bias"]
    assert ok("run", out, "--digest") == ok("run", model, "--digest")


def test_formats_do_not_cross(tmp_path):
    model = folder(tmp_path / "in", LLAMA, llama())
    line = fails("convert", model, tmp_path / "out.gguf", "--type", "f16")
    assert "safetensors to gguf" in line
    gguf = write(tmp_path / "in.gguf")
    assert "gguf to safetensors" in fails("convert", gguf, tmp_path / "out.safetensors", "--type", "f16")
    assert sorted(os.listdir(tmp_path)) == ["in", "in.gguf"]


def test_block_formats_need_gguf(tmp_path):
    model = folder(tmp_path / "in", LLAMA, llama())
    line = fails("convert", model, tmp_path / "out.safetensors", "--type", "q8_0", saying="safetensors has no q8_0")
    assert "mlp." in line and os.listdir(tmp_path) == ["in"]


def test_over_itself_and_without_an_end(tmp_path):
    model = folder(tmp_path / "in", LLAMA, llama())
    ok("convert", model, tmp_path / "in" / "plain", "--type", "f16")
    ok("convert", model, model, "--type", "f16")
    assert model.read_bytes() == (tmp_path / "in" / "plain").read_bytes()
    assert sorted(os.listdir(tmp_path / "in")) == ["config.json", "model.safetensors", "plain"]


def test_a_missing_config_is_told(tmp_path):
    model = folder(tmp_path / "in", LLAMA, llama())
    done = call("convert", model, tmp_path / "out.safetensors", "--type", "f16")
    assert done.returncode == 0 and "config.json" in done.stderr and done.stderr.count("\n") == 1
    assert not call("convert", model, tmp_path / "in" / "out.safetensors", "--type", "f16").stderr
