# SPDX-License-Identifier: Apache-2.0
"""Each family of checkpoint, written by the Python package gguf: what its blocks are, and y against NumPy in double."""
import functools
import os
import pathlib
import re

import gguf
import numpy as np
import pytest

import capi
from blockmath import ACT, assert_close, evaluate, softplus, xielu

D, FF, ROWS = 64, 96, 3
ATTN, FFN, POST, NONE = "blk.%d.attn_norm.weight", "blk.%d.ffn_norm.weight", "blk.%d.post_attention_norm.weight", None
GATED, PACKED, PLAIN = "separate", "gate|up", "ungated"
XIELU = {"xielu.alpha_p": [0.25, -0.5], "xielu.alpha_n": [0.75, 0.125], "xielu.beta": [0.5, 0.5],
         "xielu.eps": [-1e-6, -1e-6]}

# What the block of each architecture is: its config's default in transformers, and the norm before it.
FAMILIES = {
    **dict.fromkeys("llama llama4 mistral3 smollm3 qwen2 qwen2vl qwen3 qwen3vl internlm2 baichuan xverse orion minicpm "
                    "minicpm3 stablelm granite granitehybrid exaone ernie4_5 hunyuan-dense lfm2 openelm deci deepseek "
                    "deepseek2 dots1 ernie4_5-moe olmoe qwen2moe qwen3moe jamba lfm2moe mistral4 "
                    "llama-embed".split(), (GATED, "silu", FFN)),
    **dict.fromkeys("qwen35 seed_oss glm4moe".split(), (GATED, "silu", POST)),
    **dict.fromkeys("command-r cohere2".split(), (GATED, "silu", ATTN)),
    **dict.fromkeys("olmo olmo2 exaone4".split(), (GATED, "silu", NONE)),
    "qwen": (GATED, "silu", FFN),
    **dict.fromkeys("phi3 chatglm glm4".split(), (PACKED, "silu", FFN)),
    **dict.fromkeys("gemma gemma2 gemma3 gemma4 gemma-embedding".split(), (GATED, "gelu_tanh", FFN)),
    "modern-bert": (PACKED, "gelu", FFN),
    **dict.fromkeys("gpt2 starcoder starcoder2 bloom".split(), (PLAIN, "gelu_tanh", FFN)),
    **dict.fromkeys("gptj phi2".split(), (PLAIN, "gelu_tanh", ATTN)),
    **dict.fromkeys("gptneox mpt".split(), (PLAIN, "gelu", FFN)),
    "falcon": (PLAIN, "gelu", ATTN),
    "bert": (PLAIN, "gelu", NONE),
    "opt": (PLAIN, "relu", FFN),
    **dict.fromkeys("nemotron persimmon arcee".split(), (PLAIN, "relu2", FFN)),
    "nemotron_h": (PLAIN, "relu2", ATTN),
}
BIASED = ("gpt2", "gptj", "phi2", "starcoder", "starcoder2", "bloom", "gptneox", "bert", "opt", "nemotron", "llama", "phi3")
LEFT_OUT = ("bitnet", "bitnet-b1.58", "bitnet-25", "falcon-h1", "step35")
ELSEWHERE = ("gemma3n", "apertus", "mamba", "mamba2")  # have tests of their own below


def quantised(w, qtype):
    return gguf.quants.quantize(w, qtype), gguf.quants.dequantize(gguf.quants.quantize(w, qtype), qtype)


