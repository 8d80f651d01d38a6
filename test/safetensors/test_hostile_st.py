# SPDX-License-Identifier: Apache-2.0
"""Hostile safetensors files: each is refused by name, or accepted, quickly and in little memory, and never a crash."""
import os
import re

import numpy as np
import pytest
from safetensors import deserialize

import capi
from hostile_st import ROWS, ST, VALID, t, u64
from test_hostile_gguf import NOT_FILES, probe

NAME = "hostile.safetensors"
# What the reference reader accepts and this one refuses, each with its reason.
STRICTER = {
    "S31-long": "names are limited, so that memory follows the header",
    "S09-place": "one name for two tensors, even where both are the same bytes",
    "S34": "the tensors of the file are fine; the layer number is not",
    "metadata-key": "two readers could see two models",
    "array-entry": "the format's text asks for an object",
    "product-of-the-last": "of more than 4 dimensions the product of the last is shown",
    "metadata-long": "keys are limited, so that memory follows the header",
    "rank": "no tensor has so many dimensions",
}


@pytest.fixture
def write(tmp_path):
    def to_file(data, name=NAME):
        path = tmp_path / name
        path.write_bytes(data)
        return path
    return to_file


def refused(found, *words):
    assert found["status"] == capi.E_FORMAT, found
    for word in (NAME, *words):
        assert word in found["text"], found
    assert found["offset"] != capi.NO_OFFSET and f"at byte {found['offset']}" in found["text"], found


@pytest.mark.parametrize("number, data, words", ROWS, ids=[row[0] for row in ROWS])
def test_row(write, number, data, words):
    found = probe(write(data))
    if words:
        refused(found, *words)
    else:
        assert found["status"] == capi.OK, found
    assert found["seconds"] < (2 if number == "S23" else 1), found
    assert found["memory"] <= 2**24 + 4 * len(data), found


@pytest.mark.parametrize("number, data, words", ROWS, ids=[row[0] for row in ROWS])
def test_as_the_reference_reader(number, data, words):
    try:
        deserialize(data)
        accepted = True
    except Exception:  # the package has no common class for its errors
        accepted = False
    assert accepted == (not words) or (accepted and number in STRICTER)


def test_every_prefix(write):
    for n in range(len(VALID)):
        with pytest.raises(capi.Failure) as failure:
            capi.Model(write(VALID[:n]))
        assert failure.value.status == capi.E_FORMAT
        assert NAME in failure.value.text and failure.value.offset <= n
    with capi.opened(write(VALID)) as model:
        assert model.read(1, 0, 8) == bytes(8)


def test_S26_empty_and_scalar(write):
    data = next(row[1] for row in ROWS if row[0] == "S26")
    with capi.opened(write(data)) as model:
        a, b = model.tensors()
        assert (a.n_dims, list(a.dims)[:2], a.bytes) == (2, [2, 0], 0)
        assert (b.n_dims, b.bytes) == (0, 4)


def test_S28_listed(write):
    data = next(row[1] for row in ROWS if row[0] == "S28")
    with capi.opened(write(data)) as model:
        assert [(x.dtype_name, x.bytes) for x in model.tensors()] == [(b"F4", 2), (b"F8_E4M3", 2)]


@pytest.mark.parametrize("dtype, bits", [("F8_E4M3", 8), ("F4", 4), ("F64", 64), ("I8", 8), ("U8", 8)])
def test_S28_C095_refused_when_used(write, dtype, bits):
    """An unsupported dtype is named with its tensor; the file can still be listed."""
    tensors, at = {}, 0
    for name, kind, size in (("gate", dtype, bits), ("up", "F32", 32), ("down", "F32", 32)):
        tensors[f"model.layers.0.mlp.{name}_proj.weight"] = t([8, 8], [at, at + 8 * size], kind)
        at += 8 * size
    with capi.opened(write(ST(tensors, bytes(at))), activation="silu") as model:
        assert model.tensor(0).dtype_name.decode() == dtype
        with pytest.raises(capi.Failure) as failure:
            model.desc(0)
        assert failure.value.status == capi.E_UNSUPPORTED
        assert f"tensor model.layers.0.mlp.gate_proj.weight: type {dtype} is not supported" in failure.value.text


