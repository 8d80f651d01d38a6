# SPDX-License-Identifier: Apache-2.0
"""`swiglu run`: bits, digests, inputs and outputs."""
import json
import os
import re
import resource
import signal
import subprocess
import time

import gguf
import numpy as np
import pytest
import tool
from tool import call, digest, fails, noise, objects, ok, scaled


def digests(*args, **kwargs):
    lines = ok("run", *args, "--digest", **kwargs).splitlines()
    assert all(re.fullmatch(r"layer-\d{3,} [0-9a-f]{16}", line) for line in lines)
    return dict(line.split() for line in lines)


def save(path, x):
    np.save(path, x)
    return path


def test_digests_do_not_depend_on_threads_level_or_repetition(llama):
    first = digests(llama, "--threads", 1)
    assert list(first) == ["layer-000", "layer-001", "layer-002"]
    assert len(set(first.values())) == 3
    for args in (["--threads", 2], ["--threads", 5], []):
        assert digests(llama, *args) == first
    for level in tool.levels():
        assert digests(llama, isa=level) == first


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("compute", ["auto", "f32", "bf16"])
def test_own_block_has_the_same_digest_everywhere(dtype, compute):
    args = ["--shape", "67,131", "--tokens", 9, "--dtype", dtype, "--compute", compute]
    first = digests(*args)
    for level in tool.levels():
        assert digests(*args, "--threads", 2, isa=level) == first


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_noise_in_a_block_format_is_that_of_a_file(tmp_path, kind):
    """The noise of the manual, encoded by the package gguf, has the digest of the tool's own block."""
    stream = {"gate": 1, "up": 2, "down": 3}
    model = tool.write_llama(tmp_path / "m.gguf", 64, 96, 1, gguf.GGMLQuantizationType[kind], norm=False,
                             weights=lambda layer, name, rows, cols: scaled(stream[name], rows, cols))
    args = ["--shape", "64,96", "--dtype", kind.lower(), "--tokens", 6]
    assert digests(model, "--tokens", 6) == digests(*args)
    assert objects("run", *args, "--check")[0]["check_passed"]


def test_smollm2_digests(tmp_path):
    model = os.environ.get("SWIGLU_MODEL")
    if not model:
        pytest.skip("SWIGLU_MODEL is not set")
    args = [model, "--tokens", 5, "--layers", "0,14-15,29"]
    first = digests(*args, "--check", "--threads", 1)
    assert list(first) == ["layer-000", "layer-014", "layer-015", "layer-029"]
    for level in tool.levels():
        assert digests(*args, "--threads", 2, isa=level) == first


def test_seed_and_shape_matter():
    seen = {digests(*a)["layer-000"] for a in ([], ["--seed", 2], ["--shape", "64,96"], ["--dtype", "bf16"],
                                               ["--activation", "gelu"], ["--tokens", 3])}
    assert len(seen) == 6


def test_noise_has_mean_0_and_root_mean_square_1():
    x = noise(1, 0, 1 << 20).astype(np.float64)
    # three standard deviations: of the mean 1/sqrt(n), of the mean square sqrt(4/5)/sqrt(n)
    assert abs(x.mean()) < 3 / 1024 and abs((x * x).mean() - 1) < 3 * 0.9 / 1024
    assert abs(x).max() < 1.7320509


def test_x_is_the_noise_of_the_manual(tmp_path):
    x = save(tmp_path / "x.npy", noise(5, 0, 6 * 40).reshape(6, 40))
    args = ["--shape", "40,56", "--seed", 5]
    assert digests(*args, "--input", x) == digests(*args, "--tokens", 6)


def test_weights_are_the_noise_of_the_manual(tmp_path):
    stream = {"gate": 1, "up": 2, "down": 3}
    model = tool.write_llama(tmp_path / "m.gguf", 40, 56, 1, norm=False,
                             weights=lambda layer, name, rows, cols: scaled(stream[name], rows, cols))
    assert digests(model, "--tokens", 6) == digests("--shape", "40,56", "--tokens", 6)


