# SPDX-License-Identifier: Apache-2.0
"""Folders with shards and an index: only what the index lists is read, and each thing that is missing has its message."""
import errno
import json
import os
import re
import subprocess

import numpy as np
import pytest

import capi
from blockmath import ACT
from checkpoint import INDEX, check_block, left_out, new_block, refused, write_config, write_sharded, write_single
from test_families_st import MODEL, PROJ, stored
from test_hostile_gguf import probe

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def parts():
    rng = np.random.default_rng(1)
    return [new_block(rng) for _ in range(2)]


@pytest.fixture
def folder(tmp_path, parts):
    write_sharded(tmp_path, tensors_of(parts))
    write_config(tmp_path, model_type="llama")
    return tmp_path


def tensors_of(parts):
    return {k: v for i, p in enumerate(parts) for k, v in stored(p, PROJ, MODEL, i).items()}


def weight_map(folder, change):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] = change(index["weight_map"]) or index["weight_map"]
    (folder / INDEX).write_text(json.dumps(index))


def move(name, shard):
    def change(weights):
        weights[name] = shard
    return change


def drop(name):
    def change(weights):
        del weights[name]
    return change


GATE_0 = f"{MODEL}0.mlp.gate_proj.weight"


def test_shards_are_read(folder, parts):
    with capi.opened(folder) as model:
        assert model.info.n_tensors == 6 and model.warnings() == []
        assert model.info.file_bytes == sum((folder / n).stat().st_size for n in (FIRST, SECOND))
        for i, p in enumerate(parts):
            check_block(model, i, p, ACT["silu"])


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/abs", "a/b", "..", ".", "", "a\0b", "a\\b", "\x1b[2J", "a b", "é",
                                  "n" * 256, ".hidden", 5, None, ["x"]])
def test_S32_shard_names_are_plain_file_names(folder, name):
    weight_map(folder, move(GATE_0, name))
    failure = refused(folder, INDEX, f"weight_map: tensor {GATE_0}: a plain file name of this folder is expected")
    assert failure.text.isprintable() and failure.text.isascii()
    raw = (folder / INDEX).read_bytes()
    assert raw.index(b'"' + GATE_0.encode()) < failure.offset <= len(raw)


def test_S32_a_link_of_the_user_is_followed(folder, parts):
    """Model caches are made of symbolic links."""
    store = folder / "store"
    store.mkdir()
    os.rename(folder / SECOND, store / "blob")
    (folder / SECOND).symlink_to("store/blob")
    with capi.opened(folder) as model:
        check_block(model, 0, parts[0], ACT["silu"])


def test_S33_C115_shard_is_missing(folder):
    os.remove(folder / SECOND)
    failure = refused(folder, INDEX, f"shard {SECOND} is not in the folder", "should be in it", status=capi.E_OPEN)
    assert "stale" in failure.text  # the other shard is there


def test_S33_C115_tensor_is_not_in_its_shard(folder):
    weight_map(folder, move("model.layers.9.mlp.up_proj.weight", FIRST))
    refused(folder, INDEX, f"tensor model.layers.9.mlp.up_proj.weight: shard {FIRST} has no tensor of that name")


def test_S33_tensor_is_in_another_shard(folder):
    here = json.loads((folder / INDEX).read_text())["weight_map"][GATE_0]
    other = SECOND if here == FIRST else FIRST
    weight_map(folder, move(GATE_0, other))
    refused(folder, INDEX, f"tensor {GATE_0} is not in shard {other}, but in ", here)


def test_S33_tensor_in_two_shards(folder, parts):
    write_single(folder, {"a": np.zeros(3, np.float32), GATE_0: parts[0]["gate"]}, "extra.safetensors")
    weight_map(folder, move("a", "extra.safetensors"))
    refused(folder, f"tensor {GATE_0}: also in", "extra.safetensors")


def test_C115_tensor_is_not_in_the_index(folder, parts):
    """Neither in the index nor in a shard: the block says so. Only not in the index: a warning, as transformers reads it."""
    with capi.opened(folder) as model:
        assert not model.warnings()
    weight_map(folder, drop(GATE_0))
    with capi.opened(folder) as model:
        assert f"tensor {GATE_0} is in a shard, but not in the index" in model.warnings()[0]
        check_block(model, 0, parts[0], ACT["silu"])
    refused(folder, f"tensor {GATE_0} is in a shard, but not in the index", strict=True)
    tensors = stored(parts[0], PROJ, MODEL, 0)
    del tensors[GATE_0]
    write_sharded(folder, tensors)
    assert left_out(folder) == f"tensor {GATE_0} is missing: it is not in the index"


