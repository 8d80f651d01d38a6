# SPDX-License-Identifier: Apache-2.0
"""Builders of hostile GGUF files, and the table of those that are one string of bytes (docs/files.md).

A row: number, bytes, words that the error must hold. No words: the file must be accepted.
"""
import contextlib
import struct
import subprocess
import sys


def u32(v):
    return struct.pack("<I", v & 0xFFFFFFFF)


def u64(v):
    return struct.pack("<Q", v & (2**64 - 1))


def S(b):
    """A string: its length, then its bytes."""
    return u64(len(b)) + b


def H(n_tensors, n_kv, version=3, magic=b"GGUF"):
    return magic + u32(version) + u64(n_tensors) + u64(n_kv)


def KV(key, kind, raw):
    return S(key) + u32(kind) + raw


def T(name, dims, kind=0, offset=0, n_dims=None):
    return S(name) + u32(len(dims) if n_dims is None else n_dims) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


def G(tensors, data=b"", kv=(), alignment=32):
    b = H(len(tensors), len(kv)) + b"".join(kv) + b"".join(tensors)
    return b + b"\0" * (-len(b) % alignment) + data


def weights(kind, rows, cols, row_bytes, kv=()):
    """A gated block whose three weights have one type."""
    tensors, offset = [], 0
    for name, (r, c) in {"gate": (rows, cols), "up": (rows, cols), "down": (cols, rows)}.items():
        tensors.append(T(b"blk.0.ffn_%s.weight" % name.encode(), [c, r], kind, offset))
        offset += r * row_bytes
    return G(tensors, bytes(offset), kv)


LLAMA = KV(b"general.architecture", 8, S(b"llama"))
VALID = G([T(b"a", [8])], bytes(32))
HUGE = 0x7FFFFFFFFFFFFFC0
REMOVED_TYPES = [4, 5, 31, 32, 33, 36, 37, 38]


def alignment(kind, raw):
    return H(0, 1) + KV(b"general.alignment", kind, raw)


