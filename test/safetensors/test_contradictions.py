# SPDX-License-Identifier: Apache-2.0
"""A config that speaks of tensors which are not there, or not of ones that are: an error that names both."""
import numpy as np
import pytest

import capi
from checkpoint import INDEX, check_block, left_out, new_block, refused, write_config, write_sharded, write_single
from blockmath import ACT
from test_families_st import FAMILIES, MLP_FC, MODEL, PROJ, build, stored

# key, its value that promises biases, a model_type that goes by it
BIASES = [("mlp_bias", True, m) for m in ("llama", "granite", "smollm3", "arcee", "nemotron", "modernbert", "deepseek_v2")] + [
    ("use_bias", True, "starcoder2"), ("use_bias", True, "ernie4_5"), ("bias", True, "falcon"), ("enable_bias", True, "opt"),
    ("include_bias", True, "hf_olmo"), ("add_bias_linear", True, "chatglm"), ("no_bias", False, "qwen"),
    ("no_bias", False, "mpt")]


@pytest.mark.parametrize("key, yes, model_type", BIASES, ids=[f"{k}-{m}" for k, _, m in BIASES])
def test_biases(tmp_path, key, yes, model_type):
    prefix = FAMILIES[model_type]["prefix"]
    for there, value in ((True, yes), (False, not yes)):
        build(tmp_path, model_type, biases=there, **{key: value})
        with capi.opened(tmp_path) as model:
            assert all(b.usable for b in model.blocks()) and model.warnings() == []
    build(tmp_path, model_type, biases=False, **{key: yes})
    failure = refused(tmp_path, f"config.json: {key} {str(yes).lower()}, but tensor {prefix}0.", "has no bias beside it")
    assert f'"{key}"'.encode() in (tmp_path / "config.json").read_bytes()[:failure.offset]
    build(tmp_path, model_type, biases=True, **{key: not yes})
    refused(tmp_path, f"{key} {str(not yes).lower()}, but there is a tensor {prefix}0.", ".bias")


def test_a_key_of_another_family_promises_nothing(tmp_path):
    for key in ("bias", "use_bias", "enable_bias", "include_bias", "add_bias_linear", "attention_bias"):
        build(tmp_path, "llama", **{key: True})
        with capi.opened(tmp_path) as model:
            assert model.block(0).usable


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_a_promise_is_true_or_false(tmp_path, value):
    build(tmp_path, "llama", mlp_bias=value)
    refused(tmp_path, "mlp_bias: true or false is expected")


@pytest.mark.parametrize("missing", PROJ)
def test_one_bias_of_three(tmp_path, missing):
    tensors = stored(new_block(np.random.default_rng(1), biases=True), PROJ, MODEL, 0)
    del tensors[f"{MODEL}0.{PROJ[missing]}.bias"]
    write_single(tmp_path, tensors)
    write_config(tmp_path, model_type="llama", mlp_bias=True)
    refused(tmp_path, f"mlp_bias true, but tensor {MODEL}0.{PROJ[missing]}.weight has no bias beside it")


def test_a_shard_alone_may_lack_what_another_has(tmp_path):
    """Its blocks are left out, and the whole is read."""
    parts = new_block(np.random.default_rng(2), biases=True)
    tensors = stored(parts, PROJ, MODEL, 0)
    write_sharded(tmp_path, tensors, 1)
    (tmp_path / INDEX).unlink()
    shard = "model-00001-of-00002.safetensors"
    write_single(tmp_path, {k: v for k, v in tensors.items() if not k.endswith("up_proj.bias")}, shard)
    write_config(tmp_path, model_type="llama", mlp_bias=True)
    reason = left_out(tmp_path / shard)
    assert reason == f"mlp_bias true, but in this file tensor {MODEL}0.mlp.up_proj.weight has no bias beside it"
    write_sharded(tmp_path, tensors, 3)
    with capi.opened(tmp_path) as model:
        check_block(model, 0, parts, ACT["silu"])


