# SPDX-License-Identifier: Apache-2.0
"""Quantised safetensors: their weights are the f32 values that the formats mean, to the bit, and what contradicts the config
is an error that names tensor and field."""
import os
import subprocess

import numpy as np
import pytest

import capi
import quantised as q
from checkpoint import forward, left_out, refused, x_for
from quantised import AWQ, FORMATS, FP8, GPTQ, MLX, PROJ, STEM

D, FF = 64, 96


def make(which, seed=1, d=D, ff=FF):
    """The tensors of a layer, its weights and the config."""
    maker, options, config = FORMATS[which]
    return *q.layer(maker, options, d, ff, seed), config


def plain(folder, weights):
    """The outputs of the same block in f32."""
    folder.mkdir()
    q.write(folder / "model.safetensors", {f"{STEM}{PROJ[r]}.weight": q.floats(w) for r, w in weights.items()})
    (folder / "config.json").write_text('{"model_type": "llama"}')
    with capi.opened(folder) as model:
        return forward(model, 0, x_for(0, weights["up"].shape[1]))


@pytest.mark.parametrize("which", FORMATS)
def test_the_bits_of_the_decoded_block(tmp_path, which):
    tensors, weights, config = make(which)
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config, hidden_size=D, intermediate_size=FF)
    with capi.opened(tmp_path) as model:
        info = model.block(0)
        assert (info.usable, info.kind, info.d_in, info.d_ff, info.d_out) == (1, b"gated", D, FF, D), info.reason
        told = sum(len(v[2]) for k, v in tensors.items() if not k.endswith(".input_scale"))
        assert info.weight_bytes == told
        method = config.get("quant_method", "mlx").encode()
        assert info.storage.startswith(method + b": ") and (b"bits, groups of" in info.storage or b"a scale per" in info.storage)
        np.testing.assert_array_equal(forward(model, 0, x_for(0)), plain(tmp_path / "plain", weights))


@pytest.mark.parametrize("which", ["fp8-128", "ct-int4-group", "gptq", "awq", "ct-int8", "mlx"])
def test_widths_off_the_blocks(tmp_path, which):
    d, ff = (200, 136) if which == "fp8-128" else (72, 200)
    tensors, weights, config = make(which, d=d, ff=ff)
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    with capi.opened(tmp_path) as model:
        np.testing.assert_array_equal(forward(model, 0, x_for(0, d)), plain(tmp_path / "plain", weights))


@pytest.mark.parametrize("which", ["fp8-128", "ct-int4-group", "gptq"])
def test_experts(tmp_path, which):
    """Each expert of a mixture, and the shared one."""
    maker, options, config = FORMATS[which]
    rng, tensors, weights = np.random.default_rng(3), {}, []
    for where in ("experts.0", "experts.1", "shared_experts"):
        weights.append({})
        for role, (rows, cols) in {"gate": (FF, D), "up": (FF, D), "down": (D, FF)}.items():
            made, weights[-1][role] = maker(rng, rows, cols, **options)
            tensors |= q.module(f"{STEM}mlp.{where}.{role}_proj", made)
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config, "deepseek_v3", n_shared_experts=1)
    with capi.opened(tmp_path, experts=True) as model:
        blocks = model.blocks()
        assert [(b.usable, b.expert) for b in blocks] == [(0, -1), (1, -2), (1, 0), (1, 1)]
        for i, w in zip((2, 3, 1), weights, strict=True):
            np.testing.assert_array_equal(forward(model, i, x_for(0)), plain(tmp_path / f"plain{i}", w))


def test_C041_zeros_of_both_versions(tmp_path):
    """The same bytes mean weights that are one scale lower where the config says that zeros are stored minus 1."""
    tensors, weights, config = make("gptq")
    q.write(tmp_path / "model.safetensors", tensors)
    scale = {r: np.frombuffer(tensors[f"{STEM}{PROJ[r]}.scales"][2], np.float16).astype(np.float32) for r in PROJ}
    lower = {r: w + np.repeat(scale[r].reshape(-1, w.shape[0]), 32, 0)[:w.shape[1]].T for r, w in weights.items()}
    for version, expected in (("gptq", weights), ("gptq_v2", lower)):
        q.write_config(tmp_path, config | {"checkpoint_format": version})
        with capi.opened(tmp_path) as model:
            np.testing.assert_array_equal(forward(model, 0, x_for(0)), plain(tmp_path / version, expected))


