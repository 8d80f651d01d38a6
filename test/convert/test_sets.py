# SPDX-License-Identifier: Apache-2.0
"""Sets of GGUF shards: what convert writes, the package gguf reads, and the other way round."""
import errno
import itertools
import os
import subprocess

import gguf
import pytest
from checkpoints import file_type_at, metadata_bytes, tensors, write
from faults import fault
from tool import TOOL, fails, ok

SPLIT_KEYS = ["split.no", "split.count", "split.tensors.count"]


def shards(folder, stem="out"):
    return sorted(folder.glob(f"{stem}-*-of-*.gguf"))


def fields(path):
    """The metadata, without what the package adds of the header."""
    return {k: f.contents() for k, f in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}


def padded(n, alignment=32):
    return -(-n // alignment) * alignment


def greedy(sizes, limit):
    """How many tensors are in each shard: as many as fit, at least one."""
    groups, room = [0], limit
    for n in sizes:
        if groups[-1] and n > room:
            groups.append(0)
            room = limit
        groups[-1] += 1
        room -= n
    return groups


@pytest.mark.parametrize("limit", ["1", "5000", "20K", "30000", "60K"])
@pytest.mark.parametrize("alignment", [None, 64])
def test_as_one_file(tmp_path, limit, alignment):
    model = write(tmp_path / "in.gguf", "q8_0", alignment=alignment)
    ok("convert", model, tmp_path / "one.gguf", "--type", "f16")
    ok("convert", model, tmp_path / "out.gguf", "--type", "f16", "--split-max-size", limit)
    one, parts = tensors(tmp_path / "one.gguf"), [tensors(p) for p in shards(tmp_path)]
    assert list(itertools.chain(*parts)) == list(one) and {k: v for p in parts for k, v in p.items()} == one
    assert not (tmp_path / "out.gguf").exists()
    number = int(limit.replace("K", "000"))
    assert [len(p) for p in parts] == greedy([padded(len(v[2]), alignment or 32) for v in one.values()], number)
    for i, path in enumerate(shards(tmp_path)):
        assert path.name == f"out-{i + 1:05}-of-{len(parts):05}.gguf"
        found = fields(path)
        assert [found.pop(k) for k in SPLIT_KEYS] == [i, len(parts), len(one)]
        expected = fields(tmp_path / "one.gguf")
        assert found == (expected if i == 0 else {k: v for k, v in expected.items() if k == "general.alignment"})


def test_a_set_becomes_one_file_again(tmp_path):
    """Through a set and back: the bytes of the file that was never split."""
    model = write(tmp_path / "in.gguf", "f32", alignment=64)
    ok("convert", model, tmp_path / "f16.gguf", "--type", "f16")
    ok("convert", model, tmp_path / "out.gguf", "--type", "f16", "--split-max-size", "20000")
    assert len(shards(tmp_path)) > 3
    for source in (shards(tmp_path)[1], tmp_path / "f16.gguf"):
        ok("convert", source, tmp_path / "back.gguf", "--type", "f16")
        assert (tmp_path / "back.gguf").read_bytes() == (tmp_path / "f16.gguf").read_bytes()


@pytest.mark.parametrize("options", [{"split_max_tensors": 3}, {"split_max_size": 40000},
                                     {"split_max_tensors": 2, "small_first_shard": True}])
def test_sets_of_the_package(tmp_path, monkeypatch, options):
    """What the package splits becomes the file that it would have written whole, and a set of another size."""
    whole = write(tmp_path / "whole.gguf", file_type=0)
    monkeypatch.setattr("checkpoints.gguf.GGUFWriter", lambda path, arch: WRITER(path, arch, **options))
    write(tmp_path / "in.gguf", file_type=0)
    source = shards(tmp_path, "in")
    assert len(source) > 2
    ok("convert", source[-1], tmp_path / "one.gguf", "--type", "f32")
    assert tensors(tmp_path / "one.gguf") == tensors(whole)
    assert metadata_bytes(tmp_path / "one.gguf") == metadata_bytes(whole)
    ok("convert", source[0], tmp_path / "out.gguf", "--split-max-size", "30K")
    ok("convert", shards(tmp_path)[1], tmp_path / "two.gguf", "--type", "f32")
    assert (tmp_path / "two.gguf").read_bytes() == (tmp_path / "one.gguf").read_bytes()


WRITER = gguf.GGUFWriter


def test_file_type_of_a_set(tmp_path):
    model = write(tmp_path / "in.gguf", "f32", file_type=7)
    ok("convert", model, tmp_path / "out.gguf", "--type", "bf16", "--split-max-size", "20K")
    data = shards(tmp_path)[0].read_bytes()
    assert data[24 + file_type_at(model):][:4] == b"\x20\0\0\0"


def test_what_fits_is_one_file(tmp_path):
    model = write(tmp_path / "in.gguf")
    ok("convert", model, tmp_path / "out.gguf", "--type", "f16", "--split-max-size", "1G")
    ok("convert", model, tmp_path / "one.gguf", "--type", "f16")
    assert not shards(tmp_path) and (tmp_path / "out.gguf").read_bytes() == (tmp_path / "one.gguf").read_bytes()


def test_usage(tmp_path):
    model = write(tmp_path / "in.gguf")
    for size, saying in (("0", "--split-max-size 0"), ("x", "--split-max-size x"), ("", "--split-max-size"),
                         ("1T", "'T'"), ("18446744073709551615G", "--split-max-size")):
        fails("convert", model, tmp_path / "out.gguf", "--split-max-size", size, saying=saying)
    fails("convert", model, tmp_path / "out", "--split-max-size", "1K", saying="a set is called by NAME.gguf")
    fails("convert", model, tmp_path / "out-00001-of-00003.gguf", "--split-max-size", "1K", saying="the numbers of its shards")
    assert os.listdir(tmp_path) == ["in.gguf"]


def test_no_shard_is_replaced(tmp_path):
    model = write(tmp_path / "in.gguf")
    ok("convert", model, tmp_path / "out.gguf", "--split-max-size", "20K")
    made = {p: p.read_bytes() for p in shards(tmp_path)}
    fails("convert", model, tmp_path / "out.gguf", "--type", "f32", "--split-max-size", "20K", code=2,
          saying=f"{shards(tmp_path)[0].name}: is there already")
    assert {p: p.read_bytes() for p in shards(tmp_path)} == made
    for path in list(made)[:-1]:
        path.unlink()
    fails("convert", model, tmp_path / "out.gguf", "--split-max-size", "20K", saying=f"{list(made)[-1].name}: is there already")
    assert shards(tmp_path) == list(made)[-1:] and not list(tmp_path.glob("*.tmp"))


def test_one_shard_is_not_the_output(tmp_path):
    ok("convert", write(tmp_path / "in.gguf"), tmp_path / "out.gguf", "--split-max-size", "20K")
    source = shards(tmp_path)
    fails("convert", source[0], source[1], "--type", "f16", saying=f"one of the {len(source)} files of the input")


@pytest.mark.parametrize("call_name", ["open", "pread", "write", "fsync", "rename", "close"])
def test_the_nth_call_fails(tmp_path, shim, call_name):
    """No shard is left behind, or all are."""
    model = write(tmp_path / "in.gguf", layers=1)
    (tmp_path / "out").mkdir()
    command = [TOOL, "convert", model, tmp_path / "out" / "out.gguf", "--split-max-size", "20K"]
    for n in range(1, 400):
        done = subprocess.run(command, env=fault(shim, tmp_path / "hit", call_name, n, errno.EIO), capture_output=True,
                              text=True, timeout=60)
        names = os.listdir(tmp_path / "out")
        if not (tmp_path / "hit").exists():
            break
        assert len(names) == (5 if done.returncode == 0 else 0) and not any(".tmp" in name for name in names), (n, done.stderr)
        (tmp_path / "hit").unlink()
        for name in names:
            (tmp_path / "out" / name).unlink()
    assert done.returncode == 0 and len(names) == 5 and n > 5
