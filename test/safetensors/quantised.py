# SPDX-License-Identifier: Apache-2.0
"""Weights as quantised checkpoints store them, made of random numbers, and the f32 values that they mean.

Each maker gives the tensors of one module by suffix, (dtype, shape, bytes), and its [out, in] weight."""
import json

import numpy as np

from hostile_st import ST, t

F32, F16, I32 = "F32", "F16", "I32"
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def floats(a, dtype=F32):
    a = np.asarray(a, np.float32, order="C")
    if dtype == "BF16":
        return dtype, a.shape, (a.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return dtype, a.shape, a.astype(np.float16 if dtype == F16 else np.float32).tobytes()


def stored(a, dtype):
    """a as it is after a trip through the type."""
    a = np.asarray(a, np.float32, order="C")
    if dtype == "BF16":
        return (a.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return a.astype(np.float16 if dtype == F16 else np.float32).astype(np.float32)


def integers(a, dtype=I32):
    a = np.ascontiguousarray(a)
    return dtype, a.shape, a.astype({I32: np.int32, "I64": np.int64, "I8": np.int8}[dtype]).tobytes()


def e4m3(b):
    sign, e, m = np.where(b & 0x80, -1.0, 1.0), b >> 3 & 15, b & 7
    return (sign * np.where(e, (8.0 + m) * 2.0 ** (e.astype(int) - 10), m * 2.0**-9)).astype(np.float32)


def e5m2(b):
    return (b.astype(np.uint16) << 8).view(np.float16).astype(np.float32)


def bytes_of(rng, shape, kind="F8_E4M3"):
    b = rng.integers(0, 256, shape, dtype=np.uint8)
    bad = (b & 0x7F) == 0x7F if kind == "F8_E4M3" else (b & 0x7C) == 0x7C
    return np.where(bad, 0x38, b).astype(np.uint8)


def spread(scale, rows, cols, block):
    return np.repeat(np.repeat(scale, block[0], 0), block[1], 1)[:rows, :cols]


def scales(rng, shape):
    return np.asarray(rng.uniform(0.001, 0.01, shape), np.float32)


def fp8(rng, rows, cols, block=None, suffix=".weight_scale_inv", kind="F8_E4M3", dtype=F32, per="tensor"):
    b = bytes_of(rng, (rows, cols), kind)
    if block:
        shape = (-(-rows // block[0]), -(-cols // block[1]))
    else:
        block, shape = ((rows, cols), ()) if per == "tensor" else ((1, cols), (rows, 1))
    s = stored(scales(rng, shape), dtype)
    w = (e4m3 if kind == "F8_E4M3" else e5m2)(b) * spread(s.reshape(s.shape or (1, 1)), rows, cols, block)
    return {".weight": (kind, (rows, cols), b.tobytes()), suffix: floats(s, dtype), ".input_scale": floats(1.0)}, w


def int8(rng, rows, cols, group=None, zero=False, dtype="BF16"):
    v = rng.integers(-128, 128, (rows, cols))
    block = (1, group or cols)
    s = stored(scales(rng, (rows, -(-cols // block[1]))), dtype)
    z = rng.integers(-128, 128, s.shape) if zero else np.zeros(s.shape, int)
    w = (v - spread(z, rows, cols, block)).astype(np.float32) * spread(s, rows, cols, block)
    more = {".weight_zero_point": integers(z, "I8")} if zero else {}
    return {".weight": integers(v, "I8"), ".weight_scale": floats(s, dtype), **more}, w


def words(q, bits, axis, order=None):
    """Values of few bits in words of 32 along an axis, the low bits first; order: which value comes where."""
    per = 32 // bits
    q = np.moveaxis(np.asarray(q, np.uint64), axis, -1)
    q = np.concatenate([q, np.zeros((*q.shape[:-1], -q.shape[-1] % per), np.uint64)], -1)
    q = q.reshape(*q.shape[:-1], -1, per)[..., order or range(per)]
    packed = (q << (np.arange(per, dtype=np.uint64) * np.uint64(bits))).sum(-1).astype(np.uint32).view(np.int32)
    return np.moveaxis(packed, -1, axis)


def packed(rng, rows, cols, bits=4, group=None, zero=False, g_idx=False, dtype="BF16"):
    """compressed-tensors, pack-quantized."""
    q, n = rng.integers(0, 2**bits, (rows, cols)), -(-cols // (group or cols))
    s = stored(scales(rng, (rows, n)), dtype)
    z = rng.integers(0, 2**bits, (rows, n)) if zero else np.full((rows, n), 2 ** (bits - 1))
    of = rng.integers(0, n, cols) if g_idx else np.arange(cols) // (group or cols)
    tensors = {".weight_packed": integers(words(q, bits, 1)), ".weight_scale": floats(s, dtype),
               ".weight_shape": integers([rows, cols], "I64")}
    if zero:
        tensors[".weight_zero_point"] = integers(words(z, bits, 0))
    if g_idx:
        tensors[".weight_g_idx"] = integers(of)
    return tensors, (q - z[:, of]).astype(np.float32) * s[:, of]


def gptq(rng, rows, cols, bits=4, group=32, version=1, shuffled=False):
    n = -(-cols // (group or cols))
    q, z = rng.integers(0, 2**bits, (cols, rows)), rng.integers(1, 2**bits, (n, rows))
    s = stored(scales(rng, (n, rows)), F16)
    of = rng.permutation(np.arange(cols) // (group or cols)) if shuffled else np.arange(cols) // (group or cols)
    tensors = {".qweight": integers(words(q, bits, 0)), ".qzeros": integers(words(z - (version == 1), bits, 1)),
               ".scales": floats(s, F16), ".g_idx": integers(of)}
    return tensors, ((q - z[of]).astype(np.float32) * s[of]).T


def awq(rng, rows, cols, group=32):
    n = -(-cols // group)
    q, z = rng.integers(0, 16, (cols, rows)), rng.integers(0, 16, (n, rows))
    s, of = stored(scales(rng, (n, rows)), F16), np.arange(cols) // group
    tensors = {".qweight": integers(words(q, 4, 1, AWQ_ORDER)), ".qzeros": integers(words(z, 4, 1, AWQ_ORDER)),
               ".scales": floats(s, F16)}
    return tensors, ((q - z[of]).astype(np.float32) * s[of]).T


def mlx(rng, rows, cols, bits=4, group=32, dtype=F16):
    v, n = rng.integers(0, 2**bits, (rows, cols)), -(-cols // group)
    s, b = stored(scales(rng, (rows, n)), dtype), stored(-8 * scales(rng, (rows, n)), dtype)
    of = np.arange(cols) // group
    tensors = {".weight": ("U32", *integers(words(v, bits, 1))[1:]), ".scales": floats(s, dtype), ".biases": floats(b, dtype)}
    return tensors, v.astype(np.float32) * s[:, of] + b[:, of]


def file_of(tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = t(list(shape), [at, at + len(data)], dtype)
        at += len(data)
    return ST(header, b"".join(data for _, _, data in tensors.values()))


def write(path, tensors):
    path.write_bytes(file_of(tensors))
    return path


def module(base, tensors):
    return {base + suffix: tensor for suffix, tensor in tensors.items()}


def compressed(form, bits, strategy, kind="int", symmetric=True, group=None, block=None):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric, "group_size": group,
               "block_structure": block, "dynamic": False, "observer": "minmax", "actorder": None}
    group_0 = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group_0}, "ignore": ["lm_head"],
            "kv_cache_scheme": None, "quantization_status": "compressed", "sparsity_config": {}}


def config_of(quantization):
    """As it stands in config.json; {"mlx": ...} is MLX's, which is there twice."""
    if isinstance(quantization, dict) and "mlx" in quantization:
        return {"quantization": quantization["mlx"], "quantization_config": quantization["mlx"]}
    return {"quantization_config": quantization}


def write_config(folder, how, model_type="llama", **values):
    folder.joinpath("config.json").write_text(json.dumps(
        {"model_type": model_type, "hidden_act": "silu"} | config_of(how) | values))


PROJ = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
STEM = "model.layers.0."
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}

MLX = {"group_size": 32, "bits": 4}

# id: maker, its options, the config
FORMATS = {
    "fp8-128": (fp8, {"block": (128, 128)}, FP8 | {"weight_block_size": [128, 128]}),
    "fp8-32x16": (fp8, {"block": (32, 16)}, FP8 | {"weight_block_size": [32, 16]}),
    "fp8-bf16-scales": (fp8, {"block": (32, 64), "dtype": "BF16"}, FP8 | {"weight_block_size": [32, 64]}),
    "fp8-tensor": (fp8, {"suffix": ".weight_scale"}, FP8 | {"activation_scheme": "static"}),
    "fp8-e5m2": (fp8, {"suffix": ".weight_scale", "kind": "F8_E5M2"}, FP8),
    "fbgemm-row": (fp8, {"suffix": ".weight_scale", "per": "row"}, {"quant_method": "fbgemm_fp8"}),
    "ct-fp8-tensor": (fp8, {"suffix": ".weight_scale"}, compressed("float-quantized", 8, "tensor", "float")),
    "ct-fp8-channel": (fp8, {"suffix": ".weight_scale", "per": "row", "dtype": "BF16"},
                       compressed("float-quantized", 8, "channel", "float")),
    "ct-fp8-block": (fp8, {"suffix": ".weight_scale", "block": (16, 32)},
                     compressed("float-quantized", 8, "block", "float", block=[16, 32])),
    "ct-int8": (int8, {}, compressed("int-quantized", 8, "channel")),
    "ct-int8-group": (int8, {"group": 32}, compressed("int-quantized", 8, "group", group=32)),
    "ct-int8-zero": (int8, {"zero": True, "dtype": "F16"}, compressed("int-quantized", 8, "channel", symmetric=False)),
    "ct-int4": (packed, {}, compressed("pack-quantized", 4, "channel", group=None)),
    "ct-int4-group": (packed, {"group": 32}, compressed("pack-quantized", 4, "group", group=32)),
    "ct-int4-zero": (packed, {"group": 16, "zero": True}, compressed("pack-quantized", 4, "group", symmetric=False, group=16)),
    "ct-int4-order": (packed, {"group": 16, "g_idx": True}, compressed("pack-quantized", 4, "group", group=16)),
    "ct-int8-words": (packed, {"bits": 8, "group": 32}, compressed("pack-quantized", 8, "group", group=32)),
    "gptq": (gptq, {}, GPTQ),
    "gptq-8": (gptq, {"bits": 8}, GPTQ | {"bits": 8}),
    "gptq-2": (gptq, {"bits": 2}, GPTQ | {"bits": 2, "checkpoint_format": "gptq"}),
    "gptq-order": (gptq, {"shuffled": True}, GPTQ | {"desc_act": True}),
    "gptq-v2": (gptq, {"version": 2}, GPTQ | {"checkpoint_format": "gptq_v2"}),
    "gptq-one-group": (gptq, {"group": None}, GPTQ | {"group_size": -1}),
    "awq": (awq, {}, AWQ),
    "mlx": (mlx, {}, {"mlx": MLX}),
    "mlx-8": (mlx, {"bits": 8, "group": 16, "dtype": "BF16"}, {"mlx": MLX | {"bits": 8, "group_size": 16}}),
    "mlx-mode": (mlx, {"bits": 2}, {"mlx": MLX | {"bits": 2, "mode": "affine", "model.layers.7.mlp.up_proj": False}}),
}


def layer(maker, options, d, ff, seed=1):
    """The tensors of a layer and its weights."""
    rng, tensors, weights = np.random.default_rng(seed), {}, {}
    for role, (rows, cols) in {"gate": (ff, d), "up": (ff, d), "down": (d, ff)}.items():
        made, weights[role] = maker(rng, rows, cols, **options)
        tensors |= module(STEM + PROJ[role], made)
    return tensors, weights
