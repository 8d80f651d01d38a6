# SPDX-License-Identifier: Apache-2.0
"""Copies, files, and the way back."""
import copy
import importlib
import os
import pickle
import subprocess
import sys

import pytest
import swiglu
import torch
import transformers
from families import LAYERS, blocks, make, run, tokens


def test_the_class_can_be_imported(model):
    swiglu.patch(model)
    for _, module in blocks(model):
        cls = type(module)
        assert getattr(importlib.import_module(cls.__module__), cls.__qualname__) is cls
        assert cls.__name__ == "LlamaMLP"


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_copies_work_and_are_independent(model, way, tmp_path):
    """C154, C155"""
    report = swiglu.patch(model)
    before = run(model)
    if way == "deepcopy":
        twin = copy.deepcopy(model)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(model))
    else:
        torch.save(model, tmp_path / "model.pt")
        twin = torch.load(tmp_path / "model.pt", weights_only=False)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert torch.equal(run(twin), before) and not run(model).any()
    del model
    twin_report = swiglu.patch(twin)
    assert len(twin_report.replaced) == LAYERS and twin_report.fallbacks == report.fallbacks == 0
    blocks(twin)[0][1].up_proj.register_forward_hook(lambda *_: None)
    run(twin)
    assert twin_report.fallbacks == 1 and report.fallbacks == 0
    assert swiglu.restore(twin) == LAYERS


def test_another_process_can_load_it(model, tmp_path):
    """Nothing there has made the class before: its name tells how."""
    swiglu.patch(model)
    torch.save(blocks(model)[0][1], tmp_path / "block.pt")
    code = (
        "import sys, torch; block = torch.load(sys.argv[1], weights_only=False)\n"
        "from transformers.models.llama.modeling_llama import LlamaMLP\n"
        "assert isinstance(block, LlamaMLP) and type(block) is not LlamaMLP\n"
        "with torch.no_grad(): print(block(torch.ones(1, 64)).shape, dict(block._swiglu.fallbacks))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "block.pt"], capture_output=True, text=True, env=environment
    )
    assert run.stdout == "torch.Size([1, 64]) {}\n", run.stderr


def test_state_dict_and_save_pretrained(model, tmp_path):
    before = {key: value.clone() for key, value in model.state_dict().items()}
    config = model.config.to_dict()
    swiglu.patch(model)
    after = model.state_dict()
    assert list(before) == list(after) and all(torch.equal(before[k], after[k]) for k in before)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(blocks(again)[0][1]) is transformers.models.llama.modeling_llama.LlamaMLP
    assert all(torch.equal(value, before[key]) for key, value in again.state_dict().items())
    assert {k: v for k, v in again.config.to_dict().items() if k in ("hidden_act", "mlp_bias")} == {
        k: v for k, v in config.items() if k in ("hidden_act", "mlp_bias")
    }
    expected = run(model)
    other = make("llama")
    swiglu.patch(other)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    run(other)
    other.load_state_dict(after)
    assert torch.equal(run(other), expected)


def test_restore_leaves_nothing(model):
    attributes = [(type(m), sorted(m.__dict__)) for m in model.modules()]
    eager = run(model)
    swiglu.patch(model)
    run(model)
    assert swiglu.restore(model) == LAYERS and swiglu.restore(model) == 0
    assert [(type(m), sorted(m.__dict__)) for m in model.modules()] == attributes
    assert torch.equal(run(model), eager)


def test_patched_restores_after_an_exception(model):
    classes = [type(m) for m in model.modules()]
    with pytest.raises(ZeroDivisionError):
        with swiglu.patched(model, policy="keep") as report:
            assert len(report.replaced) == LAYERS and [type(m) for m in model.modules()] != classes
            raise ZeroDivisionError
    assert [type(m) for m in model.modules()] == classes


def test_patched_within_patched(model):
    swiglu.patch(model)
    with swiglu.patched(model) as report:
        assert len(report.replaced) == LAYERS
    assert swiglu.restore(model) == LAYERS


def test_patching_twice_is_once(model):
    swiglu.patch(model)
    classes = [type(m) for m in model.modules()]
    report = swiglu.patch(model, policy="keep")
    assert [type(m) for m in model.modules()] == classes and len(report.replaced) == LAYERS
    assert blocks(model)[0][1]._swiglu.policy == "keep"


def test_a_shared_block_is_one_block(model):
    model.model.layers[1].mlp = model.model.layers[0].mlp
    report = swiglu.patch(model)
    assert len(report.replaced) == 1 and swiglu.restore(model) == 1


def test_inference_after_training_sees_new_weights(model):
    """Each way of changing weights, followed by inference."""
    swiglu.patch(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(3):
        model.train()
        model(tokens(), labels=tokens()).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        model.eval()
        ours = run(model)
        with torch.no_grad():
            for _, module in blocks(model):
                module.down_proj.weight.mul_(1 + step)
        scaled = run(model)
        swiglu.restore(model)
        assert torch.allclose(scaled, run(model), atol=1e-5)
        assert step == 0 or not torch.allclose(ours, scaled, atol=1e-3)
        swiglu.patch(model)


def test_generate(model):
    ids = tokens(1, 5)
    greedy = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    eager = model.generate(ids, **greedy)
    with swiglu.patched(model) as report:
        assert torch.equal(model.generate(ids, **greedy), eager)
    assert report.fallbacks == 0


def test_gradient_checkpointing(model):
    def gradients():
        model.train()
        model.zero_grad()
        model(tokens(), labels=tokens()).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    swiglu.patch(model)
    plain = gradients()
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        again = gradients()
        assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_compare(model):
    comparison = swiglu.compare(model, tokens())
    assert [layer.name for layer in comparison.layers] == [name for name, _ in blocks(model)]
    assert all(0 < layer.error < 1e-6 and layer.eager_ms > 0 and layer.patched_ms > 0 for layer in comparison.layers)
    assert "model.layers.1.mlp" in str(comparison) and not any("_swiglu" in m.__dict__ for m in model.modules())
    swiglu.patch(model)
    again = swiglu.compare(model.train(), {"input_ids": tokens()})
    assert [layer.name for layer in again.layers] == [layer.name for layer in comparison.layers]
    assert all(0 < layer.error < 1e-6 for layer in again.layers)
    assert model.training and all(m.training for m in model.modules())
    with pytest.raises(ValueError, match="no feed-forward block"):
        swiglu.compare(torch.nn.Linear(3, 3), torch.randn(1, 3))
