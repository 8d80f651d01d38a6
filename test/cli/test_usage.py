# SPDX-License-Identifier: Apache-2.0
"""What every command has in common: help, errors, exit codes, pipes."""
import json
import os
import subprocess

import numpy as np
import pytest
import tool
from tool import call, fails, objects, ok

VERBS = ["run", "info", "check", "convert", "plan", "bench", "cpu"]


def test_help_of_the_tool_names_every_command_and_exit_code():
    text = ok("--help")
    for word in [*VERBS, "--version", "SWIGLU_ISA", "exit status"]:
        assert word in text
    assert ok("-h") == ok("help") == text


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_command(verb):
    text = ok(verb, "--help")
    assert text.startswith(f"usage: swiglu {verb}")
    assert "--json" in text and "--help" in text and ok("help", verb) == text
    assert ok(verb, "--threads", "1", "--help") == text if verb in ("run", "check", "bench") else True


@pytest.mark.parametrize("verb", VERBS)
def test_manual_describes_every_option(verb):
    manual = tool.MANUAL.read_text()
    section = manual.split(f".Ss swiglu {verb}", 1)[1].split(".Ss", 1)[0].split(".Sh", 1)[0]
    for line in ok(verb, "--help").splitlines():
        if line.startswith("  --") and not line.startswith(("  --help", "  --json")):
            assert f"Fl -{line.split()[0][2:]}" in section, line


def test_manual_is_clean():
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "style", tool.MANUAL], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout


def test_version():
    text = ok("--version")
    for word in ("swiglu ", "library ", "ABI ", "compiler ", "levels generic"):
        assert word in text
    assert ok("version") == ok("-V") == text
    data = json.loads(ok("--version", "--json"))
    assert data["abi"] >= 1 and data["levels"].split()[0] == "generic"
    assert ok("--version", isa="generic").splitlines()[-1] == "levels generic"


@pytest.mark.parametrize("args, saying", [
    ([], "--help"),
    (["rum"], "did you mean 'run'?"),
    (["frobnicate-it-all"], "--help"),
    (["--vers"], "unknown option"),
    ([""], "unknown command ''"),
    (["run", "--tokns", "4"], "did you mean --tokens?"),
    (["run", "--zzzzzzzz"], "swiglu run --help"),
    (["run", "-x"], "unknown option -x"),
    (["run", "--tokens"], "needs a value"),
    (["run", "--tokens", ""], "decimal number"),
    (["run", "--tokens", "-1"], "decimal number"),
    (["run", "--tokens", "1e3"], "'e' is not part of a number"),
    (["run", "--tokens", " 1"], "decimal number"),
    (["run", "--tokens", "18446744073709551616"], "2^64 - 1"),
    (["run", "--tokens", "18446744073709551615"], "address space"),
    (["run", "--threads", "0"], "1 to 1024"),
    (["run", "--threads", "1025"], "1 to 1024"),
    (["run", "--compute", "f64"], "auto, f32, bf16"),
    (["run", "--dtype", "q5"], "one of f32, f16, bf16, q4_0, "),
    (["run", "--dtype", "q4_k"], "q4_k weights need widths that are multiples of 256, not 576 and 1536"),
    (["bench", "--mode", "train", "--dtype", "q8_0"], "training is for weights of single values, not q8_0"),
    (["run", "--shape", "576"], "two widths"),
    (["run", "--shape", "1,2,3"], "more than 2"),
    (["run", "--shape", "1;2"], "comma"),
    (["run", "--activation", "sillu"], "did you mean silu?"),
    (["run", "--activation", "SiLU"], "did you mean silu?"),
    (["rnu"], "did you mean 'run'?"),
    (["CHECK"], "did you mean 'check'?"),
    (["verison"], "did you mean 'version'?"),
    (["help", "rnu"], "did you mean 'run'?"),
    (["run", "--dtype", "BF16"], "did you mean bf16?"),
    (["run", "--compute", "fp32"], "did you mean f32?"),
    (["plan", "--d-model", "64", "--rule", "nearset"], "did you mean nearest?"),
    (["bench", "--model", "llama-3-7b"], "did you mean llama-3-8b?"),
    (["bench", "--isa", "AVX2"], "did you mean avx2?"),
    (["run", "--layers", "0"], "needs a FILE"),
    (["run", "--input", "x.npy", "--tokens", "3"], "exclude"),
    (["run", "a.gguf", "--shape", "4,4"], "without a FILE"),
    (["run", "a.gguf", "b.gguf"], "unexpected operand b.gguf"),
    (["info"], "a FILE is expected"),
    (["info", "a", "b"], "unexpected operand b"),
    (["check", "--tokens", "4"], "without a FILE"),
    (["bench", "file"], "unexpected operand file"),
    (["bench", "--isa", "sse"], "avx512bf16"),
    (["bench", "--mode", "backward"], "forward, train"),
    (["bench", "--mode", "train", "--policy", "none"], "recompute, keep"),
    (["bench", "--policy", "keep"], "--mode train"),
    (["bench", "--model", "gpt"], "smollm2-135m"),
    (["bench", "--model", "tinyllama", "--shape", "8,8"], "exclude"),
    (["bench", "--dtype", "f32,"], "one of f32, f16, bf16, "),
    (["bench", "--tokens", "1,,8"], "decimal number"),
    (["bench", "--tokens", "8-1"], "backwards"),
    (["bench", "--tokens", "1-"], "decimal number"),
    (["bench", "--tokens", "1-300"], "more than 256"),
    (["bench", "--tokens", "1-2-3"], "a comma or a range"),
    (["bench", "--tokens", "1-18446744073709551615"], "outside 1 to"),
    (["run", "--shape", "1-2"], "two widths"),
    (["cpu", "--jsn"], "did you mean --json?"),
    (["--version", "x"], "unexpected argument x"),
])
def test_wrong_usage_is_one_line_and_exit_2(args, saying):
    fails(*args, saying=saying)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("level", ["", "sse", "AVX2", "avx"])