ROWS = [
    ("G01", b"", ["file size 0"]),
    ("G02", b"GGUF", ["version", "truncated"]),
    ("G03", H(0, 0, magic=b"FUGG"), ["magic", "FUGG"]),
    ("G04", b"lmgg" + bytes(60), ["magic", "old ggml format"]),
    ("G05", H(0, 0, version=0), ["version 0"]),
    ("G06", H(0, 0, version=1) + bytes(64), ["version 1"]),
    ("G07", H(0, 0, version=4), ["version 4"]),
    ("G08", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), ["version", "big-endian file"]),
    ("G09", H(2**64 - 1, 0), ["n_tensors 18446744073709551615"]),
    ("G10", H(0x1D1D1D1D1D1D1D1D, 0) + bytes(64), ["n_tensors", "64 bytes left hold at most 2"]),
    ("G11", H(0, 2**64 - 1), ["n_kv 18446744073709551615"]),
    ("G12", H(0, 0xFFFFFFFF) + bytes(64), ["n_kv 4294967295", "64 bytes left hold at most 4"]),
    ("G13", H(2**63, 2**63), ["n_tensors 9223372036854775808"]),
    ("G14-v3", H(0, 0), []),
    ("G14-v2", H(0, 0, version=2), []),
    ("G15", H(0, 1) + u64(2**64 - 1) + b"A" * 16, ["kv[0].key length 18446744073709551615", "65535"]),
    ("G16", H(0, 1) + u64(2**31) + b"A" * 16, ["kv[0].key length 2147483648", "65535"]),
    ("G17", H(0, 1) + KV(b"", 4, u32(1)), ["kv[0].key: empty"]),
    ("G18", H(0, 1) + KV(b"a" * 65536, 4, u32(1)), ["kv[0].key length 65536", "65535"]),
    ("G19", H(0, 1) + KV(b"a\0b", 4, u32(1)), ["kv[0].key: byte 0"]),
    ("G20", H(0, 1) + KV(b"\xff\xfe", 4, u32(1)), ["kv[0].key", "ASCII", r"\xff\xfe"]),
    ("G21", H(0, 2) + KV(b"a", 4, u32(1)) * 2, ["kv[1].key a: duplicate", "kv[0].key"]),
    ("G21-cut", H(0, 2) + KV(b"a", 4, u32(1)) + KV(b"a", 13, b""), ["kv[1].key a: duplicate of kv[0].key"]),
    ("G22", H(0, 1) + KV(b"a", 13, bytes(8)), ["kv[0].type 13", "limit 12"]),
    ("G23", H(0, 1) + KV(b"a", 0xFFFFFFFF, bytes(8)), ["kv[0].type 4294967295"]),
    ("G24", H(0, 1) + KV(b"a", 7, b"\2"), ["kv[0].value", "bool value 2"]),
    ("G25", H(0, 1) + KV(b"a", 8, u64(1 << 62)), ["kv[0].value", "string length 4611686018427387904"]),
    ("G26", H(0, 1) + KV(b"a", 8, u64(1 << 30)), ["kv[0].value", "string length 1073741824", "0 bytes left"]),
    ("G27", H(0, 1) + KV(b"a", 9, u32(10) + u64(2**61)), ["kv[0].array count 2305843009213693952"]),
    ("G28", H(0, 1) + KV(b"a", 9, u32(0) + u64(2**63)), ["kv[0].array count 9223372036854775808"]),
    ("G29", H(0, 1) + KV(b"a", 9, u32(8) + u64(1 << 40)), ["kv[0].array count 1099511627776"]),
    ("G30", H(0, 1) + S(b"a") + u32(9) + (u32(9) + u64(1)) * 10000, ["kv[0].array", "nested array"]),
    ("G31", H(0, 1) + KV(b"a", 9, u32(99) + u64(1) + bytes(8)), ["kv[0].array element type 99"]),
    ("G32", H(0, 1) + KV(b"a", 9, u32(4) + u64(0)), []),
    ("G33", alignment(4, u32(0)), ["general.alignment 0"]),
    ("G34", alignment(4, u32(13)), ["general.alignment 13"]),
    ("G35", alignment(4, u32(2**31)), ["general.alignment 2147483648", "1048576"]),
    ("G36", alignment(5, u32(32)), ["general.alignment type 5"]),
    ("G37", alignment(4, u32(24)), ["general.alignment 24", "not a power of two", "ggml refuses"]),
    ("G38", G([T(b"a", [8])], bytes(32), [KV(b"general.alignment", 4, u32(1))], 1), []),
    ("G39", H(0, 200000) + b"".join(KV(b"%x" % i, 0, b"\0") for i in range(200000)), []),
    ("G41", H(0, 1) + KV(b"split.count", 2, struct.pack("<H", 2)), ["split.count: one shard of several", "-00001-of-00002.gguf"]),
    ("G42", H(0, 1) + KV(b"llama.block_count", 4, u32(2**31)), []),
    ("G43", H(0, 1) + KV(b"llama.feed_forward_length", 4, u32(0)), ["llama.feed_forward_length 0"]),
    ("G44", H(1, 0) + u64(2**63) + b"a", ["tensor[0].name length 9223372036854775808", "63"]),
    ("G45", G([T(b"n" * 64, [8])], bytes(32)), ["tensor[0].name length 64", "63"]),
    ("G46", G([T(b"a\0b", [8]), T(b"a\0c", [8], 0, 32)], bytes(64)), ["tensor[0].name: byte 0"]),
    ("G47", G([T(b"a", [8]), T(b"a", [8], 0, 32)], bytes(64)), ["tensor[1].name a: duplicate"]),
    ("G47-place", G([T(b"a", [8]), T(b"a", [8])], bytes(64)), ["tensor[1].name a: duplicate of tensor[0].name"]),
    ("G48", G([T(b"../../x", [8])], bytes(32)), []),
    ("G49", G([T(b"a", [1] * 5)], bytes(32)), ["tensor a n_dims 5", "limit 4"]),
    ("G50", H(1, 0) + T(b"a", [1], n_dims=0xFFFFFFFF), ["tensor a n_dims 4294967295"]),
    ("G51", G([T(b"a", [])], bytes(32)), []),
    ("G51-weight", G([T(b"blk.0.ffn_up.weight", [])], bytes(32)), ["tensor blk.0.ffn_up.weight n_dims 0"]),
    ("G52", G([T(b"a", [0, 4])]), []),
    ("G52-weight", G([T(b"blk.0.ffn_up.weight", [0, 4])]), ["tensor blk.0.ffn_up.weight dims[0] 0"]),
    ("G53", G([T(b"a", [2**64 - 1])], bytes(32)), ["tensor a dims[0] 18446744073709551615"]),
    ("G54", G([T(b"a", [2**32, 2**32])]), ["tensor a dims product"]),
    ("G55", G([T(b"a", [HUGE], 24), T(b"b", [HUGE], 24, HUGE)]),
     ["tensor a offset 0 + 9223372036854775744 > data 0 bytes", "end of the file"]),
    ("G56", G([T(b"a", [2**31, 2**31, 2])], bytes(32)), ["tensor a dims product", "9223372036854775807"]),
    ("G57", G([T(b"a", [2**61], 28)], bytes(32)), ["tensor a bytes", "overflow"]),
    ("G58", G([T(b"a", [33], 2)], bytes(64)), ["tensor a dims[0] 33", "32"]),
    *[(f"G59-{t}", G([T(b"a", [32], t)], bytes(32)), [f"tensor a type {t}", "removed"]) for t in REMOVED_TYPES],
    *[(f"G60-{t}", G([T(b"a", [32], t)], bytes(32)), [f"tensor a type {t}"]) for t in (43, 0x7FFFFFFF, 0xFFFFFFFF)],
    ("G61", G([T(b"a", [256], 16)], bytes(96)), []),
    ("G62", G([T(b"a", [1024])], bytes(16)), ["tensor a offset 0 + 4096 > data 16"]),
    ("G62-second", G([T(b"b", [1024]), T(b"a", [1024], 0, 4096)], bytes(4112)), ["tensor a offset 4096 + 4096 > data 4112"]),
    ("G63", G([T(b"a", [8], 0, 2**64 - 32)], bytes(32)), ["tensor a offset 18446744073709551584"]),
    ("G64", G([T(b"a", [8], 0, 1)], bytes(64)), ["tensor a offset 1", "alignment 32"]),
    ("G65", G([T(b"a", [8]), T(b"b", [8])], bytes(32)), ["tensor b offset 0", "overlaps a"]),
    ("G66", G([T(b"a", [8], 0, 64)], bytes(96)), ["tensor a offset 64", "hole"]),
    ("G67-empty", H(1, 0) + T(b"a", [0]), ["data section", "64", "past the end of the file at 57"]),
    ("G67", H(1, 0) + T(b"a", [8]), ["data section", "64", "past the end of the file at 57"]),
    ("G68", G([T(b"a", [8])], bytes(32) + b"PK\3\4" + bytes(99)), []),
    ("G69", G([T(b"%d" % i, [0]) for i in range(100000)]), []),
    ("G70", G([T(b"a", [32], 2)], b"\0\x7e" + bytes(30)), []),
    ("G71", G([T(b"a", [32], 39)], b"\xff" + bytes(31)), []),
    ("G72", G([T(b"blk.0.ffn_gate.weight", [64, 128]), T(b"blk.0.ffn_up.weight", [64, 256], 0, 32768)], bytes(98304)),
     ["ffn_up.weight rows 256", "ffn_gate.weight rows 128"]),
    ("G73", G([T(b"blk.4294967296.ffn_gate.weight", [8])], bytes(32)), ["layer number 4294967296"]),
]


@contextlib.contextmanager
def rewriting(path, places):
    """Another process keeps switching each place of the file, {offset: (good bytes, absurd ones)}."""
    writer = subprocess.Popen([sys.executable, "-c", f"""
import os
fd = os.open({str(path)!r}, os.O_WRONLY)
places = {places!r}
while True:
    for which in (1, 0):
        for at, values in places.items():
            os.pwrite(fd, values[which], at)
"""])
    try:
        yield
    finally:
        writer.kill()
        writer.wait()