def test_packed_gate_and_up(tmp_path):
    """Phi-3's gate_up_proj with scales per row."""
    rng = np.random.default_rng(4)
    both, w_both = q.fp8(rng, 2 * FF, D, suffix=".weight_scale", per="row")
    down, w_down = q.fp8(rng, D, FF, suffix=".weight_scale", per="row")
    q.write(tmp_path / "model.safetensors",
            q.module(STEM + "mlp.gate_up_proj", both) | q.module(STEM + "mlp.down_proj", down))
    q.write_config(tmp_path, q.compressed("float-quantized", 8, "channel", "float"), "phi3")
    with capi.opened(tmp_path) as model:
        assert model.block(0).layout_name == b"gate|up"
        weights = {"gate": w_both[:FF], "up": w_both[FF:], "down": w_down}
        np.testing.assert_array_equal(forward(model, 0, x_for(0)), plain(tmp_path / "plain", weights))


def test_modules_that_are_not_quantised(tmp_path):
    """`ignore` and modules_to_not_convert: what stands there as plain weights is read as such, beside quantised ones."""
    tensors, weights, config = make("gptq")
    down = np.random.default_rng(5).standard_normal((D, FF)).astype(np.float32)
    tensors = {k: v for k, v in tensors.items() if "down_proj" not in k} | {STEM + "mlp.down_proj.weight": q.floats(down)}
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    with capi.opened(tmp_path) as model:
        np.testing.assert_array_equal(forward(model, 0, x_for(0)), plain(tmp_path / "plain", weights | {"down": down}))


def test_biases_of_gptq_are_zeros(tmp_path):
    tensors, weights, config = make("gptq")
    for base, n in (("gate_proj", FF), ("up_proj", FF), ("down_proj", D)):
        tensors[f"{STEM}mlp.{base}.bias"] = q.floats(np.zeros(n), "F16")
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config, mlp_bias=False)
    with capi.opened(tmp_path) as model:
        np.testing.assert_array_equal(forward(model, 0, x_for(0)), plain(tmp_path / "plain", weights))


def test_the_tool_refuses_to_convert(tmp_path):
    tensors, _, config = make("awq")
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    out = tmp_path / "out.safetensors"
    done = subprocess.run([os.environ["SWIGLU_TOOL"], "convert", tmp_path, out, "--type", "f32"], capture_output=True, text=True)
    assert done.returncode == 2 and "are not converted" in done.stderr and not out.exists()
    shown = subprocess.run([os.environ["SWIGLU_TOOL"], "info", tmp_path], capture_output=True, text=True, check=True).stdout
    assert "awq: 4 bits, groups of 32" in shown


# ---- what is left out, with the reason ----

