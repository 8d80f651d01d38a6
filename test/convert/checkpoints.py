# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints to convert, and what is in a file."""
import struct

import gguf
import numpy as np

D, FF = 64, 96
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16}
Q8_0, Q4_1, IQ4_NL = (gguf.GGMLQuantizationType[n] for n in ("Q8_0", "Q4_1", "IQ4_NL"))
EXTRA = {"other.q8_0": (Q8_0, [4, 64], 68), "other.iq4_nl": (IQ4_NL, [4, 64], 36)}  # type, shape, bytes a row


def bf16_words(values):
    """f32 to bf16, to nearest even."""
    u = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def stored(values, kind):
    """The bytes of f32 values as a type, a row of bytes for each row of values."""
    if kind == "f32":
        return np.ascontiguousarray(values, np.float32)
    if kind == "f16":
        return values.astype(np.float16)
    if kind == "bf16":
        return bf16_words(values).view(np.uint8)
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind.upper()])


def write(path, kind="f32", architecture="llama", layers=2, packed=False, biased=False, d=D, ff=FF, file_type=0, seed=1,
          alignment=None, weights=None):
    """A checkpoint with more in it than its blocks. weights(layer, name, rows, cols) gives other values."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_name("to be converted \u00e9")
    writer.add_block_count(layers)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(ff)
    if file_type is not None:
        writer.add_file_type(file_type)
    writer.add_token_list([f"token {i}\n" for i in range(500)])
    writer.add_token_scores([i / 3 for i in range(500)])
    writer.add_array("some.flags", [True, False, True])
    add = writer.add_tensor
    add("token_embd.weight", random.standard_normal((5, d)).astype(np.float16))
    for layer in range(layers):
        stem = f"blk.{layer}.ffn_"
        add(stem + "norm.weight", random.standard_normal(d).astype(np.float32))
        parts = {"up": (2 * ff, d)} if packed else {"gate": (ff, d), "up": (ff, d)}
        for name, (rows, cols) in {**parts, "down": (d, ff)}.items():
            values = weights(layer, name, rows, cols) if weights else random.standard_normal((rows, cols))
            add(f"{stem}{name}.weight", stored(values.astype(np.float32), kind),
                raw_dtype=gguf.GGMLQuantizationType[kind.upper()])
            if biased:
                add(f"{stem}{name}.bias", random.standard_normal(rows).astype(np.float32))
        add(f"blk.{layer}.attn_q.weight", random.standard_normal((d, d)).astype(np.float32))
    for name, (qtype, (rows, _), row_bytes) in EXTRA.items():
        add(name, random.integers(0, 256, (rows, row_bytes), dtype=np.uint8), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(path):
    """name -> (type, shape outermost first, bytes), as the package gguf reads the file."""
    return {t.name: (t.tensor_type, [int(n) for n in reversed(t.shape)], t.data.tobytes())
            for t in gguf.GGUFReader(path).tensors}


def metadata_bytes(path):
    """The key-value entries as they stand in the file."""
    reader, data = gguf.GGUFReader(path), path.read_bytes()
    return data[24:reader.tensors[0].field.offset]


def file_type_at(path):
    """Where in metadata_bytes the value of general.file_type stands."""
    key = b"general.file_type"
    return metadata_bytes(path).index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4


def is_weight(name):
    return name.endswith(("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"))