class File:
    """A GGUF file in the making, and the matrices of its layers as a reader should see them."""

    def __init__(self, path, architecture, seed=0):
        self.path, self.rng, self.layers = path, np.random.default_rng(seed), []
        self.writer = gguf.GGUFWriter(path, architecture)

    def tensor(self, name, shape, qtype=None):
        w = self.rng.normal(0, 1 / np.sqrt(shape[-1]), shape).astype(np.float32)
        if qtype is None:
            self.writer.add_tensor(name, w)
            return w
        raw, w = quantised(w, qtype)
        self.writer.add_tensor(name, raw, raw_dtype=qtype)
        return w

    def layer(self, layout, biases=False, d=D, ff=FF, qtype=None, norms=True):
        i, parts = len(self.layers), {}
        rows = {"up": (2 * ff if layout == PACKED else ff, d), "down": (d, ff)}
        if layout == GATED:
            rows["gate"] = (ff, d)
        for name, shape in rows.items():
            parts[name] = self.tensor(f"blk.{i}.ffn_{name}.weight", shape, qtype)
            if biases:
                parts[name + "_bias"] = self.tensor(f"blk.{i}.ffn_{name}.bias", (shape[0],))
        for norm in (ATTN, FFN, POST) if norms else ():
            self.writer.add_tensor(norm % i, self.rng.normal(1, 0.1, d).astype(np.float32))
        if layout == PACKED:
            for name in ("up", "up_bias") if biases else ("up",):
                parts[name.replace("up", "gate")], parts[name] = np.split(parts[name], 2)
        self.layers.append(parts)
        return parts

    def widths(self, d=D, ff=FF):
        self.writer.add_block_count(len(self.layers))
        self.writer.add_embedding_length(d)
        self.writer.add_feed_forward_length(ff)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path


@pytest.fixture
def new(tmp_path):
    return lambda architecture, **options: File(tmp_path / "model.gguf", architecture, **options)


def name_of(model, index):
    return None if index < 0 else model.tensor(index).name.decode()


def check_block(model, i, parts, act):
    x = np.random.default_rng(100 + i).normal(0, 1, (ROWS, parts["up"].shape[1])).astype(np.float32)
    block = model.prepare(i)
    y = block.forward(x)
    block.close()
    assert_close(y, evaluate(x, act, **parts))


def assert_same_file(model, path):
    """Two readers see one file: names, shapes, types and bytes as the package gguf reads them."""
    theirs = gguf.GGUFReader(path).tensors
    assert [t.name for t in theirs] == [name_of(model, i) for i in range(model.info.n_tensors)]
    for i, t in enumerate(theirs):
        ours = model.tensor(i)
        assert list(ours.dims)[:ours.n_dims] == [int(n) for n in t.shape[::-1]]
        assert (ours.dtype, ours.dtype_name.decode()) == (int(t.tensor_type), t.tensor_type.name)
        assert (ours.offset, ours.bytes) == (t.data_offset, t.n_bytes)
        assert model.read(i, 0, ours.bytes) == t.data.tobytes()


def test_every_family_is_tested():
    table = (pathlib.Path(os.environ["SWIGLU_SOURCE"]) / "src/io/family.def").read_text()
    listed = re.findall(r'^FAMILY\("([^"]+)"', table, re.M)
    assert sorted(listed) == sorted([*FAMILIES, *LEFT_OUT, *ELSEWHERE])


@pytest.mark.parametrize("architecture", FAMILIES)
def test_family(new, architecture):
    layout, activation, norm = FAMILIES[architecture]
    file = new(architecture)
    for _ in range(2):
        file.layer(layout, biases=architecture in BIASED)
    file.widths(ff=2 * FF if architecture == "qwen" else FF)
    path = file.close()
    with capi.opened(path) as model:
        assert model.info.architecture.decode() == architecture and model.info.n_blocks == 2
        assert model.warnings() == []
        assert_same_file(model, path)
        for i, info in enumerate(model.blocks()):
            assert (info.layer, info.usable, info.reason) == (i, 1, b"")
            assert info.kind == (b"plain" if layout == PLAIN else b"gated")
            assert (info.activation.decode(), info.activation_source.decode()) == (activation,
                                                                                  f"architecture {architecture}")
            assert info.layout_name.decode() == layout
            assert info.layout == {GATED: capi.SEPARATE, PACKED: capi.GATE_UP, PLAIN: capi.UNGATED}[layout]
            assert (info.d_in, info.d_ff, info.d_out) == (D, FF, D)
            assert name_of(model, info.norm) == (norm and norm % i)
            assert info.weight_bytes == 4 * sum(p.size for p in file.layers[i].values())
            check_block(model, i, file.layers[i], ACT[activation])