def test_C115_three_distinct_messages(folder):
    """What the one tensor lacks is told apart: its shard, its place in the shard, its place in the index."""
    other = "model.layers.9.mlp.up_proj.weight"
    weight_map(folder, move(other, "gone.safetensors"))
    absent_shard = refused(folder, status=capi.E_OPEN).text
    weight_map(folder, move(other, FIRST))
    absent_tensor = refused(folder).text
    weight_map(folder, drop(other))
    write_sharded(folder, {f"{MODEL}9.mlp.gate_proj.weight": np.ones((2, 2), np.float32)})
    absent_entry = left_out(folder)
    assert "gone.safetensors is not in the folder" in absent_shard
    assert f"shard {FIRST} has no tensor of that name" in absent_tensor
    assert absent_entry == f"tensor {other} is missing: it is not in the index"


def test_C112_stale_index(tmp_path, parts):
    """The index names 30 shards that are not there, beside two complete ones: an error, and scanning finds the model."""
    write_sharded(tmp_path, tensors_of(parts), change=lambda m: {
        name: f"model-{i + 1:05}-of-00030.safetensors" for i, name in enumerate(m)})
    write_config(tmp_path, model_type="llama")
    refused(tmp_path, INDEX, "model-00001-of-00030.safetensors", "stale", "scan", status=capi.E_OPEN)
    with capi.opened(tmp_path, scan=True) as model:
        assert model.info.n_tensors == 6 and model.warnings() == []
        for i, p in enumerate(parts):
            check_block(model, i, p, ACT["silu"])


def test_C113_stray_file(folder, parts):
    """A model.safetensors with the same names beside the shards is not merged in, and reported."""
    write_single(folder, {k: v.astype(np.float16) for k, v in tensors_of(parts).items()})
    with capi.opened(folder) as model:
        assert model.warnings() == ["model.safetensors is in the folder, but not in the index: not read"]
        assert {t.dtype_name for t in model.tensors()} == {b"F32"}
        check_block(model, 0, parts[0], ACT["silu"])
    refused(folder, "model.safetensors is in the folder", strict=True)
    refused(folder, "also in", scan=True)


def test_stray_beside_a_single_file(tmp_path, parts):
    write_single(tmp_path, tensors_of(parts))
    write_single(tmp_path, {"a": np.zeros(2, np.float32)}, "adapter.safetensors")
    write_config(tmp_path, model_type="llama")
    with capi.opened(tmp_path) as model:
        assert model.warnings() == ["adapter.safetensors is in the folder beside model.safetensors: not read"]
        assert model.info.n_tensors == 6
    with capi.opened(tmp_path, scan=True) as model:
        assert model.info.n_tensors == 7
    with capi.opened(tmp_path / "model.safetensors") as model:
        assert model.info.n_tensors == 6 and model.warnings() == []


def test_folder_without_a_model(tmp_path, parts):
    failure = refused(tmp_path, "Is a directory without", INDEX, "model.safetensors", status=capi.E_OPEN)
    assert failure.errno == errno.EISDIR
    write_single(tmp_path, tensors_of(parts), "weights.safetensors")
    refused(tmp_path, "Is a directory without", "by name, or use the option scan", status=capi.E_OPEN)
    with capi.opened(tmp_path, scan=True, activation="silu") as model:
        check_block(model, 0, parts[0], ACT["silu"])
    os.remove(tmp_path / "weights.safetensors")
    refused(tmp_path, "without .safetensors files", status=capi.E_OPEN, scan=True)