def test_x_is_multiplied_by_the_norm_of_the_layer(tmp_path, llama):
    for layer, weight in tool.norms(llama).items():
        x = noise(1, 0, 4 * 32).reshape(4, 32) * weight
        path = save(tmp_path / "x.npy", x)
        with_input = digests(llama, "--layers", layer, "--input", path)
        assert digests(llama, "--layers", layer, "--tokens", 4) == with_input


def test_output_has_the_digest_and_the_leading_axes(tmp_path):
    x = save(tmp_path / "x.npy", noise(3, 0, 2 * 3 * 40).reshape(2, 3, 40))
    y_path = tmp_path / "y.npy"
    printed = digests("--shape", "40,56", "--input", x, "--output", y_path)["layer-000"]
    y = np.load(y_path)
    assert y.shape == (2, 3, 40) and y.dtype == np.float32 and digest(y) == printed
    assert os.listdir(tmp_path).sort() == ["x.npy", "y.npy"].sort()


def test_y_is_the_block(tmp_path):
    """Against NumPy in double precision: catches a swap of gate and up, or a transposed weight."""
    x = noise(1, 0, 6 * 40).reshape(6, 40).astype(np.float64)
    gate, up, down = (scaled(s, r, c).astype(np.float64) for s, r, c in ((1, 56, 40), (2, 56, 40), (3, 40, 56)))
    g = x @ gate.T
    want = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    ok("run", "--shape", "40,56", "--tokens", 6, "--digest", "--output", tmp_path / "y.npy")
    # two chained sums of at most 56 terms: far below 1e-5 of the size of y in f32
    assert np.abs(np.load(tmp_path / "y.npy") - want).max() < 1e-5 * np.abs(want).max()


def test_a_row_alone_has_the_bits_it_has_in_a_batch(tmp_path):
    x = noise(1, 0, 37 * 40).reshape(37, 40)
    for dtype in ("f32", "bf16", "f16"):
        args = ["--shape", "40,56", "--dtype", dtype, "--digest"]
        ok("run", *args, "--tokens", 37, "--output", tmp_path / "batch.npy")
        batch = np.load(tmp_path / "batch.npy")
        for row in (0, 1, 5, 6, 17, 36):
            path = save(tmp_path / "x.npy", x[row])
            ok("run", *args, "--input", path, "--output", tmp_path / "row.npy")
            alone = np.load(tmp_path / "row.npy")
            assert alone.shape == (40,) and alone.tobytes() == batch[row].tobytes()


def test_several_layers_fill_a_folder(tmp_path, llama):
    folder = tmp_path / "y"
    printed = digests(llama, "--tokens", 3, "--output", folder)
    assert sorted(os.listdir(folder)) == ["layer-000.npy", "layer-001.npy", "layer-002.npy"]
    for layer, value in printed.items():
        assert digest(np.load(folder / f"{layer}.npy")) == value
    assert digests(llama, "--tokens", 3, "--output", folder) == printed  # files are replaced
    assert len(os.listdir(folder)) == 3


def test_f16_input_is_widened_exactly(tmp_path):
    x = noise(1, 0, 80).astype(np.float16)
    half = digests("--shape", "40,56", "--input", save(tmp_path / "h.npy", x.reshape(2, 40)))
    assert half == digests("--shape", "40,56", "--input", save(tmp_path / "f.npy", x.astype(np.float32).reshape(2, 40)))


@pytest.mark.parametrize("shape", [(40,), (1, 40), (2, 1, 3, 40), (1,) * 7 + (40,), (0, 40), (3, 0, 40)])
def test_any_rank(tmp_path, shape):
    x = save(tmp_path / "x.npy", np.ones(shape, np.float32))
    ok("run", "--shape", "40,56", "--input", x, "--output", tmp_path / "y.npy", "--check", "--digest")
    assert np.load(tmp_path / "y.npy").shape == shape


