# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that transformers writes are read, and every block computes what the model computes.

Families that are not here: NO_CLASS, which transformers has no class for (their code comes with the checkpoint), and
gemma3n, whose vision tower needs one more package (its text model is here). test/safetensors writes files of all."""
import dataclasses
import json
import os
import pathlib
import re

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING
from transformers.activations import ACT2FN

import capi
from families import D, FAMILIES, LAYERS, LEFT_OUT, WIDTHS, make

NO_CLASS = {"qwen", "internlm", "internlm2", "baichuan", "minicpm", "chatglm", "hf_olmo"}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TOKENS = 7
torch.set_num_threads(1)  # the models are tiny


def x_for(layer, rows):
    """Values that bf16 holds, so that f32 and bf16 compute have the same inputs."""
    x = torch.from_numpy(np.random.default_rng(layer).normal(0, 1, (rows, D)))
    return x.to(torch.bfloat16).double()


def eager(model, family):
    """layer -> (x, y) in double: the model runs, its blocks are given x in place of their own inputs."""
    pairs, hooks = {}, []

    def enter(layer, args):
        x = x_for(layer, args[0].numel() // D)
        pairs[layer] = [x.numpy()]
        return (x.reshape(args[0].shape), *args[1:])

    def leave(layer, y):
        pairs[layer].append(y.clone().reshape(-1, D).numpy())  # Falcon adds to it in place

    first, last = (re.compile(r"(?:^|\.)(\d+)\." + re.escape(name) + "$") for name in family.block)
    for name, module in model.named_modules():
        if family.stack not in name:
            continue
        if m := first.search(name):
            hooks.append(module.register_forward_pre_hook(lambda _, args, i=int(m[1]): enter(i, args)))
        if m := last.search(name):
            hooks.append(module.register_forward_hook(lambda _, args, y, i=int(m[1]): leave(i, y)))
    with torch.no_grad():
        if model.main_input_name == "pixel_values":
            model(torch.ones(1, 3, 8, 8, dtype=torch.float64))
        else:
            model(torch.arange(3, 3 + TOKENS)[None])
    for hook in hooks:
        hook.remove()
    return {layer: pair for layer, pair in pairs.items() if layer in family.dense}


def assert_within(bound, a, b):
    worst = np.max(np.abs(a - b) / bound)
    assert worst <= 1, f"the worst difference is {worst:.3g} times the bound"


def check_values(model, i, pair, sharp=2.0**-16):
    """Two claims: the reader found the same function, in double precision; and forward keeps its own bound."""
    x, y = pair
    desc = model.desc(i)
    want, bound, plain = capi.reference(desc, x)
    # Sums of the same terms in double keep B with 2^-53 for 2^-24; the rest is for Bloom's constant of 8 digits.
    assert_within(sharp * bound, plain, y)
    block = model.prepare(i)
    out = block.forward(x)
    block.close()
    assert_within(bound, out, want)
    return out.tobytes()


def check_info(model, i, family, model_type):
    info = model.block(i)
    assert (info.layer, info.usable, info.reason) == (i, 1, b"")
    assert info.layout_name.decode() == family.kind
    assert info.kind.decode() == ("plain" if family.kind == "ungated" else "gated")
    assert info.activation.decode() == family.activation
    source = f"config.json {family.key}" if family.key else f"model_type {model_type}"
    assert info.activation_source.decode() == source
    assert (info.d_in, info.d_ff, info.d_out) == (D, family.d_ff, D)
    norm = model.tensor(info.norm).name.decode() if info.norm >= 0 else ""
    assert norm.endswith(f"{i}.{family.norm}.weight") if family.norm else norm == ""


def check_blocks(folder, family, model_type, pairs):
    """Every block is what the family says and computes what the model computes; returns the bytes of all y."""
    ys = []
    with capi.opened(folder) as model:
        assert model.info.architecture.decode() == model_type and model.warnings() == []
        kinds = [info.kind.decode() for info in model.blocks()]
        assert len(kinds) == LAYERS + (kinds.count("other stack") if family.stack else 0)
        for i in range(LAYERS):
            if i in family.dense:
                check_info(model, i, family, model_type)
                ys.append(check_values(model, i, pairs[i]))
            else:
                assert (model.block(i).usable, kinds[i]) == (0, "experts")
    return ys


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_family(tmp_path, name, dtype):
    """One file and shards hold the same model."""
    family = FAMILIES[name]
    model = make(family.model, family.config).to(DTYPES[dtype])
    model.save_pretrained(tmp_path / "single")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "single").glob("*.safetensors"))) == 1
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    pairs = eager(model.double(), family)
    assert set(pairs) == set(family.dense)
    model_type = model.config.get_text_config().model_type
    assert model.config.model_type == name.split("/")[0]
    ys = [check_blocks(tmp_path / kind, family, model_type, pairs) for kind in ("single", "sharded")]
    assert ys[0] == ys[1]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_left_out(tmp_path, name):
    cls, config, word = LEFT_OUT[name]
    make(cls, config).float().save_pretrained(tmp_path)
    with capi.opened(tmp_path) as model:
        assert model.info.architecture.decode() == name and model.info.n_blocks == LAYERS
        for info in model.blocks():
            assert not info.usable and word in info.reason.decode()


def test_every_family_is_tested():
    table = (pathlib.Path(os.environ["SWIGLU_SOURCE"]) / "src/io/hf_family.def").read_text()
    here = {name.split("/")[0] for name in FAMILIES} | set(LEFT_OUT)
    assert set(re.findall(r'^FAMILY\("([^"]+)"', table, re.M)) == here | NO_CLASS | {"gemma3n"}
    assert not NO_CLASS & set(CONFIG_MAPPING)


def test_dinov2_as_transformers_holds_it(tmp_path):
    """Not in the released files' names, but in those of its own modules: gate and up apart."""
    family = FAMILIES["dinov2/swiglu"]
    model = make(family.model, family.config)
    model.float().save_pretrained(tmp_path, save_original_format=False)
    held = dataclasses.replace(family, kind="separate")
    check_blocks(tmp_path, held, "dinov2", eager(model.double(), held))


@pytest.mark.parametrize("name", ACT2FN)
def test_activations(tmp_path, name):
    """All names that transformers knows: the same function, or left out by name."""
    family = FAMILIES["llama"]
    model = make(family.model, WIDTHS | {"hidden_act": name})
    model.float().save_pretrained(tmp_path)
    known = name in {"gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "linear", "quick_gelu", "relu", "relu2",
                     "sigmoid", "silu", "swish"}
    pairs = eager(model.double(), family) if known else {}
    with capi.opened(tmp_path) as read:
        info = read.block(0)
        assert (info.usable, info.activation.decode()) == (known, name)
        if known:
            check_values(read, 0, pairs[0], sharp=1)  # the library's 1.702 of quick_gelu is the nearest float
        else:
            assert re.search(rf'"{name}" is unknown|act_fn', info.reason.decode())


def test_a_wrong_reading_is_noticed(tmp_path):
    family = FAMILIES["llama"]
    model = make(family.model, family.config)
    model.float().save_pretrained(tmp_path)
    pairs = eager(model.double(), family)
    config = tmp_path / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"hidden_act": "gelu"}))
    with capi.opened(tmp_path) as read, pytest.raises(AssertionError, match="worst difference"):
        check_values(read, 0, pairs[0], sharp=1)
