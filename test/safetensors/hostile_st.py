# SPDX-License-Identifier: Apache-2.0
"""Builders of hostile safetensors files, and the table of those that are one string of bytes (docs/files.md).

A row: number, bytes, words that the error must hold. No words: the file must be accepted.
"""
import json
import struct


def u64(v):
    return struct.pack("<Q", v & (2**64 - 1))


def ST(header, data=b"", n=None):
    h = header if isinstance(header, bytes) else json.dumps(header).encode()
    return u64(len(h) if n is None else n) + h + data


def t(shape, offsets, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


F32_4 = b'{"dtype":"F32","shape":[],"data_offsets":[0,4]}'
F32_8 = b'{"dtype":"F32","shape":[],"data_offsets":[4,8]}'
VALID = ST({"__metadata__": {"format": "pt"}, "b": t([2, 2], [8, 24]), "a": t([4], [0, 8], "F16")}, bytes(24))


def shape(value):
    return ST(b'{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,4]}}' % value, bytes(4))


ROWS = [
    ("S01-empty", b"", ["header length", "truncated"]),
    ("S01", bytes(7), ["header length", "truncated", "7"]),
    ("S02", u64(2**64 - 1) + b"{}", ["header length 18446744073709551615", "100000000"]),
    ("S03", u64(100000001) + b"{}", ["header length 100000001", "limit 100000000"]),
    ("S04", u64(1000) + b"{}", ["header length 1000", "2 bytes left"]),
    ("S05", u64(0), ["header length 0", "empty"]),
    ("S06", ST(b"[]"), ["header: an object is expected"]),
    ("S06-bom", ST(b"\xef\xbb\xbf{}"), ["header: '\\xef'", "at byte 8"]),
    ("S07", ST(b"\t\n{}\r "), []),
    ("S08-utf8", ST(b'{"\xff":1}'), ["header", "\\xff", "UTF-8", "at byte 10"]),
    ("S08-open", ST(b"{"), ["header: ends where", "at byte 9"]),
    ("S08-after", ST(b"{}x"), ["header: 'x' where the end is expected", "at byte 10"]),
    ("S08-nul", ST(b"{}\0\0"), ["header: '\\x00' where the end is expected", "at byte 10"]),
    ("S09", ST(b'{"a":' + F32_4 + b',"a":' + F32_8 + b"}", bytes(8)), ["tensor a: duplicate key"]),
    ("S10", ST(b'{"a":' + F32_4 + b',"\\u0061":' + F32_8 + b"}", bytes(8)), ["tensor a: duplicate key"]),
    ("S09-place", ST(b'{"a":' + F32_4 + b',"a":' + F32_4 + b"}", bytes(4)), ["tensor a: duplicate key, first at byte 9"]),
    ("S09-end", ST(b'{"a":' + F32_4 + b',"a":' + F32_8 + b"}", bytes(4)), ["tensor a: duplicate key"]),
    ("S11", ST(b'{"a":{"dtype":"F32","dtype":"F16","shape":[],"data_offsets":[0,4]}}', bytes(4)),
     ["tensor a: duplicate field dtype"]),
    ("S12", ST(b'{"a":' + b"[" * 1000000), ["header: depth 33", "limit 32"]),
    ("S12-field", ST(b'{"a":{"x":' + b"[" * 1000000), ["depth 33", "limit 32"]),
    ("S13", ST({"a": {"dtype": "F32", "shape": [1]}}), ["tensor a: data_offsets missing"]),
    ("S14", ST({"a": t([1], [0, 4], "F128")}, bytes(4)), ["tensor a dtype", '"F128"']),
    ("S14-case", ST({"a": t([1], [0, 4], "f32")}, bytes(4)), ["tensor a dtype", '"f32"']),
    ("S15", shape(b"-1"), ["tensor a shape[0]", "not the number -1"]),
    ("S15-fraction", shape(b"1.0"), ["tensor a shape[0]", "not the number 1.0"]),
    ("S15-exponent", shape(b"1e0"), ["tensor a shape[0]", "not the number 1e0"]),
    ("S15-string", shape(b'"1"'), ["tensor a shape[0]", 'not the string "1"']),
    ("S16", shape(b"99999999999999999999"), ["tensor a shape[0]", "18446744073709551615", "99999999999999999999"]),
    ("S17", ST({"a": t([2, 2**64 - 2], [0, 16])}, bytes(16)), ["tensor a shape product", "18446744073709551614"]),
    ("S17-bits", ST({"a": t([2, 2**63 - 1], [0, 16], "I32")}, bytes(16)), ["tensor a bytes", "18446744073709551614"]),
    ("S18", ST({"a": t([2**32, 2**32], [0, 0])}), ["tensor a shape product", "4294967296"]),
    ("S19", ST({"a": t([1], [4, 0])}, bytes(4)), ["tensor a data_offsets reversed"]),
    ("S20", ST({"a": t([4], [0, 16])}, bytes(8)), ["tensor a data_offsets end 16 > data 8"]),
    ("S21", ST({"a": t([1], [0, 4]), "b": t([1], [8, 12])}, bytes(12)), ["tensor b data_offsets begin 8: a hole"]),
    ("S22", ST({"a": t([2], [0, 8]), "b": t([2], [4, 12])}, bytes(12)), ["tensor b data_offsets", "overlaps a"]),
    ("S23", ST({f"w{i}": t([100, 100], [0, 40000]) for i in range(100000)}, bytes(40000)), ["tensor w1", "overlaps w0"]),
    ("S24", ST({"a": t([1], [0, 4])}, bytes(4) + b"PK\5\6"), ["4 trailing bytes"]),
    ("S25", ST({"a": t([2], [0, 4])}, bytes(4)), ["tensor a data_offsets hold 4 bytes", "need 8"]),
    ("S26", ST({"a": t([2, 0], [0, 0]), "b": t([], [0, 4])}, bytes(4)), []),
    ("S27", ST({"a": t([3], [0, 1], "F4")}, bytes(1)), ["tensor a shape", "12 bits, not whole bytes"]),
    ("S28", ST({"a": t([4], [0, 2], "F4"), "b": t([2], [2, 4], "F8_E4M3")}, bytes(4)), []),
    ("S29", ST({"a": t([3], [0, 3], "U8"), "w": t([4], [3, 19])}, bytes(19)), []),
    ("S30", ST({"__metadata__": {"x": 1}}), ["__metadata__.x: a string is expected, not the number 1"]),
    ("S30-array", ST({"__metadata__": []}), ["__metadata__: an object is expected, not an array"]),
    ("S31-empty", ST({"": t([1], [0, 4])}, bytes(4)), []),
    ("S31-nul", ST(b'{"\\u0000":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)), []),
    ("S31-line", ST({"a\nb": t([1], [0, 4])}, bytes(4)), []),
    ("S31-long", ST({"n" * 1000000: t([1], [0, 4])}, bytes(4)), ["header: a name of more than 65535 bytes"]),
    ("S34", ST({"model.layers.4294967296.mlp.up_proj.weight": t([1, 1], [0, 4])}, bytes(4)), ["layer number 4294967296"]),
    ("valid", VALID, []),
    ("C083", ST(b"{}", n=132095296), ["header length 132095296", "limit 100000000"]),
    ("C083-2^63", ST(b"{}", n=2**63), ["header length 9223372036854775808", "limit 100000000"]),
    ("C085-overlap", ST({"up": t([16], [32, 96]), "gate": t([16], [0, 64])}, bytes(96)),
     ["tensor up data_offsets begin 32: overlaps gate"]),
    ("C085-gap", ST({"b": t([16], [96, 160]), "a": t([16], [0, 64])}, bytes(160)), ["tensor b data_offsets begin 96: a hole"]),
    ("C085-shuffled", ST({"b": t([16], [64, 128]), "a": t([16], [0, 64])}, bytes(128)), []),
    ("C086", ST({"a": t([1000, 1000], [0, 4])}, bytes(4)), ["tensor a data_offsets hold 4 bytes", "need 4000000"]),
    ("C088-empty", ST({"a": t([4], [0, 16]), "z": t([0], [16, 16])}, bytes(16)), []),
    ("C088", ST({"a": t([1], [0, 0])}), ["tensor a data_offsets hold 0 bytes", "need 4"]),
    ("C089", ST({"a": t([1], [2**64 - 8, 2**64 - 4], "Q9")}, bytes(4)), ["tensor a dtype", '"Q9"']),
    ("C089-offsets", ST({"a": t([1], [2**64 - 8, 2**64 - 4])}, bytes(4)), ["tensor a data_offsets end 18446744073709551612"]),
    ("C091-object", ST({"__metadata__": {"a": {}}}), ["__metadata__.a: a string is expected, not an object"]),
    ("C091-null", ST({"__metadata__": {"a": None}}), ["__metadata__.a: a string is expected, not null"]),
    ("C091-string", ST({"__metadata__": {"a": "0"}}), []),
    ("C092-empty", ST({"__metadata__": {}, "a": t([1], [0, 4])}, bytes(4)), []),
    ("C092-absent", ST({"a": t([1], [0, 4])}, bytes(4)), []),
    ("metadata-twice", ST(b'{"__metadata__":{},"__metadata__":{}}'), ["duplicate key __metadata__"]),
    ("metadata-key", ST(b'{"__metadata__":{"k":"1","\\u006b":"2"}}'), ["__metadata__: duplicate key k"]),
    ("offsets-3", ST({"a": t([1], [0, 4, 5])}, bytes(4)), ["tensor a data_offsets: the end of the array is expected"]),
    ("offsets-1", ST({"a": t([1], [0])}, bytes(4)), ["tensor a data_offsets: an integer"]),
    ("array-entry", ST({"a": ["F32", [1], [0, 4]]}, bytes(4)), ["tensor a entry: an object is expected, not an array"]),
    ("null-entry", ST({"a": None}), ["tensor a entry: an object is expected, not null"]),
    ("empty-inside", ST({"a": t([2], [0, 8]), "z": t([0], [4, 4])}, bytes(8)), ["tensor z data_offsets begin 4: overlaps a"]),
    ("product-then-0", ST({"a": t([2**63, 4, 0], [0, 0])}), ["tensor a shape product"]),
    ("product-of-the-last", ST({"a": t([0, 1, 1, 2**63, 4], [0, 0])}), ["tensor a shape product"]),
    ("metadata-long", ST({"__metadata__": {"k" * 70000: "v"}}), ["__metadata__: a key of more than 65535 bytes"]),
    ("rank", ST({"a": t([1] * 65, [0, 4])}, bytes(4)), ["tensor a shape: more than 64 dimensions"]),
    ("escape", ST({"\x1b[2J\u00e9": {}}), ["tensor \\x1b[2J\\xc3\\xa9: dtype missing"]),
]