@pytest.mark.parametrize("args", [["--tokens", "0"], ["--shape", "0,5"], ["--shape", "5,0"], ["--shape", "0,0"]])
def test_nothing_to_do_is_success(tmp_path, args):
    """No rows, no inputs or no hidden units: y is empty or +0."""
    text = ok("run", *args, "--check", "--output", tmp_path / "y.npy")
    assert "check: 1 passed, 0 failed" in text and re.search(r" -, (cold|warm) ", text)
    data = objects("run", *args)[0]
    assert data["share"] is None and data["limit"] is None
    y = np.load(tmp_path / "y.npy")
    assert not y.any() and not np.signbit(y).any()


def test_layers_option(llama):
    assert list(digests(llama, "--layers", "2,0")) == ["layer-000", "layer-002"]
    assert list(digests(llama, "--layers", "0-1,1")) == ["layer-000", "layer-001"]
    for bad, saying in (("3", "0 to 2"), ("0-3", "no layer 3"), ("2-1", "backwards"), ("a", "a list such as"),
                        ("1,", "a list such as"), ("1x", "comma"), ("", "a list such as"), ("4294967296", "0 to 2"),
                        ("18446744073709551616", "2^64")):
        fails("run", llama, "--layers", bad, saying=saying)


def test_input_width_is_checked_before_anything_runs(tmp_path, llama):
    x = save(tmp_path / "x.npy", np.ones((2, 31), np.float32))
    fails("run", llama, "--input", x, "--output", tmp_path / "y", saying="shape[1]: 31")
    assert not (tmp_path / "y").exists()


def test_table_and_json_say_the_same(llama):
    table = ok("run", llama, "--tokens", 3, "--check")
    assert "share of limit" in table and "check: 3 passed, 0 failed" in table
    keys = {"layer", "activation", "shape", "tokens", "weights", "compute_first", "compute_down", "isa", "kernel_first",
            "kernel_down", "threads", "time_ms", "tokens_per_s", "share", "limit", "state", "decoded", "peak_gflops",
            "read_gbs", "digest", "check_passed", "check_rows", "check_worst", "check_worst_hidden", "check_typical",
            "check_frobenius"}
    for layer, data in enumerate(objects("run", llama, "--tokens", 3, "--check")):
        assert keys <= data.keys()
        assert data["layer"] == layer and data["shape"] == [32, 48] and data["digest"] in table
        assert data["check_passed"] and data["check_rows"] == 3 and data["state"] == "cold"
        assert data["time_ms"] > 0 and data["share"] > 0 and data["limit"] in ("flops", "bandwidth")
        # three sums of at most 48 terms, u = 2^-24 each
        assert data["check_worst"] <= 1 and data["check_frobenius"] < 3 * 48 * 2**-24


@pytest.mark.parametrize("dtype, compute", [("f32", "f32"), ("bf16", "bf16"), ("q8_0", "f32"), ("q8_0", "int8")])
def test_each_compute_has_a_limit(dtype, compute):
    data = objects("run", "--shape", "256,512", "--tokens", 64, "--dtype", dtype, "--compute", compute)[0]
    assert data["compute_first"] == compute and data["share"] > 0 and data["peak_gflops"] > 0


def test_large_blocks_are_checked_on_eight_rows():
    data = objects("run", "--check", "--tokens", 64, "--shape", "512,1024")[0]
    assert data["check_rows"] == 8 and data["tokens"] == 64 and data["state"] == "warm"