LEFT_OUT = {
    "no-config": ("fp8-128", None, "not understood"),
    "method": ("fp8-128", {"quant_method": "exl3"}, 'method "exl3"'),
    "no-method": ("fp8-128", {}, 'method ""'),
    "blocks-not-said": ("ct-fp8-block", q.compressed("float-quantized", 8, "group", "float"), "which values share a scale"),
    "format": ("ct-int4", q.compressed("marlin-24", 4, "channel"), 'format "marlin-24"'),
    "float-words": ("ct-int4", q.compressed("pack-quantized", 4, "channel", "float"), 'type "float"'),
    "3-bits": ("gptq", GPTQ | {"bits": 3}, "3-bit values are not read"),
    "no-bits": ("gptq", {"quant_method": "gptq", "group_size": 32}, "not read"),
    "gptq-format": ("gptq", GPTQ | {"checkpoint_format": "marlin"}, 'format "marlin"'),
    "awq-version": ("awq", AWQ | {"version": "gemv"}, 'version "gemv"'),
    "awq-8": ("awq", AWQ | {"bits": 8}, "8-bit values are not read"),
    "dynamic": ("gptq", GPTQ | {"dynamic": {"+:.*mlp.*": {"bits": 8}}}, "rules of their own"),
    "asymmetric": ("ct-int4", q.compressed("pack-quantized", 4, "channel", symmetric=False), "no weight_zero_point"),
    "asymmetric-8": ("ct-int8", q.compressed("int-quantized", 8, "channel", symmetric=False), "no weight_zero_point"),
    "group-0": ("gptq", GPTQ | {"group_size": 0}, "group_size 0"),
    "mlx-mode": ("mlx", {"mlx": MLX | {"mode": "mxfp4"}}, 'mode "mxfp4"'),
    "mlx-6": ("mlx", {"mlx": MLX | {"bits": 6}}, "words of 6-bit values"),
    "mlx-module": ("mlx", {"mlx": MLX | {"model.layers.0.mlp.up_proj": {"bits": 8, "group_size": 32}}}, "rules of their own"),
    "mlx-group": ("mlx", {"mlx": {"bits": 4}}, "are not read"),
    "int8-of-fp8": ("ct-int8", FP8, "type I8 with scales is not read"),
}


@pytest.mark.parametrize("which", LEFT_OUT)
def test_left_out(tmp_path, which):
    made, config, words = LEFT_OUT[which]
    q.write(tmp_path / "model.safetensors", make(made)[0])
    q.write_config(tmp_path, config)
    assert words in left_out(tmp_path)


def test_several_groups(tmp_path):
    tensors, _, config = make("ct-int4-group")
    more = q.compressed("pack-quantized", 8, "group", group=32)["config_groups"]["group_0"]
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config | {"config_groups": {**config["config_groups"], "group_1": more}})
    assert "different ways" in left_out(tmp_path)
    same = config["config_groups"]["group_0"] | {"targets": ["re:.*down_proj"]}
    q.write_config(tmp_path, config | {"config_groups": {**config["config_groups"], "group_1": same}})
    with capi.opened(tmp_path) as model:
        assert model.block(0).usable


PARTS = {"fp8-128": [".weight_scale_inv"], "ct-int4": [".weight_scale", ".weight_shape"], "ct-int8": [".weight_scale"],
         "gptq": [".qzeros", ".scales"], "awq": [".qzeros", ".scales"], "mlx": [".biases", ".scales"]}


@pytest.mark.parametrize("which, suffix", [(which, suffix) for which, parts in PARTS.items() for suffix in parts])
def test_without_a_part(tmp_path, which, suffix):
    tensors, _, config = make(which)
    del tensors[f"{STEM}mlp.up_proj{suffix}"]
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    reason = left_out(tmp_path)
    assert "mlp.up_proj" in reason and ("beside it" in reason or "without" in reason)


# ---- hostile ----

def reshaped(suffix, shape=None, dtype=None, data=None):
    def change(tensors):
        name = f"{STEM}mlp.up_proj{suffix}"
        was = tensors[name]
        tensors[name] = (dtype or was[0], was[1] if shape is None else shape, was[2] if data is None else data)
    return change


