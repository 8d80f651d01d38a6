# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that transformers writes are read, and every block computes what the model computes.

Not here, since transformers has no class for them: qwen (1), internlm2 and other families whose code comes with the
checkpoint (NO_CLASS below). test/safetensors writes files of theirs."""
import ctypes as c
import os
import pathlib
import re

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING

import capi
from families import D, FAMILIES, LAYERS, make

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


def check_values(model, i, pair):
    """Two claims: the reader found the same function, to double precision; and forward keeps its own bound."""
    x, y = pair
    desc = model.desc(i)
    bound, plain = capi.reference(desc, x)
    # Sums of the same terms in double keep B with 2^-53 for 2^-24; the rest is for Bloom's constant of 8 digits.
    assert_within(2.0**-16 * bound, plain, y)
    block = model.prepare(i)
    out = block.forward(x)
    block.close()
    assert_within(bound, out, y)
    return out.tobytes()


def check_blocks(folder, family, config, pairs):
    """Every block is what the family says and computes what the model computes; returns the bytes of all y."""
    ys = []
    with capi.opened(folder) as model:
        assert model.info.architecture.decode() == config.model_type and model.warnings() == []
        assert model.info.n_blocks == LAYERS
        for i, info in enumerate(model.blocks()):
            if i not in family.dense:
                assert (info.usable, info.kind) == (0, b"experts")
                continue
            assert (info.layer, info.usable, info.reason) == (i, 1, b"")
            assert info.layout_name.decode() == family.kind
            assert info.kind.decode() == ("plain" if family.kind == "ungated" else "gated")
            assert info.activation.decode() == family.activation
            source = f"config.json {family.key}" if family.key else f"model_type {config.model_type}"
            assert info.activation_source.decode() == source
            assert (info.d_in, info.d_ff, info.d_out) == (D, family.d_ff, D)
            norm = model.tensor(info.norm).name.decode() if info.norm >= 0 else ""
            assert norm.endswith(f"{i}.{family.norm}.weight" if family.norm else "")
            ys.append(check_values(model, i, pairs[i]))
    return ys


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_family(tmp_path, name, dtype):
    family = FAMILIES[name]
    model = make(family).to(DTYPES[dtype])
    model.save_pretrained(tmp_path / "single")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    assert len(list((tmp_path / "single").glob("*.safetensors"))) == 1
    pairs = eager(model.double(), family)
    assert set(pairs) == set(family.dense)
    ys = [check_blocks(tmp_path / kind, family, model.config, pairs) for kind in ("single", "sharded")]
    assert ys[0] == ys[1]