def test_S29_unaligned_values(write):
    """Data at an odd offset give the same y, and the same bytes, as at an even one."""
    rng = np.random.default_rng(1)
    w = {n: rng.normal(0, 1, (8, 8)).astype(np.float32) for n in ("gate", "up", "down")}
    x = rng.normal(0, 1, (2, 8)).astype(np.float32)
    ys = []
    for pad in (0, 3):
        header, at = ({"a": t([pad], [0, pad], "U8")} if pad else {}), pad
        for name in w:
            header[f"model.layers.0.mlp.{name}_proj.weight"] = t([8, 8], [at, at + 256])
            at += 256
        path = write(ST(header, bytes(pad) + b"".join(v.tobytes() for v in w.values())))
        with capi.opened(path, activation="silu") as model:
            assert model.read(model.info.n_tensors - 1, 0, 256) == w["down"].tobytes()
            block = model.prepare(0)
            ys.append(block.forward(x))
            block.close()
    np.testing.assert_array_equal(*ys)


def test_S31_names_are_escaped(write):
    names = ["", "\0", "a\nb", "\x1b[2J", "\u00e9"]
    data = ST({n: t([1], [4 * i, 4 * i + 4]) for i, n in enumerate(names)}, bytes(20))
    with capi.opened(write(data)) as model:
        assert [x.name for x in model.tensors()] == [b"", rb"\x00", rb"a\x0ab", rb"\x1b[2J", rb"\xc3\xa9"]


@pytest.mark.parametrize("number", ["4294967296", "4294967295", "18446744073709551616", "10000", "00"])
def test_S34_layer_numbers(write, number):
    name = f"model.layers.{number}.mlp.up_proj.weight"
    refused(probe(write(ST({name: t([1], [0, 4])}, bytes(4)))), f"tensor {name}: layer number {number}")


def test_ignored_fields_are_told_once(write):
    entry = t([1], [0, 4]) | {"stride": [1], "more": {"deep": [[]]}}
    data = ST({"a": entry, "b": t([1], [4, 8]) | {"stride": [1]}}, bytes(8))
    with capi.opened(write(data)) as model:
        assert model.warnings() == ['tensor a: the key "stride" is ignored']
    refused(probe(write(data), strict=True), "stride")


def test_more_than_four_dimensions(write):
    with capi.opened(write(ST({"a": t([2, 1, 3, 2, 2], [0, 96])}, bytes(96)))) as model:
        info = model.tensor(0)
        assert (info.n_dims, list(info.dims), info.bytes) == (4, [2, 1, 3, 4], 96)


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "missing", "loop"])
def test_not_a_file(tmp_path, kind):
    make, code = NOT_FILES[kind]
    make(tmp_path / kind)
    found = probe(tmp_path / kind)
    assert found["status"] == capi.E_OPEN and found["errno"] == code and found["seconds"] < 1, found


def test_sparse_terabyte(tmp_path):
    path = tmp_path / NAME
    with open(path, "wb") as file:
        file.write(u64(100_000_000))
        file.truncate(2**40)
    found = probe(path)
    refused(found, "header: '\\x00' where a value is expected")
    assert found["seconds"] < 1 and found["memory"] < 2**22


def test_many_short_names(write):
    """Memory follows the header although each tensor takes more than its entry's share of it."""
    data = ST(b"{" + b",".join(b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(300000)) + b"}")
    found = probe(write(data))
    assert found["status"] == capi.OK and found["tensors"] == 300000
    assert found["memory"] <= 2**24 + 4 * len(data) and found["seconds"] < 2


def test_names_of_many_bytes(write):
    entries = (b'"%s%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % ("\u00e9".encode() * 20000, i) for i in range(200))
    data = ST(b"{" + b",".join(entries) + b"}")
    found = probe(write(data))
    assert found["status"] == capi.OK and found["memory"] <= 2**24 + 4 * len(data), found


def test_truncated_before_use(write):
    names = [f"model.layers.0.mlp.{n}_proj.weight" for n in ("gate", "up", "down")]
    path = write(ST({n: t([64, 64], [16384 * i, 16384 * (i + 1)]) for i, n in enumerate(names)}, bytes(49152)))
    with capi.opened(path, activation="silu") as model:
        os.truncate(path, 4096)
        with pytest.raises(capi.Failure) as failure:
            model.prepare(0)
        assert failure.value.status == capi.E_READ and re.search("changed since it was opened|short read", failure.value.text)


def test_rewritten_while_parsing(write):
    """Another process keeps switching the header's length and an offset; every open ends cleanly."""
    data = ST({f"t{i:04}": t([8], [32 * i, 32 * i + 32]) for i in range(2000)}, bytes(64000))
    path, middle = write(data), data.index(b"t1000") + 50
    places = {0: (data[:8], u64(2**62)), middle: (data[middle:middle + 4], b"]]}}")}
    assert capi.statuses_of_opening(path, 200, places) <= {capi.OK, capi.E_READ, capi.E_FORMAT}