HOSTILE = [
    ("fp8-128", reshaped(".weight_scale_inv", (2, 1), data=bytes(8)), ["up_proj.weight_scale_inv", "must be 1 x 1"]),
    ("fp8-32x16", reshaped(".weight_scale_inv", (4, 3)), ["up_proj.weight_scale_inv", "dims 4 and 3: must be 3 x 4"]),
    ("fp8-tensor", reshaped(".weight_scale", (96,), data=bytes(384)), ["up_proj.weight_scale", "must be 1 x 1"]),
    ("fp8-128", reshaped(".weight", (6144,)), ["up_proj.weight: n_dims 1: a weight with scales has 2"]),
    ("ct-fp8-channel", reshaped(".weight_scale", (1, 96)), ["must be 96 x 1"]),
    ("ct-int8-group", reshaped(".weight_scale", (96, 1), data=bytes(192)), ["must be 96 x 2"]),
    ("ct-int8-zero", reshaped(".weight_zero_point", (95, 1), data=bytes(95)), ["up_proj.weight_zero_point", "must be 96 x 1"]),
    ("ct-int8-zero", reshaped(".weight_zero_point", dtype="U8"), ["type U8: must be I8"]),
    ("ct-int4", reshaped(".weight_packed", dtype="F32"), ["up_proj.weight_packed: type F32: must be I32"]),
    ("ct-int4", reshaped(".weight_packed", (8, 96)), ["up_proj.weight_shape: values 96 and 64"]),
    ("ct-int4", reshaped(".weight_shape", data=q.integers([96, 65], "I64")[2]), ["values 96 and 65"]),
    ("ct-int4", reshaped(".weight_shape", data=q.integers([96, -1], "I64")[2]), ["values 96 and 18446744073709551615"]),
    ("ct-int4", reshaped(".weight_shape", data=q.integers([0, 64], "I64")[2]), ["values 0 and 64"]),
    ("ct-int4", reshaped(".weight_shape", (4,), I32 := "I32"), ["up_proj.weight_shape: two integers"]),
    ("ct-int4-zero", reshaped(".weight_zero_point", (96, 4), data=bytes(4 * 384)), ["must be 12 x 4"]),
    ("ct-int4-order", reshaped(".weight_g_idx", (63,), data=bytes(252)), ["must be 64 x 1"]),
    ("ct-int4-order", reshaped(".weight_g_idx", (32,), dtype="I64"), ["type I64: must be I32"]),
    ("gptq", reshaped(".qweight", dtype="F32"), ["up_proj.qweight: type F32: must be I32"]),
    ("gptq", reshaped(".qweight", (768,)), ["up_proj.qweight: n_dims 1"]),
    ("gptq", reshaped(".qweight", (4, 96, 2)), ["up_proj.qweight: n_dims 3"]),
    ("gptq", reshaped(".qweight", (768, 0), data=b""), ["up_proj.qweight: n_dims 2, dims 768 and 0"]),
    ("gptq", reshaped(".qzeros", (12, 2)), ["up_proj.qzeros", "must be 2 x 12"]),
    ("gptq", reshaped(".scales", (96, 2)), ["up_proj.scales", "must be 2 x 96"]),
    ("gptq", reshaped(".g_idx", (65,), data=bytes(260)), ["up_proj.g_idx", "must be 64 x 1"]),
    ("awq", reshaped(".qzeros", (1, 24)), ["up_proj.qzeros", "must be 2 x 12"]),
    ("awq", reshaped(".scales", (192,)), ["up_proj.scales", "must be 2 x 96"]),
    ("awq", reshaped(".qweight", (32, 24)), ["up_proj.scales", "must be 1 x 192"]),
    ("mlx", reshaped(".weight", dtype="I32"), ["up_proj.weight: type I32: must be U32"]),
    ("mlx", reshaped(".scales", (2, 96)), ["up_proj.scales", "dims 2 and 96: must be 96 x 2"]),
    ("mlx", reshaped(".biases", (192,)), ["up_proj.biases", "must be 96 x 2"]),
    ("mlx", reshaped(".weight", (768,)), ["up_proj.weight: n_dims 1"]),
    ("gptq-8", reshaped(".qweight", (16, 95), data=bytes(16 * 95 * 4)), ["up_proj.qweight", "no words of 4 values"]),
]


@pytest.mark.parametrize("which, change, words", HOSTILE, ids=[f"{i}-{row[0]}" for i, row in enumerate(HOSTILE)])
def test_refused(tmp_path, which, change, words):
    tensors, _, config = make(which)
    change(tensors)
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    failure = refused(tmp_path, "model.safetensors: tensor", *words)
    assert failure.offset != capi.NO_OFFSET