def test_unknown_level_is_an_error(verb, level):
    fails(verb, "file", saying="SWIGLU_ISA", isa=level)


def test_a_level_of_another_architecture_is_an_error():
    """E.16: 'neon' ran generic C on x86, 130 times slower, without a word."""
    foreign = [o["level"] for o in objects("cpu") if o["kind"] == "level" and not o["compiled"]]
    assert foreign and set(foreign).isdisjoint(tool.levels())
    for level in foreign:
        fails("bench", "--isa", level, saying=f"--isa {level}: not an instruction set of this architecture")
        fails("run", "--digest", isa=level, saying=f"SWIGLU_ISA {level}: not an instruction set of this architecture")


def test_each_json_object_says_what_it_describes(llama, tmp_path):
    calls = {("run", "--shape", "8,8"): "block", ("run", llama, "--tokens", "1", "--digest"): "block",
             ("info", llama): "file block",
             ("check", llama): "tensor block total", ("plan", "--d-model", "64"): "plan", ("--version",): "version",
             ("cpu",): "level weights activation", ("check",): "axis total",
             ("convert", llama, tmp_path / "out.gguf", "--type", "f16"): "weight file"}
    for args, kinds in calls.items():
        kinds_seen = [json.loads(line)["kind"] for line in ok(*args, "--json").splitlines()]
        assert list(dict.fromkeys(kinds_seen)) == kinds.split(), args


def test_names_on_standard_output_are_plain(tmp_path, llama):
    """E.16: a file's name may hold escape codes, which no terminal shall obey."""
    path = tmp_path / "a\x1b[31m\nb.gguf"
    path.write_bytes(llama.read_bytes())
    np.save(tmp_path / "x\x1b.npy", np.ones((1, 32), np.float32))
    for args in (["run", path, "--tokens", "1"], ["run", path, "--input", tmp_path / "x\x1b.npy"], ["info", path],
                 ["convert", path, tmp_path / "\x1bout.gguf", "--type", "f16"]):
        text = ok(*args)
        assert "\x1b" not in text and "\\x1b" in text, args


def test_a_control_byte_in_an_argument_is_escaped():
    assert "\\x1b" in fails("run", "--activation", "a\x1b[31m")


@pytest.mark.parametrize("make, saying", [
    (lambda p: None, "No such file"),
    (lambda p: p.mkdir(), ""),
    (lambda p: os.mkfifo(p), ""),
    (lambda p: p.symlink_to(p), "symbolic"),
])
@pytest.mark.parametrize("verb", ["run", "info", "check"])
def test_file_that_cannot_be_opened(tmp_path, verb, make, saying):
    path = tmp_path / "model.gguf"
    make(path)
    assert "model.gguf" in fails(verb, path, saying=saying, timeout=5)


def test_full_device_is_exit_3(llama):
    with open("/dev/full", "w") as full:
        done = subprocess.run([tool.TOOL, "info", llama], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert done.stderr.splitlines() == ["swiglu: standard output: No space left on device"]


@pytest.mark.parametrize("ignored", [False, True])
def test_closed_pipe_is_quiet(llama, ignored):
    trap = "trap '' PIPE; " if ignored else ""
    script = f"set -o pipefail; {trap}{tool.TOOL} cpu | true; echo $?; {tool.TOOL} info {llama} | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.stderr == "" and lines[0] in ("0", "3", "141") and "llama.gguf" in lines[1]


def test_nothing_on_stderr_without_a_terminal(llama):
    assert call("run", llama, "--check", "--tokens", "3", "--digest").stderr == ""


def test_progress_on_a_terminal(llama):
    """A pseudo-terminal as standard error; the line is wiped at the end."""
    reader, terminal = os.openpty()
    subprocess.run([tool.TOOL, "run", llama, "--digest"], stdout=subprocess.DEVNULL, stderr=terminal, check=True)
    os.close(terminal)
    text = tool.drain(reader)
    assert "layer 0 (1 of 3)" in text and text.endswith("\r\x1b[K")
