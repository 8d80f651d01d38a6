# SPDX-License-Identifier: Apache-2.0
"""Experts one by one: against NumPy in double precision, and against the same matrices stored as a dense block."""
import os

import capi
import gguf
import numpy as np
import pytest
import tool
from blockmath import ACT, assert_close, evaluate
from checkpoint import forward, new_block, write_config, write_single, x_for

E, D, FF = 4, 64, 96
HF = "model.layers.0."


def experts(ff=FF, d=D, n=E):
    return [new_block(np.random.default_rng(40 + e), d=d, ff=ff) for e in range(n)]


def stack(blocks, name):
    return np.stack([b[name] for b in blocks])


def packed(blocks):
    return np.stack([np.concatenate([b["gate"], b["up"]]) for b in blocks])


def write_gguf(path, architecture, tensors, d=D):
    """tensors: name to f32, or to (f32, type)."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(2 * FF)  # the width of dense layers; experts have their own
    for name, a in tensors.items():
        values, qtype = a if isinstance(a, tuple) else (a, None)
        if qtype is None:
            writer.add_tensor(name, np.ascontiguousarray(values))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stacked_gguf(blocks):
    return {f"blk.0.ffn_{k}_exps.weight": stack(blocks, k) for k in ("gate", "up", "down")}


def named_hf(blocks, scheme="mlp.experts.{}.{}_proj"):
    words = {"gate": "w1", "up": "w3", "down": "w2"} if "w{}" in scheme else {}
    text = HF + scheme.replace("w{}", "{}") + ".weight"
    return {text.format(e, words.get(k, k)): v for e, b in enumerate(blocks) for k, v in b.items()}


def fused_hf(blocks):
    return {HF + "mlp.experts.gate_up_proj": packed(blocks), HF + "mlp.experts.down_proj": stack(blocks, "down")}


def write_hf(folder, model_type, tensors, **config):
    folder.mkdir(exist_ok=True)
    write_config(folder, **{"model_type": model_type, "hidden_size": D, "intermediate_size": 2 * FF} | config)
    return write_single(folder, tensors)


def dense(folder, block):
    """What the matrices give as an ordinary layer."""
    folder.mkdir(exist_ok=True)
    write_config(folder, model_type="llama", hidden_size=block["up"].shape[1], intermediate_size=block["up"].shape[0])
    path = write_single(folder, {f"{HF}mlp.{k}_proj.weight": v for k, v in block.items()})
    with capi.opened(path) as model:
        return forward(model, 0, x_for(0, block["up"].shape[1]))


def check(path, blocks, folder, shared=None):
    """The line of the mixture, then each expert."""
    numbers = [-1] + [-2] * bool(shared) + list(range(len(blocks)))
    with capi.opened(path) as model:
        assert [(b.kind, b.usable, b.expert) for b in model.blocks()] == [(b"experts", 0, -1)]
        assert b"--experts" in model.block(0).reason
    with capi.opened(path, experts=True) as model:
        found = model.blocks()
        assert [b.expert for b in found] == numbers
        for i, (info, block) in enumerate(zip(found[1:], ([shared] if shared else []) + blocks), 1):
            assert info.usable, info.reason
            assert info.kind == (b"shared expert" if info.expert == -2 else b"expert")
            assert (info.d_in, info.d_ff, info.d_out) == (*block["up"].shape[::-1], block["down"].shape[0])
            assert info.weight_bytes == sum(v.nbytes for v in block.values())
            x = x_for(0, info.d_in)
            y = forward(model, i, x)
            assert_close(y, evaluate(x, ACT["silu"], **block))
            assert y.tobytes() == dense(folder / "dense", block).tobytes()


@pytest.mark.parametrize("architecture", ["llama", "qwen2moe", "qwen3moe", "olmoe", "deepseek2"])
def test_gguf_stacked(tmp_path, architecture):
    path = write_gguf(tmp_path / "a.gguf", architecture, stacked_gguf(experts()) | {
        "blk.0.ffn_gate_inp.weight": np.ones((E, D), np.float32)})
    check(path, experts(), tmp_path)


def test_gguf_packed_and_shared(tmp_path):
    shared = new_block(np.random.default_rng(3), d=D, ff=2 * FF)
    path = write_gguf(tmp_path / "a.gguf", "qwen2moe", {
        "blk.0.ffn_gate_up_exps.weight": packed(experts()), "blk.0.ffn_down_exps.weight": stack(experts(), "down"),
        "blk.0.ffn_gate_inp_shexp.weight": np.ones(D, np.float32),
    } | {f"blk.0.ffn_{k}_shexp.weight": v for k, v in shared.items()})
    check(path, experts(), tmp_path, shared)


def test_gguf_quantised_slices_are_the_dense_bytes(tmp_path):
    """A slice of Q8_0 rows begins at whole blocks; the same bytes as a dense layer give the same y."""
    q8 = gguf.GGMLQuantizationType.Q8_0
    many = write_gguf(tmp_path / "a.gguf", "llama", {k: (v, q8) for k, v in stacked_gguf(experts()).items()})
    with capi.opened(many, experts=True) as model:
        for e, block in enumerate(experts()):
            names = {f"blk.0.ffn_{k}.weight": (v, q8) for k, v in block.items()}
            writer = tmp_path / f"{e}.gguf"
            with capi.opened(write_gguf(writer, "unknown", names), activation="silu") as one:
                assert forward(model, 1 + e, x_for(e)).tobytes() == forward(one, 0, x_for(e)).tobytes()


def test_C109_old_and_new_naming_load_equal(tmp_path):
    old = {f"blk.0.ffn_{k}.{e}.weight": v for e, b in enumerate(experts()) for k, v in b.items()}
    check(write_gguf(tmp_path / "old.gguf", "llama", old), experts(), tmp_path)
    check(write_gguf(tmp_path / "new.gguf", "llama", stacked_gguf(experts())), experts(), tmp_path)


def test_C052_the_last_of_512_experts_lies_beyond_31_bits(tmp_path):
    """[512, 2048, 4096] bf16 in a file that is mostly a hole: only the last expert's weights are written."""
    n, ff, d = 512, 2048, 4096
    block = new_block(np.random.default_rng(5), d=d, ff=ff)
    bits = {k: (v.view(np.uint32) >> 16).astype(np.uint16) for k, v in block.items()}
    names = {"gate": (n, ff, d), "up": (n, ff, d), "down": (n, d, ff)}
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    for k, shape in names.items():
        writer.add_tensor_info(f"blk.0.ffn_{k}_exps.weight", shape, np.dtype(np.float16), 2 * n * ff * d,
                               raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    start = -(-path.stat().st_size // 32) * 32
    size = 2 * n * ff * d
    with open(path, "r+b") as file:
        for i, k in enumerate(names):
            file.seek(start + (i + 1) * size - size // n)
            file.write(bits[k].tobytes())
    with capi.opened(path, experts=True) as model:
        assert model.block(512).expert == 511
        y = forward(model, 512, x_for(0, d))
    one = {k: (v.astype(np.uint32) << 16).view(np.float32) for k, v in bits.items()}
    alone = write_gguf(tmp_path / "one.gguf", "unknown", {
        f"blk.0.ffn_{k}.weight": (v, gguf.GGMLQuantizationType.BF16) for k, v in one.items()}, d=d)
    with capi.opened(alone, activation="silu") as model:
        assert y.any() and y.tobytes() == forward(model, 0, x_for(0, d)).tobytes()


@pytest.mark.parametrize("model_type", ["qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "olmoe", "glm4_moe"])
def test_safetensors_one_by_one(tmp_path, model_type):
    tensors = named_hf(experts()) | {HF + "mlp.gate.weight": np.ones((E, D), np.float32)}
    check(write_hf(tmp_path / "m", model_type, tensors), experts(), tmp_path)


def test_safetensors_mixtral(tmp_path):
    tensors = named_hf(experts(), "block_sparse_moe.experts.{}.w{}")
    check(write_hf(tmp_path / "m", "mixtral", tensors), experts(), tmp_path)


def test_safetensors_shared(tmp_path):
    shared = new_block(np.random.default_rng(3), d=D, ff=2 * FF)
    for folder, word, model_type in (("a", "shared_expert", "qwen2_moe"), ("b", "shared_experts", "deepseek_v3")):
        tensors = named_hf(experts()) | {f"{HF}mlp.{word}.{k}_proj.weight": v for k, v in shared.items()}
        check(write_hf(tmp_path / folder, model_type, tensors), experts(), tmp_path, shared)


@pytest.mark.parametrize("model_type", ["qwen2_moe", "qwen3_moe", "mixtral", "olmoe", "deepseek_v3"])
def test_C118_fused_experts_are_split(tmp_path, model_type):
    check(write_hf(tmp_path / "m", model_type, fused_hf(experts())), experts(), tmp_path)


def test_C007_fused_experts_of_a_square_shape_keep_their_orientation(tmp_path):
    """C007's shape, and 2I = H where sizes cannot tell: the family does."""
    for ff, d, n in ((5, 8, 3), (8, 16, 2)):
        folder = tmp_path / f"m{ff}"
        check(write_hf(folder, "qwen3_moe", fused_hf(experts(ff, d, n)), hidden_size=d), experts(ff, d, n), tmp_path)
    turned = {k: np.ascontiguousarray(v.transpose(0, 2, 1)) for k, v in fused_hf(experts(5, 8, 3)).items()}
    with pytest.raises(capi.Failure) as failure:
        capi.Model(write_hf(tmp_path / "turned", "qwen3_moe", turned, hidden_size=8), experts=True)
    assert failure.value.status == capi.E_FORMAT and "gate_up_proj" in failure.value.text


def test_C008_narrow_experts_and_the_ambiguous_width(tmp_path):
    for ff, d in ((11, 44), (8, 16)):
        folder = tmp_path / f"m{ff}"
        check(write_hf(folder, "olmoe", fused_hf(experts(ff, d, 3)), hidden_size=d), experts(ff, d, 3), tmp_path)


@pytest.mark.parametrize("model_type", ["llama", "llama4", "gpt_oss"])
def test_C008_unknown_orientation_is_not_guessed(tmp_path, model_type):
    with capi.opened(write_hf(tmp_path / "m", model_type, fused_hf(experts())), experts=True) as model:
        assert not any(b.usable for b in model.blocks())


@pytest.mark.parametrize("ff", [176, 192, 20])
def test_C130_C131_expert_widths_off_the_tile(tmp_path, ff):
    """Each stored apart and packed, compared with the same dense block by check."""
    check(write_hf(tmp_path / "a", "qwen3_moe", named_hf(experts(ff, n=2))), experts(ff, n=2), tmp_path)
    check(write_hf(tmp_path / "b", "qwen3_moe", fused_hf(experts(ff, n=2))), experts(ff, n=2), tmp_path)


def reasons(path, **options):
    with capi.opened(path, experts=True, **options) as model:
        return {b.expert: b.reason.decode() for b in model.blocks()[1:]}


def test_a_tensor_that_nobody_knows_leaves_its_experts_out(tmp_path):
    one = named_hf(experts()) | {HF + "mlp.experts.2.up_proj.weight_scale_inv": np.ones(1, np.float32)}
    found = reasons(write_hf(tmp_path / "a", "deepseek_v3", one))
    assert [e for e, reason in found.items() if reason] == [2] and "weight_scale_inv" in found[2]
    for i, name in enumerate(("ffn_down_exps.scale", "ffn_up_exps.bias", "ffn_up_chexps.weight", "ffn_sub_norm.weight")):
        path = write_gguf(tmp_path / f"{i}.gguf", "llama", stacked_gguf(experts()) | {
            "blk.0." + name: np.ones((E, FF), np.float32)})
        assert all(name in reason for reason in reasons(path).values())


def test_an_expert_without_a_matrix_is_told(tmp_path):
    tensors = named_hf(experts())
    del tensors[HF + "mlp.experts.1.down_proj.weight"], tensors[HF + "mlp.experts.3.gate_proj.weight"]
    found = reasons(write_hf(tmp_path / "a", "qwen3_moe", tensors))
    assert found == {0: "", 1: "the expert has no down matrix", 2: "", 3: "the expert has no gate matrix"}
    fewer = stacked_gguf(experts())
    fewer["blk.0.ffn_up_exps.weight"] = fewer["blk.0.ffn_up_exps.weight"][:3]
    assert reasons(write_gguf(tmp_path / "a.gguf", "llama", fewer))[3] == "the expert has no up matrix"


def test_an_activation_that_is_not_certain_is_not_guessed(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", "nobody", stacked_gguf(experts()))
    assert all("activation unknown" in reason for reason in reasons(path).values())
    assert not any(reasons(path, activation="silu").values())


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    flat = stacked_gguf(experts()) | {"blk.0.ffn_up_exps.weight": np.ones((FF, D), np.float32)}
    assert set(reasons(write_gguf(tmp_path / "flat.gguf", "llama", flat)).values()) == {"the expert has no up matrix"}
    wrong = stacked_gguf(experts()) | {"blk.0.ffn_up_exps.weight": np.ones((E, FF + 1, D), np.float32)}
    many = {"blk.0.ffn_up_exps.weight": np.ones((2**18 + 1, 1, 1), np.float32)}
    for name, tensors, word in (("w", wrong, "rows 97"), ("m", many, "experts 262145: the limit")):
        with pytest.raises(capi.Failure) as failure:
            capi.Model(write_gguf(tmp_path / f"{name}.gguf", "llama", tensors), experts=True)
        assert failure.value.status == capi.E_FORMAT and word in failure.value.text


def test_tool(tmp_path):
    shared = new_block(np.random.default_rng(3), d=D, ff=2 * FF)
    path = write_gguf(tmp_path / "a.gguf", "qwen3moe", stacked_gguf(experts()) | {
        f"blk.0.ffn_{k}_shexp.weight": v for k, v in shared.items()})
    names = ["layer-000-shared"] + [f"layer-000-expert-{e:03d}" for e in range(E)]
    lines = tool.ok("run", path, "--experts", "--digest", "--tokens", 3, "--output", tmp_path / "y").splitlines()
    assert [line.split()[0] for line in lines] == names
    assert sorted(os.listdir(tmp_path / "y")) == sorted(name + ".npy" for name in names)
    for line in lines:
        name, digest = line.split()
        assert tool.digest(np.load(tmp_path / "y" / (name + ".npy"))) == digest
    assert "0 expert 3" in tool.ok("run", path, "--experts", "--layers", 0, "--check", "--tokens", 1)
    blocks = tool.objects("info", path, "--experts")[1:]
    assert [b.get("expert") for b in blocks] == [None, "shared", 0, 1, 2, 3]
    assert "shared expert" in tool.ok("info", path, "--experts")
    found = [b.get("expert") for b in tool.objects("check", path, "--experts") if "check_worst" in b]
    assert found == ["shared", 0, 1, 2, 3]
    tool.fails("run", path, "--layers", 0, saying="--experts")
