# SPDX-License-Identifier: Apache-2.0
"""Hostile GGUF files: each is refused by name, or accepted, within a second and little memory, and never a crash."""
import errno
import json
import os
import re
import resource
import socket
import threading
import time

import numpy as np
import pytest

import capi
from hostile import G, H, KV, LLAMA, ROWS, S, T, VALID, alignment, u32, u64, weights

REFUSED = (capi.E_FORMAT, capi.E_UNSUPPORTED)


def _vm(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024


def _report(path, options):
    before = _vm("VmRSS")
    start = time.monotonic()
    try:
        model = capi.Model(path, **options)
        found = {"status": 0, "tensors": model.info.n_tensors, "blocks": model.info.n_blocks,
                 "warnings": model.warnings()}
    except capi.Failure as failure:
        found = {"status": failure.status, "text": failure.text, "offset": failure.offset, "errno": failure.errno}
    found["seconds"] = time.monotonic() - start
    found["memory"] = _vm("VmHWM") - before
    return found


def probe(path, **options):
    """Opens path in a child, so that a crash or a hang is a failed test, and peak memory is that of the open alone."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
            os.write(into, json.dumps(_report(path, options)).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    _, code = os.waitpid(child, 0)
    assert code == 0 and text, f"child ended with {code}"
    return json.loads(text)


@pytest.fixture
def write(tmp_path):
    def to_file(data, name="hostile.gguf"):
        path = tmp_path / name
        path.write_bytes(data)
        return path
    return to_file


def refused(found, *words, statuses=REFUSED, name="hostile.gguf"):
    assert found["status"] in statuses, found
    assert name in found["text"], found
    for word in words:
        assert word in found["text"], found
    assert found["offset"] != capi.NO_OFFSET and f"at byte {found['offset']}" in found["text"], found


@pytest.mark.parametrize("number, data, words", ROWS, ids=[row[0] for row in ROWS])
def test_row(write, number, data, words):
    found = probe(write(data))
    if words:
        refused(found, *words)
    else:
        assert found["status"] == capi.OK, found
    assert found["seconds"] < 1, found
    assert found["memory"] <= 2**24 + 4 * len(data), found


def test_G38_alignment_1_warns(write):
    data = next(row[1] for row in ROWS if row[0] == "G38")
    assert any("general.alignment 1" in w for w in probe(write(data))["warnings"])
    refused(probe(write(data), strict=True), "general.alignment 1")


def test_G40_every_prefix(write):
    for n in range(len(VALID)):
        path = write(VALID[:n])
        with pytest.raises(capi.Failure) as failure:
            capi.Model(path)
        assert failure.value.status in REFUSED
        assert "hostile.gguf: " in failure.value.text and failure.value.offset <= n, failure.value
    with capi.opened(write(VALID)) as model:
        assert model.read(0, 0, 32) == bytes(32)


def test_G42_no_layers(write):
    data = H(0, 2) + LLAMA + KV(b"llama.block_count", 4, u32(2**31))
    with capi.opened(write(data)) as model:
        assert model.info.n_blocks == 0
        with pytest.raises(capi.Failure) as failure:
            model.desc(0)
        assert failure.value.status == capi.E_ARGUMENT and "block 0: the file has 0" in failure.value.text


def test_block_count_is_not_trusted(write):
    for count in (0, 3, 2**31, 2**32 - 1):
        data = weights(0, 8, 8, 32, [LLAMA, KV(b"llama.block_count", 4, u32(count))])
        found = probe(write(data))
        assert found["blocks"] == 1 and found["memory"] < 2**24
        assert f"llama.block_count {count}" in found["warnings"][0]
        refused(probe(write(data), strict=True), f"llama.block_count {count}")


def test_G48_names_are_escaped(write):
    with capi.opened(write(G([T(b"../../x", [8]), T(b"\x1b[2J\\\n\xff", [8], 0, 32)], bytes(64)))) as model:
        assert [t.name for t in model.tensors()] == [b"../../x", rb"\x1b[2J\x5c\x0a\xff"]


def test_names_that_differ_only_when_escaped(write):
    found = probe(write(G([T(b"\n", [8]), T(rb"\x0a", [8], 0, 32)], bytes(64))))
    assert found["status"] == capi.OK and found["tensors"] == 2


def test_G61_listed_and_left_out(write):
    with capi.opened(write(weights(16, 256, 256, 66, [LLAMA]))) as model:
        assert {t.dtype_name for t in model.tensors()} == {b"IQ2_XXS"}
        block = model.block(0)
        assert not block.usable and b"IQ2_XXS" in block.reason and b"blk.0.ffn_gate.weight" in block.reason
        with pytest.raises(capi.Failure) as failure:
            model.desc(0)
        assert failure.value.status == capi.E_UNSUPPORTED
        assert "IQ2_XXS" in failure.value.text and "hostile.gguf" in failure.value.text


def test_G68_trailing_bytes(write):
    data = next(row[1] for row in ROWS if row[0] == "G68")
    assert probe(write(data))["warnings"] == ["103 trailing bytes after the last tensor"]
    refused(probe(write(data), strict=True), "103 trailing bytes", statuses=(capi.E_FORMAT,))


def test_G70_G71_bad_scales_can_be_seen(write):
    files = {number: data for number, data, _ in ROWS if number in ("G70", "G71")}
    out = np.empty(32, np.float32)
    with capi.opened(write(files["G70"])) as model:
        raw = model.read(0, 0, 18)
        assert capi.library.swiglu_decode(2, raw, 32, out.ctypes.data) == capi.OK and np.isnan(out).all()
    with capi.opened(write(files["G71"])) as model:
        assert model.read(0, 0, 1) == b"\xff"


@pytest.mark.parametrize("number", ["4294967296", "4294967295", "18446744073709551616", "10000", "00", "-1", "1e1", ""])
def test_G73_layer_numbers(write, number):
    name = f"blk.{number}.ffn_gate.weight".encode()
    refused(probe(write(G([T(name, [8])], bytes(32)))), "layer number " + number)


def test_many_keys_times_many_layers(write):
    """Looking a key up for each layer must not take keys x layers steps."""
    kv = [LLAMA] + [KV(b"%x" % i, 0, b"\0") for i in range(100000)]
    names = [b"blk.%d.ffn_%s.weight" % (layer, part) for layer in range(9999) for part in (b"gate", b"up", b"down")]
    data = G([T(name, [1, 1], 0, 32 * i) for i, name in enumerate(names)], bytes(32 * len(names)), kv)
    found = probe(write(data))
    assert found["status"] == capi.OK and found["blocks"] == 9999
    assert found["seconds"] < 1 and found["memory"] <= 2**24 + 4 * len(data)


# ---- G74: what is not a regular file ----

def _socket(path):
    socket.socket(socket.AF_UNIX).bind(str(path))


def _loop(path):
    path.symlink_to(path)


NOT_FILES = {
    "directory": (lambda path: path.mkdir(), errno.EISDIR),
    "fifo": (lambda path: os.mkfifo(path), errno.ESPIPE),
    "device": (lambda path: path.symlink_to("/dev/zero"), errno.ESPIPE),
    "socket": (_socket, errno.ENXIO),
    "missing": (lambda path: None, errno.ENOENT),
    "loop": (_loop, errno.ELOOP),
}


@pytest.mark.parametrize("kind", NOT_FILES)
def test_G74_not_a_file(tmp_path, kind):
    make, code = NOT_FILES[kind]
    path = tmp_path / kind
    make(path)
    found = probe(path)
    assert found["status"] == capi.E_OPEN and found["errno"] == code, found
    reason = "not a regular file, but a device, FIFO or socket" if code == errno.ESPIPE else os.strerror(code)
    assert kind in found["text"] and reason in found["text"], found
    assert found["seconds"] < 1


def test_G74_mode_000(tmp_path):
    path = tmp_path / "secret.gguf"
    path.write_bytes(VALID)
    path.chmod(0)
    tmp_path.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.chdir(tmp_path)
        if os.geteuid() == 0:  # who may read everything
            os.setresuid(65534, 65534, 65534)
        try:
            capi.Model("secret.gguf")
        except capi.Failure as failure:
            os._exit(0 if failure.status == capi.E_OPEN and os.strerror(errno.EACCES) in failure.text else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_G75_sparse_terabyte(tmp_path):
    path = tmp_path / "hostile.gguf"
    with open(path, "wb") as file:
        file.write(b"GGUF")
        try:
            file.truncate(2**40)
        except OSError as failure:
            pytest.skip(f"no sparse files here: {failure}")
    found = probe(path)
    refused(found, "version 0")
    assert found["seconds"] < 1 and found["memory"] < 2**22


# ---- G76 to G78: the file changes ----

def _real_block(rng, rows=128, cols=64, scale=0.1):
    """A llama block of random f32 weights, as bytes of a file, and its matrices."""
    gate, up = (rng.normal(0, scale, (rows, cols)).astype(np.float32) for _ in range(2))
    down = rng.normal(0, scale, (cols, rows)).astype(np.float32)
    tensors, offset, data = [], 0, b""
    for name, w in (("gate", gate), ("up", up), ("down", down)):
        tensors.append(T(f"blk.0.ffn_{name}.weight".encode(), list(w.shape[::-1]), 0, offset))
        offset += w.nbytes
        data += w.tobytes()
    return G(tensors, data, [LLAMA]), gate, up, down


def _expected(x, gate, up, down):
    x, gate, up, down = (v.astype(np.float64) for v in (x, gate, up, down))
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


def test_G76_truncated_before_use(write):
    data, *_ = _real_block(np.random.default_rng(1), 8192, 84)  # above 8 MiB
    path = write(data)
    with capi.opened(path) as model:
        os.truncate(path, 4096)
        with pytest.raises(capi.Failure) as failure:
            model.read(0, 0, 8192 * 84 * 4)
        assert failure.value.status == capi.E_READ and failure.value.offset == 4096
        assert "short read at byte 4096" in failure.value.text and "hostile.gguf" in failure.value.text
        with pytest.raises(capi.Failure) as failure:
            model.prepare(0)
        assert failure.value.status == capi.E_READ
        assert re.search("hostile.gguf: (short read|the file has changed since it was opened)", failure.value.text)


@pytest.mark.parametrize("change", ["truncate", "remove"])
def test_G76_changed_after_prepare(write, change):
    rng = np.random.default_rng(2)
    data, *matrices = _real_block(rng)
    path = write(data)
    x = rng.normal(0, 1, (3, 64)).astype(np.float32)
    with capi.opened(path) as model:
        block = model.prepare(0)
        os.truncate(path, 100) if change == "truncate" else os.remove(path)
        y = block.forward(x)
    np.testing.assert_allclose(y, _expected(x, *matrices), rtol=0, atol=2e-5)
    np.testing.assert_array_equal(block.forward(x), y)  # the model is closed by now
    block.close()


def test_G77_renamed_over(write):
    rng = np.random.default_rng(3)
    old, *matrices = _real_block(rng)
    new, *_ = _real_block(rng)
    path, other = write(old), write(new, "other.gguf")
    x = rng.normal(0, 1, (2, 64)).astype(np.float32)
    with capi.opened(path) as model:
        os.rename(other, path)
        block = model.prepare(0)
        np.testing.assert_allclose(block.forward(x), _expected(x, *matrices), rtol=0, atol=2e-5)
        block.close()


def test_G78_rewritten_while_parsing(write):
    """Another process keeps switching a length and a count between good and absurd; every open ends cleanly."""
    tensors = [T(b"t%04d" % i, [8], 0, 32 * i) for i in range(2000)]
    data = G(tensors, bytes(64000), [KV(b"general.name", 8, S(b"x" * 40))])
    path = write(data)
    places = {16: (u64(1), u64(2**40)), 24: (u64(12), u64(2**63)), 0x80: (data[0x80:0x88], u64(2**64 - 1))}
    assert capi.statuses_of_opening(path, 300, places) <= {capi.OK, capi.E_READ, *REFUSED}


def test_descriptions_from_many_threads(write):
    """The biases of a block are read at the first description: eight threads get the same ones."""
    bias = np.arange(32, dtype=np.float32)
    tensors = [T(b"blk.0.ffn_up.weight", [8, 32]), T(b"blk.0.ffn_up.bias", [32], 0, 1024),
               T(b"blk.0.ffn_down.weight", [32, 8], 0, 1152)]
    kv = [KV(b"general.architecture", 8, S(b"gpt2"))]
    path = write(G(tensors, bytes(1024) + bias.tobytes() + bytes(1024), kv))
    for _ in range(20):
        with capi.opened(path) as model:
            found, together = [], threading.Barrier(8)

            def describe(model, found, together):
                together.wait()
                found.append(model.desc(0).up_bias.data)

            threads = [threading.Thread(target=describe, args=(model, found, together)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(set(found)) == 1 and len(found) == 8
            got = np.ctypeslib.as_array((capi.c.c_float * 32).from_address(found[0]))
            np.testing.assert_array_equal(got, bias)


# ---- faults reported against other readers ----

def test_C098_alignment(write):
    for kind, raw in ((4, u32(0)), (5, u32(-32)), (4, u32(3)), (4, u32(2**31))):
        refused(probe(write(alignment(kind, raw))), "general.alignment")


def test_C100_array_elements(write):
    nested = H(0, 1) + KV(b"a", 9, u32(9) + u64(1) + u32(4) + u64(1) + u32(7))
    refused(probe(write(nested)), "kv[0].array", "nested")
    refused(probe(write(H(0, 1) + KV(b"a", 9, u32(99) + u64(4) + bytes(32)))), "element type 99")
    refused(probe(write(H(0, 1) + KV(b"a", 9, u32(10) + u64(2**61) + bytes(64)))), "count 2305843009213693952")


def test_C100_bool_arrays_are_looked_at(write):
    refused(probe(write(H(0, 1) + KV(b"a", 9, u32(7) + u64(100000) + bytes(99999) + b"\2"))), "bool value 2")


def test_C101_nested_arrays(write):
    refused(probe(write(H(0, 1) + S(b"a") + u32(9) + (u32(9) + u64(1)) * 3000 + u32(4) + u64(0))), "nested")


def test_C103_big_endian(write):
    refused(probe(write(b"GGUF" + bytes([0, 0, 0, 3]) + bytes(56))), "byte order differs")


@pytest.mark.parametrize("cut", [1, 2**20])
def test_C107_data_section_cut(write, cut):
    rows = (cut + 4096) // 64
    data = G([T(b"a", [16, rows])], bytes(64 * rows))
    assert probe(write(data))["status"] == capi.OK
    refused(probe(write(data[:-cut])), f"tensor a offset 0 + {64 * rows} > data {64 * rows - cut}")


def test_out_of_order_is_told_from_overlap(write):
    data = G([T(b"a", [8], 0, 32), T(b"b", [8])], bytes(64))
    refused(probe(write(data)), "tensor a offset 32", "hole")
    data = G([T(b"a", [8]), T(b"b", [8], 0, 32), T(b"c", [0], 0, 0)], bytes(64))
    refused(probe(write(data)), "tensor c offset 0", "out of order")


def test_long_paths_and_names_keep_the_value(tmp_path):
    """However long file and key names are, the number that is wrong and the offset are in the text."""
    folder = tmp_path
    for _ in range(10):
        folder = folder / ("d" * 100)
    folder.mkdir(parents=True)
    path = folder / ("\x1b" * 200 + ".gguf")
    path.write_bytes(G([T(b"\xff" * 63, [33], 2)], bytes(64)))
    found = probe(path)
    assert "dims[0] 33" in found["text"] and "at byte" in found["text"] and "\x1b" not in found["text"], found
