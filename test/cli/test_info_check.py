# SPDX-License-Identifier: Apache-2.0
"""`swiglu info`, `check`, `cpu` and `bench`."""
import json
import struct

import gguf
import numpy as np
import pytest
import tool
from tool import call, fails, objects, ok


def one_tensor(path, name, data, raw_dtype=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor(name, data, raw_dtype=raw_dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_info_table(llama):
    text = ok("info", llama)
    assert "3 feed-forward blocks" in text and "silu" in text and "separate" in text and "gguf 3" in text
    assert "\x1b" not in text  # the file's name holds an escape code


def test_alike_layers_share_a_line(tmp_path, llama):
    lines = ok("info", llama).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["layer", "0-2"]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for layer in range(6):
        d = 64 if layer == 3 else 32
        for name in ("gate", "up", "down"):
            if layer != 5:
                writer.add_tensor(f"blk.{layer}.ffn_{name}.weight", np.zeros((d, d), np.float32))
    for layer in range(7, 12):
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", np.zeros((2, 2), np.float32))
        if layer == 9:
            writer.add_tensor(f"blk.{layer}.ffn_sub_norm.weight", np.zeros(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first, second = ok("info", tmp_path / "m.gguf").split("left out, never evaluated:\n")
    assert [line.split()[0] for line in first.splitlines()[3:] if line] == ["0-2", "3", "4"]
    assert [line.split()[0] for line in second.splitlines()] == ["7-11"] and "blk.7.ffn_gate_inp.weight" in second
    notes = call("run", tmp_path / "m.gguf", "--digest").stderr.splitlines()
    assert len(notes) == 1 and "layers 7-11 are left out: tensor blk.7." in notes[0]
    assert len(objects("info", tmp_path / "m.gguf")) == 1 + 10


def test_info_tensors(llama):
    head, *tensors = objects("info", llama, "--tensors")
    theirs = gguf.GGUFReader(llama).tensors
    assert head["tensors"] == len(tensors) == len(theirs)
    for ours, t in zip(tensors, theirs, strict=True):
        assert [ours[k] for k in ("tensor", "type", "offset", "bytes")] == [t.name, t.tensor_type.name, t.data_offset, t.n_bytes]
        assert ours["shape"] == [int(n) for n in reversed(t.shape)]
    text = ok("info", llama, "--tensors").splitlines()
    assert len(text) == 3 + len(tensors) and "blk.0.ffn_up.weight" in "\n".join(text) and "48 x 32" in "\n".join(text)


def test_info_metadata(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_string("text", "a\nb\x1b")
    writer.add_bool("yes", True)
    writer.add_int8("small", -5)
    writer.add_uint64("large", 2**64 - 1)
    writer.add_float32("real", 0.1)
    writer.add_float64("double", 0.1)
    writer.add_array("list", [1, -2, 3])
    writer.add_array("flags", [True, False])
    writer.add_array("long", list(range(5000)))
    writer.add_array("words", ["a", "b"])
    writer.add_array("row", list(range(100)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = {o["key"]: o for o in objects("info", tmp_path / "m.gguf", "--metadata")[1:]}
    value = {k: o["value"] for k, o in found.items()}
    assert value["general.architecture"] == "llama" and value["text"] == r"a\x0ab\x1b" and value["yes"] == "true"
    assert (value["small"], value["large"], value["list"], value["flags"]) == ("-5", str(2**64 - 1), "1, -2, 3", "true, false")
    assert np.float32(value["real"]) == np.float32(0.1) and float(value["double"]) == 0.1
    assert value["row"] == ", ".join(map(str, range(100)))
    assert (found["list"]["type"], found["list"]["count"], found["words"]["type"]) == ("i32", 3, "string")
    assert not found["long"]["kept"] and not found["words"]["kept"] and value["long"] == value["words"] == ""
    text = ok("info", tmp_path / "m.gguf", "--metadata")
    assert "\x1b" not in text and "5000 x i32" in text and "(not kept)" in text
    assert next(line for line in text.splitlines() if line.startswith("row ")).endswith("...")


def test_info_metadata_of_safetensors(tmp_path):
    header = json.dumps({"__metadata__": {"format": "pt", "a": "x" * 5000, "b\n": "c\n"}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    found = {o["key"]: o["value"] for o in objects("info", tmp_path / "m.safetensors", "--metadata")[1:]}
    assert found == {"format": "pt", "a": "x" * 4096, r"b\x0a": r"c\x0a"}


FOREIGN = {"gzip": (b"\x1f\x8b\x08\0\0\0\0\0\0\3", "gunzip"), "torch": (b"PK\3\4" + bytes(60), "safetensors.torch.save_file"),
           "pickle": (b"\x80\2}q\0", "save_file"), "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
           "page": (b"<!DOCTYPE html>", "HTML"), "array": (b"\x93NUMPY\1\0", "--input"), "config": (b'{\n  "a": 1}', "JSON file"),
           "zstd": (b"\x28\xb5\x2f\xfd" + bytes(9), "unzstd"), "hdf": (b"\x89HDF\r\n", "HDF5")}


@pytest.mark.parametrize("name", ["x", "x.gguf", "x.safetensors", "pytorch_model.bin", "config.json"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_people_take_for_a_checkpoint(tmp_path, kind, name):
    data, remedy = FOREIGN[kind]
    (tmp_path / name).write_bytes(data)
    fails("info", tmp_path / name, saying=remedy)


def test_a_header_whose_length_looks_like_a_gzip_file(tmp_path):
    header = b"{}".ljust(0x00088b1f)
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "0 tensors" in ok("info", tmp_path / "m.safetensors")


@pytest.mark.parametrize("command", [["info", "-"], ["run", "-"], ["check", "-"], ["convert", "-", "out.gguf", "--type", "f32"],
                                     ["convert", "MODEL", "-", "--type", "f32"], ["run", "--input", "-"],
                                     ["run", "MODEL", "--output", "-"], ["run", "--output", "-"]])
def test_a_dash_is_no_file(tmp_path, llama, command):
    fails(*[llama if word == "MODEL" else word for word in command], saying="a file of that name is ./-", cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_headers_show_names_escaped(tmp_path, llama):
    path = tmp_path / "a\x1b[2J\nb.gguf"
    path.write_bytes(llama.read_bytes())
    np.save(tmp_path / "x\n.npy", np.zeros((1, 32), np.float32))
    for text in (ok("info", path), ok("run", path, "--tokens", "1"), ok("run", path, "--input", tmp_path / "x\n.npy"),
                 ok("convert", path, tmp_path / "o\n\x1b.gguf", "--type", "f16"), ok("info", path, "--tensors")):
        assert "\x1b" not in text and r"\x0a" in text


@pytest.mark.parametrize("output", ["gone/y.npy", "/dev/full", "."])
def test_an_output_that_cannot_be_is_told_before_the_work(tmp_path, llama, output):
    """1e12 rows would take years, and more memory than there is."""
    fails("run", llama, "--layers", "0", "--tokens", "1000000000000", "--output", output, saying=output, cwd=tmp_path)


def test_info_json(llama):
    head, *blocks = objects("info", llama)
    assert head["format"] == "gguf" and head["architecture"] == "llama" and head["blocks"] == 3
    assert [b["layer"] for b in blocks] == [0, 1, 2]
    for block in blocks:
        assert block["usable"] and block["activation"] == "silu" and block["activation_source"]
        assert (block["d_in"], block["d_ff"], block["d_out"]) == (32, 48, 32)
        assert block["gate_name"] == f"blk.{block['layer']}.ffn_gate.weight" and block["gate_dtype"] == "F32"
        assert block["gate_hi"] is None and block["bytes"] == 4 * 3 * 32 * 48


def test_info_activation_override(llama):
    block = objects("info", llama, "--activation", "gpt_oss")[1]
    assert (block["alpha"], block["gate_hi"], block["up_lo"], block["up_offset"]) == (pytest.approx(1.702), 7, -7, 1)
    assert "--activation" in block["activation_source"] or "activation" in block["activation_source"]
    assert "gate <= 7" in ok("info", llama, "--activation", "gpt_oss")


def test_info_trailing_bytes(tmp_path, llama):
    path = tmp_path / "tail.gguf"
    path.write_bytes(llama.read_bytes() + b"PK\3\4" + bytes(99))
    done = call("info", path)
    assert done.returncode == 0 and "103 trailing bytes" in done.stderr
    fails("info", path, "--strict")
    fails("check", path, "--strict")


def test_left_out_blocks_are_listed_with_the_reason(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "moe.gguf", "llama")
    for name, rows, cols in (("gate", 48, 32), ("up", 48, 32), ("down", 32, 48)):
        writer.add_tensor(f"blk.0.ffn_{name}_exps.weight", np.zeros((4, rows, cols), np.float32))
        writer.add_tensor(f"blk.1.ffn_{name}.weight", np.ones((rows, cols), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = tmp_path / "moe.gguf"
    assert "left out" in ok("info", path)
    left_out = [b for b in objects("info", path)[1:] if not b["usable"]]
    assert left_out and left_out[0]["layer"] == 0 and left_out[0]["reason"]
    done = call("run", path, "--digest")
    assert done.returncode == 0 and done.stdout.startswith("layer-001 ") and "layer 0 is left out" in done.stderr
    fails("run", path, "--layers", "0", saying="layer 0 is left out")


def test_kernel_grid():
    axes = {"activation", "layout", "weights", "x and y", "rows", "d_in", "d_ff", "d_out", "data", "threads", "row alone",
            "level"}
    data = [json.loads(line) for line in ok("check", "--json").splitlines()]
    passed = data[-1]["passed"]
    assert {o["axis"] for o in data[:-1]} == axes and passed > 500
    assert data[-1] == {"kind": "total", "passed": passed, "failed": 0}
    by_axis = sum(o["passed"] for o in data[:-1] if o["axis"] != "level")
    by_level = sum(o["passed"] for o in data[:-1] if o["axis"] == "level")
    assert by_axis == by_level == passed


def test_kernel_grid_of_one_level_has_the_reference_as_judge():
    last = ok("check", isa="generic").splitlines()[-1]
    passed = int(last.split()[0])
    assert last == f"{passed} passed, 0 failed" and passed > 300


def test_check_file(llama):
    lines = ok("check", llama).splitlines()
    assert lines[-1] == "15 passed, 0 failed"  # 12 tensors, 3 blocks
    assert ok("check", llama, "--layers", "1").splitlines()[-1] == "5 passed, 0 failed"
    data = objects("check", llama)
    assert [o["layer"] for o in data if "layer" in o] == [0, 1, 2] and data[-1] == {"kind": "total", "passed": 15, "failed": 0}


@pytest.mark.parametrize("value, word", [(np.nan, "NO NUMBERS (256 NaN)"), (4e11, "NO BOUND"), (1e38, "FAILED (")])
def test_a_layer_without_numbers_does_not_pass(tmp_path, value, word):
    """E.14: the reference agrees, but nobody can use such a block; its tensors pass the scan where they are finite."""
    model = tool.write_llama(tmp_path / "m.gguf", weights=lambda layer, name, rows, cols:
                             np.full((rows, cols), value if layer == 1 else 0.01, np.float32))
    done = call("check", model)
    lines = [line for line in done.stdout.splitlines() if "_" in line]
    assert done.returncode == 1 and [line.endswith("  passed") for line in lines] == [True, False, True]
    assert word in lines[1] and "check failed: layer 1" in done.stderr
    last = json.loads(call("check", model, "--json").stdout.splitlines()[-1])
    assert last["failed"] == (4 if np.isnan(value) else 1)
    data = [json.loads(line) for line in call("check", model, "--json").stdout.splitlines()]
    assert [o["passed"] for o in data if "layer" in o] == [True, False, True]


@pytest.mark.parametrize("dtype, value, what", [
    ("f32", np.float32(np.nan), "NaN 0x7fc00000"), ("f32", np.float32(-np.inf), "Inf 0xff800000"),
    ("f16", np.float16(np.inf), "Inf 0x7c00"), ("bf16", None, "NaN 0x7fc1"),
])
def test_bad_values_are_found(tmp_path, dtype, value, what):
    """In the last element of the second chunk that is read, and only there."""
    n = (3 << 20) // 4 if dtype == "f32" else (3 << 20) // 2
    raw = np.zeros(n, {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype])
    at = (2 << 20) // raw.itemsize - 1
    raw[at] = value if value is not None else 0x7FC1
    kind = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
            "bf16": gguf.GGMLQuantizationType.BF16}[dtype]
    data = raw.view(np.uint8) if dtype == "bf16" else raw
    path = one_tensor(tmp_path / "bad.gguf", "output_norm.weight", data, kind)
    offset = gguf.GGUFReader(path).tensors[0].data_offset + at * raw.itemsize
    line = fails("check", path, code=1, saying=f"tensor output_norm.weight: {what}, element {at}, offset {offset}")
    assert "(1 such" in line


Q = gguf.GGMLQuantizationType
SCALES = [(Q.Q4_0, 18, [0]), (Q.Q4_1, 20, [0, 2]), (Q.Q5_0, 22, [0]), (Q.Q5_1, 24, [0, 2]), (Q.Q8_0, 34, [0]),
          (Q.Q2_K, 84, [80, 82]), (Q.Q3_K, 110, [108]), (Q.Q4_K, 144, [0, 2]), (Q.Q5_K, 176, [0, 2]), (Q.Q6_K, 210, [208])]


@pytest.mark.parametrize("kind, size, at", SCALES, ids=[s[0].name for s in SCALES])
@pytest.mark.parametrize("bits, what", [(0x7E00, "NaN scale 0x7e00"), (0xFC00, "Inf scale 0xfc00")])
def test_bad_scales_are_found(tmp_path, kind, size, at, bits, what):
    """C040, G70: named by tensor and block, and found where the reference decoder sees a value that is not finite."""
    for position in at:
        data = np.full((1, 5 * size), 0x11, np.uint8)
        data[0, 3 * size + position:3 * size + position + 2] = np.frombuffer(struct.pack("<H", bits), np.uint8)
        with np.errstate(invalid="ignore"):
            decoded = gguf.quants.dequantize(data, kind).reshape(5, -1)
        assert [bool(np.isfinite(b).all()) for b in decoded] == [True, True, True, False, True]
        path = one_tensor(tmp_path / "bad.gguf", "a", data, kind)
        fails("check", path, code=1, saying=f"tensor a: {what}, block 3,")


def test_g70_and_g71(tmp_path):
    for kind, data, what in ((Q.Q4_0, b"\0\x7e" + bytes(16), "NaN scale 0x7e00, block 0"),
                             (Q.MXFP4, b"\xff" + bytes(16), "e8m0 scale 255, block 0")):
        path = one_tensor(tmp_path / "bad.gguf", "a", np.frombuffer(data, np.uint8).reshape(1, -1), kind)
        ok("info", path)
        fails("check", path, code=1, saying=what)
        found = [json.loads(line) for line in call("check", path, "--json").stdout.splitlines()]
        assert found[0]["tensor"] == "a" and found[0]["block"] == 0 and found[-1] == {"kind": "total", "passed": 0, "failed": 1}


def test_cpu():
    text = ok("cpu")
    for word in ("generic", "mxfp4", "gpt_oss"):
        assert word in text
    data = objects("cpu")
    levels = {o["level"]: o for o in data if "level" in o}
    assert list(levels)[:2] == ["generic", "avx2"] and levels["generic"]["can"] and all(o["why"] for o in levels.values())
    formats = {o["weights"]: o for o in data if "weights" in o}
    assert len(formats) == 14 and formats["bf16"]["kernel_auto"] == formats["bf16"]["kernel_bf16"]
    assert formats["f32"]["kernel_auto"] == formats["f32"]["kernel_f32"]
    masked = [o for o in objects("cpu", isa="generic") if "weights" in o]
    assert all(o["kernel_auto"].endswith("_generic") for o in masked)
