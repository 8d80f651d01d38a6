# SPDX-License-Identifier: Apache-2.0
"""Each expert of a mixture computes what transformers' module computes with that expert alone, from released names and
from those of its own modules, where all experts of a layer are one tensor."""
import re

import numpy as np
import pytest
import torch

import capi
from families import FAMILIES, LAYERS, make
from test_transformers import DTYPES, TOKENS, check_values, x_for

N_EXPERTS, SHARED = 4, -2
MIXTURES = sorted(name for name, family in FAMILIES.items() if len(family.dense) < LAYERS and not family.stack)


def eager_experts(model, n_experts=N_EXPERTS):
    """(layer, expert) -> (x, y) in double."""
    pairs = {}
    for name, module in model.named_modules():
        found = re.search(r"\.(\d+)\.mlp\.(experts|shared_experts?)$", name)
        if not found:
            continue
        layer, x = int(found[1]), x_for(int(found[1]), TOKENS)
        with torch.no_grad():
            if found[2] != "experts":
                pairs[layer, SHARED] = (x.numpy(), module(x).numpy())
                continue
            for e in range(n_experts):
                index, weights = torch.full((TOKENS, 1), e), torch.ones((TOKENS, 1), dtype=x.dtype)
                pairs[layer, e] = (x.numpy(), module(x, index, weights).numpy())
    return pairs


@pytest.mark.parametrize("original", [True, False], ids=["released names", "fused"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MIXTURES)
def test_experts(tmp_path, name, dtype, original):
    family = FAMILIES[name]
    model = make(family.model, family.config).to(DTYPES[dtype])
    model.save_pretrained(tmp_path, save_original_format=original)
    pairs = eager_experts(model.double())
    assert len(pairs) >= N_EXPERTS * (LAYERS - len(family.dense))
    found = set()
    with capi.opened(tmp_path, experts=True) as read:
        fused = any(read.tensor(i).name.endswith(b"experts.gate_up_proj") for i in range(read.info.n_tensors))
        assert fused != original
        for i, info in enumerate(read.blocks()):
            which = (info.layer, info.expert)
            if info.usable and info.layer not in family.dense:
                assert which not in found
                found.add(which)
                check_values(read, i, pairs[which])
    assert found == set(pairs)


def test_halves_the_other_way_round_are_noticed(tmp_path):
    """Gate and up of a fused tensor swapped in the model after it was saved: what a wrong reading would give."""
    family = FAMILIES["qwen3_moe"]
    model = make(family.model, family.config).float()
    model.save_pretrained(tmp_path, save_original_format=False)
    experts = next(m for n, m in model.named_modules() if n.endswith("mlp.experts"))
    with torch.no_grad():
        experts.gate_up_proj.copy_(experts.gate_up_proj.roll(experts.gate_up_proj.shape[1] // 2, 1))
    pairs = eager_experts(model.double(), 1)
    with capi.opened(tmp_path, experts=True) as read:
        i = next(i for i, info in enumerate(read.blocks()) if info.usable and info.expert == 0)
        assert np.isfinite(pairs[0, 0][1]).all()
        with pytest.raises(AssertionError, match="worst difference"):
            check_values(read, i, pairs[0, 0])
