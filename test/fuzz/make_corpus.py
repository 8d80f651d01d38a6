#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus of the fuzz targets: make_corpus.py OUT makes OUT/TARGET/good and OUT/TARGET/hostile.

The hostile files are the rows of the tables that the tests of each reader have.
"""
import json
import pathlib
import shutil
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
for area in ("io", "safetensors", "cli"):
    sys.path.insert(0, str(HERE.parent / area))

import hostile  # noqa: E402
import hostile_st  # noqa: E402
import npy_rows  # noqa: E402
import quantised  # noqa: E402
import split  # noqa: E402
from hostile import G, KV, LLAMA, S, T, u32, u64  # noqa: E402

LARGEST = 1 << 17  # of a seed; the tests run the larger rows


def gguf_metadata():
    """One entry of every type, and arrays of numbers, bools and strings."""
    scalars = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
    kv = [KV(b"k%d" % kind, kind, struct.pack(form, 1)) for kind, form in scalars.items()]
    kv.append(KV(b"general.name", 8, S(b"n")))
    kv.append(KV(b"tokens", 9, u32(8) + u64(2) + S(b"a") + S(b"bc")))
    return [*kv, KV(b"flags", 9, u32(7) + u64(3) + b"\1\0\1"), KV(b"none", 9, u32(4) + u64(0))]


def gguf_packed():
    """phi3: one tensor holds gate and up."""
    arch = [KV(b"general.architecture", 8, S(b"phi3")), KV(b"phi3.feed_forward_length", 4, u32(8))]
    return G([T(b"blk.0.ffn_up.weight", [4, 16]), T(b"blk.0.ffn_down.weight", [8, 4], 0, 256)], bytes(384), arch)


def gguf_experts():
    tensors, at = [], 0
    for name, dims in (("gate_inp", [4, 2]), ("gate_exps", [4, 8, 2]), ("up_exps", [4, 8, 2]), ("down_exps", [8, 4, 2])):
        tensors.append(T(b"blk.0.ffn_%s.weight" % name.encode(), dims, 0, at))
        at += 4 * dims[0] * dims[1] * (dims[2] if len(dims) > 2 else 1)
    return G(tensors, bytes(at), [LLAMA])


def checkpoint(names, dtype="F32", size=4):
    """A gated block of 4 x 8 under these names of gate, up and down; (name, rows, cols) where it is another shape."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, rows, cols in names:
        header[name] = hostile_st.t([rows, cols] if cols else [rows], [at, at + size * rows * (cols or 1)], dtype)
        at = header[name]["data_offsets"][1]
    return hostile_st.ST(header, bytes(at))


def llama(layer, dtype="F32", size=4):
    stem = f"model.layers.{layer}.mlp."
    return checkpoint([(stem + "gate_proj.weight", 8, 4), (stem + "up_proj.weight", 8, 4),
                       (stem + "down_proj.weight", 4, 8), (stem + "down_proj.bias", 4, 0)], dtype, size)


def joined(files):
    """The two files of a set in one input."""
    first, second = (files.get(split.name(i, 2), b"") for i in range(2))
    return struct.pack("<I", len(first)) + first + second


def set_of_a_block():
    """gate in the first shard, up and down in the second."""
    data = bytes(4 * 4 * 4)
    first = G([T(b"blk.0.ffn_gate.weight", [4, 4])], data, [LLAMA, *split.split_keys(0, 2, 3)])
    return {split.name(0, 2): first, split.name(1, 2): G(
        [T(b"blk.0.ffn_up.weight", [4, 4]), T(b"blk.0.ffn_down.weight", [4, 4], 0, 64)], 2 * data, split.split_keys(1, 2, 3))}


def with_config(config, tensors):
    """A config and the file beside it in one input."""
    text = json.dumps({"model_type": "llama"} | quantised.config_of(config)).encode()
    return struct.pack("<I", len(text)) + text + quantised.file_of(tensors)


def quantised_layers():
    """A layer of 8 x 16 in each way of storing it."""
    for maker, options, config in quantised.FORMATS.values():
        tensors, _ = quantised.layer(maker, options, 8, 16)
        yield with_config(config, tensors)


CONFIG = {"model_type": "llama", "hidden_act": "silu", "hidden_size": 4, "intermediate_size": [8, 8],
          "num_hidden_layers": 2, "x": [1.5e-3, None, True, {"y": "\u00e9\n"}], "text_config": {"hidden_act": "gelu"}}
INDEX = {"metadata": {"total_size": 800}, "weight_map": {
    f"model.layers.{layer}.mlp.{part}.weight": f"model-0000{layer + 1}-of-00002.safetensors"
    for layer in range(2) for part in ("gate_proj", "up_proj", "down_proj")}}

GOOD = {
    "gguf": [hostile.weights(0, 4, 4, 16, [LLAMA, KV(b"llama.block_count", 4, u32(1))]),
             hostile.weights(2, 32, 32, 18, [LLAMA]), G([T(b"a", [8])], bytes(32), gguf_metadata()), gguf_packed(),
             gguf_experts()],
    "gguf_set": [joined(files) for files in (set_of_a_block(), *split.ACCEPTED.values()) if len(files) == 2],
    "safetensors": [llama(0), llama(1, "BF16", 2), hostile_st.VALID,
                    checkpoint([("h.0.mlp.c_fc.weight", 4, 8), ("h.0.mlp.c_fc.bias", 8, 0),
                                ("h.0.mlp.c_proj.weight", 8, 4), ("h.0.mlp.c_proj.bias", 4, 0)]),
                    checkpoint([("model.layers.0.mlp.gate_up_proj.weight", 16, 4),
                                ("model.layers.0.mlp.down_proj.weight", 4, 8)])],
    "quantised": list(quantised_layers()),
    "json": [json.dumps(CONFIG).encode(), json.dumps(CONFIG, indent=1).encode(), json.dumps(INDEX).encode(),
             b'["\\ud83d\\ude00\\u0041\\"\\\\\\/\\b\\f\\n\\r\\t", -0.5E+7, NaN, -Infinity, [[[]]], {"":{}}]'],
    "npy": [data for _, data in npy_rows.ACCEPTED],
}
HOSTILE = {
    "gguf": [(number, data) for number, data, _ in hostile.ROWS],
    "gguf_set": [(number, joined(files)) for number, files, *_ in split.ROWS],
    "safetensors": [(number, data) for number, data, _ in hostile_st.ROWS],
    "quantised": [(number, struct.pack("<I", 2) + b"{}" + data) for number, data, _ in hostile_st.ROWS],
    "json": [(number, data[8:]) for number, data, _ in hostile_st.ROWS if data[8:]],
    "npy": [(number, data) for number, data, _ in npy_rows.REFUSED],
}


def main():
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    for target, good in GOOD.items():
        seeds = {"good": [(f"{i:02}", data) for i, data in enumerate(good)], "hostile": HOSTILE[target]}
        for kind, files in seeds.items():
            folder = out / target / kind
            folder.mkdir(parents=True)
            for i, (name, data) in enumerate(files):
                if len(data) <= LARGEST:
                    (folder / f"{i:03}-{name}").write_bytes(data)


if __name__ == "__main__":
    main()
