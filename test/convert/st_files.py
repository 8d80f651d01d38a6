# SPDX-License-Identifier: Apache-2.0
"""Small safetensors checkpoints to convert, and what is in a file."""
import json
import struct

import numpy as np
import safetensors
import safetensors.numpy
from checkpoints import bf16_words

D, FF = 24, 40
TORCH = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
WORDS = {"f32": lambda x: x, "f16": lambda x: x.astype(np.float16), "bf16": bf16_words}
LLAMA = {"model_type": "llama", "hidden_act": "silu", "hidden_size": D, "intermediate_size": FF}
METADATA = {"format": "pt", "note \u00e9 \"quoted\"": "line\n\\ \u4e2d"}
ODD = {  # name: dtype, shape, bytes
    "scalar": ("F32", [], struct.pack("<f", 2.5)), "empty": ("I64", [0, 3], b""), "mask": ("BOOL", [3], b"\1\0\1"),
    "six": ("U8", [1, 2, 1, 3, 1, 2], bytes(range(12))), "eight": ("F8_E4M3", [2, 2], b"\x7f\x01\xff\x80"),
    "odd \"name\" \\ \n \0 \u00e9": ("I16", [1], b"\x34\x12"), "double": ("F64", [1], struct.pack("<d", -0.1)),
}


def save(path, tensors, metadata=METADATA, space=""):
    """name -> (dtype, shape, bytes), in this order and unaligned, as no writer but a reader must take it."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, ensure_ascii=len(space) == 0).encode() + space.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def load(path):
    """The same by the package, and the metadata by its own reader."""
    found = {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in safetensors.deserialize(path.read_bytes())}
    with safetensors.safe_open(path, "np") as f:
        return found, f.metadata()


def tensor(values, kind="F32"):
    return kind, list(values.shape), WORDS[TORCH[kind]](values.astype(np.float32)).tobytes()


def llama(kind="F32", layers=2, packed=False, bias=False, seed=3):
    random, found = np.random.default_rng(seed), {}
    for layer in range(layers):
        stem = f"model.layers.{layer}."
        parts = {"gate_up_proj": (2 * FF, D)} if packed else {"gate_proj": (FF, D), "up_proj": (FF, D)}
        for name, shape in {**parts, "down_proj": (D, FF)}.items():
            found[f"{stem}mlp.{name}.weight"] = tensor(random.standard_normal(shape), kind)
            if bias:
                found[f"{stem}mlp.{name}.bias"] = tensor(random.standard_normal(shape[:1]))
        found[stem + "post_attention_layernorm.weight"] = tensor(random.standard_normal(D))
        found[stem + "self_attn.q_proj.weight"] = tensor(random.standard_normal((D, D)), "BF16")
    return found


def folder(path, config, tensors, **how):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return save(path / "model.safetensors", tensors, **how)


def is_weight(name):
    return ".mlp." in name and name.endswith(".weight")


def wide(tensor):
    kind, shape, raw = tensor
    if kind == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, np.float32 if kind == "F32" else np.float16).astype(np.float32)


def assert_layout(path):
    """Header a multiple of 8, padded with blanks; tensors sorted by size of values, then name, and aligned to it."""
    data = path.read_bytes()
    n = struct.unpack_from("<Q", data)[0]
    text = data[8:8 + n].decode()
    assert n % 8 == 0 and text.rstrip(" ")[-1] == "}" and len(text.encode()) - len(text.rstrip(" ").encode()) < 8
    header, at, before = json.loads(text), 0, None
    header.pop("__metadata__", None)
    for name, t in header.items():
        begin, end = t["data_offsets"]
        count = int(np.prod(t["shape"]))
        bits = (end - begin) * 8 // count if count else 0
        assert begin == at and (not bits or (8 + n + begin) * 8 % bits == 0)
        assert before is None or before > (bits, "") and (bits < before[0] or name > before[1])
        at, before = end, (bits, name)
    assert 8 + n + at == len(data)
