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
    assert {o["axis"] for o in data[:-1]} == axes and data[-1] == {"passed": passed, "failed": 0} and passed > 500
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
    assert [o["layer"] for o in data if "layer" in o] == [0, 1, 2] and data[-1] == {"passed": 15, "failed": 0}


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
        assert found[0]["tensor"] == "a" and found[0]["block"] == 0 and found[-1] == {"passed": 0, "failed": 1}


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
