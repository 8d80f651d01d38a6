# SPDX-License-Identifier: Apache-2.0
"""The tool as a user calls it, and what the tests of all its commands need."""
import functools
import json
import os
import re
import subprocess
from pathlib import Path

import gguf
import numpy as np

TOOL = os.environ["SWIGLU_TOOL"]
MANUAL = Path(__file__).parents[2] / "man" / "swiglu.1"
FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def call(*args, isa=None, timeout=120, **kwargs):
    """Runs the tool; isa becomes SWIGLU_ISA."""
    env = {k: v for k, v in os.environ.items() if k != "SWIGLU_ISA"}
    if isa is not None:
        env["SWIGLU_ISA"] = isa
    return subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=env, **kwargs)


def ok(*args, **kwargs):
    """Standard output of a call that must succeed."""
    done = call(*args, **kwargs)
    assert done.returncode == 0, (args, done.returncode, done.stderr)
    return done.stdout


def objects(*args, **kwargs):
    return [json.loads(line) for line in ok(*args, "--json", **kwargs).splitlines()]


@functools.cache
def levels():
    """The names of the levels in this build, as the tool lists them."""
    return [o["level"] for o in objects("cpu") if o["kind"] == "level" and o["compiled"]]


def fails(*args, code=2, saying="", **kwargs):
    """The one error line of a call that must end with the code."""
    done = call(*args, **kwargs)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("swiglu: "), done.stderr
    assert saying in lines[0], (saying, lines[0])
    return lines[0]


def drain(reader):
    """All that was written to a pseudo-terminal whose other end is closed; its text may come in pieces."""
    text = b""
    try:
        while piece := os.read(reader, 4096):
            text += piece
    except OSError:  # EIO: nobody has the terminal any more
        pass
    os.close(reader)
    return text.decode()


def digest(y):
    """FNV-1a, 64 bits, over little-endian f32 in row order."""
    value = FNV_START
    for byte in np.ascontiguousarray(y, "<f4").tobytes():
        value = (value ^ byte) * FNV_PRIME % 2**64
    return f"{value:016x}"


def manual_noise():
    """The generator exactly as the manual prints it."""
    text = MANUAL.read_text()
    lines = re.search(r"^\.Bd -literal\n(import numpy.*?)^\.Ed", text, re.S | re.M).group(1)
    names = {}
    exec(lines, names)
    return names["noise"]


noise = manual_noise()


def scaled(stream, rows, cols, seed=1):
    """A weight of the block of noise, f32."""
    return (noise(seed, stream, rows * cols) * np.float32(1 / np.sqrt(float(cols)))).reshape(rows, cols)


def write_llama(path, d=32, f=48, n_layers=3, quant=None, weights=None, norm=True):
    """A small checkpoint; weights(layer, name, rows, cols) gives f32 values, quant a gguf type for all of them."""
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("test\x1b[2Jmodel")
    writer.add_block_count(n_layers)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(f)
    for layer in range(n_layers):
        if norm:
            scale = (random.random(d) + 0.5).astype(np.float32)
            writer.add_tensor(f"blk.{layer}.ffn_norm.weight", scale)
        for name, rows, cols in (("gate", f, d), ("up", f, d), ("down", d, f)):
            if weights:
                w = weights(layer, name, rows, cols)
            else:
                w = (random.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float32)
            if quant is None:
                writer.add_tensor(f"blk.{layer}.ffn_{name}.weight", w)
            else:
                writer.add_tensor(f"blk.{layer}.ffn_{name}.weight", gguf.quants.quantize(w, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def norms(path):
    """The weights of the norms, by layer."""
    reader = gguf.GGUFReader(path)
    return {int(t.name.split(".")[1]): t.data.copy() for t in reader.tensors if t.name.endswith("ffn_norm.weight")}
