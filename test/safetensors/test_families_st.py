# SPDX-License-Identifier: Apache-2.0
"""Each family of safetensors checkpoints, written by the package safetensors: what its blocks are, and y against NumPy."""
import os
import pathlib
import re

import gguf
import numpy as np
import pytest

import capi
from blockmath import ACT
from checkpoint import (D, FF, assert_same_file, bf16, check_block, forward, left_out, name_of, new_block, refused,
                        write_config, write_sharded, write_single, x_for)
from hostile_st import ST, t

PROJ = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
PACKED = {"gate|up": "mlp.gate_up_proj", "down": "mlp.down_proj"}
FEED = {"gate": "feed_forward.gate_proj", "up": "feed_forward.up_proj", "down": "feed_forward.down_proj"}
W123 = {"gate": "feed_forward.w1", "up": "feed_forward.w3", "down": "feed_forward.w2"}
QWEN = {"up": "mlp.w1", "gate": "mlp.w2", "down": "mlp.c_proj"}
PLAIN_PROJ = {"up": "mlp.up_proj", "down": "mlp.down_proj"}
DENSE = {"up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}
C_FC = {"up": "mlp.c_fc", "down": "mlp.c_proj"}
FC = {"up": "fc1", "down": "fc2"}
MLP_FC = {"up": "mlp.fc1", "down": "mlp.fc2"}
MODEL, H, POST, INPUT = "model.layers.", "transformer.h.", "post_attention_layernorm", "input_layernorm"


def family(prefix, names, act, key="hidden_act", norm=None, in_out=False, widths=("hidden_size", "intermediate_size")):
    return {"prefix": prefix, "names": names, "act": act, "key": key, "norm": norm, "in_out": in_out, "widths": widths}


def several(model_types, *arguments, **options):
    return dict.fromkeys(model_types.split(), family(*arguments, **options))


# What the block of each model_type is, from transformers' own code and configs.
FAMILIES = {
    **several("llama mistral ministral qwen2 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3 qwen3_vl_text smollm3 "
              "granite stablelm internlm baichuan minicpm helium seed_oss ernie4_5 hunyuan_v1_dense deepseek_v2 "
              "deepseek_v3 glm4_moe mixtral olmoe qwen2_moe qwen3_moe", MODEL, PROJ, "silu", norm=POST),
    **several("cohere cohere2", MODEL, PROJ, "silu", norm=INPUT),
    **several("olmo olmo2 olmo3 exaone4", MODEL, PROJ, "silu"),
    "qwen": family(H, QWEN, "silu", None, norm="ln_2"),
    "internlm2": family(MODEL, W123, "silu", norm="ffn_norm"),
    **several("phi3 glm glm4", MODEL, PACKED, "silu", norm=POST),
    "chatglm": family("transformer.encoder.layers.", {"gate|up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}, "silu",
                      None, norm=POST, widths=("hidden_size", "ffn_hidden_size")),
    "hf_olmo": family("model.transformer.blocks.", {"up|gate": "ff_proj", "down": "ff_out"}, "silu", None,
                      widths=("d_model", "mlp_hidden_size")),
    "dinov2": family("encoder.layer.", {"gate|up": "mlp.weights_in", "down": "mlp.weights_out"}, "silu", None,
                     norm="norm2", widths=("hidden_size", None)),
    "dinov2_with_registers": family("encoder.layer.", MLP_FC, "gelu", norm="norm2", widths=("hidden_size", None)),
    **several("gemma gemma2 gemma3 gemma3_text", MODEL, PROJ, "gelu_tanh", "hidden_activation"),
    "modernbert": family("layers.", {"gate|up": "mlp.Wi", "down": "mlp.Wo"}, "gelu", "hidden_activation",
                         norm="mlp_norm"),
    "gpt2": family(H, C_FC, "gelu_tanh", "activation_function", "ln_2", True, ("n_embd", "n_inner")),
    "gpt_bigcode": family(H, C_FC, "gelu_tanh", "activation_function", "ln_2", widths=("n_embd", "n_inner")),
    "starcoder2": family(MODEL, C_FC, "gelu_tanh", norm=POST),
    "gptj": family(H, {"up": "mlp.fc_in", "down": "mlp.fc_out"}, "gelu_tanh", "activation_function", "ln_1",
                   widths=("n_embd", "n_inner")),
    "phi": family(MODEL, MLP_FC, "gelu_tanh", norm=INPUT),
    "gpt_neox": family("gpt_neox.layers.", DENSE, "gelu", norm=POST),
    "falcon": family(H, DENSE, "gelu", "activation", INPUT, widths=("hidden_size", "ffn_hidden_size")),
    "bloom": family(H, DENSE, "gelu_tanh", None, POST, widths=("hidden_size", None)),
    "mpt": family("transformer.blocks.", {"up": "ffn.up_proj", "down": "ffn.down_proj"}, "gelu", None, "norm_2",
                  widths=("d_model", None)),
    "bert": family("bert.encoder.layer.", {"up": "intermediate.dense", "down": "output.dense"}, "gelu"),
    "opt": family("model.decoder.layers.", FC, "relu", "activation_function", "final_layer_norm",
                  widths=("hidden_size", "ffn_dim")),
    "nemotron": family(MODEL, PLAIN_PROJ, "relu2"),
    "arcee": family(MODEL, PLAIN_PROJ, "relu2", norm=POST),
    "persimmon": family(MODEL, DENSE, "relu2", norm=POST),
}
LEFT_OUT = {"bitnet": PROJ, "falcon_h1": FEED, "gemma3n": PROJ, "gemma3n_text": PROJ, "apertus": PLAIN_PROJ}
LAYOUTS = {"gate|up": capi.GATE_UP, "up|gate": capi.UP_GATE}


def stored(parts, names, prefix, i, in_out=False):
    """The tensors of a layer as a checkpoint of these names holds them."""
    out = {}
    for role, base in names.items():
        for suffix, end in (("", ".weight"), ("_bias", ".bias")):
            values = [parts[r + suffix] for r in role.split("|") if r + suffix in parts]
            if values:
                v = np.concatenate(values)
                out[f"{prefix}{i}.{base}{end}"] = v.T if in_out and v.ndim == 2 else v
    return out


def build(folder, model_type, names=None, layers=2, biases=False, seed=0, d=D, ff=FF, **config):
    """A checkpoint of the family; returns the parts of its layers."""
    f, rng, tensors, parts = FAMILIES[model_type], np.random.default_rng(seed), {}, []
    names = names or f["names"]
    gated = not set(names) == {"up", "down"}
    for i in range(layers):
        parts.append(new_block(rng, d, ff, gated, biases))
        tensors |= stored(parts[i], names, f["prefix"], i, f["in_out"])
        for norm in {f["norm"] or "post_feedforward_layernorm", "self_attn.q_norm"}:
            tensors[f"{f['prefix']}{i}.{norm}.weight"] = rng.normal(1, 0.1, d).astype(np.float32)
    width, hidden = f["widths"]
    values = {"model_type": model_type, width: d, "rms_norm_eps": 1e-6} | ({hidden: ff} if hidden else {})
    write_single(folder, tensors)
    write_config(folder, **values | config)
    return parts


def test_every_family_is_tested():
    table = (pathlib.Path(os.environ["SWIGLU_SOURCE"]) / "src/io/hf_family.def").read_text()
    listed = set(re.findall(r'^FAMILY\("([^"]+)"', table, re.M))
    assert listed == {*FAMILIES, *LEFT_OUT}
    text = (pathlib.Path(os.environ["SWIGLU_SOURCE"]) / "docs/files.md").read_text()
    section = text.split("## safetensors")[1].split("\n## ")[0]
    assert not [m for m in listed if not re.search(rf"\b{m}\b", section)]


@pytest.mark.parametrize("biases", [False, True], ids=["plain", "biases"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_family(tmp_path, model_type, biases):
    f = FAMILIES[model_type]
    parts = build(tmp_path, model_type, biases=biases)
    layout = next((role for role in f["names"] if "|" in role), "separate" if "gate" in f["names"] else "ungated")
    with capi.opened(tmp_path) as model:
        assert (model.info.format, model.info.architecture.decode()) == (b"safetensors", model_type)
        assert model.info.n_blocks == 2 and model.warnings() == []
        assert_same_file(model, tmp_path / "model.safetensors")
        for i, info in enumerate(model.blocks()):
            assert (info.layer, info.usable, info.reason) == (i, 1, b"")
            assert info.kind == (b"plain" if layout == "ungated" else b"gated")
            assert info.activation_source.decode() == f"model_type {model_type}"
            assert info.layout_name.decode() == layout
            assert info.layout == LAYOUTS.get(layout, capi.UNGATED if layout == "ungated" else capi.SEPARATE)
            assert (info.d_in, info.d_ff, info.d_out, info.in_out) == (D, FF, D, int(f["in_out"]))
            assert name_of(model, info.norm) == (f["norm"] and f"{f['prefix']}{i}.{f['norm']}.weight")
            assert info.weight_bytes == 4 * sum(p.size for p in parts[i].values())
            check_block(model, i, parts[i], ACT[f["act"]])


@pytest.mark.parametrize("model_type", [m for m, f in FAMILIES.items() if f["key"]])
def test_the_config_decides_on_the_activation(tmp_path, model_type):
    f = FAMILIES[model_type]
    parts = build(tmp_path, model_type, layers=1, **{f["key"]: "relu"})
    with capi.opened(tmp_path) as model:
        info = model.block(0)
        assert (info.activation, info.activation_source.decode()) == (b"relu", f"config.json {f['key']}")
        check_block(model, 0, parts[0], ACT["relu"])


@pytest.mark.parametrize("model_type", LEFT_OUT)
def test_left_out_families(tmp_path, model_type):
    names = LEFT_OUT[model_type]
    parts = new_block(np.random.default_rng(0), gated="gate" in names)
    write_single(tmp_path, stored(parts, names, MODEL, 0))
    write_config(tmp_path, model_type=model_type)
    assert left_out(tmp_path).startswith(f"model_type {model_type}: ")


# ---- one model in many files ----

def test_four_files_give_the_same_y(tmp_path):
    """GGUF, safetensors, shards and packed weights, the same bits in each: the same y, byte for byte."""
    rng = np.random.default_rng(3)
    parts = [new_block(rng) for _ in range(3)]
    ys = {}
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    for i, p in enumerate(parts):
        for name in ("gate", "up", "down"):
            writer.add_tensor(f"blk.{i}.ffn_{name}.weight", p[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = {"gguf": tmp_path / "model.gguf"}
    for kind in ("single", "sharded", "packed"):
        paths[kind] = tmp_path / kind
        paths[kind].mkdir()
        names = PACKED if kind == "packed" else PROJ
        tensors = {k: v for i, p in enumerate(parts) for k, v in stored(p, names, MODEL, i).items()}
        (write_sharded if kind == "sharded" else write_single)(paths[kind], tensors)
        write_config(paths[kind], model_type="phi3" if kind == "packed" else "llama", hidden_act="silu")
    for kind, path in paths.items():
        with capi.opened(path) as model:
            assert model.info.n_blocks == 3 and all(b.usable for b in model.blocks())
            ys[kind] = [forward(model, i, x_for(i)).tobytes() for i in range(3)]
    assert ys["gguf"] == ys["single"] == ys["sharded"] == ys["packed"]


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_C094_float_types(tmp_path, dtype):
    """BF16 tensors load, with 1.0 = 0x3F80, and so do F16 and F32."""
    header, data = {}, b""
    parts = new_block(np.random.default_rng(5), 8, 8)
    for role, base in PROJ.items():
        w = parts[role] = bf16(parts[role]) if dtype == "BF16" else parts[role]
        w[0, 0] = 1.0
        raw = {"F32": w, "F16": w.astype(np.float16), "BF16": (w.view(np.uint32) >> 16).astype(np.uint16)}[dtype]
        if dtype == "F16":
            parts[role] = raw.astype(np.float32)
        header[f"{MODEL}0.{base}.weight"] = t([8, 8], [len(data), len(data) + raw.nbytes], dtype)
        data += raw.tobytes()
    (tmp_path / "model.safetensors").write_bytes(ST(header, data))
    write_config(tmp_path, model_type="llama")
    with capi.opened(tmp_path) as model:
        assert {t.dtype_name.decode() for t in model.tensors()} == {dtype}
        one = {"F32": b"\0\0\x80\x3f", "F16": b"\0\x3c", "BF16": b"\x80\x3f"}[dtype]
        assert all(model.read(i, 0, len(one)) == one for i in range(3))
        assert model.desc(0).down.dtype == {"F32": capi.F32, "F16": capi.F16, "BF16": capi.BF16}[dtype]
        if dtype != "BF16":  # bf16 weights are multiplied in bf16 (test_forward.c)
            check_block(model, 0, parts, ACT["silu"])


def test_C097_views_are_written_as_copies(tmp_path):
    packed = np.random.default_rng(6).normal(0, 1, (2 * FF, D)).astype(np.float32)
    parts = {"gate": packed[:FF], "up": packed[FF:], "down": new_block(np.random.default_rng(7))["down"]}
    write_single(tmp_path, stored(parts, PROJ, MODEL, 0))
    write_config(tmp_path, model_type="llama")
    with capi.opened(tmp_path) as model:
        check_block(model, 0, parts, ACT["silu"])


# ---- names, orders, orientation ----

def test_C008_orientation_comes_from_the_names(tmp_path):
    """Square weights: GPT-2 stores [in, out], StarCoder 2 the same names as [out, in]; wide and narrow ones too."""
    for d, ff in ((16, 16), (44, 11), (11, 44)):
        for model_type in ("gpt2", "starcoder2"):
            folder = tmp_path / f"{model_type}-{d}-{ff}"
            folder.mkdir()
            parts = build(folder, model_type, layers=1, d=d, ff=ff)
            with capi.opened(folder) as model:
                check_block(model, 0, parts[0], ACT["gelu_tanh"])


def test_C008_a_transposed_weight_is_refused(tmp_path):
    parts = new_block(np.random.default_rng(8), 44, 11)
    parts["up"] = parts["up"].T
    write_single(tmp_path, stored(parts, PROJ, MODEL, 0))
    write_config(tmp_path, model_type="llama")
    refused(tmp_path, "mlp.up_proj.weight rows 44", "mlp.gate_proj.weight rows 11", "must be equal")


def test_C010_dimensions_as_in_the_file(tmp_path):
    a = np.zeros((4, 10), np.float32)
    a[1, 0] = 5
    with capi.opened(write_single(tmp_path, {"a": a})) as model:
        assert list(model.tensor(0).dims)[:2] == [4, 10]
        back = np.frombuffer(model.read(0, 0, 160), np.float32).reshape(4, 10)
        assert back[1, 0] == 5 and np.count_nonzero(back) == 1


def test_C004_phi3_packs_gate_first_and_olmo_second(tmp_path):
    parts = new_block(np.random.default_rng(9))
    ys = {}
    for model_type, names in (("phi3", PACKED), ("hf_olmo", FAMILIES["hf_olmo"]["names"])):
        folder = tmp_path / model_type
        folder.mkdir()
        write_single(folder, stored(parts, names, FAMILIES[model_type]["prefix"], 0))
        write_config(folder, model_type=model_type)
        with capi.opened(folder) as model:
            assert model.block(0).up == -1
            ys[model_type] = check_block(model, 0, parts, ACT["silu"])
    np.testing.assert_array_equal(ys["phi3"], ys["hf_olmo"])


def test_C014_qwen_1_and_llama_name_the_gate_differently(tmp_path):
    """w1 is up in Qwen 1 and the gate in Llama's own files: equal numbers under both names give equal y."""
    parts, ys = new_block(np.random.default_rng(10)), []
    for name, names, prefix in (("qwen", QWEN, H), ("llama", W123, "layers.")):
        path = write_single(tmp_path, stored(parts, names, prefix, 0), f"{name}.safetensors")
        with capi.opened(path) as model:
            info = model.block(0)
            assert [name_of(model, i).split(".")[-2] for i in (info.gate, info.up, info.down)] == [
                names[role].split(".")[-1] for role in ("gate", "up", "down")]
            assert info.activation == b"silu" and info.activation_source.startswith(b"tensor names ")
            ys.append(check_block(model, 0, parts, ACT["silu"]))
    np.testing.assert_array_equal(*ys)


def test_C014_unknown_names_are_refused(tmp_path):
    parts = new_block(np.random.default_rng(11))
    names = {"gate": "mlp.alpha", "up": "mlp.beta", "down": "mlp.gamma"}
    path = write_single(tmp_path, stored(parts, names, MODEL, 0))
    assert "not understood" in left_out(path, activation="silu")


def test_C014_half_a_name_set_is_refused(tmp_path):
    tensors = stored(new_block(np.random.default_rng(12)), W123, "layers.", 0)
    del tensors["layers.0.feed_forward.w3.weight"]
    assert left_out(write_single(tmp_path, tensors)) == "tensor layers.0.feed_forward.w3.weight is missing"


@pytest.mark.parametrize("names", [W123, FEED], ids=["w123", "feed"])
def test_C116_llama_under_other_names(tmp_path, names):
    parts = new_block(np.random.default_rng(13))
    write_single(tmp_path, stored(parts, names, MODEL, 0))
    write_config(tmp_path, model_type="llama", hidden_act="silu")
    with capi.opened(tmp_path) as model:
        assert model.block(0).activation_source == b"config.json hidden_act"
        y = check_block(model, 0, parts, ACT["silu"])
    if names is FEED:
        write_single(tmp_path, stored(parts, W123, MODEL, 0))
        with capi.opened(tmp_path) as model:
            np.testing.assert_array_equal(forward(model, 0, x_for(0)), y)


def test_C116_leftovers_are_listed(tmp_path):
    parts = new_block(np.random.default_rng(14))
    tensors = stored(parts, W123, MODEL, 0)
    tensors[f"{MODEL}0.feed_forward.gate_proj.weight"] = parts["gate"]
    write_single(tmp_path, tensors)
    write_config(tmp_path, model_type="internlm2")
    reason = left_out(tmp_path)
    assert f"tensor {MODEL}0.feed_forward.gate_proj.weight" in reason and "not understood" in reason


def test_plain_names_without_config_are_not_evaluated(tmp_path):
    """c_fc does not tell whether it is stored [in, out]."""
    path = write_single(tmp_path, stored(new_block(np.random.default_rng(15), gated=False), C_FC, H, 0))
    assert left_out(path, activation="gelu").startswith("no config.json beside the file: tensor transformer.h.0.mlp.c_")


def test_packed_without_config_is_not_evaluated(tmp_path):
    path = write_single(tmp_path, stored(new_block(np.random.default_rng(16)), PACKED, MODEL, 0))
    assert "gate|up" in left_out(path, activation="silu")


# ---- activations ----

GEMMA_GELU = 'config.json hidden_act "gelu", the tanh form of Gemma\'s files'


@pytest.mark.parametrize("config, act, source", [
    ({"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": None}, "gelu_tanh", GEMMA_GELU),
    ({"model_type": "gemma3_text", "hidden_act": "gelu"}, "gelu_tanh", GEMMA_GELU),
    ({"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, "gelu_tanh",
     "config.json hidden_activation"),
    ({"model_type": "gemma"}, "gelu_tanh", "model_type gemma"),
    ({"model_type": "gemma", "hidden_act": "gelu_pytorch_tanh"}, "gelu_tanh", "config.json hidden_act"),
    ({"model_type": "gemma2", "hidden_act": "silu"}, "silu", "config.json hidden_act"),
    ({"model_type": "gemma3", "hidden_act": "relu", "hidden_activation": None}, "relu", "config.json hidden_act"),
    ({"model_type": "gemma", "hidden_activation": "gelu"}, "gelu", "config.json hidden_activation"),
    ({"model_type": "llama", "hidden_act": "gelu"}, "gelu", "config.json hidden_act"),
])
def test_C016_two_keys_for_one_activation(tmp_path, config, act, source):
    parts = new_block(np.random.default_rng(17))
    write_single(tmp_path, stored(parts, PROJ, MODEL, 0))
    write_config(tmp_path, **config)
    with capi.opened(tmp_path) as model:
        assert model.block(0).activation_source.decode() == source
        assert model.block(0).act.kind == {"silu": 4, "gelu": 5, "gelu_tanh": 6, "relu": 1}[act]
        check_block(model, 0, parts, ACT[act])


@pytest.mark.parametrize("name, act", {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh",
                                       "gelu_new": "gelu_tanh", "relu": "relu"}.items())
def test_C157_llama_with_another_activation(tmp_path, name, act):
    parts = build(tmp_path, "llama", layers=1, hidden_act=name)
    with capi.opened(tmp_path) as model:
        assert model.block(0).activation.decode() == name
        check_block(model, 0, parts[0], ACT[act])


@pytest.mark.parametrize("name", ["mish", "siloo", "SiLU", "", "\x1b[2J", "a" * 300])
def test_C157_unknown_activation_is_not_silu(tmp_path, name):
    build(tmp_path, "llama", layers=1, hidden_act=name)
    reason = left_out(tmp_path)
    assert reason.startswith("config.json hidden_act: activation ") and "unknown, use --activation" in reason
    assert "\x1b" not in reason
    with capi.opened(tmp_path, activation="relu") as model:
        assert (model.block(0).activation, model.block(0).activation_source) == (b"relu", b"--activation")


def test_C157_unknown_model_type(tmp_path):
    parts = new_block(np.random.default_rng(18))
    write_single(tmp_path, stored(parts, PROJ, MODEL, 0))
    for config, reason in (({"model_type": "brand-new"}, 'unknown model_type "brand-new"'),
                           ({}, "no model_type in config.json")):
        write_config(tmp_path, hidden_act="silu", hidden_size=1, **config)
        assert left_out(tmp_path) == f"{reason}: activation unknown, use --activation"
        with capi.opened(tmp_path, activation="relu") as model:
            check_block(model, 0, parts, ACT["relu"])
    (tmp_path / "config.json").unlink()
    assert left_out(tmp_path) == "no config.json beside the file: activation unknown, use --activation"


def test_olmo_names_its_unit(tmp_path):
    for name, act in (("swiglu", "silu"), ("geglu", "gelu"), ("reglu", "relu")):
        parts = build(tmp_path, "hf_olmo", layers=1, activation_type=name)
        with capi.opened(tmp_path) as model:
            check_block(model, 0, parts[0], ACT[act])


def test_gated_unit_for_a_plain_block(tmp_path):
    build(tmp_path, "nemotron", layers=1, hidden_act="swiglu")
    assert 'activation "swiglu" is unknown' in left_out(tmp_path)


def test_dinov2_both_kinds(tmp_path):
    """SwiGLU has SiLU whatever hidden_act says; the plain MLP goes by hidden_act. DINOv2's own names, and split ones."""
    own = {"gate|up": "mlp.w12", "down": "mlp.w3"}
    for kind, names, prefix, act in (("swiglu", None, None, "silu"), ("mlp", MLP_FC, None, "gelu"),
                                     ("own", own, "blocks.", "silu"), ("split", PROJ, None, "silu")):
        folder = tmp_path / kind
        folder.mkdir()
        if prefix:
            parts = [new_block(np.random.default_rng(19), biases=True)]
            write_single(folder, stored(parts[0], names, prefix, 0))
        else:
            parts = build(folder, "dinov2", names, layers=1, biases=True, hidden_act="gelu")
        with capi.opened(folder) as model:
            check_block(model, 0, parts[0], ACT[act])


# ---- what is left out ----

@pytest.mark.parametrize("extra, words", {
    "mlp.ffn_sub_norm.weight": "sub-norm",
    "mlp.act.scales": "activation scales",
    "mlp.up_proj.weight_scale_inv": "not understood",
    "mlp.up_proj.qweight": "not understood",
    "mlp.up_proj.lora_A.weight": "not understood",
    "mlp.gate.weight": "mixture of experts",
    "mlp.experts.0.up_proj.weight": "mixture of experts",
    "mlp.experts.gate_up_proj": "mixture of experts",
    "mlp.shared_expert.up_proj.weight": "mixture of experts",
    "mlp.shared_experts.up_proj.weight": "mixture of experts",
    "block_sparse_moe.gate.weight": "mixture of experts",
    "block_sparse_moe.experts.3.w1.weight": "mixture of experts",
    "feed_forward.router.weight": "mixture of experts",
}.items())
def test_left_out_for_a_tensor(tmp_path, extra, words):
    tensors = stored(new_block(np.random.default_rng(20)), PROJ, MODEL, 0)
    tensors[f"{MODEL}0.{extra}"] = np.zeros((2, 2), np.float32)
    write_single(tmp_path, tensors)
    write_config(tmp_path, model_type="llama")
    for options in ({}, {"activation": "silu"}):
        reason = left_out(tmp_path, **options)
        assert words in reason and f"{MODEL}0.{extra}" in reason


def test_C118_fused_experts_are_listed_as_experts(tmp_path):
    write_single(tmp_path, {f"{MODEL}0.mlp.experts.gate_up_proj": np.zeros((4, 16, 8), np.float32),
                            f"{MODEL}0.mlp.experts.down_proj": np.zeros((4, 8, 8), np.float32)})
    write_config(tmp_path, model_type="qwen3_moe")
    with capi.opened(tmp_path) as model:
        assert (model.block(0).kind, model.block(0).usable) == (b"experts", 0)


def test_experts_beside_dense_layers(tmp_path):
    parts = new_block(np.random.default_rng(21))
    tensors = stored(parts, PROJ, MODEL, 0)
    for expert in range(3):
        tensors |= stored(new_block(np.random.default_rng(22), ff=32), {k: v.replace("mlp", f"mlp.experts.{expert}")
                                                                        for k, v in PROJ.items()}, MODEL, 1)
    write_single(tmp_path, tensors)
    write_config(tmp_path, model_type="deepseek_v3", intermediate_size=FF, moe_intermediate_size=32)
    with capi.opened(tmp_path) as model:
        assert [(b.layer, b.usable, b.kind) for b in model.blocks()] == [(0, 1, b"gated"), (1, 0, b"experts")]
        check_block(model, 0, parts, ACT["silu"])


def test_other_stacks(tmp_path):
    """A vision tower beside the language model: its layers are listed, not mixed up with those of the same number."""
    parts = new_block(np.random.default_rng(23))
    tower = stored(new_block(np.random.default_rng(24), 32, 32, False), MLP_FC, "vision_tower.encoder.layers.", 0)
    write_single(tmp_path, stored(parts, PROJ, "model.language_model.layers.", 0) | tower)
    write_config(tmp_path, model_type="gemma3", hidden_size=7,
                 text_config={"model_type": "gemma3_text", "hidden_size": D, "intermediate_size": FF},
                 vision_config={"hidden_size": 32, "intermediate_size": 32, "model_type": "siglip_vision_model"})
    with capi.opened(tmp_path) as model:
        assert model.info.architecture == b"gemma3_text"
        assert [(b.usable, b.kind) for b in model.blocks()] == [(1, b"gated"), (0, b"other stack")]
        assert b"another stack" in model.block(1).reason
        check_block(model, 0, parts, ACT["gelu_tanh"])


@pytest.mark.parametrize("model_type, names", [("llama", PACKED), ("gpt_neox", PROJ), ("nemotron", PROJ), ("llama", C_FC)])
def test_form_that_the_family_does_not_have(tmp_path, model_type, names):
    gated = set(names) != {"up", "down"}
    write_single(tmp_path, stored(new_block(np.random.default_rng(25), gated=gated), names, FAMILIES[model_type]["prefix"], 0))
    write_config(tmp_path, model_type=model_type)
    reason = left_out(tmp_path)
    assert "but the tensors of this one are those of layout" in reason or "not understood" in reason


@pytest.mark.parametrize("role", PROJ)
def test_missing_tensor(tmp_path, role):
    tensors = stored(new_block(np.random.default_rng(26)), PROJ, MODEL, 0)
    del tensors[f"{MODEL}0.{PROJ[role]}.weight"]
    write_single(tmp_path, tensors)
    write_config(tmp_path, model_type="llama")
    assert left_out(tmp_path) == f"tensor {MODEL}0.{PROJ[role]}.weight is missing"


# ---- config against tensors ----

@pytest.mark.parametrize("config, words", [
    ({"intermediate_size": 128}, ["intermediate_size 128", "mlp.down_proj.weight shows 96"]),
    ({"hidden_size": 128}, ["hidden_size 128", "mlp.up_proj.weight shows 64"]),
    ({"intermediate_size": "96"}, ["intermediate_size: an integer"]),
    ({"intermediate_size": 96.0}, ["intermediate_size: an integer"]),
    ({"intermediate_size": -96}, ["intermediate_size: an integer"]),
    ({"intermediate_size": [96]}, ["intermediate_size: a value for each layer"]),
    ({"intermediate_size": [96, "96"]}, ["intermediate_size: an integer"]),
    ({"intermediate_size": [96, 64]}, ["intermediate_size 64"]),
    ({"hidden_act": 5}, ["hidden_act: a string"]),
])
def test_config_is_cross_checked(tmp_path, config, words):
    build(tmp_path, "llama", **config)
    failure = refused(tmp_path, "config.json", *words)
    assert failure.offset != capi.NO_OFFSET


def test_width_per_layer(tmp_path):
    rng, tensors = np.random.default_rng(27), {}
    parts = [new_block(rng, ff=ff) for ff in (96, 32)]
    for i, p in enumerate(parts):
        tensors |= stored(p, PROJ, MODEL, i)
    write_single(tmp_path, tensors)
    write_config(tmp_path, model_type="llama", intermediate_size=[96, 32])
    with capi.opened(tmp_path) as model:
        for i, p in enumerate(parts):
            check_block(model, i, p, ACT["silu"])


@pytest.mark.parametrize("model_type, value, accepted", [("llama", 2 * FF, False), ("qwen", 2 * FF, True), ("qwen", FF, True),
                                                         ("qwen", 3 * FF, False), ("hf_olmo", 2 * FF, True)])
def test_C187_one_half_or_both(tmp_path, model_type, value, accepted):
    """Whether a number counts gate and up together is the family's business; the shapes decide."""
    key = FAMILIES[model_type]["widths"][1]
    build(tmp_path, model_type, **{key: value})
    if accepted:
        with capi.opened(tmp_path) as model:
            assert model.block(0).d_ff == FF
    else:
        words = [f"{key} {value}", f"shows {FF}"] + (["would count gate and up"] if model_type == "llama" else [])
        refused(tmp_path, *words)


def test_C188_no_intermediate_size(tmp_path):
    for config in ({}, {"intermediate_size": None}):
        parts = new_block(np.random.default_rng(28), 512, 2048)
        write_single(tmp_path, stored(parts, PROJ, MODEL, 0))
        write_config(tmp_path, model_type="llama", **config)
        with capi.opened(tmp_path) as model:
            assert (model.block(0).d_ff, model.block(0).d_in) == (2048, 512)
    write_config(tmp_path, model_type="llama", intermediate_size=24576)
    refused(tmp_path, "intermediate_size 24576", "2048")


def test_number_of_layers(tmp_path):
    for n, warnings in ((2, 0), (1, 1), (2**63, 1), (None, 0), ("two", 1)):
        build(tmp_path, "llama", num_hidden_layers=n)
        with capi.opened(tmp_path) as model:
            assert model.info.n_blocks == 2 and len(model.warnings()) == warnings
    build(tmp_path, "llama", num_hidden_layers=7)
    refused(tmp_path, "num_hidden_layers 7", "2 layers", strict=True)


@pytest.mark.parametrize("text, words", [
    ("[]", ["an object is expected"]), ("", ["ends where a value is expected"]), ('{"model_type":"llama"', ["a comma or"]),
    ('{"a":1,"a":2}', ["duplicate key a, first at byte 1 (at byte 7)"]), ('{"a":1,"\\u0061":2}', ["duplicate key a"]),
    ('{"text_config":{"b":1,"b":2}}', ["duplicate key b"]), ('{"a":1,"a":[1,}', ["duplicate key a"]),
    ('{"text_config":{},"text_config":5}', ["duplicate key text_config"]), ('{"model_type":5}', ["model_type: a string"]),
    ('{"text_config":[]}', ["text_config"]),
    ('{"' + "n" * 70000 + '":1}', ["a key of more than 65535 bytes"]),
    ('{"model_type":"llama","hidden_act":{"a":[{}]}}', ["hidden_act: a string is expected"]),
    ('{"a":' + "[" * 40 + "]" * 40 + "}", ["depth 33"]), ("{}{}", ["the end is expected"]), ("\xef\xbb\xbf{}", ["byte 0"]),
])
def test_broken_config(tmp_path, text, words):
    build(tmp_path, "llama")
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    refused(tmp_path, "config.json", *words)


def test_config_with_everything(tmp_path):
    """Keys of no concern may hold anything, NaN and Infinity as Python writes them included."""
    parts = build(tmp_path, "llama", layers=1, hidden_act="silu", rope_scaling={"factor": 8.0, "type": [1, [2, {}]]},
                  limit=float("inf"), other=float("nan"), low=-float("inf"), text_config=None, big=2**70, n_layers=None,
                  architectures=["LlamaForCausalLM"])
    with capi.opened(tmp_path) as model:
        check_block(model, 0, parts[0], ACT["silu"])


def test_config_beyond_the_limit(tmp_path):
    build(tmp_path, "llama")
    with open(tmp_path / "config.json", "r+b") as file:
        file.truncate(100_000_001)
    refused(tmp_path, "config of 100000001 bytes: limit 100000000")


def test_config_that_cannot_be_read(tmp_path):
    build(tmp_path, "llama")
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    refused(tmp_path, "config.json", "not a regular file", status=capi.E_OPEN)
