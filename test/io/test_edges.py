# SPDX-License-Identifier: Apache-2.0
"""The ends of what a GGUF file may hold: integers and reals of every width, values too long to keep, limits that only
large files reach, and parts that do not belong together."""
import struct

import pytest

import capi
from hostile import G, H, KV, LLAMA, S, T, VALID, u32, u64, weights
from test_hostile_gguf import probe, refused

INTEGERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}


@pytest.fixture
def write(tmp_path):
    def to_file(data):
        path = tmp_path / "hostile.gguf"
        path.write_bytes(data)
        return path
    return to_file


def block(architecture, roles=("gate", "up", "down"), extra=(), kv=()):
    """A block of 32 x 32 f32 weights; extra: (name, dims, type, bytes)."""
    tensors, at = [], 0
    entries = [(f"ffn_{role}.weight", [32, 32], 0, 4096) for role in roles]
    for name, dims, kind, size in (*entries, *extra):
        tensors.append(T(f"blk.0.{name}".encode(), dims, kind, at))
        at += -(-size // 32) * 32
    return G(tensors, bytes(at), [KV(b"general.architecture", 8, S(architecture.encode())), *kv])


def reason(path):
    with capi.opened(path) as model:
        (info,) = model.blocks()
        assert not info.usable
        return info.reason.decode()


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_of_every_width(write, kind):
    for value in (8, 9):
        width = KV(b"llama.feed_forward_length", kind, struct.pack(INTEGERS[kind], value))
        path = write(weights(0, 8, 8, 32, [LLAMA, width]))
        if value == 8:
            with capi.opened(path) as model:
                assert [b.d_ff for b in model.blocks()] == [8]
        else:
            refused(probe(path), "llama.feed_forward_length 9")


@pytest.mark.parametrize("kind", [k for k, form in INTEGERS.items() if form[1].islower()])
def test_negative_widths(write, kind):
    width = KV(b"llama.feed_forward_length", kind, struct.pack(INTEGERS[kind], -8))
    refused(probe(write(weights(0, 8, 8, 32, [LLAMA, width]))), "llama.feed_forward_length")


@pytest.mark.parametrize("kind, form", [(6, "<2f"), (12, "<2d")])
def test_reals_of_both_widths(write, kind, form):
    scale = KV(b"gemma3n.activation_sparsity_scale", 9, u32(kind) + u64(2) + struct.pack(form, float("-inf"), 1.5))
    with capi.opened(write(block("gemma3n", kv=[scale]))) as model:
        assert model.block(0).usable


def test_a_real_that_is_missing(write):
    assert "activation_sparsity_scale has no value for layer 0" in reason(write(block("gemma3n")))
    text = KV(b"gemma3n.activation_sparsity_scale", 8, S(b"1.5"))
    assert "activation_sparsity_scale has no value for layer 0" in reason(write(block("gemma3n", kv=[text])))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_parameters_out_of_range(write, value):
    xielu = [KV(b"xielu." + name, 6, struct.pack("<f", value)) for name in (b"alpha_p", b"alpha_n", b"beta", b"eps")]
    assert "metadata xielu.*: parameters out of range" in reason(write(block("apertus", ("up", "down"), kv=xielu)))


@pytest.mark.parametrize("entry, words", [
    (KV(b"general.architecture", 4, u32(1)), ["general.architecture type 4", "string"]),
    (KV(b"general.architecture", 9, u32(4) + u64(1) + u32(1)), ["general.architecture type 4 array"]),
    (KV(b"general.architecture", 8, S(b"a" * 5000)), ["general.architecture type 8", "4096 bytes"]),
])
def test_architecture_that_is_no_name(write, entry, words):
    refused(probe(write(G([T(b"a", [8])], bytes(32), [entry]))), *words)


@pytest.mark.parametrize("value", [u32(8) + S(b"x" * 5000), u32(9) + u32(4) + u64(2000) + bytes(8000),
                                   u32(9) + u32(7) + u64(5000) + bytes(5000)])
def test_long_values_are_stepped_over(write, value):
    data = G([T(b"a", [8])], bytes(range(32)), [S(b"long") + value, KV(b"after", 4, u32(1))])
    with capi.opened(write(data)) as model:
        assert model.read(0, 0, 32) == bytes(range(32))


@pytest.mark.parametrize("header, words", [(H(2**32, 0), "n_tensors 4294967296: limit 4294967295"),
                                           (H(0, 2**32), "n_kv 4294967296: limit 4294967295")])
def test_counts_that_the_file_could_hold(tmp_path, header, words):
    path = tmp_path / "hostile.gguf"
    with open(path, "wb") as file:
        file.write(header)
        try:
            file.truncate(2**37)
        except OSError as failure:
            pytest.skip(f"no sparse files here: {failure}")
    found = probe(path)
    refused(found, words)
    assert found["seconds"] < 1 and found["memory"] < 2**22


def test_an_empty_tensor_out_of_order(write):
    """It overlaps nothing, and still ggml would not take it."""
    data = G([T(b"a", [8]), T(b"b", [8], 0, 32), T(b"c", [0], 0, 0)], bytes(64))
    refused(probe(write(data)), "tensor c offset 0: out of order, ggml expects 64 here")


def test_a_bias_without_its_weight(write):
    data = block("gpt2", ("up", "down"), [("ffn_gate.bias", [32], 0, 128)])
    assert reason(write(data)) == "tensor blk.0.ffn_gate.bias has no weight"


def test_a_bias_of_a_block_format(write):
    data = block("llama", extra=[("ffn_up.bias", [32], 8, 34)])
    assert reason(write(data)) == "tensor blk.0.ffn_up.bias: type Q8_0 of a bias is not supported"


def test_a_long_path_is_shown_by_its_end(tmp_path):
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    path = folder / "hostile.gguf"
    path.write_bytes(VALID[:-1])
    found = probe(path)
    refused(found, "...", "e" * 100 + "/hostile.gguf: ")
    assert "d" * 100 not in found["text"]
