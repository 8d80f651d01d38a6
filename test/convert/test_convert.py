# SPDX-License-Identifier: Apache-2.0
"""What is in a converted checkpoint: rounded weights, everything else byte for byte."""
import json
import os
import resource
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from checkpoints import D, EXTRA, FF, TYPES, bf16_words, file_type_at, is_weight, metadata_bytes, stored, tensors, write
from tool import call, fails, ok

ROUNDED = {"f32": lambda x: x.view(np.uint32), "f16": lambda x: x.astype(np.float16).view(np.uint16), "bf16": bf16_words}


def convert(source, target, *options):
    return ok("convert", source, target, *options)


def values(tensor):
    """f32 values of a tensor, by the package gguf."""
    kind, shape, data = tensor
    raw = np.frombuffer(data, np.uint8 if kind not in (TYPES["f32"], TYPES["f16"]) else
                        np.float32 if kind == TYPES["f32"] else np.float16)
    return gguf.quants.dequantize(raw.reshape(shape[0], -1), kind)


def assert_converted(source, target, kind):
    before, after = tensors(source), tensors(target)
    assert list(before) == list(after)  # C119: the same keys, and no element lost
    for name, (was, shape, data) in before.items():
        assert after[name][1] == shape
        if is_weight(name) and was != TYPES[kind]:
            assert after[name][0] == TYPES[kind], name
            assert after[name][2] == ROUNDED[kind](values(before[name])).tobytes(), name
        else:
            assert after[name] == (was, shape, data), name


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16", "q8_0", "q4_1"])
def test_types(tmp_path, source, kind):
    model = write(tmp_path / "in.gguf", source)
    out = tmp_path / "out.gguf"
    said = convert(model, out, "--type", kind)
    n = 0 if source == kind else 6
    assert said.splitlines()[-1].startswith(f"{out}: {n} weights to {kind}, {13 - n} tensors with their bits, ")
    assert_converted(model, out, kind)


@pytest.mark.parametrize("kind, value", [("f32", 0), ("f16", 1), ("bf16", 32)])
def test_metadata_stays_but_for_the_file_type(tmp_path, kind, value):
    model = write(tmp_path / "in.gguf", "q8_0", file_type=7)
    convert(model, tmp_path / "out.gguf", "--type", kind)
    before, after, at = metadata_bytes(model), metadata_bytes(tmp_path / "out.gguf"), file_type_at(model)
    assert struct.unpack_from("<I", before, at) == (7,) and struct.unpack_from("<I", after, at) == (value,)
    assert before[:at] == after[:at] and before[at + 4:] == after[at + 4:]


def test_file_type_is_that_of_most_weights_and_never_added(tmp_path):
    """A file whose attention outweighs its blocks keeps its type; a file without the key gets none."""
    mostly_other = write(tmp_path / "in.gguf", "f32", layers=1, ff=32, file_type=7)
    convert(mostly_other, tmp_path / "out.gguf", "--type", "f16")
    values_in = dict.fromkeys(TYPES.values(), 0)
    for kind, shape, _ in tensors(tmp_path / "out.gguf").values():
        if kind in values_in:
            values_in[kind] += int(np.prod(shape))
    expected = 1 if 2 * values_in[TYPES["f16"]] > sum(np.prod(t[1]) for t in tensors(mostly_other).values()) else 7
    at = file_type_at(mostly_other)
    assert struct.unpack_from("<I", metadata_bytes(tmp_path / "out.gguf"), at) == (expected,)
    without = write(tmp_path / "without.gguf", file_type=None)
    convert(without, tmp_path / "out.gguf", "--type", "f16")
    assert metadata_bytes(without) == metadata_bytes(tmp_path / "out.gguf")


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment_of_the_file(tmp_path, alignment):
    model = write(tmp_path / "in.gguf", alignment=alignment, ff=64)
    convert(model, tmp_path / "out.gguf", "--type", "bf16")
    assert_converted(model, tmp_path / "out.gguf", "bf16")
    assert all(t.data_offset % alignment == 0 for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors)


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
def test_round_trip_keeps_bits(tmp_path, narrow):
    """Every number of the type: infinities, subnormals and zeros of both signs. NaN becomes the canonical one."""
    words = np.arange(2**16, dtype=np.uint16)
    exponent = 0x7C00 if narrow == "f16" else 0x7F80
    words[(words & 0x7FFF) > exponent] = 0
    wide = words.view(np.float16).astype(np.float32) if narrow == "f16" else (words.astype(np.uint32) << 16).view(np.float32)
    model = write(tmp_path / "in.gguf", narrow, d=256, ff=256, layers=1, weights=lambda *_: wide.reshape(256, 256))
    assert tensors(model)["blk.0.ffn_up.weight"][2] == words.tobytes()
    convert(model, tmp_path / "wide.gguf", "--type", "f32")
    assert tensors(tmp_path / "wide.gguf")["blk.0.ffn_up.weight"][2] == wide.tobytes()
    convert(tmp_path / "wide.gguf", tmp_path / "back.gguf", "--type", narrow)
    before, after = tensors(model), tensors(tmp_path / "back.gguf")
    assert before == after


