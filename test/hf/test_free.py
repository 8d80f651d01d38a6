# SPDX-License-Identifier: Apache-2.0
"""free=True: the packed copy is all there is, and nothing is lost."""
import copy
import gc
import pickle
import weakref

import pytest
import swiglu
import torch
import transformers
from families import FAMILIES, LAYERS, blocks, make, run, tokens
from swiglu.dropin import FreedWeightError

BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(a.view(BITS[a.dtype]), b.view(BITS[b.dtype]))


def with_odd_values(model):
    """Values that packing could change: NaN with a payload, subnormals, infinities, negative zero."""
    for _, module in blocks(model):
        for p in module.parameters():
            bits = p.data.view(BITS[p.dtype]).view(-1)
            odd = {torch.float32: [0x7F800001, 1, 0x7F800000, -0x80000000]}.get(p.dtype, [0x7F81, 1, 0x7C00, -0x8000])
            bits[: len(odd)] = torch.tensor(odd, dtype=bits.dtype)
    return model


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_bit_comes_back(family, dtype):
    model = with_odd_values(make(family, dtype))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    flags = {name: p.requires_grad for name, p in model.named_parameters()}
    report = swiglu.patch(model, free=True)
    assert len(report.replaced) == LAYERS and all(entry.freed for entry in report.replaced)
    after = model.state_dict()
    assert list(after) == list(before) and all(same_bits(after[key], before[key]) for key in before)
    assert swiglu.restore(model) == LAYERS
    assert all(same_bits(value, before[key]) for key, value in model.state_dict().items())
    assert {name: p.requires_grad for name, p in model.named_parameters()} == flags
    assert all(type(p) is torch.nn.Parameter and p.is_contiguous() for p in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_results(family):
    model = make(family)
    swiglu.patch(model)
    expected = run(model)
    report = swiglu.patch(model, free=True)
    assert torch.equal(run(model), expected) and report.fallbacks == 0
    assert all(p.device.type == "meta" for name, p in model.named_parameters() if ".mlp." in name and "weight" in name)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert model(tokens()).logits.dtype == torch.bfloat16


def test_bytes_are_reported():
    model = make("llama")
    dry = swiglu.patch(model, free=True, dry_run=True)
    assert all(p.device.type == "cpu" for p in model.parameters())
    report = swiglu.patch(model, free=True)
    weights = LAYERS * 3 * 64 * 176 * 4
    assert report.bytes_before == dry.bytes_before == weights
    assert weights <= report.bytes_after <= 1.1 * weights and abs(report.bytes_after - dry.bytes_after) <= 2048
    assert swiglu.patch(model).bytes_after == report.bytes_after  # patching again forgets nothing


def test_the_memory_is_given_back():
    model = make("phi3")
    run(model)
    swiglu.patch(model)
    run(model)  # a packed copy of its own, which must go too
    swiglu.restore(model)
    storages = [weakref.ref(p.untyped_storage()) for _, m in blocks(model) for n, p in m.named_parameters() if "weight" in n]
    swiglu.patch(model, free=True)
    gc.collect()
    assert len(storages) == 2 * LAYERS and all(storage() is None for storage in storages)


def test_compiled_calls_work():
    model = make("llama")
    expected = run(model)
    swiglu.patch(model, free=True)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager")(tokens()).logits
    assert torch.allclose(compiled, expected, atol=1e-6)


def test_save_pretrained(tmp_path):
    model = make("phi3")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    swiglu.patch(model, free=True)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert all(torch.equal(value, before[key]) for key, value in again.state_dict().items())


def test_generate():
    model = make("llama")
    greedy = {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    eager = model.generate(tokens(1, 5), **greedy)
    swiglu.patch(model, free=True)
    assert torch.equal(model.generate(tokens(1, 5), **greedy), eager)


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.train(),
        lambda m: m.model.layers[0].mlp.to(torch.bfloat16),
        lambda m: m.model.layers[1].mlp.half(),
        lambda m: m(tokens()),
        lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3),
        lambda m: torch.optim.SGD(m.parameters(), lr=1e-3),
        lambda m: pickle.dumps(m),
        lambda m: m.model.layers[0].mlp.gate_proj(torch.randn(1, 64)),
        lambda m: m.model.layers[0].mlp.gate_proj.weight.sum(),
        lambda m: m.model.layers[0].mlp.gate_proj.weight + 1,
        lambda m: m.model.layers[0].mlp.gate_proj.weight.data,
    ],
)
def test_whatever_needs_the_values_says_so(use):
    model = make("llama")
    swiglu.patch(model, free=True)
    with pytest.raises(FreedWeightError, match="swiglu.restore"):
        use(model)
    model.eval()
    assert run(model).shape == (2, 9, 128)


@pytest.mark.parametrize("use", [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.load_state_dict(m.state_dict())])
def test_whole_models_too(use):
    """What comes before the first freed block has been converted by then; nothing is computed with the rest."""
    model = make("llama")
    swiglu.patch(model, free=True)
    with pytest.raises(FreedWeightError, match="swiglu.restore"):
        use(model)


def test_an_obstacle_cannot_be_gone_round():
    model = make("llama")
    report = swiglu.patch(model, free=True)
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda *_: None)
    with pytest.raises(FreedWeightError):
        run(model)
    assert report.fallbacks == 1


def test_training_mode_is_refused_beforehand():
    model = make("llama").train()
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        swiglu.patch(model, free=True)
    assert not any(hasattr(m, "_swiglu") for m in model.modules())


def test_deepcopy_shares_the_packed_copy():
    model = make("llama")
    swiglu.patch(model, free=True)
    expected = run(model)
    twin = copy.deepcopy(model)
    swiglu.restore(model)
    assert torch.equal(run(twin), expected) and swiglu.restore(twin) == LAYERS
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))


def test_weights_of_two_modules_are_kept():
    model = make("llama")
    model.model.layers[1].mlp.up_proj = model.model.layers[0].mlp.up_proj
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    other = torch.nn.Linear(64, 176, bias=False)
    other.weight = model.model.layers[0].mlp.gate_proj.weight
    holder = torch.nn.ModuleList([model, other])
    report = swiglu.patch(holder.eval(), free=True)
    kept = [entry.kept for entry in report.replaced]
    assert kept[0] and "not freed" in str(report) and other.weight.device.type == "cpu"


def test_parameters_can_be_counted():
    model = make("llama")
    n = sum(p.numel() for p in model.parameters())
    swiglu.patch(model, free=True)
    assert sum(p.numel() for p in model.parameters()) == n == model.num_parameters()
    assert "meta" in repr(model.get_parameter("model.layers.0.mlp.gate_proj.weight"))
    assert model.device.type == "cpu" and model.dtype == torch.float32 and "LlamaMLP" in repr(model)
