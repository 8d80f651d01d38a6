# SPDX-License-Identifier: Apache-2.0
"""weights="q8_0" and gguf="file": one copy of the weights, in a block format."""
import copy
import gc
import warnings
import weakref

import numpy as np
import pytest
import swiglu
import torch
from families import FAMILIES, LAYERS, blocks, make, run, tokens
from swiglu.dropin import FreedWeightError

gguf = pytest.importorskip("gguf")
WIDE = {"intermediate_size": 192}  # whole blocks of 32
FORMATS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"]
# x and h may be rounded to 8 bits, 2^-8 of the largest of 32 values: under 2 % of a block, twice that for two blocks.
NEAR = 0.04


def wide(family, **changes):
    return make(family, **({} if family == "gpt2" else WIDE), **changes)


def linears(model):
    """(name, child, whether its weight is [in, out])"""
    return [(f"{name}.{key}", child, type(child).__name__ == "Conv1D") for name, module in blocks(model)
            for key, child in module.named_children() if hasattr(child, "weight")]


def rounded(weight, dtype, transposed):
    """What the package gguf makes of it."""
    qtype = gguf.GGMLQuantizationType[dtype.upper()]
    values = (weight.T if transposed else weight).detach().float().contiguous().numpy()
    back = gguf.quants.dequantize(gguf.quants.quantize(values, qtype), qtype)
    return torch.from_numpy(np.ascontiguousarray(back.T if transposed else back)).to(weight.dtype)


def rounded_model(model, dtype):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for _, child, transposed in linears(model):
            child.weight.copy_(rounded(child.weight, dtype, transposed))
    return model


def apart(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family):
    model = wide(family)
    dense, expected = run(model), run(rounded_model(model, "q4_0"))
    report = swiglu.patch(model, weights="q4_0")
    assert len(report.replaced) == LAYERS and all(entry.freed and entry.dtype == "q4_0" for entry in report.replaced)
    got = run(model)
    assert apart(got, expected) < min(NEAR, 0.5 * apart(dense, expected)) and report.fallbacks == 0


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_format_gives_its_values_back(dtype):
    model = wide("llama")
    expected = rounded_model(model, dtype)
    assert apart(run(model), run(expected)) > 1e-4
    swiglu.patch(model, weights=dtype)
    assert apart(run(model), run(expected)) < NEAR
    with pytest.warns(UserWarning, match=f"saved weights are what {dtype} holds of them"):
        state = model.state_dict()
    assert all(torch.equal(state[f"{name}.weight"], child.weight) for name, child, _ in linears(expected))
    with pytest.warns(UserWarning, match=f"restored weights are what {dtype} holds of them"):
        assert swiglu.restore(model) == LAYERS
    assert torch.equal(run(model), run(expected))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swiglu.restore(model)
        model.state_dict()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes(dtype):
    model = wide("llama", dtype=dtype)
    expected = rounded_model(model, "q8_0")
    swiglu.patch(model, weights="q8_0")
    got = run(model)
    assert got.dtype == dtype and apart(got.float(), run(expected.float())) < NEAR
    with pytest.warns(UserWarning):
        state = model.state_dict()
    assert all(torch.equal(state[f"{name}.weight"], child.weight) for name, child, _ in linears(expected.to(dtype)))


def test_k_formats():
    model = make("llama", hidden_size=256, intermediate_size=512)
    before = run(model)
    report = swiglu.patch(model, weights="q6_k")
    assert 0 < apart(run(model), before) < NEAR and report.replaced[0].dtype == "q6_k"


def test_the_memory_is_given_back_and_told():
    model = wide("phi3")
    storages = [weakref.ref(child.weight.untyped_storage()) for _, child, _ in linears(model)]
    weights = sum(child.weight.numel() for _, child, _ in linears(model))
    dry = swiglu.patch(model, weights="q8_0", dry_run=True)
    assert dry.replaced[0].dtype == "q8_0" and dry.bytes_after == weights // 32 * 34 and dry.bytes_before == 4 * weights
    assert all(storage() is not None for storage in storages)
    report = swiglu.patch(model, weights="q8_0")
    gc.collect()
    assert all(storage() is None for storage in storages)
    assert report.bytes_before == 4 * weights and "q8_0" in str(report)
    info = [entry.state.freed.handle.info() for entry in report.replaced]
    assert report.bytes_after == sum(i.packed_bytes for i in info)
    assert sum(i.file_bytes for i in info) == weights // 32 * 34


