# SPDX-License-Identifier: Apache-2.0
"""One cell of a comparison: a block, a number of rows, two sides that compute it, and how they are timed honestly."""
import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from library import COMPUTE_NAMES, NUMPY_DTYPES, Block, big_memory

SHAPES = {  # d, f, activation
    "smollm2-135m": (576, 1536, "silu"),
    "tinyllama": (2048, 5632, "silu"),
    "llama-3-8b": (4096, 14336, "silu"),
    "qwen2.5-0.5b": (896, 4864, "silu"),
    "gemma-3-1b": (1152, 6912, "gelu_tanh"),
    "qwen3-30b-a3b": (2048, 768, "silu"),  # one expert
}
PEAKS = {"f32": "f32_flops", "bf16": "bf16_flops", "int8": "int8_ops"}  # of struct swiglu_limits
COLD_ROWS, COLD_BYTES = 8, 256e6
WARM_UP_SECONDS, SLOT_SECONDS, PROBE_SECONDS, SETTLE_SECONDS = 0.05, 0.02, 0.02, 0.01
STABLE, MOST_SHARE, ATTEMPTS = 0.04, 1.05, 3


@dataclass(frozen=True)
class Cell:
    model: str
    dtype: str
    rows: int
    threads: int

    def name(self):
        return f"{self.model} {self.dtype}, {self.rows} rows, {self.threads} threads"


class Data:
    """Weights as nn.Linear starts them, uniform within 1/sqrt(inputs), and x of root mean square 1."""

    def __init__(self, library, cell, seed=1):
        d, f, self.activation = SHAPES[cell.model]
        random = np.random.default_rng(seed)

        def uniform(rows, cols, bound):
            return library.encode((random.random((rows, cols), np.float32) * 2 - 1) * np.float32(bound), cell.dtype)

        self.dtype, self.number, self.shape = cell.dtype, library.dtypes[cell.dtype], (f, d)
        self.x_dtype = cell.dtype if cell.dtype in NUMPY_DTYPES else "f32"
        self.gate, self.up = uniform(f, d, d ** -0.5), uniform(f, d, d ** -0.5)
        self.down = uniform(d, f, f ** -0.5)
        self.x32 = (random.random((cell.rows, d), np.float32) * 2 - 1) * np.float32(3 ** 0.5)
        self.x = library.encode(self.x32, self.x_dtype)
        self.operations = 6 * cell.rows * d * f
        self.weight_bytes = self.gate.nbytes + self.up.nbytes + self.down.nbytes
        self.bytes = self.weight_bytes + 2 * self.x.nbytes  # y is as large as x


class Side:
    """Several copies of one block, so that a run finds its weights in memory and not in a cache. run(i) computes with
    copy i; subclasses fill runs and say where y is."""

    def __init__(self, name):
        self.name, self.runs, self.next = name, [], 0

    def n_copies(self, cell, block_bytes):
        """Few rows want copies: in decoding each token meets every layer's weights anew."""
        self.block_bytes = block_bytes
        return 1 + int(COLD_BYTES / block_bytes) if cell.rows <= COLD_ROWS else 1

    def run(self, n):
        """Seconds for n runs, each with the next copy."""
        runs, i = self.runs, self.next
        begin = time.perf_counter()
        for _ in range(n):
            runs[i]()
            i = i + 1 if i + 1 < len(runs) else 0
        seconds = time.perf_counter() - begin
        self.next = i
        return seconds

    def runs_per_slot(self):
        """Warms up; a slot is long enough for the clock and takes a round through all copies."""
        total, n = 0.0, 0
        while total < WARM_UP_SECONDS or n < len(self.runs):
            total += self.run(1)
            n += 1
        by_time = int(SLOT_SECONDS / (total / n)) + 1
        return max(by_time, len(self.runs))

    def slot(self, n, settle):
        """Seconds a run. What ran before has filled the caches, and its threads may still be spinning."""
        time.sleep(settle)
        self.run(1)
        return self.run(n) / n


class OurSide(Side):
    def __init__(self, name, library, cell, data, isa_mask=0):
        super().__init__(name)
        self.library, self.data = library, data

        def prepare():
            return Block(library, data.gate, data.up, data.down, data.dtype, data.activation, isa_mask)

        self.blocks = [prepare()]
        self.info = self.blocks[0].info
        self.blocks += [prepare() for _ in range(self.n_copies(cell, self.info.packed_bytes) - 1)]
        self.y, self.work = np.empty(data.x.shape, NUMPY_DTYPES[data.x_dtype]), self.blocks[0].work(cell.rows)
        self.runs = [block.forward(data.x, self.y, self.work, data.x_dtype) for block in self.blocks]

    def output(self):
        self.y.fill(0)
        self.run(1)
        return self.library.decode(self.y, self.data.x_dtype)

    def close(self):
        for block in self.blocks:
            block.close()


class Machine:
    """What the limits are measured with."""

    def __init__(self, library, isa_mask=0):
        self.library, self.isa_mask, self.memory = library, isa_mask, big_memory(1 << 30)

    def probe(self):
        return self.library.measure(self.memory, PROBE_SECONDS, self.isa_mask)


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "CPU part")))
    except (OSError, StopIteration):
        return "unknown"


def quantiles(values):
    """Median, 10 and 90 %."""
    return [float(v) for v in np.quantile(values, (0.5, 0.1, 0.9))]


