# SPDX-License-Identifier: Apache-2.0
"""GGUF models in several files: as the package gguf splits them, and hostile ones, which are made from bytes.

A row of ROWS: number, the files of the folder by name, the one that is opened, status, words that the error must hold."""
import struct

from hostile import G, KV, LLAMA, S, T, u32

E_FORMAT, E_OPEN = 30, 40


def u16(v):
    return struct.pack("<H", v)


def name(i, n, stem="m"):
    return f"{stem}-{i + 1:05}-of-{n:05}.gguf"


def split_keys(no, count, tensors):
    return [KV(b"split.no", 2, u16(no)), KV(b"split.count", 2, u16(count)), KV(b"split.tensors.count", 5, u32(tensors))]


def shard(tensors, no, count, total, kv=(), **options):
    """tensors: names of vectors of 8 f32 each."""
    made = [T(t, [8], 0, 32 * i) for i, t in enumerate(tensors)]
    return G(made, bytes(32 * len(made)), [*kv, *split_keys(no, count, total)], **options)


FIRST = shard([b"a", b"b"], 0, 2, 3, [LLAMA])
SECOND = shard([b"c"], 1, 2, 3)


def pair(first=FIRST, second=SECOND):
    return {name(0, 2): first, name(1, 2): second}


def without(key, no=1):
    keys = [k for k in split_keys(no, 2, 3) if key not in k]
    return G([T(b"c", [8])], bytes(32), keys)


def other_type(key, kind, raw):
    return G([T(b"c", [8])], bytes(32), [k if key not in k else KV(key, kind, raw) for k in split_keys(1, 2, 3)])


COUNT = KV(b"llama.block_count", 4, u32(1))
ACCEPTED = {
    "pair": pair(),
    "no tensor in the first": {name(0, 2): shard([], 0, 2, 1, [LLAMA]), name(1, 2): shard([b"c"], 1, 2, 1)},
    "the architecture in both": pair(second=shard([b"c"], 1, 2, 3, [LLAMA])),
    "an alignment of its own": pair(second=shard([b"c"], 1, 2, 3, [KV(b"general.alignment", 4, u32(64))], alignment=64)),
    "numbers of other types": pair(second=G([T(b"c", [8])], bytes(32), [
        KV(b"split.no", 10, struct.pack("<Q", 1)), KV(b"split.count", 4, u32(2)), KV(b"split.tensors.count", 0, b"\3")])),
    "one of one": {name(0, 1): shard([b"a"], 0, 1, 1, [LLAMA])},
}
ROWS = [
    ("missing", {name(0, 2): FIRST}, name(0, 2), E_OPEN,
     [f"{name(0, 2)}: split.count: shard {name(1, 2)} is not in its folder"]),
    ("missing-first", {name(1, 2): SECOND}, name(1, 2), E_OPEN,
     [f"{name(1, 2)}: split.count: shard {name(0, 2)} is not in its folder"]),
    ("renamed-alone", {"model.gguf": FIRST}, "model.gguf", E_FORMAT,
     ["model.gguf: split.count: one shard of several", "-00001-of-00002.gguf"]),
    ("renamed-count", {name(0, 3): FIRST}, name(0, 3), E_FORMAT,
     [f"{name(0, 3)}: split.count 2: must be 3, as the file is called -of-00003"]),
    ("called-a-shard", {name(0, 2): shard([b"a"], 0, 1, 1)}, name(0, 2), E_FORMAT,
     ["split.count 1: must be 2, as the file is called -of-00002"]),
    ("swapped", pair(SECOND, FIRST), name(0, 2), E_FORMAT,
     [f"{name(0, 2)}: split.no 1: must be 0, as it is called 00001 and this counts from 0"]),
    ("counts-from-1", pair(second=shard([b"c"], 2, 2, 3)), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: split.no 2: must be 1, as it is called 00002"]),
    ("two-counts", pair(second=shard([b"c"], 1, 3, 3)), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: split.count 3: must be 2, as the shards are called -of-00002"]),
    ("two-totals", pair(second=shard([b"c"], 1, 2, 4)), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: split.tensors.count 4: must be 3, as in ", name(0, 2)]),
    ("sum", pair(second=shard([b"c", b"d"], 1, 2, 3)), name(1, 2), E_FORMAT,
     [f"{name(0, 2)}: split.tensors.count 3: must be 4, as the 2 shards hold so many"]),
    ("twice", pair(second=shard([b"b"], 1, 2, 3)), name(0, 2), E_FORMAT, [f"{name(1, 2)}: tensor b: also in ", name(0, 2)]),
    ("twice-and-cut", pair(second=shard([b"b"], 1, 2, 3)[:-4]), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: tensor b: also in ", name(0, 2)]),
    ("same-shard", pair(second=FIRST), name(0, 2), E_FORMAT, [f"{name(1, 2)}: split.no 0: must be 1"]),
    *[(f"no-{key.decode()}", pair(second=without(key)), name(0, 2), E_FORMAT,
       [f"{name(1, 2)}: {key.decode()} is missing: a shard of a set has it"])
      for key in (b"split.no", b"split.count", b"split.tensors.count")],
    ("text", pair(second=other_type(b"split.no", 8, S(b"1"))), name(0, 2), E_FORMAT,
     ["split.no: an integer from 0 on is expected"]),
    ("negative", pair(second=other_type(b"split.tensors.count", 5, u32(-1))), name(0, 2), E_FORMAT,
     ["split.tensors.count: an integer from 0 on is expected"]),
    ("count-text", {name(0, 2): G([], b"", [KV(b"split.count", 8, S(b"2"))])}, name(0, 2), E_FORMAT,
     ["split.count: an integer from 0 on is expected"]),
    ("count-huge", {name(0, 2): G([], b"", [KV(b"split.count", 4, u32(2**32 - 1))])}, name(0, 2), E_FORMAT,
     ["split.count 4294967295: limit 4096"]),
    ("count-65535", {"m-00001-of-65535.gguf": G([], b"", [KV(b"split.count", 2, u16(65535))])}, "m-00001-of-65535.gguf",
     E_FORMAT, ["split.count 65535: limit 4096"]),
    ("architecture", pair(second=shard([b"c"], 1, 2, 3, [KV(b"general.architecture", 8, S(b"gemma"))])), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: general.architecture: the first shard, whose metadata count, has another value"]),
    ("key-of-the-second", pair(second=shard([b"c"], 1, 2, 3, [COUNT])), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: llama.block_count: the first shard, whose metadata count, has no such key"]),
    ("version", pair(second=SECOND[:4] + u32(2) + SECOND[8:]), name(0, 2), E_FORMAT, [f"{name(1, 2)}: version 2: that of"]),
    ("second-broken", pair(second=SECOND[:40]), name(0, 2), E_FORMAT,
     [f"{name(1, 2)}: n_kv 3: the 16 bytes left hold at most 1"]),
    ("second-empty", pair(second=b""), name(0, 2), E_FORMAT, [f"{name(1, 2)}: file size 0"]),
    ("second-cut", pair(second=SECOND[:-1]), name(0, 2), E_FORMAT, [f"{name(1, 2)}: tensor c offset 0 + 32 > data 31"]),
    ("layers", {name(0, 2): shard([b"a"], 0, 2, 2, [LLAMA]), name(1, 2): shard([b"blk.70000.ffn_up.weight"], 1, 2, 2)},
     name(0, 2), E_FORMAT, [f"{name(1, 2)}: tensor blk.70000.ffn_up.weight: layer number 70000"]),
]