def test_nothing_changes_where_something_is_wrong():
    model = wide("llama")
    kept = {name: p for name, p in model.named_parameters()}

    def refused(saying, **options):
        with pytest.raises(ValueError, match=saying):
            swiglu.patch(model, **options)
        assert all(p is kept[name] for name, p in model.named_parameters())
        assert type(model.model.layers[0].mlp).__module__.startswith("transformers")

    refused("layers.0.mlp.gate_proj has rows of 64 values; q4_k needs a multiple of 256", weights="q4_k")
    refused("weights 'q8_0' and gguf", weights="q8_0", gguf="any")
    model.train()
    refused("quantised weights are for inference", weights="q8_0")
    model.eval()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] = torch.nan
    refused("layers.1.mlp.down_proj holds NaN or infinities, which q4_0 cannot", weights="q4_0")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] = 0
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    kept = {name: p for name, p in model.named_parameters()}
    refused("its weights are used by another module too", weights="q4_0")
    with pytest.raises(ValueError, match="no feed-forward block"):
        swiglu.patch(torch.nn.Linear(3, 3).eval(), weights="q4_0")
    with pytest.raises(ValueError, match="use patch"), swiglu.patched(wide("llama"), weights="q8_0"):
        pass


def test_what_needs_the_weights_fails():
    model = wide("llama")
    swiglu.patch(model, weights="q8_0")
    with pytest.raises(FreedWeightError):
        model(tokens())  # gradients are on
    with pytest.raises(FreedWeightError):
        model.train()
    model.eval()
    with pytest.raises(ValueError, match="were given back before"):
        swiglu.patch(model, weights="q4_0")


# ---- adapters before frozen blocks ----

def gradients(model, ids):
    loss = model(ids, labels=ids).loss
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("family", ["llama", "phi3", "gpt2", "gemma"])
def test_gradients_through_frozen_blocks(family):
    """Those of a model whose dense weights are what the format holds."""
    model = wide(family)
    swiglu.patch(model, weights="q8_0")
    expected_model = rounded_model(wide(family), "q8_0")
    for m in (model, expected_model):
        for name, p in m.named_parameters():
            if ".mlp." in name:
                p.requires_grad = False
    model.train()
    expected_model.train()
    for m in (model, expected_model):
        for below in m.modules():
            if isinstance(below, torch.nn.Dropout):
                below.p = 0
    got, expected = gradients(model, tokens()), gradients(expected_model, tokens())
    assert got.keys() == expected.keys() and len(got) > 4
    assert all(apart(got[name], expected[name]) < 2 * NEAR for name in got), {n: apart(got[n], expected[n]) for n in got}


def test_lora_over_a_quantised_base():
    peft = pytest.importorskip("peft")
    model = wide("llama")
    expected = rounded_model(model, "q8_0")
    swiglu.patch(model, weights="q8_0")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)

    def adapted(m):
        torch.manual_seed(5)
        return peft.get_peft_model(m, config).train()

    got, want = gradients(adapted(model), tokens()), gradients(adapted(expected), tokens())
    assert got.keys() == want.keys() and all("lora" in name for name in got)
    assert all(apart(got[name], want[name]) < 2 * NEAR for name in got)


def test_weights_of_a_format_are_not_trained():
    model = wide("llama")
    swiglu.patch(model, weights="q8_0")
    with pytest.raises(FreedWeightError, match="cannot be trained"):
        model(tokens(), labels=tokens())
    for name, p in model.named_parameters():
        p.requires_grad_(".mlp." not in name)
    model.train()
    model.model.layers[0].mlp.down_proj.weight.requires_grad_(True)
    with pytest.raises(FreedWeightError, match="down_proj|cannot be trained"):
        model(tokens(), labels=tokens())
    model.eval()
    with pytest.raises(FreedWeightError, match="training"):
        model.train()