@pytest.mark.parametrize("text, words", [
    ("[]", "an object is expected"), ("{}", "weight_map is missing"), ('{"weight_map":[]}', "weight_map: an object"),
    ('{"weight_map":{"a":"x","a":"y"}}', "duplicate key a"), ('{"weight_map":{"a":"x","\\u0061":"x"}}', "duplicate key a"),
    ('{"weight_map":{},"weight_map":{}}', "duplicate key weight_map"), ('{"weight_map":{}', "ends where"),
    ('{"weight_map":{"' + "n" * 70000 + '":"x"}}', "weight_map: a name of more than 65535 bytes"),
    ('{"metadata":' + "[" * 40, "depth 33"), ('{"metadata":{"total_size":NaN},"weight_map":{}}', "a value is expected"),
])
def test_broken_index(folder, text, words):
    (folder / INDEX).write_text(text)
    assert refused(folder, INDEX, words).offset != capi.NO_OFFSET


def test_empty_index(tmp_path):
    (tmp_path / INDEX).write_text('{"weight_map":{}}')
    with capi.opened(tmp_path) as model:
        assert (model.info.n_tensors, model.info.n_blocks, model.info.file_bytes) == (0, 0, 0)


def test_the_index_itself_can_be_named(folder, parts):
    with capi.opened(folder / INDEX) as model:
        check_block(model, 0, parts[0], ACT["silu"])
    os.rename(folder / INDEX, folder / "other.safetensors.index.json")
    with capi.opened(folder / "other.safetensors.index.json") as model:
        check_block(model, 1, parts[1], ACT["silu"])
    write_single(folder, tensors_of(parts))
    refused(folder / INDEX, INDEX, "there is no such index", status=capi.E_OPEN)


def test_paths_without_a_folder(folder, parts, monkeypatch):
    monkeypatch.chdir(folder)
    for path in (INDEX, ".", FIRST):
        with capi.opened(path) as model:
            assert model.info.architecture == b"llama"


def test_shard_that_is_broken(folder):
    os.truncate(folder / SECOND, 100)
    refused(folder, SECOND, "header length")


def test_shard_that_is_no_file(folder):
    os.remove(folder / SECOND)
    os.mkfifo(folder / SECOND)
    found = probe(folder)
    assert found["status"] == capi.E_OPEN and "not a regular file" in found["text"] and found["seconds"] < 1


def test_shard_truncated_before_use(folder):
    with capi.opened(folder) as model:
        os.truncate(folder / SECOND, 4096)
        with pytest.raises(capi.Failure) as failure:
            model.prepare(0)
        assert failure.value.status == capi.E_READ
        assert SECOND in failure.value.text and re.search("changed since it was opened|short read", failure.value.text)


def test_index_of_many_tensors(tmp_path):
    """100,000 names in 1,000 shards that are not there: found at once, and no table is made for what is not used."""
    weights = {f"t{i}": f"s{i % 1000}.safetensors" for i in range(100000)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weights}))
    found = probe(tmp_path)
    assert found["status"] == capi.E_OPEN and "shard s0.safetensors is not in the folder" in found["text"]
    assert found["seconds"] < 1 and found["memory"] <= 2**24 + 4 * (tmp_path / INDEX).stat().st_size


def test_more_shards_than_a_model_has(tmp_path):
    weights = {f"t{i}": f"s{i}" for i in range(5000)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weights}))
    refused(tmp_path, "more than 4096 shards")


# ---- through the tool ----

def tool(*arguments):
    return subprocess.run([os.environ["SWIGLU_TOOL"], *arguments], capture_output=True, text=True, timeout=60)


def test_tool_reads_a_folder(folder, parts):
    done = tool("info", folder)
    assert done.returncode == 0 and f"{folder}: safetensors, architecture llama" in done.stdout
    shards = tool("run", folder, "--digest")
    write_single(folder, tensors_of(parts), "whole.safetensors")
    whole = tool("run", folder / "whole.safetensors", "--digest")
    assert (shards.returncode, whole.returncode) == (0, 0) and shards.stdout == whole.stdout
    assert tool("check", folder, "--strict").returncode == 2  # whole.safetensors is a stray file now
    assert tool("check", folder).returncode == 0


@pytest.mark.parametrize("verb", [["info"], ["run", "--digest"], ["check"]])
def test_C112_tool_can_scan(folder, verb):
    weight_map(folder, lambda weights: dict.fromkeys(weights, "gone.safetensors"))
    done = tool(*verb, folder)
    assert done.returncode == 2 and "gone.safetensors" in done.stderr and done.stderr.count("\n") == 1
    assert tool(*verb, folder, "--scan").returncode == 0
