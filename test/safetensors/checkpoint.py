# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors checkpoints as the Python package does, and compares what the library makes of them."""
import json

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import capi
from blockmath import assert_close, evaluate

D, FF, ROWS = 64, 96, 3
INDEX = "model.safetensors.index.json"


def bf16(a):
    """a rounded to nearest even, as f32; normal numbers only."""
    u = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def write_config(folder, **values):
    (folder / "config.json").write_text(json.dumps(values))


def write_single(folder, tensors, name="model.safetensors"):
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / name, metadata={"format": "pt"})
    return folder / name


def write_sharded(folder, tensors, n=2, change=None):
    """Tensors dealt out over n shards. change: a function of the weight map, applied before it is written."""
    names, weight_map = sorted(tensors), {}
    for i in range(n):
        shard = f"model-{i + 1:05d}-of-{n:05d}.safetensors"
        write_single(folder, {k: tensors[k] for k in names[i::n]}, shard)
        weight_map |= dict.fromkeys(names[i::n], shard)
    if change:
        weight_map = change(weight_map) or weight_map
    size = sum(v.nbytes for v in tensors.values())
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))
    return folder


def new_block(rng, d=D, ff=FF, gated=True, biases=False):
    """The matrices of a block as NumPy sees them, [out, in]."""
    shapes = {"up": (ff, d), "down": (d, ff)} | ({"gate": (ff, d)} if gated else {})
    parts = {k: rng.normal(0, 1 / np.sqrt(s[1]), s).astype(np.float32) for k, s in shapes.items()}
    if biases:
        parts |= {k + "_bias": rng.normal(0, 0.1, s[0]).astype(np.float32) for k, s in shapes.items()}
    return parts


def x_for(i, d=D):
    return np.random.default_rng(100 + i).normal(0, 1, (ROWS, d)).astype(np.float32)


def forward(model, i, x):
    block = model.prepare(i)
    y = block.forward(x)
    block.close()
    return y


def check_block(model, i, parts, act):
    x = x_for(i, parts["up"].shape[1])
    y = forward(model, i, x)
    assert_close(y, evaluate(x, act, **parts))
    return y


def name_of(model, index):
    return None if index < 0 else model.tensor(index).name.decode()


def assert_same_file(model, path):
    """Two readers see one file: names, shapes, types and bytes as the package safetensors reads them."""
    with safe_open(path, "np") as theirs:
        ours = {model.tensor(i).name.decode(): i for i in range(model.info.n_tensors)}
        assert set(theirs.keys()) == set(ours)
        for name, i in ours.items():
            t, a = model.tensor(i), theirs.get_tensor(name)
            assert list(t.dims)[:t.n_dims] == list(a.shape)
            assert t.dtype_name.decode() == {"float32": "F32", "float16": "F16"}[a.dtype.name]
            assert model.read(i, 0, t.bytes) == a.tobytes()


def left_out(path, **options):
    """The reason why the file's only block is left out."""
    with capi.opened(path, **options) as model:
        assert model.info.n_blocks == 1
        info = model.block(0)
        assert not info.usable and info.reason
        try:
            model.desc(0)
        except capi.Failure as failure:
            assert failure.status == capi.E_UNSUPPORTED and info.reason.decode() in failure.text
        else:
            raise AssertionError("described although it is left out")
        return info.reason.decode()


def refused(path, *words, status=capi.E_FORMAT, **options):
    try:
        capi.Model(path, **options)
    except capi.Failure as failure:
        assert failure.status == status, failure
        for word in words:
            assert word in failure.text, failure.text
        return failure
    raise AssertionError("accepted")