def uncertainty(values):
    """How well values know their median, over it: half of what lies between the order statistics that enclose the true one
    in about 95 of 100 cases."""
    values, n = np.sort(values), len(values)
    low = max(0, int(0.5 * n - 0.98 * n**0.5))
    return float((values[n - 1 - low] - values[low]) / (2 * np.median(values)))


def _limit_seconds(data, info, limits):
    """The time that arithmetic and reading need at least; gate, up and down share one compute here."""
    flops = getattr(limits, PEAKS[COMPUTE_NAMES[info.compute_first]])
    return data.operations / flops, data.bytes / limits.read_bytes


def _attempt(cell, data, sides, machine, info, n_pairs):
    settle = SETTLE_SECONDS if cell.threads > 1 else 0

    def probe():
        time.sleep(settle)
        return _limit_seconds(data, info, machine.probe())

    n_runs = [side.runs_per_slot() for side in sides]
    seconds, best = ([], []), []
    probes = [probe()]
    for i in range(n_pairs):
        for s in ((0, 1), (1, 0))[i % 2]:
            seconds[s].append(sides[s].slot(n_runs[s], settle))
        probes.append(probe())
        best.append(np.minimum(probes[-2], probes[-1]).max())  # a weak probe must not flatter
    seconds, best = np.array(seconds), np.array(best)
    flops, reading = np.array(probes).T
    decides = flops if np.median(flops) >= np.median(reading) else reading
    record = {"limit": "flops" if decides is flops else "bandwidth",
              "peak_gflops": 1e-9 * data.operations / float(np.median(flops)),
              "read_gbs": 1e-9 * data.bytes / float(np.median(reading)), "pairs": n_pairs}
    for key, side, times in zip(("first", "second"), sides, seconds, strict=True):
        record[key] = side.name
        record[f"{key}_ms"], record[f"{key}_ms_p10"], record[f"{key}_ms_p90"] = quantiles(1e3 * times)
        record[f"{key}_share"], record[f"{key}_share_p10"], record[f"{key}_share_p90"] = quantiles(best / times)
    record["ratio"], record["ratio_p10"], record["ratio_p90"] = quantiles(seconds[1] / seconds[0])
    record["uncertainty"] = uncertainty(seconds[1] / seconds[0])
    void = max(record["first_share"], record["second_share"]) > MOST_SHARE
    record["outcome"] = "noisy" if record["uncertainty"] > STABLE else "void" if void else "measured"
    return record


def measure(cell, data, sides, machine, info, n_pairs):
    """A record of medians with their 10-90 % range. ratio: seconds of the second side over those of the first."""
    for _ in range(ATTEMPTS):
        record = _attempt(cell, data, sides, machine, info, n_pairs)
        if record["outcome"] == "measured":
            break
    d, f, activation = SHAPES[cell.model]
    cold = all(len(side.runs) * side.block_bytes > COLD_BYTES for side in sides)
    return {"model": cell.model, "shape": [d, f], "activation": activation, "tokens": cell.rows, "dtype": cell.dtype,
            "threads": cell.threads, "state": "cold" if cold else "warm", "isa": info.kernel_first.decode().rpartition("_")[2],
            "kernel_first": info.kernel_first.decode(), **record}


def difference(a, b):
    """Relative Frobenius norm of a - b; NaN and Inf never count as small."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# ---- options ----------------------------------------------------------------------------------------------------------


def choices(known):
    """A list such as a,b of known names."""
    def parse(text):
        for word in text.split(","):
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word or repr(word)}: expected are {', '.join(known)}")
        return text.split(",")

    return parse


def count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text or repr(text)}: a number from 1 is expected")
    return int(text)


def counts(text):
    """A list such as 1,8."""
    return [count(word) for word in text.split(",")]


def shared_library(text):
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text or repr(text)}: no such file")
    return Path(text)


# ---- printing ---------------------------------------------------------------------------------------------------------


def print_heading(first, second):
    print(f"{'':54}{first:<29} {second:<29} {second} / {first}")
    side = f"{'ms':>9} {'share':>6} {'10-90 %':<12}"
    print(f"{'model':<14} {'rows':>5} {'weights':<8} {'threads':>7} {'state':<5} {'limit':<9} {side} {side} "
          f"{'ratio':>6} {'10-90 %':<12} {'GFLOP/s':>8} {'GB/s':>6}")


def print_row(r):
    def side(key):
        share = f"{r[key + '_share']:6.3f} {r[key + '_share_p10']:.3f}-{r[key + '_share_p90']:.3f}"
        return f"{r[key + '_ms']:9.4g} {share:<19}"

    note = {"measured": "", "noisy": f"noisy: the ratio is known to {r['uncertainty']:.0%}; stop what else runs",
            "void": "shares void: one above 1.05"}[r["outcome"]]
    peer = f"{r['second']} {r['peer_how']}" if "peer" in r else ""
    ratio = f"{r['ratio']:6.3f} {r['ratio_p10']:.3f}-{r['ratio_p90']:.3f}"
    print(f"{r['model']:<14} {r['tokens']:>5} {r['dtype']:<8} {r['threads']:>7} {r['state']:<5} {r['limit']:<9} "
          f"{side('first')} {side('second')} {ratio:<19} {r['peak_gflops']:8.1f} {r['read_gbs']:6.1f} {peer:<8} {note}".rstrip(),
          flush=True)


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
