# SPDX-License-Identifier: Apache-2.0
"""Builders of .npy files, and the tables of those that must be refused and accepted."""
import struct


def npy(header, data=b"", version=(1, 0), n=None):
    header = header.encode() if isinstance(header, str) else header
    length = len(header) if n is None else n
    packed = struct.pack("<H", length & 0xFFFF) if version[0] == 1 else struct.pack("<I", length & 0xFFFFFFFF)
    return b"\x93NUMPY" + bytes(version) + packed + header + data


def dictionary(shape="(2,2)", descr="'<f4'", order="False"):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)


D = dictionary
SHAPE_MISSING = "{'descr': '<f4', 'fortran_order': False, }\n"
EXTRA = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,2), 'x': 1}"
TWICE = "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,2)}"

# row, bytes, what the one error line must say
REFUSED = [
    ("N01", b"", "magic"),
    ("N01", b"\x93NUMPX" + bytes(9), "magic"),
    ("N01", npy(D(), bytes(16), (9, 9)), "version: offset 6: 9.9"),
    ("N02", npy(D(), b"", (2, 0), 0xFFFFFFF0), "header length: offset 8: 4294967280 bytes"),
    ("N02", b"\x93NUMPY\2\0\xf0\xff", "header length: offset 8: truncated"),
    ("N03", npy(D(), b"", n=65535), "header length: offset 8: 65535"),
    ("N03", npy("", b"", n=0), "header length: offset 8: 0"),
    ("N04", npy("__import__('os').abort()\n", bytes(16)), "header: offset 10"),
    ("N05", npy(SHAPE_MISSING, bytes(16)), "key 'shape' is missing"),
    ("N05", npy(EXTRA, bytes(16)), "unknown key 'x'"),
    ("N05", npy(TWICE, bytes(16)), "duplicate key 'descr'"),
    ("N06", npy(D(descr="'>f4'"), bytes(16)), "descr: offset 20: '>f4' is big-endian"),
    ("N07", npy(D(descr="'|O'"), b"\x80\x04."), "descr: offset 20: '|O' is an object array"),
    ("N08", npy(D(descr="[('a','<f4')]"), bytes(16)), "descr: offset 20: a structured type"),
    ("N08", npy(D(descr="'<ixy'"), bytes(16)), "descr: offset 20: '<ixy'"),
    ("N08", npy(D(descr="''"), bytes(16)), "descr: offset 20: ''"),
    ("N08", npy(D(descr="'|V2'"), bytes(16)), "descr: offset 20: '|V2'"),
    ("N08", npy(D(descr="'<f8'"), bytes(32)), "descr: offset 20: '<f8'; only '<f4' and '<f2' are read: store it"),
    ("N09", npy(D(order="True"), struct.pack("<4f", 1, 2, 3, 4)), "fortran_order: offset"),
    ("N10", npy(D(order="Tru"), bytes(16)), "fortran_order: offset"),
    ("N10", npy(D(order="'1'"), bytes(16)), "fortran_order: offset"),
    ("N11", npy(D("(4294967296,4294967296)")), "shape: offset"),
    ("N11", npy(D("(4611686018427387904,1)")), "shape: offset"),
    ("N12", npy(D("(-1,4)"), bytes(16)), "shape[0]: offset"),
    ("N13", npy(D("()"), bytes(4)), "shape: offset"),
    ("N13", npy(D("(1,1,1,1,1,1,1,1,1)"), bytes(4)), "rank above the limit 8"),
    ("N14", npy(D("(2147483648,1)"), bytes(16)), "16 bytes, needs 8589934592"),
    ("N15", npy(D("(" + "9" * 5000 + ",)"), bytes(4)), "shape[0]: offset"),
    ("N16", npy(D(), bytes(15)), "15 bytes, needs 16"),
    ("N18", npy(b"(" * 9000 + b"\n"), "header: offset 10"),
    ("N18", npy(b"{'shape': " + b"(" * 9000 + b"\n"), "shape[0]: offset"),
    ("N18", npy(D() + " " * 20000, bytes(16)), "limit 10000"),
    ("N20", b"PK\3\4" + bytes(60), "this is an .npz, unpack it first"),
    ("shape", npy(D("(2)"), bytes(8)), "not a tuple"),
    ("shape", npy(D("(2 2)"), bytes(16)), "shape: offset"),
    ("shape", npy(D("(02,2)"), bytes(16)), "leading zero"),
    ("shape", npy(D("(2,2"), bytes(16)), "shape"),
    ("text", npy(D() + "x", bytes(16)), "nothing more"),
    ("text", npy("{'descr': '<f4\\x00'}", bytes(16)), "descr: offset"),
    ("text", npy("{'descr", bytes(16)), "a closing quote"),
    ("text", npy("{", bytes(16)), "the header ends"),
    ("escape", npy("{'\x1b[31m': 1}", bytes(16)), "\\x1b"),
]

GOOD = struct.pack("<4f", 1, 2, 3, 4)
ACCEPTED = [
    ("N19", npy("{'shape':(2,2),'fortran_order':False,'descr':'<f4'}", GOOD)),
    ("2.0", npy(D(), GOOD, (2, 0))),
    ("3.0", npy(D(), GOOD, (3, 0))),
    ("quotes", npy('{"descr": "<f4", "fortran_order": False, "shape": (2, 2,)}', GOOD)),
    ("f16", npy(D(descr="'<f2'"), struct.pack("<4e", 1, 2, 3, 4))),
]