def test_rounding_is_to_nearest_even(tmp_path):
    """f32 values at and beside every kind of tie, subnormal results included."""
    u = np.random.default_rng(3).integers(0, 2**32, 2**16, dtype=np.uint64).astype(np.uint32)
    u[::2] = u[::2] & 0xFFFF0000 | np.array([0x7FFF, 0x8000, 0x8001, 0], np.uint32)[np.arange(2**15) % 4]
    x = u.view(np.float32)
    x = np.where(np.abs(x) < 65000, x, np.ldexp(np.float32(1) + (u & 0x7FFFFF) / np.float32(2**23), -20)).astype(np.float32)
    x[1::4] = np.ldexp(x[1::4] / np.maximum(np.abs(x[1::4]), np.float32(1e-30)), -14 - np.arange(2**14) % 14)
    model = write(tmp_path / "in.gguf", d=256, ff=256, layers=1, weights=lambda *_: x.reshape(256, 256))
    for kind in ("f16", "bf16"):
        convert(model, tmp_path / "out.gguf", "--type", kind)
        assert tensors(tmp_path / "out.gguf")["blk.0.ffn_up.weight"][2] == ROUNDED[kind](x).tobytes()


def test_C032_a_type_that_stays_keeps_every_bit(tmp_path):
    words = np.zeros(D * FF, np.uint16)
    words[:6] = 0x0001, 0x8001, 0x7F7F, 0x7F81, 0xFFFF, 0x8000  # subnormals, the largest, a signalling NaN, -NaN, -0
    model = write(tmp_path / "in.gguf", "bf16")
    data = bytearray(model.read_bytes())
    at = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.0.ffn_up.weight").data_offset
    data[at:at + 2 * words.size] = words.tobytes()
    model.write_bytes(data)
    convert(model, tmp_path / "out.gguf", "--type", "bf16")
    assert tensors(tmp_path / "out.gguf") == tensors(model)
    convert(model, tmp_path / "wide.gguf", "--type", "f32")
    wide = np.frombuffer(tensors(tmp_path / "wide.gguf")["blk.0.ffn_up.weight"][2], np.uint32)
    assert np.array_equal(wide[[0, 1, 2, 5]], words[[0, 1, 2, 5]].astype(np.uint32) << 16)


def test_a_value_beyond_the_type_is_an_error(tmp_path):
    big = np.zeros((FF, D), np.float32)
    big[1, 3] = 65520  # the smallest that rounds to infinity in f16
    weights = lambda layer, name, rows, cols: big.reshape(rows, cols)  # noqa: E731
    model = write(tmp_path / "in.gguf", weights=weights)
    error = fails("convert", model, tmp_path / "out.gguf", "--type", "f16", saying="blk.0.ffn_gate.weight")
    assert f"{model}: " in error and f"value {D + 3}" in error and "65520" in error and "f16" in error
    at = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.0.ffn_gate.weight").data_offset
    assert f"(at byte {at + 4 * (D + 3)})" in error
    assert os.listdir(tmp_path) == ["in.gguf"]
    convert(model, tmp_path / "out.gguf", "--type", "bf16")
    big[1, 3] = np.inf  # what is infinite already stays so
    model = write(tmp_path / "in.gguf", weights=weights)
    convert(model, tmp_path / "out.gguf", "--type", "f16")
    assert np.isinf(np.frombuffer(tensors(tmp_path / "out.gguf")["blk.0.ffn_gate.weight"][2], np.float16)).sum() == 1


# ---- block formats ----

BLOCKS_OF_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"]
K_FORMATS = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]


