# SPDX-License-Identifier: Apache-2.0
"""GGUF models in several files: what the package gguf splits is read as the model it was, and no set is half read."""
import os
import shutil
import time

import gguf
import numpy as np
import pytest

import capi
import split
from hostile import G, LLAMA, T
from test_hostile_gguf import probe

D, FF, LAYERS = 64, 96, 3


def write(path, alignment=None, **options):
    """A model of three layers, in one file or as the package splits it; the paths of its files, in order."""
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama", **options)
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(FF)
    writer.add_token_list([f"t{i}" for i in range(2000)])
    for i in range(LAYERS):
        for part, shape in {"gate": (FF, D), "up": (FF, D), "down": (D, FF)}.items():
            writer.add_tensor(f"blk.{i}.ffn_{part}.weight", random.standard_normal(shape).astype(np.float32))
        writer.add_tensor(f"blk.{i}.ffn_norm.weight", random.standard_normal(D).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(path.parent.glob(path.stem + "*.gguf"))


SPLITS = {"tensors": {"split_max_tensors": 2}, "size": {"split_max_size": 50000},
          "first": {"split_max_tensors": 3, "small_first_shard": True}, "one": {"split_max_tensors": 1}}


@pytest.mark.parametrize("how", SPLITS)
def test_as_the_package_splits(tmp_path, how):
    """From any shard, and from the folder: the tensors, the blocks and the outputs of the model in one file."""
    (tmp_path / "whole").mkdir(), (tmp_path / "set").mkdir()
    whole, = write(tmp_path / "whole" / "m.gguf")
    shards = write(tmp_path / "set" / "m.gguf", **SPLITS[how])
    assert len(shards) == {"tensors": 6, "size": 5, "first": 5, "one": 12}[how]
    x = np.random.default_rng(6).standard_normal((3, D)).astype(np.float32)
    with capi.opened(whole) as one:
        for path in (*shards, tmp_path / "set"):
            with capi.opened(path) as model:
                assert model.warnings() == []
                assert (model.info.architecture, model.info.n_tensors, model.info.n_blocks) == (b"llama", 12, LAYERS)
                assert model.info.n_files == len(shards)
                assert model.info.file_bytes == sum(p.stat().st_size for p in shards)
                for i in range(12):
                    a, b = one.tensor(i), model.tensor(i)
                    assert (a.name, a.dtype, list(a.dims), a.bytes) == (b.name, b.dtype, list(b.dims), b.bytes)
                    assert one.read(i, 0, a.bytes) == model.read(i, 0, b.bytes)
        for i in range(LAYERS):
            ours, theirs = (m.prepare(i) for m in (model_of(tmp_path / "set"), one))
            np.testing.assert_array_equal(ours.forward(x), theirs.forward(x))
            ours.close(), theirs.close()


def model_of(path):
    return capi.Model(path)  # its descriptions read until the process ends


def test_links_to_a_store(tmp_path):
    """Model caches are made of symbolic links with the names of the set."""
    shards = write(tmp_path / "m.gguf", split_max_tensors=4)
    (tmp_path / "store").mkdir(), (tmp_path / "snapshot").mkdir()
    for i, path in enumerate(shards):
        shutil.move(path, tmp_path / "store" / f"blob{i}")
        (tmp_path / "snapshot" / path.name).symlink_to(tmp_path / "store" / f"blob{i}")
    with capi.opened(tmp_path / "snapshot" / shards[1].name) as model:
        assert model.info.n_tensors == 12


def test_the_name_of_the_folder_may_be_left_out(tmp_path, monkeypatch):
    shards = write(tmp_path / "m.gguf", split_max_tensors=4)
    monkeypatch.chdir(tmp_path)
    for path in (shards[2].name, "."):
        with capi.opened(path) as model:
            assert model.info.n_tensors == 12


# ---- folders ----

def test_folder_with_one_file(tmp_path):
    write(tmp_path / "m.gguf")
    (tmp_path / "README.md").write_text("x")
    with capi.opened(tmp_path) as model:
        assert (model.info.format, model.info.n_blocks) == (b"gguf", LAYERS)


@pytest.mark.parametrize("more", ["n.gguf", "m-00001-of-00004.gguf", "mm-00001-of-00003.gguf"])
def test_folder_with_several_models(tmp_path, more):
    shards = write(tmp_path / "m.gguf", split_max_tensors=4)
    shutil.copy(shards[0], tmp_path / more)
    with pytest.raises(capi.Failure) as failure:
        capi.Model(tmp_path)
    assert failure.value.status == capi.E_OPEN
    assert "several models, so one must be named: m-00001-of-0000" in failure.value.text and more in failure.value.text


def test_folder_without_the_first(tmp_path):
    shards = write(tmp_path / "m.gguf", split_max_tensors=4)
    shards[0].unlink()
    with pytest.raises(capi.Failure) as failure:
        capi.Model(tmp_path)
    assert failure.value.status == capi.E_OPEN and f"shard {shards[0].name} is not in its folder" in failure.value.text


# ---- hostile sets ----

def put(folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("which", split.ACCEPTED)
def test_accepted(tmp_path, which):
    files = split.ACCEPTED[which]
    put(tmp_path, files)
    for name in files:
        with capi.opened(tmp_path / name) as model:
            assert model.info.n_tensors == {"pair": 3, "one of one": 1, "no tensor in the first": 1}.get(which, 3)
            assert model.info.architecture == b"llama" and model.warnings() == []


@pytest.mark.parametrize("number, files, opened, status, words", split.ROWS, ids=[row[0] for row in split.ROWS])
def test_refused(tmp_path, number, files, opened, status, words):
    put(tmp_path, files)
    found = probe(tmp_path / opened)
    assert found["status"] == status, found
    for word in words:
        assert word in found["text"], found
    assert found["seconds"] < 1 and found["memory"] <= 2**24 + 4 * sum(map(len, files.values())), found


def test_every_prefix_of_a_later_shard(tmp_path):
    put(tmp_path, split.pair())
    for n in range(len(split.SECOND)):
        (tmp_path / split.name(1, 2)).write_bytes(split.SECOND[:n])
        with pytest.raises(capi.Failure) as failure:
            capi.Model(tmp_path / split.name(0, 2))
        assert failure.value.status == capi.E_FORMAT and split.name(1, 2) in failure.value.text


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_shard_that_is_no_file(tmp_path, kind):
    put(tmp_path, {split.name(0, 2): split.FIRST})
    (os.mkdir if kind == "folder" else os.mkfifo)(tmp_path / split.name(1, 2))
    with pytest.raises(capi.Failure) as failure:
        capi.Model(tmp_path / split.name(0, 2))
    assert failure.value.status == capi.E_OPEN
    assert split.name(1, 2) in failure.value.text and "not a regular file" in failure.value.text


def test_many_shards(tmp_path):
    """4096 shards with a tensor each: names are sorted once, not once a shard."""
    n = 1000  # so many files a process may have open
    for i in range(n):
        (tmp_path / split.name(i, n)).write_bytes(split.shard([b"t%d" % i], i, n, n, [LLAMA] if i == 0 else []))
    found = probe(tmp_path)
    assert found["status"] == capi.OK and found["tensors"] == n and found["seconds"] < 2


def test_beyond_4_gib(tmp_path):
    """Offsets need more than 32 bits: a shard whose block lies behind 5 GiB of another tensor."""
    far, block = 5 * 2**30, 4 * 8 * 8
    w = np.random.default_rng(7).standard_normal((3, 8, 8)).astype(np.float32)
    first = split.shard([b"a"], 0, 2, 5, [LLAMA])
    names = [b"blk.0.ffn_gate.weight", b"blk.0.ffn_up.weight", b"blk.0.ffn_down.weight"]
    second = G([T(b"far", [2**30, 5], 24), *[T(n, [8, 8], 0, far + block * i) for i, n in enumerate(names)]], b"",
               split.split_keys(1, 2, 5))
    (tmp_path / split.name(0, 2)).write_bytes(first)
    with open(tmp_path / split.name(1, 2), "wb") as file:
        file.write(second)
        try:
            file.truncate(len(second) + far)
        except OSError as failure:
            pytest.skip(f"no sparse files here: {failure}")
        file.seek(len(second) + far)
        file.write(w.tobytes())
    with capi.opened(tmp_path) as model:
        assert model.tensor(4).offset == len(second) + far + 2 * block and model.info.file_bytes > far
        assert model.read(2, 0, block) == w[0].tobytes()
        x = np.eye(8, dtype=np.float32)
        prepared = model.prepare(0)
        y = prepared.forward(x)
        prepared.close()
    g, u = x @ w[0].T, x @ w[1].T
    np.testing.assert_allclose(y, (g / (1 + np.exp(-g)) * u) @ w[2].T, rtol=1e-4, atol=1e-5)


def test_called_a_shard_without_being_one(tmp_path):
    """Other programs cut files otherwise: such a file is a model of its own, and this is said."""
    path, = write(tmp_path / "m.gguf")
    path = path.rename(tmp_path / "m-00001-of-00003.gguf")
    with capi.opened(path) as model:
        assert model.warnings() == ["called shard 1 of 3, but it has no split.count: read as a model of its own"]
    with pytest.raises(capi.Failure):
        capi.Model(path, strict=True)


# ---- files that change ----

def changed(path):
    """Another byte, and a later time than that of the opening, however coarse the clock of the file system is."""
    at = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    os.utime(path, ns=(at.st_atime_ns, max(time.time_ns(), at.st_mtime_ns + 1)))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_shard_that_changes_after_the_opening(tmp_path, which):
    shards = write(tmp_path / "m.gguf", split_max_tensors=4)
    with capi.opened(shards[0]) as model:
        changed(shards[which])
        for i in range(LAYERS):
            if i == which:
                with pytest.raises(capi.Failure) as failure:
                    model.prepare(i)
                assert failure.value.status == capi.E_READ
                assert f"{shards[which].name}: the file has changed since it was opened" in failure.value.text
            else:
                model.prepare(i).close()


def test_a_shard_that_is_replaced_after_the_opening(tmp_path):
    """The files that were opened count: another one of the name is another file."""
    shards = write(tmp_path / "m.gguf", split_max_tensors=4)
    with capi.opened(shards[0]) as model:
        want = model.read(4, 0, 64)
        (tmp_path / "new").write_bytes(b"no model")
        os.replace(tmp_path / "new", shards[1])
        assert model.read(4, 0, 64) == want