@pytest.mark.parametrize("gated", [True, False])
def test_gate(tmp_path, gated):
    names = {"gate|up": "mlp.weights_in", "down": "mlp.weights_out"} if gated else MLP_FC
    parts = new_block(np.random.default_rng(3), gated=gated)
    write_single(tmp_path, stored(parts, names, "encoder.layer.", 0))
    write_config(tmp_path, model_type="dinov2", hidden_act="gelu", use_swiglu_ffn=gated)
    with capi.opened(tmp_path) as model:
        check_block(model, 0, parts, ACT["silu" if gated else "gelu"])
    write_config(tmp_path, model_type="dinov2", hidden_act="gelu", use_swiglu_ffn=not gated)
    refused(tmp_path, f"use_swiglu_ffn {str(not gated).lower()}, but tensor encoder.layer.0.mlp.",
            f"is that of a block {'with' if gated else 'without'} a gate")


@pytest.mark.parametrize("model_type, key, names", [
    ("deepseek_v2", "n_shared_experts", "mlp.shared_experts"), ("deepseek_v3", "n_shared_experts", "mlp.shared_experts"),
    ("glm4_moe", "n_shared_experts", "mlp.shared_experts"),
    ("qwen2_moe", "shared_expert_intermediate_size", "mlp.shared_expert")])
def test_shared_expert(tmp_path, model_type, key, names):
    rng, tensors = np.random.default_rng(4), {}
    for where in ("mlp.experts.0", "mlp.experts.1"):
        tensors |= stored(new_block(rng), {k: v.replace("mlp", where) for k, v in PROJ.items()}, MODEL, 0)
    shared = stored(new_block(rng), {k: v.replace("mlp", names) for k, v in PROJ.items()}, MODEL, 0)
    for there, number in ((True, 96), (False, 0)):
        write_single(tmp_path, tensors | (shared if there else {}))
        write_config(tmp_path, model_type=model_type, **{key: number})
        with capi.opened(tmp_path, experts=True) as model:
            assert [b.usable for b in model.blocks()] == [0] + [1] * (3 if there else 2)
        write_config(tmp_path, model_type=model_type, **{key: 96 - number})
        if there:
            refused(tmp_path, f"{key} 0, but there is a tensor {MODEL}0.{names}.")
        else:
            refused(tmp_path, f"{key} 96, but beside tensor {MODEL}0.mlp.experts.0.", "none of a shared expert")


# ---- keys that say another thing than the one that counts ----

@pytest.mark.parametrize("model_type, config, warnings", [
    ("llama", {"hidden_act": "silu", "hidden_activation": "gelu"},
     ['hidden_activation "gelu" is not used: model_type llama goes by hidden_act, here "silu"']),
    ("llama", {"activation_function": "gelu"},
     ['activation_function "gelu" is not used: model_type llama goes by hidden_act, by default "silu"']),
    ("llama", {"hidden_act": "silu", "hidden_activation": "swish"}, []),
    ("gemma", {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, []),
    ("gemma", {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"},
     ['hidden_act "silu" is not used: model_type gemma goes by hidden_activation, here "gelu_pytorch_tanh"']),
    ("llama", {"n_embd": 64}, []),
    ("llama", {"n_embd": 65}, ["n_embd is not used: it is not what hidden_size says"]),
    ("llama", {"ffn_dim": "96"}, ["ffn_dim is not used: it is not what intermediate_size says"]),
    ("llama", {"num_hidden_layers": 2, "n_layer": 3}, ["n_layer is not used: it is not what num_hidden_layers says"]),
    ("llama", {"intermediate_size": [96, 96, 96]}, ["intermediate_size has 3 values, but the tensors show 2 layers"]),
])
def test_told(tmp_path, model_type, config, warnings):
    build(tmp_path, model_type, **config)
    with capi.opened(tmp_path) as model:
        assert all(b.usable for b in model.blocks()) and model.warnings() == warnings
    if warnings:
        refused(tmp_path, *warnings, strict=True)


def test_clamps_are_not_evaluated_without(tmp_path):
    build(tmp_path, "llama", layers=1, swiglu_limit=7.0)
    assert left_out(tmp_path) == "config.json swiglu_limit: clamps of gate and up are not read"
