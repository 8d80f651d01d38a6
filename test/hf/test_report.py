# SPDX-License-Identifier: Apache-2.0
"""What the report says: of mixtures, of models without a block, of much that is alike; and what a model with freed weights
refuses as a whole, before anything has changed."""
import copy

import pytest
import swiglu
import torch
import transformers
from families import make
from swiglu.dropin import FreedWeightError
from torch import nn

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99}


def mixture(layers=48):
    config = transformers.Qwen3MoeConfig(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8, num_hidden_layers=layers, **SMALL
    )
    return transformers.Qwen3MoeForCausalLM(config).eval()


def test_a_mixture_is_called_so_and_said_once():
    report = swiglu.patch(mixture())
    text = str(report)
    assert len(report.left) == 48 and len(text.splitlines()) <= 4, text
    assert "mixture of experts" in text and "(48)" in text
    assert not any(word in text for word in ("Attention", "Router", "StandIn", "Expression")), text


def test_a_mixture_of_modules_keeps_its_own_experts():
    """Experts that are modules of their own are blocks, and are replaced."""

    class Expert(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down, self.act = nn.Linear(8, 12), nn.Linear(12, 8), nn.SiLU()

        def forward(self, x):
            return self.down(self.act(self.up(x)))

    class SparseMoeBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(8, 4), nn.ModuleList(Expert() for _ in range(4))

        def forward(self, x):
            weights = self.gate(x).softmax(-1)
            return sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))

    report = swiglu.patch(nn.Sequential(SparseMoeBlock()).eval())
    assert len(report.replaced) == 4 and not report.left, report


NOTHING = {
    "no products": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 5)), "it has 1 nn.Linear"),
    "products alone": (lambda: nn.ModuleDict({k: nn.Linear(4, 5) for k in "abc"}), "of its 3 linear layers"),
    "quantised": (
        lambda: torch.ao.quantization.quantize_dynamic(make("llama"), {nn.Linear}),
        "it has no nn.Linear or Conv1D, but",
    ),
}


@pytest.mark.parametrize("what", NOTHING)
@pytest.mark.filterwarnings("ignore")
def test_a_model_without_a_block_is_told_why(what):
    model, reason = NOTHING[what]
    report = swiglu.patch(model())
    assert not report.entries and reason in str(report), report


def test_products_in_a_row_are_left_with_the_reason():
    report = swiglu.patch(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 7)))
    assert [entry.reason for entry in report.left] and "not a block" in report.left[0].reason and not report.replaced


def test_meta_weights_are_called_so():
    report = swiglu.patch(make("llama").to("meta"))
    assert not report.replaced and "meta tensors" in str(report) and "on the CPU" not in str(report)


def test_fallbacks_that_are_alike_are_one_line():
    model = make("llama")
    report = swiglu.patch(model)
    ids = torch.arange(6)[None]
    for _ in range(2):
        with torch.autograd.forward_ad.dual_level(), torch.no_grad():
            model(ids)
    lines = [line for line in str(report).splitlines() if "fell back" in line]
    assert len(lines) == 1 and "2 times" in lines[0] and f"({len(report.replaced)})" in lines[0], report


# ---- a model with freed weights, as a whole ----

CHANGES = {
    "half": lambda m: m.half(),
    "to": lambda m: m.to(torch.bfloat16),
    "double": lambda m: m.double(),
    "meta": lambda m: m.to("meta"),
    "to_empty": lambda m: m.to_empty(device="meta"),
    "share_memory": lambda m: m.share_memory(),
    "train": lambda m: m.train(),
    "load_state_dict": lambda m: m.load_state_dict({k: torch.zeros_like(v) for k, v in m.state_dict().items()}),
}


def all_of(model):
    return {
        "values": {k: v.clone() for k, v in model.state_dict().items()},
        "training": [m.training for m in model.modules()],
    }


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["model", "inner", "copy"])
def test_refused_before_anything_has_changed(change, where):
    model = make("llama").eval()
    swiglu.patch(model, free=True)
    if where == "copy":
        model = copy.deepcopy(model)
    asked = model.model if where == "inner" else model
    before = all_of(model)
    with pytest.raises(FreedWeightError):
        CHANGES[change](asked)
    after = all_of(model)
    assert after["training"] == before["training"] and not model.training
    assert all(v.dtype == after["values"][k].dtype and torch.equal(v, after["values"][k]) for k, v in before["values"].items())


def test_the_guard_goes_with_the_freed_weights():
    model = make("llama").eval()
    names = [set(m.__dict__) for m in model.modules()]
    swiglu.patch(model, free=True)
    model.eval()
    assert model.train(False) is model
    other = nn.Sequential(model.lm_head)  # nothing freed below
    other.half()
    other.float()
    swiglu.restore(model)
    assert [set(m.__dict__) for m in model.modules()] == names
    model.half()
    model.train()
    assert model.training and next(model.parameters()).dtype is torch.float16