# ---- gguf ----

ARCHITECTURES = {"llama": "llama", "phi3": "phi3", "gpt2": "gpt2", "gemma": "gemma"}
NAMES = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down", "gate_up_proj": "ffn_up", "c_fc": "ffn_up",
         "c_proj": "ffn_down"}  # fmt: skip


def write(path, model, family, dtypes):
    """The blocks of a model as a GGUF file. dtypes: child -> format, or one for all."""
    writer = gguf.GGUFWriter(path, ARCHITECTURES[family])
    writer.add_block_count(len(blocks(model)))
    for name, child, transposed in linears(model):
        number, key = [part for part in name.split(".") if part.isdigit()][0], name.rpartition(".")[2]
        kind = dtypes if isinstance(dtypes, str) else dtypes[key]
        qtype = gguf.GGMLQuantizationType[kind.upper()]
        values = (child.weight.T if transposed else child.weight).detach().float().contiguous().numpy()
        stem = f"blk.{number}.{NAMES[key]}"
        writer.add_tensor(f"{stem}.weight", gguf.quants.quantize(values, qtype), raw_dtype=qtype)
        if child.bias is not None:
            writer.add_tensor(f"{stem}.bias", child.bias.detach().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("family", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["q4_0", "q8_0", "f16"])
def test_weights_of_a_file(tmp_path, family, dtype):
    model = wide(family)
    path = write(tmp_path / "model.gguf", model, family, dtype)
    expected = rounded_model(model, dtype)
    dry = swiglu.patch(model, gguf=path, dry_run=True)
    report = swiglu.patch(model, gguf=path)
    assert len(report.replaced) == LAYERS and {e.dtype for e in report.replaced} == {e.dtype for e in dry.replaced} == {dtype}
    assert apart(run(model), run(expected)) < NEAR and report.fallbacks == 0
    path.unlink()  # nothing is read from it any more
    run(model)
    with pytest.warns(UserWarning, match=dtype):
        swiglu.restore(model)
    assert torch.equal(run(model), run(expected))


def test_formats_of_a_file_may_differ(tmp_path):
    model = wide("llama")
    path = write(tmp_path / "model.gguf", model, "llama", {"gate_proj": "q4_0", "up_proj": "q4_0", "down_proj": "q8_0"})
    report = swiglu.patch(model, gguf=path)
    assert report.replaced[0].dtype == "q4_0, q8_0"
    with pytest.warns(UserWarning, match="q4_0, q8_0"):
        swiglu.restore(model)


def test_a_foreign_file_is_refused(tmp_path):
    model = wide("llama")
    kept = {name: p for name, p in model.named_parameters()}

    def refused(saying, path):
        with pytest.raises((ValueError, OSError), match=saying):
            swiglu.patch(model, gguf=path)
        assert all(p is kept[name] for name, p in model.named_parameters())

    other = wide("llama")
    with torch.no_grad():
        other.model.layers[1].mlp.down_proj.weight.normal_(0, 0.02)
    refused("layers.1.mlp: rows of down differ from those of the file", write(tmp_path / "a.gguf", other, "llama", "q8_0"))
    other = make("llama", intermediate_size=224)
    refused("widths 64 -> 192 -> 64, in the file 64 -> 224 -> 64", write(tmp_path / "b.gguf", other, "llama", "q8_0"))
    other = make("llama", num_hidden_layers=3, **WIDE)
    refused(r"layers 0 to 2 \(3\), the model has 0 to 1 \(2\)", write(tmp_path / "c.gguf", other, "llama", "q8_0"))
    refused("activation silu, in the file gelu_tanh", write(tmp_path / "d.gguf", model, "gemma", "q8_0"))
    refused("no biases, in the file some",
            write(tmp_path / "e.gguf", make("llama", mlp_bias=True, **WIDE), "llama", "q8_0"))
    refused("gone.gguf", tmp_path / "gone.gguf")