@pytest.mark.parametrize("source", ["f32", "q8_0", "bf16"])
@pytest.mark.parametrize("kind", BLOCKS_OF_32 + K_FORMATS)
def test_block_formats(tmp_path, kind, source):
    """What the file holds, by the package gguf, and the errors that are told."""
    model = write(tmp_path / "in.gguf", source, d=256, ff=512, file_type=1)
    out = tmp_path / "out.gguf"
    *told, last = map(json.loads, convert(model, out, "--type", kind, "--json").splitlines())
    before, after = tensors(model), tensors(out)
    assert list(before) == list(after) and last["converted"] == len(told) == (0 if kind == source else 6)
    errors = {t["tensor"]: t for t in told}
    for name, (was, shape, data) in before.items():
        if not is_weight(name) or kind == source:
            assert after[name] == (was, shape, data), name
            continue
        qtype = gguf.GGMLQuantizationType[kind.upper()]
        assert after[name][:2] == (qtype, shape), name
        exact, got = values(before[name]), values(after[name])
        if kind in BLOCKS_OF_32:
            assert after[name][2] == gguf.quants.quantize(exact, qtype).tobytes(), name
        off = (got - exact).astype(np.float64)
        relative = np.sqrt((off**2).sum() / (exact.astype(np.float64) ** 2).sum())
        assert errors[name]["relative_error"] == pytest.approx(relative, rel=1e-6)
        assert errors[name]["largest_error"] == pytest.approx(np.abs(off).max(), rel=1e-6)
    written = gguf.GGUFReader(out).fields["general.file_type"].contents()
    small = "_S" if kind in ("q3_k", "q4_k", "q5_k") else ""
    assert written == gguf.LlamaFileType[{"mxfp4": "MOSTLY_MXFP4_MOE"}.get(kind, f"MOSTLY_{kind.upper()}{small}")]


def test_errors_are_printed(tmp_path):
    model = write(tmp_path / "in.gguf")
    head, *rows, _ = convert(model, tmp_path / "out.gguf", "--type", "q4_0").splitlines()
    assert head.split() == ["weight", "from", "to", "relative", "error", "largest", "error"]
    assert [r.split()[:3] for r in rows] == [[n, "f32", "q4_0"] for n in tensors(model) if is_weight(n)]
    assert all(0.05 < float(r.split()[3]) < 0.15 for r in rows)


def test_rows_that_are_no_whole_blocks(tmp_path):
    model = write(tmp_path / "in.gguf", d=256, ff=320)
    error = fails("convert", model, tmp_path / "out.gguf", "--type", "q4_k", saying="blk.0.ffn_down.weight")
    assert "rows of 320 values; q4_k needs a multiple of 256" in error
    assert os.listdir(tmp_path) == ["in.gguf"]
    convert(model, tmp_path / "out.gguf", "--type", "q8_0")


@pytest.mark.parametrize("kind", ["q8_0", "mxfp4", "q6_k"])
@pytest.mark.parametrize("value, why", [(np.nan, "nan cannot be stored in"), (-np.inf, "-inf cannot be stored in"),
                                        (3e38, "is beyond the range of")])
def test_values_that_blocks_cannot_hold(tmp_path, kind, value, why):
    bad = np.zeros((512, 256), np.float32)
    bad[3, 7] = value
    model = write(tmp_path / "in.gguf", d=256, ff=512, weights=lambda layer, name, rows, cols: bad.reshape(rows, cols))
    if kind == "mxfp4" and value == 3e38:  # its scales reach 2^127
        convert(model, tmp_path / "out.gguf", "--type", kind)
        return
    error = fails("convert", model, tmp_path / "out.gguf", "--type", kind, saying=f"{why} {kind}")
    at = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.0.ffn_gate.weight").data_offset
    assert "blk.0.ffn_gate.weight" in error
    if value != 3e38:  # else the first value of its block may be the one that is named
        assert f"value {3 * 256 + 7}:" in error and f"(at byte {at + 4 * (3 * 256 + 7)})" in error
    assert os.listdir(tmp_path) == ["in.gguf"]


def test_blocks_and_layouts(tmp_path):
    """Packed and apart give the same blocks."""
    apart = write(tmp_path / "in.gguf", architecture="phi3", d=256, ff=256)
    convert(apart, tmp_path / "packed.gguf", "--layout", "gate_up", "--type", "q5_k")
    convert(tmp_path / "packed.gguf", tmp_path / "back.gguf", "--layout", "separate")
    convert(apart, tmp_path / "direct.gguf", "--type", "q5_k")
    back, direct = tensors(tmp_path / "back.gguf"), tensors(tmp_path / "direct.gguf")
    assert all(back[name] == direct[name] for name in direct)


# ---- layouts ----