@pytest.mark.parametrize("where", ["weight", "input"])
def test_nan_is_counted_and_said(tmp_path, where):
    """E.14: one NaN of a weight or of x; the reference has the same, so the check passes, but not in silence."""
    def weights(layer, name, rows, cols):
        w = np.full((rows, cols), 0.01, np.float32)
        if where == "weight" and (layer, name) == (1, "down"):
            w[3, 7] = np.nan
        return w
    model = tool.write_llama(tmp_path / "m.gguf", weights=weights)
    x = np.ones((5, 32), np.float32)
    if where == "input":
        x[2, 4] = np.nan
    args = ["run", model, "--input", save(tmp_path / "x.npy", x)]
    expected = [0, 5, 0] if where == "weight" else [32, 32, 32]
    for data, n in zip(objects(*args, "--check"), expected, strict=True):
        assert (data["nan"], data["inf"], data["check_passed"], data["check_unbounded"]) == (n, 0, True, 0)
        assert data["check_frobenius"] < 1e-5  # of the values that are numbers
    text = ok(*args, "--check")
    assert text.count("NaN)") == sum(n > 0 for n in expected) + 1
    assert f"But y holds values that are no numbers ({sum(expected)} NaN)" in text
    assert "NaN)" in ok(*args) and f"layer 1: y holds values that are no numbers ({expected[1]} NaN)" in \
        call(*args, "--digest").stderr


def test_nan_outside_the_sampled_rows_is_judged(tmp_path):
    """Of 4096 rows eight are sampled; rows that hold a NaN are compared beside them, up to eight."""
    x = np.ones((4096, 64), np.float32)
    for bad in (1, 20):
        x[100:100 + bad, 5] = np.nan
        data = objects("run", "--shape", "64,96", "--input", save(tmp_path / "x.npy", x), "--check")[0]
        assert data["nan"] == bad * 64 and data["check_passed"] and data["check_rows"] in (8 + min(bad, 8), 7 + min(bad, 8))


def test_values_without_a_bound_are_counted(tmp_path):
    """Sums of 2^126 may overflow midway in f32: the contract promises nothing, which is said; what did overflow fails."""
    for exponent, overflows in ((62, False), (63, True)):
        x = save(tmp_path / "x.npy", np.full((1, 40), 2.0**exponent, np.float32))
        args = ["run", "--shape", "40,56", "--input", x, "--check"]
        done = call(*args, "--json")
        data = json.loads(done.stdout)
        n_open = data["check_unbounded"]  # hidden values, and y of their rows is judged as what down makes of them
        assert 0 < n_open < 56 and data["inf"] == 40 * overflows
        assert data["check_passed"] is not overflows and done.returncode == overflows
        text = call(*args).stdout
        assert (f"But {n_open} values of h or y have no bound" in text, "FAILED (40 Inf)" in text) == (not overflows, overflows)


def test_quantised_weights_are_marked_as_decoded(tmp_path):
    model = tool.write_llama(tmp_path / "q.gguf", 64, 96, 1, gguf.GGMLQuantizationType.Q4_1)
    assert "decoded" in ok("run", model, "--tokens", 3)
    data = objects("run", model, "--tokens", 3, "--check")[0]
    assert data["decoded"] and data["weights"] == "q4_1" and data["check_passed"]


def test_digest_and_json(llama):
    for data, (name, digest_) in zip(objects("run", llama, "--digest", "--tokens", 3), digests(llama, "--tokens", 3).items(),
                                     strict=True):
        assert f"layer-{data['layer']:03}" == name and data["digest"] == digest_ and "time_ms" not in data and "share" not in data


def test_output_is_judged_before_the_work(tmp_path, llama):
    """E.16: nothing is printed, as nothing was computed; and what was judged leaves nothing behind."""
    model = tool.write_llama(tmp_path / "m.gguf")
    for out in (tmp_path / "no" / "y.npy", "/dev/full", tmp_path):
        done = call("run", "--shape", "64,96", "--output", out)
        assert done.returncode == 2 and done.stdout == "", out
    folder = tmp_path / "y"
    (folder / "layer-002.npy").mkdir(parents=True)  # in the way of the last layer
    done = call("run", model, "--output", folder)
    assert done.returncode == 2 and done.stdout == "" and "layer-002.npy" in done.stderr
    assert os.listdir(folder) == ["layer-002.npy"] and sorted(os.listdir(tmp_path)) == ["m.gguf", "y"]