@pytest.mark.parametrize("qtype", ["F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_quantised_llama(new, qtype):
    qtype = gguf.GGMLQuantizationType[qtype]
    file = new("llama")
    file.layer(GATED, qtype=qtype)
    path = file.close()
    with capi.opened(path) as model:
        assert_same_file(model, path)
        check_block(model, 0, file.layers[0], ACT["silu"])


def test_stablelm_without_ffn_norm(new):
    file = new("stablelm")
    file.layer(GATED, norms=False)
    file.writer.add_tensor(ATTN % 0, np.ones(D, np.float32))
    with capi.opened(file.close()) as model:
        assert name_of(model, model.block(0).norm) == ATTN % 0


def test_apertus_parameters_per_layer(new):
    file = new("apertus")
    for _ in range(2):
        file.layer(PLAIN)
    for key, values in XIELU.items():
        file.writer.add_array(key, values)
    file.widths()
    with capi.opened(file.close()) as model:
        for i, info in enumerate(model.blocks()):
            values = [XIELU[f"xielu.{n}"][i] for n in ("alpha_p", "alpha_n", "beta", "eps")]
            assert (info.usable, info.activation, info.activation_source) == (1, b"xielu", b"metadata xielu.*")
            p, n, b, e = list(info.act.param)[:4]
            np.testing.assert_allclose([p, n], [softplus(values[0]), 0.5 + softplus(values[1])], rtol=2**-24)
            assert (b, e) == (0.5, np.float32(-1e-6))
            check_block(model, i, file.layers[i], functools.partial(xielu, values=values))


def test_apertus_without_parameters(new):
    file = new("apertus")
    file.layer(PLAIN)
    assert b"xielu.alpha_p: no value for layer 0" in left_out(file.close())


def test_gemma3n_sparse_layers_are_left_out(new):
    file = new("gemma3n")
    for _ in range(2):
        file.layer(GATED)
    file.writer.add_activation_sparsity_scale([1.6448533535003662, -np.inf])
    file.widths()
    with capi.opened(file.close()) as model:
        assert not model.block(0).usable and b"statistics of its row" in model.block(0).reason
        assert model.block(1).usable and model.block(1).activation == b"gelu_tanh"
        check_block(model, 1, file.layers[1], ACT["gelu_tanh"])


@pytest.mark.parametrize("architecture", ["mamba", "mamba2"])
def test_no_feed_forward_block(new, architecture):
    file = new(architecture)
    file.writer.add_tensor("blk.0.attn_norm.weight", np.ones(D, np.float32))
    file.writer.add_block_count(1)
    file.writer.add_feed_forward_length(0)
    with capi.opened(file.close()) as model:
        assert model.info.n_blocks == 0 and model.warnings() == []


# ---- left out, with the reason ----

def left_out(path, **options):
    with capi.opened(path, **options) as model:
        assert model.info.n_blocks == 1
        info = model.block(0)
        assert not info.usable and info.reason
        with pytest.raises(capi.Failure) as failure:
            model.desc(0)
        assert failure.value.status == capi.E_UNSUPPORTED and info.reason.decode() in failure.value.text
        return info.reason


@pytest.mark.parametrize("architecture", LEFT_OUT)
def test_left_out_families(new, architecture):
    file = new(architecture)
    file.layer(GATED)
    assert b"architecture " + architecture.encode() in left_out(file.close())


@pytest.mark.parametrize("extra, words", {
    "ffn_sub_norm.weight": "sub-norm",
    "ffn.act.scales": "activation scales",
    "ffn_act.scales": "activation scales",
    "ffn_up.scale": "not understood",
    "ffn_up.weight.lora_a": "not understood",
    "ffn_gate_inp.weight": "mixture of experts",
    "ffn_up_exps.weight": "mixture of experts",
    "ffn_gate_up_exps.weight": "mixture of experts",
    "ffn_up_shexp.weight": "mixture of experts",
    "ffn_up_chexps.weight": "mixture of experts",
}.items())
def test_left_out_for_a_tensor(new, extra, words):
    file = new("llama")
    file.layer(GATED)
    file.tensor("blk.0." + extra, (FF, D))
    reason = left_out(file.close()).decode()
    assert words in reason and "blk.0." + extra in reason
    assert words in left_out(file.path, activation="silu").decode()


def test_experts_alone_and_beside_dense_layers(new):
    file = new("deepseek2")
    file.layer(GATED)
    for name in ("gate", "up", "down"):
        file.tensor(f"blk.1.ffn_{name}_exps.weight", (4, FF, D) if name != "down" else (4, D, FF))
    with capi.opened(file.close()) as model:
        assert [(b.layer, b.usable, b.kind) for b in model.blocks()] == [(0, 1, b"gated"), (1, 0, b"experts")]
        check_block(model, 0, file.layers[0], ACT["silu"])


def test_C109_experts_in_the_old_naming(new):
    file = new("llama")
    for expert in range(4):
        for name in ("gate", "up", "down"):
            file.tensor(f"blk.0.ffn_{name}.{expert}.weight", (FF, D) if name != "down" else (D, FF))
    reason = left_out(file.close())
    assert b"one tensor per expert" in reason and b"early Mixtral" in reason


@pytest.mark.parametrize("stack", ["enc", "dec", "v", "a"])
def test_other_stacks(new, stack):
    file = new("t5")
    for name, shape in (("up", (FF, D)), ("down", (D, FF))):
        file.tensor(f"{stack}.blk.0.ffn_{name}.weight", shape)
    assert f"{stack}.blk.0.ffn_up.weight: a layer of another stack".encode() in left_out(file.close())


def test_clamps_in_the_metadata(new):
    file = new("deepseek2")
    file.layer(GATED)
    file.writer.add_array("deepseek2.swiglu_clamp_exp", [4.0])
    assert b"deepseek2.swiglu_clamp_exp" in left_out(file.close())


@pytest.mark.parametrize("layout", [GATED, PLAIN])
def test_unknown_architecture(new, layout):
    file = new("brand-new")
    file.layer(layout)
    path = file.close()
    reason = left_out(path)
    assert b'unknown architecture "brand-new": activation unknown, use --activation' == reason
    with capi.opened(path, activation="relu") as model:
        info = model.block(0)
        assert info.usable and (info.activation, info.activation_source) == (b"relu", b"--activation")
        check_block(model, 0, file.layers[0], ACT["relu"])


def test_unknown_architecture_packed(new):
    file = new("brand-new")
    file.layer(PACKED)
    assert b"which half of blk.0.ffn_up.weight is the gate" in left_out(file.close(), activation="silu")


def test_activation_overrides_the_family(new):
    file = new("llama")
    file.layer(GATED)
    path = file.close()
    with capi.opened(path, activation="gelu") as model:
        assert (model.block(0).activation, model.block(0).activation_source) == (b"gelu", b"--activation")
        check_block(model, 0, file.layers[0], ACT["gelu"])
    with pytest.raises(capi.Failure) as failure:
        capi.Model(path, activation="siloo")
    assert failure.value.status == capi.E_ARGUMENT and "siloo" in failure.value.text


def test_gated_activation_for_a_plain_block(new):
    file = new("gpt2")
    file.layer(PLAIN)
    with pytest.raises(capi.Failure) as failure:
        capi.Model(file.close(), activation="gpt_oss")
    assert failure.value.status == capi.E_ARGUMENT and "ungated" in failure.value.text


def test_activation_in_the_metadata_decides(new):
    file = new("modern-bert")
    file.layer(PACKED)
    file.writer.add_string("modern-bert.hidden_activation", "silu")
    with capi.opened(file.close()) as model:
        info = model.block(0)
        assert (info.activation, info.activation_source) == (b"silu", b"metadata modern-bert.hidden_activation")
        check_block(model, 0, file.layers[0], ACT["silu"])


@pytest.mark.parametrize("architecture, layout", [("llama", PACKED), ("llama", PLAIN), ("gpt2", GATED), ("gpt2", PACKED),
                                                  ("mamba", GATED)])
def test_form_that_the_family_does_not_have(new, architecture, layout):
    file = new(architecture)
    file.layer(layout)
    assert b"but the tensors of this one are those of layout" in left_out(file.close())


@pytest.mark.parametrize("missing", ["up", "down"])
def test_missing_tensor(new, missing):
    file = new("llama")
    for name, shape in (("gate", (FF, D)), ("up", (FF, D)), ("down", (D, FF))):
        if name != missing:
            file.tensor(f"blk.0.ffn_{name}.weight", shape)
    assert left_out(file.close()).decode() == f"tensor blk.0.ffn_{missing}.weight is missing"


# ---- metadata against tensors ----

def refused(path, *words):
    with pytest.raises(capi.Failure) as failure:
        capi.Model(path)
    assert failure.value.status == capi.E_FORMAT and failure.value.offset != capi.NO_OFFSET
    for word in ("model.gguf", *words):
        assert word in failure.value.text


@pytest.mark.parametrize("d, ff, words", [(D, 128, ["llama.feed_forward_length 128", "ffn_down", "96"]),
                                          (128, FF, ["llama.embedding_length 128", "ffn_up", "64"])])
def test_widths_are_cross_checked(new, d, ff, words):
    file = new("llama")
    file.layer(GATED)
    file.widths(d, ff)
    refused(file.close(), *words)


def test_width_per_layer(new):
    file = new("deci")
    for ff in (96, 32):
        file.layer(GATED, ff=ff)
    file.widths(ff=[96, 32])
    with capi.opened(file.close()) as model:
        assert [b.d_ff for b in model.blocks()] == [96, 32]
        for i in range(2):
            check_block(model, i, file.layers[i], ACT["silu"])


@pytest.mark.parametrize("ff, word", [([96], "no width for layer 1"), ([96, 64], "deci.feed_forward_length 64"),
                                      ([96.0, 32.0], "no width for layer 0")])
def test_wrong_width_per_layer(new, ff, word):
    file = new("deci")
    for width in (96, 32):
        file.layer(GATED, ff=width)
    file.writer.add_array("deci.feed_forward_length", ff)
    refused(file.close(), word)


@pytest.mark.parametrize("name, shape, words", [
    ("ffn_up.weight", (FF + 32, D), ["ffn_up.weight rows 128", "ffn_gate.weight rows 96"]),
    ("ffn_up.weight", (FF, D + 32), ["columns 96 and 64"]),
    ("ffn_down.weight", (D, FF + 32), ["ffn_down.weight columns 128, blk.0.ffn_up.weight rows 96"]),
    ("ffn_up.bias", (FF + 1,), ["blk.0.ffn_up.bias", "97", "96"]),
    ("ffn_up.weight", (2, FF // 2, D), ["blk.0.ffn_up.weight n_dims 3"]),
])
def test_shapes_that_do_not_fit(new, name, shape, words):
    file = new("llama")
    shapes = {"ffn_gate.weight": (FF, D), "ffn_up.weight": (FF, D), "ffn_down.weight": (D, FF)} | {name: shape}
    for tensor, dims in shapes.items():
        file.tensor("blk.0." + tensor, dims)
    refused(file.close(), *words)


# ---- cases of layout ----

def test_C004_phi3_packs_gate_and_up(new):
    file = new("phi3")
    parts = file.layer(PACKED, d=32, ff=32)
    with capi.opened(file.close()) as model:
        assert name_of(model, model.block(0).gate) == "blk.0.ffn_up.weight" and model.block(0).up == -1
        x = np.random.default_rng(4).normal(0, 1, (2, 32)).astype(np.float32)
        block = model.prepare(0)
        y = block.forward(x)
        block.close()
        assert_close(y, evaluate(x, ACT["silu"], **parts))
        swapped = evaluate(x, ACT["silu"], parts["gate"], parts["down"], parts["up"])
        assert np.abs(swapped[0] - y).max() > 100 * swapped[1].max()  # the other order would have been seen


def test_C010_dimensions_are_listed_fastest_first(new):
    file = new("llama")
    a = np.zeros((4, 10), np.float32)
    a[1, 0] = 5
    file.writer.add_tensor("a", a)
    with capi.opened(file.close()) as model:
        assert list(model.tensor(0).dims)[:2] == [4, 10]
        back = np.frombuffer(model.read(0, 0, 160), np.float32).reshape(4, 10)
        assert back[1, 0] == 5 and np.count_nonzero(back) == 1


def test_C014_the_gate_is_where_the_activation_is(new):
    """Equal numbers under the names of up and gate exchanged: two different blocks, each with its own result."""
    file = new("qwen")
    file.layer(GATED)
    first = file.layers[0]
    for name in ("gate", "up", "down"):
        other = {"gate": "up", "up": "gate", "down": "down"}[name]
        file.writer.add_tensor(f"blk.1.ffn_{name}.weight", first[other])
    with capi.opened(file.close()) as model:
        check_block(model, 0, first, ACT["silu"])
        check_block(model, 1, {"gate": first["up"], "up": first["gate"], "down": first["down"]}, ACT["silu"])


def test_C104_file_of_another_writer(new):
    file = new("llama")
    file.layer(GATED)
    path = file.close()
    assert path.read_bytes()[:8] == b"GGUF\3\0\0\0"
    with capi.opened(path) as model:
        assert (model.info.format, model.info.format_version) == (b"gguf", 3)


def test_C110_shape_in_elements_size_in_bytes(new):
    file = new("llama")
    raw, _ = quantised(np.random.default_rng(5).normal(0, 1, (4, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    file.writer.add_tensor("q", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    file.writer.add_tensor("iq", np.arange(4 * 36, dtype=np.uint8).reshape(4, 36),
                           raw_dtype=gguf.GGMLQuantizationType.IQ4_NL)
    with capi.opened(file.close()) as model:
        q, iq = model.tensors()
        assert (list(q.dims)[:2], q.bytes, q.dtype_name) == ([4, 64], 4 * 68, b"Q8_0")
        assert (list(iq.dims)[:2], iq.bytes, iq.dtype_name) == ([4, 64], 4 * 36, b"IQ4_NL")
        assert model.read(0, 0, q.bytes) == raw.tobytes()
        assert model.read(1, 36, 36) == bytes(range(36, 72))
        with pytest.raises(capi.Failure) as failure:
            model.read(1, 36, 4 * 36)
        assert failure.value.status == capi.E_ARGUMENT and "iq" in failure.value.text


@pytest.mark.skipif("SWIGLU_MODEL" not in os.environ, reason="the SmolLM2 weights are not here (make demo brings them)")
def test_real_checkpoint():
    path = os.environ["SWIGLU_MODEL"]
    with capi.opened(path) as model:
        assert_same_file(model, path)
        assert model.info.n_blocks == 30 and model.warnings() == []
        for i, info in enumerate(model.blocks()):
            assert (info.layer, info.usable, info.activation, info.d_in, info.d_ff, info.d_out) == (i, 1, b"silu", 576,
                                                                                                    1536, 576)
            assert name_of(model, info.norm) == FFN % i