@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_C097_packed_gate_and_up_become_two_tensors_and_back(tmp_path, biased, kind):
    packed = write(tmp_path / "packed.gguf", kind, "phi3", packed=True, biased=biased)
    apart, again = tmp_path / "apart.gguf", tmp_path / "again.gguf"
    convert(packed, apart, "--layout", "separate")
    one, two = tensors(packed), tensors(apart)
    for part in ("weight", "bias")[:1 + biased]:
        whole = one[f"blk.1.ffn_up.{part}"]
        gate, up = two[f"blk.1.ffn_gate.{part}"], two[f"blk.1.ffn_up.{part}"]
        assert gate[0] == up[0] == whole[0] and gate[2] + up[2] == whole[2]
        assert gate[1] == up[1] == [whole[1][0] // 2, *whole[1][1:]]
    assert len(two) == len(one) + 2 * (1 + biased)
    convert(apart, again, "--layout", "gate_up")
    assert again.read_bytes() == packed.read_bytes()
    digests = [ok("run", p, "--digest", "--tokens", 5) for p in (packed, apart)]
    assert digests[0] == digests[1]


def test_layout_and_type_at_once(tmp_path):
    apart = write(tmp_path / "in.gguf", "q8_0", "phi3")
    convert(apart, tmp_path / "out.gguf", "--layout", "gate_up", "--type", "f16")
    before, after = tensors(apart), tensors(tmp_path / "out.gguf")
    for layer in range(2):
        rows = np.concatenate([values(before[f"blk.{layer}.ffn_{n}.weight"]) for n in ("gate", "up")])
        assert after[f"blk.{layer}.ffn_up.weight"] == (TYPES["f16"], [2 * FF, D], rows.astype(np.float16).tobytes())
        assert f"blk.{layer}.ffn_gate.weight" not in after


def test_gate_and_up_of_different_types(tmp_path):
    """Packed only when the type becomes one; the half that has it keeps its bits."""
    path = tmp_path / "in.gguf"
    writer, random = gguf.GGUFWriter(path, "phi3"), np.random.default_rng(5)
    for name, rows, cols, kind in (("gate", FF, D, "f32"), ("up", FF, D, "f16"), ("down", D, FF, "f32")):
        writer.add_tensor(f"blk.0.ffn_{name}.weight", stored(random.standard_normal((rows, cols)).astype(np.float32), kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fails("convert", path, tmp_path / "out.gguf", "--layout", "gate_up", saying="different types")
    convert(path, tmp_path / "out.gguf", "--layout", "gate_up", "--type", "f16")
    before, after = tensors(path), tensors(tmp_path / "out.gguf")
    assert after["blk.0.ffn_up.weight"][2] == (values(before["blk.0.ffn_gate.weight"]).astype(np.float16).tobytes() +
                                               before["blk.0.ffn_up.weight"][2])


def test_layout_that_a_family_has_no_name_for(tmp_path):
    model = write(tmp_path / "in.gguf")
    fails("convert", model, tmp_path / "out.gguf", "--layout", "gate_up", saying='architecture "llama" has no name')
    assert os.listdir(tmp_path) == ["in.gguf"]
    convert(model, tmp_path / "out.gguf", "--layout", "separate")  # as it is already
    assert model.read_bytes() == (tmp_path / "out.gguf").read_bytes()


def test_a_bias_of_one_half_only(tmp_path):
    path = tmp_path / "in.gguf"
    writer = gguf.GGUFWriter(path, "phi3")
    for name, shape in (("gate.weight", (FF, D)), ("up.weight", (FF, D)), ("up.bias", (FF,)), ("down.weight", (D, FF))):
        writer.add_tensor(f"blk.0.ffn_{name}", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fails("convert", path, tmp_path / "out.gguf", "--layout", "gate_up", saying="blk.0.ffn_up.bias: only one of gate and up")
    assert os.listdir(tmp_path) == ["in.gguf"]


# ---- cases and refusals ----

def test_C110_shapes_are_elements_and_rows_are_bytes(tmp_path):
    model = write(tmp_path / "in.gguf")
    convert(model, tmp_path / "out.gguf", "--type", "f16")
    before, after = tensors(model), tensors(tmp_path / "out.gguf")
    for name, (qtype, shape, row_bytes) in EXTRA.items():
        assert after[name] == before[name]
        assert after[name][:2] == (qtype, shape) and len(after[name][2]) == shape[0] * row_bytes


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_C106_a_truncated_file_gives_an_error_and_no_output(tmp_path, share):
    model = write(tmp_path / "in.gguf")
    data, start = model.read_bytes(), gguf.GGUFReader(model).data_offset
    model.write_bytes(data[:start + int(share * (len(data) - start))])
    error = fails("convert", model, tmp_path / "out.gguf", "--type", "f16", saying="tensor ")
    assert "bytes: the tensor ends past the end of the file" in error
    assert os.listdir(tmp_path) == ["in.gguf"]


def test_nothing_to_convert(tmp_path):
    model = write(tmp_path / "in.gguf", layers=0)
    fails("convert", model, tmp_path / "out.gguf", "--type", "f16", saying=f"{model}: no feed-forward block")
    model = write(tmp_path / "in.gguf", architecture="unheard")
    done = call("convert", model, tmp_path / "out.gguf", "--type", "f16")
    assert done.returncode == 2 and "layers 0-1 are left out" in done.stderr and not (tmp_path / "out.gguf").exists()
    convert(model, tmp_path / "out.gguf", "--type", "f16", "--activation", "silu")
    assert_converted(model, tmp_path / "out.gguf", "f16")


@pytest.mark.parametrize("options, saying", [
    ([], "IN and OUT"), (["in"], "IN and OUT"), (["in", "out"], "--type, --layout or --split-max-size"),
    (["in", "out", "--type", "q4"], "one of f32, f16, bf16, q4_0, "), (["in", "out", "Q4_K_M"], "--type q4_k"),
    (["in", "out", "Q8_0"], "--type q8_0"), (["in", "out", "q8"], "unexpected operand q8"),
    (["in", "out", "--layout", "up_gate"], "separate, gate_up"),
    (["in", "out", "more", "--type", "f16"], "unexpected operand more"), (["gone", "out", "--type", "f16"], "cannot open"),
])
def test_usage(tmp_path, options, saying):
    fails("convert", *options, saying=saying, cwd=tmp_path)


def test_alias_and_json(tmp_path):
    model = write(tmp_path / "in.gguf")
    *weights, said = map(json.loads, ok("quantize", model, tmp_path / "out.gguf", "--type", "bf16", "--json").splitlines())
    assert [w["tensor"] for w in weights] == [n for n in tensors(model) if is_weight(n)]
    assert all((w["from"], w["to"], w["values"]) == ("f32", "bf16", D * FF) for w in weights)
    assert all(0 < w["relative_error"] <= 2**-9 for w in weights)
    total = sum(len(t[2]) for t in tensors(tmp_path / "out.gguf").values())
    assert said == {"kind": "file", "file": str(tmp_path / "out.gguf"), "type": "bf16", "converted": 6, "kept": 7,
                    "tensor_bytes": total}


def test_memory_does_not_grow_with_a_tensor(tmp_path):
    """Three weights of 64 MiB, a file with holes; the process may have 24 MiB of addresses."""
    rows = cols = 4096
    entries, offset = b"", 0
    for name in (b"gate", b"up", b"down"):
        name = b"blk.0.ffn_%s.weight" % name
        entries += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, cols, rows, 0, offset)
        offset += 4 * rows * cols
    key, value = b"general.architecture", b"llama"
    head = b"GGUF" + struct.pack("<IQQQ", 3, 3, 1, len(key)) + key + struct.pack("<IQ", 8, len(value)) + value + entries
    head += bytes(-len(head) % 32)
    model = tmp_path / "in.gguf"
    with open(model, "wb") as f:
        f.write(head)
        f.truncate(len(head) + offset)
    limit = {} if "SWIGLU_LIBRARY" not in os.environ else {  # a sanitizer takes memory of its own
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (24 << 20, 24 << 20))}
    ok("convert", model, tmp_path / "out.gguf", "--type", "f16", **limit)
    assert (tmp_path / "out.gguf").stat().st_size == len(head) + offset // 2


@pytest.mark.skipif("SWIGLU_MODEL" not in os.environ, reason="the model file cannot be had here")
def test_real_model(tmp_path):
    """Decoding is exact, so the f32 file computes the same bits; the f16 file is what NumPy rounds to."""
    model = Path(os.environ["SWIGLU_MODEL"])
    layers = ("--layers", "0,17,29", "--tokens", 3, "--digest")
    convert(model, tmp_path / "f32.gguf", "--type", "f32")
    assert ok("run", tmp_path / "f32.gguf", *layers) == ok("run", model, *layers)
    convert(tmp_path / "f32.gguf", tmp_path / "f16.gguf", "--type", "f16")
    convert(model, tmp_path / "direct.gguf", "--type", "f16")
    assert (tmp_path / "f16.gguf").read_bytes() == (tmp_path / "direct.gguf").read_bytes()
    assert_converted(model, tmp_path / "f16.gguf", "f16")