def test_output_errors(tmp_path, llama):
    fails("run", "--digest", "--output", tmp_path / "no" / "y.npy", saying="No such file")
    fails("run", "--digest", "--output", tmp_path, saying="not a regular file")
    fails("run", "--digest", "--output", "/dev/null", saying="not a regular file")
    fails("run", "--digest", "--output", "", saying="the output has an empty name")
    (tmp_path / "file").touch()
    fails("run", llama, "--digest", "--output", tmp_path / "file", saying="a folder")
    fails("run", llama, "--digest", "--output", tmp_path / "a" / "b", saying="a folder")


def test_failed_write_keeps_the_old_file(tmp_path):
    target = tmp_path / "y.npy"
    target.write_bytes(b"old")
    script = f"ulimit -f 1; trap '' XFSZ; exec {tool.TOOL} run --shape 64,64 --digest --output {target}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 3 and "write: File too large" in done.stderr
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["y.npy"]


def test_output_keeps_the_mode_and_replaces_a_link(tmp_path):
    target, link = tmp_path / "y.npy", tmp_path / "link.npy"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    ok("run", "--shape", "4,4", "--digest", "--output", link)
    assert target.read_bytes() == b"old" and not link.is_symlink()
    ok("run", "--shape", "4,4", "--digest", "--output", target)
    assert target.stat().st_mode & 0o777 == 0o640 and target.read_bytes() == link.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_no_temporary_file(tmp_path, number):
    """Killed at many moments, most of them within the writing of large files."""
    for i in range(12):
        process = subprocess.Popen([tool.TOOL, "run", "--shape", "2048,1", "--tokens", "4096", "--digest", "--output",
                                    tmp_path / "y.npy"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while process.poll() is None and not os.listdir(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.002 * i)
        process.send_signal(number)
        assert process.wait(timeout=20) in (0, -number)
        assert set(os.listdir(tmp_path)) <= {"y.npy"}
        if (tmp_path / "y.npy").exists():
            assert (tmp_path / "y.npy").stat().st_size == 128 + 4 * 4096 * 2048
            (tmp_path / "y.npy").unlink()


@pytest.mark.skipif("SWIGLU_LIBRARY" not in os.environ, reason="a sanitizer reserves more than the limit")
@pytest.mark.parametrize("tokens", [4, 40])
def test_without_memory_for_the_probe_there_is_no_share(tokens):
    """E.2: the block is evaluated all the same, and it is said why a figure lacks."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20))
    args = ["run", "--shape", "64,96", "--tokens", tokens, "--threads", 2, "--check"]
    done = call(*args, "--json", preexec_fn=limit)
    data = json.loads(done.stdout)
    assert done.returncode == 0 and "no share of the limit is shown" in done.stderr and done.stderr.count("\n") == 1
    assert data["share"] is None and data["limit"] is None and data["peak_gflops"] is None and data["state"] == "warm"
    assert data["time_ms"] > 0 and data["check_passed"] and data["digest"] == objects(*args)[0]["digest"]
    assert " -, warm " in ok(*args, preexec_fn=limit)
    fails("bench", "--shape", "64,96", "--tokens", tokens, code=3, saying="memory", preexec_fn=limit)


@pytest.mark.skipif("SWIGLU_LIBRARY" not in os.environ, reason="a sanitizer reserves more than the limit")
@pytest.mark.parametrize("args", [["--shape", "4096,4096"], ["--shape", "8,8", "--tokens", "99999999"]])
def test_out_of_memory_is_exit_3(args):
    fails("run", "--digest", *args, code=3, saying="memory",
          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20)))


def test_truncated_model_is_an_error(tmp_path, llama):
    path = tmp_path / "cut.gguf"
    path.write_bytes(llama.read_bytes()[:-100])
    assert call("run", path).returncode == 2