@pytest.mark.parametrize("which, suffix", [("gptq", ".g_idx"), ("ct-int4-order", ".weight_g_idx")])
@pytest.mark.parametrize("value", [2**31 - 1, -1, 4])
def test_a_group_that_is_not_there(tmp_path, which, suffix, value):
    """Values are looked at when they are used: the file opens, and the block is refused."""
    tensors, _, config = make(which)
    name = f"{STEM}mlp.up_proj{suffix}"
    data = bytearray(tensors[name][2])
    data[40:44] = value.to_bytes(4, "little", signed=True)
    tensors[name] = (*tensors[name][:2], bytes(data))
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    with capi.opened(tmp_path) as model:
        with pytest.raises(capi.Failure) as failure:
            model.prepare(0)
        assert failure.value.status == capi.E_FORMAT
        assert f"tensor {name} value 10: group {value % 2**32}: there are " in failure.value.text


CONFIGS = [
    ([], "quantization_config: an object is expected"), (5, "quantization_config: an object is expected"),
    ({"quant_method": 5}, "quantization_config.quant_method: a string is expected, not the number 5"),
    ({"bits": "4"}, "quantization_config.bits: an integer is expected"),
    ({"group_size": 1.5}, "quantization_config.group_size: an integer"), ({"group_size": -2}, "group_size: an integer"),
    ({"weight_block_size": 128}, "weight_block_size: a list of two integers"),
    ({"weight_block_size": [128]}, "weight_block_size: an integer from 1 on"),
    ({"weight_block_size": [0, 128]}, "weight_block_size: an integer from 1 on"),
    ({"weight_block_size": [1, 2, 3]}, "weight_block_size: the end of the list"),
    ({"config_groups": []}, "config_groups: an object"), ({"config_groups": {"group_0": 1}}, "config_groups: an object for each"),
    ({"config_groups": {"group_0": {"weights": 1}}}, "config_groups.weights: an object"),
    ({"config_groups": {"group_0": {"weights": {"symmetric": "x"}}}}, "symmetric: true or false"),
    ({"version": []}, "version: a string"), ({"format": {}}, "format: a string"),
]


@pytest.mark.parametrize("config, words", CONFIGS, ids=[str(i) for i in range(len(CONFIGS))])
def test_config_that_is_none(tmp_path, config, words):
    q.write(tmp_path / "model.safetensors", make("fp8-128")[0])
    q.write_config(tmp_path, config)
    failure = refused(tmp_path, "config.json: ", words)
    assert failure.offset != capi.NO_OFFSET


@pytest.mark.parametrize("value", ["fp8", 4, None, [[1], {"a": [2]}], []])
def test_the_word_quantization_for_another_thing(tmp_path, value):
    tensors, weights, config = make("gptq")
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config, quantization=value, hidden_size=D)
    with capi.opened(tmp_path) as model:
        assert model.block(0).usable
    q.write_config(tmp_path, config, quantization=value, hidden_size=D + 1)
    refused(tmp_path, "hidden_size 65")


def test_text_config_has_its_own(tmp_path):
    tensors, _, config = make("gptq")
    q.write(tmp_path / "model.safetensors", tensors)
    for outer, inner in ((AWQ, config), (config, None), (None, config)):
        q.write_config(tmp_path, outer, text_config={"model_type": "llama", "quantization_config": inner})
        with capi.opened(tmp_path) as model:
            assert model.block(0).usable, model.block(0).reason


def test_nan_and_infinite_scales_stay_what_they_are(tmp_path):
    """A NaN among numbers or scales is a NaN of the weight, not an error; `check` finds it in the scales."""
    tensors, weights, config = make("fp8-tensor")
    name = f"{STEM}mlp.up_proj.weight_scale"
    tensors[name] = (*tensors[name][:2], np.float32(np.nan).tobytes())
    q.write(tmp_path / "model.safetensors", tensors)
    q.write_config(tmp_path, config)
    with capi.opened(tmp_path) as model:
        assert np.isnan(forward(model, 0, x_for(0))).all()
