# SPDX-License-Identifier: Apache-2.0
"""Faults while a checkpoint is written: the old file stays whole, the exit code tells, no temporary is left."""
import errno
import os
import random
import resource
import signal
import stat
import subprocess
import time

import pytest
from checkpoints import tensors, write
from faults import fault
from st_files import LLAMA, folder, llama
from tool import TOOL, call, drain, fails, ok

OLD = b"what was there before"
CALLS = ("open", "pread", "write", "fsync", "rename", "close")


class Setting:
    """A model, what it becomes, and an older file where the output goes, alone in its folder."""

    def __init__(self, path, shim, kind="gguf", **model):
        self.folder, self.hit, self.shim = path / "out", path / "hit", shim
        self.folder.mkdir()
        self.out = self.folder / f"model.{kind}"
        self.model = write(path / "in.gguf", **model) if kind == "gguf" else folder(path, LLAMA, llama())
        ok("convert", self.model, path / "expected", "--type", "bf16")
        self.expected = (path / "expected").read_bytes()
        self.command = [TOOL, "convert", self.model, self.out, "--type", "bf16"]

    def environment(self, call_name, n, do, every=False):
        return fault(self.shim, self.hit, call_name, n, do, every)

    def run(self, call_name, n, do, every=False):
        """One conversion over the old file; whether the fault came, and how it ended."""
        self.out.write_bytes(OLD)
        self.hit.unlink(missing_ok=True)
        done = subprocess.run(self.command, env=self.environment(call_name, n, do, every), capture_output=True, text=True,
                              timeout=60)
        return self.hit.exists(), done

    def leftovers(self):
        return [name for name in os.listdir(self.folder) if name != self.out.name]

    def new(self):
        return self.out.read_bytes() == self.expected

    def old(self):
        return self.out.read_bytes() == OLD


@pytest.fixture
def setting(tmp_path, shim):
    return Setting(tmp_path, shim)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
@pytest.mark.parametrize("call_name", CALLS)
@pytest.mark.parametrize("why", ["EIO", "ENOSPC", "EINTR", "EACCES"])
def test_2_14_the_nth_call_fails(tmp_path, shim, call_name, why, kind):
    setting = Setting(tmp_path, shim, kind)
    for n in range(1, 1000):
        hit, done = setting.run(call_name, n, getattr(errno, why))
        assert not setting.leftovers(), (n, done.stderr)
        if not hit:
            break
        if done.returncode == 0:  # nothing was lost: repeated, or the last use of a file that is safe already
            assert setting.new(), (n, done.stderr)
            assert why == "EINTR" or call_name == "close" or (call_name == "open" and why == "EACCES"), n
            continue
        assert done.returncode == (2 if call_name == "open" and "folder" not in done.stderr else 3), (n, done.stderr)
        assert done.stderr.count("\n") == 1 and os.strerror(getattr(errno, why)) in done.stderr, done.stderr
        assert setting.new() if "complete and in place" in done.stderr else setting.old(), (n, done.stderr)
    assert done.returncode == 0 and setting.new()
    assert n > {"open": 3, "pread": 10, "write": 10, "fsync": 2, "rename": 1, "close": 4}[call_name]


@pytest.mark.parametrize("call_name, do, every", [
    ("write", "short", True), ("pread", "short", True), ("write", "short", False), ("pread", "short", False)])
def test_2_14_short_reads_and_writes_are_continued(setting, call_name, do, every):
    for n in (1, 2, 7):
        hit, done = setting.run(call_name, n, do, every)
        assert hit and done.returncode == 0, done.stderr
        assert setting.new() and not setting.leftovers()


def test_2_14_a_file_that_ends_early(setting):
    for n in range(1, 1000):
        hit, done = setting.run("pread", n, "eof")
        assert not setting.leftovers()
        if not hit:
            break
        assert done.returncode == 3 and "short read" in done.stderr and setting.old(), done.stderr
    assert n > 10 and setting.new()


@pytest.mark.parametrize("call_name", ["write", "fsync", "pread"])
def test_2_14_everything_fails_from_then_on(setting, call_name):
    for n in (1, 2, 9) if call_name != "fsync" else (1,):
        hit, done = setting.run(call_name, n, errno.ENOSPC, every=True)
        assert hit and done.returncode == 3 and setting.old() and not setting.leftovers(), done.stderr


def test_2_14_a_real_limit(setting):
    """The system cuts a write short at the limit of a file's size, then refuses."""
    setting.out.write_bytes(OLD)
    limit = len(setting.expected) // 2 + 5
    done = subprocess.run(setting.command, capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 3 and f"write at byte {limit}" in done.stderr and os.strerror(errno.EFBIG) in done.stderr
    assert setting.old() and not setting.leftovers()


# ---- signals ----

@pytest.mark.parametrize("do, number", [("int", signal.SIGINT), ("term", signal.SIGTERM)])
def test_2_13_a_signal_removes_the_temporary(setting, do, number):
    for call_name, n in [("write", 1), ("write", 5), ("pread", 9), ("fsync", 1), ("close", 2)]:
        hit, done = setting.run(call_name, n, do)
        assert hit and done.returncode == -number and not done.stderr, (call_name, done)
        assert setting.old() and not setting.leftovers()
    hit, done = setting.run("rename", 1, do)  # too late: the file is complete
    assert hit and done.returncode == 0 and setting.new() and not setting.leftovers()


def test_an_ignored_signal_stays_ignored(setting):
    setting.out.write_bytes(OLD)
    done = subprocess.run(setting.command, env=setting.environment("write", 3, "int"), capture_output=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert done.returncode == 0 and setting.new()


def test_2_13_what_a_killed_writer_left_is_removed_at_the_next_start(setting):
    for call_name, n in [("open", 2), ("write", 1), ("write", 9), ("fsync", 1)]:
        hit, done = setting.run(call_name, n, "kill")
        assert hit and done.returncode == -signal.SIGKILL and setting.old()
        (left,) = setting.leftovers()
        assert left.startswith("model.gguf.swiglu-") and left.endswith(".tmp")
    names = ["model.gguf.swiglu-1-.tmp", "model.gguf.swiglu-a-1.tmp", "model.gguf.swiglu-1-1.tmp.bak",
             "model.gguf.swiglu--1-1.tmp", "other.swiglu-1-1.tmp"]
    for name in names:  # nothing that was not made by a writer of this target
        (setting.folder / name).write_bytes(b"")
    os.symlink(setting.model, setting.folder / "model.gguf.swiglu-1-2.tmp")
    hit, done = setting.run("none", 1, 0)
    assert done.returncode == 0 and setting.new()
    assert sorted(setting.leftovers()) == sorted([*names, "model.gguf.swiglu-1-2.tmp"]) and setting.model.exists()


@pytest.mark.parametrize("limit", [None, 8192])
def test_an_input_is_no_leftover_whatever_its_name_is(setting, limit):
    """Somebody rescues what a killed writer left, by its name."""
    rescued, other = (setting.folder / f"{setting.out.name}.swiglu-1-{n}.tmp" for n in (2, 3))
    content = setting.model.read_bytes()
    rescued.write_bytes(content)
    other.write_bytes(b"left")
    limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))} if limit else {}
    done = call("convert", rescued, setting.out, "--type", "bf16", **limits)
    assert rescued.read_bytes() == content and not other.exists()
    assert done.returncode == 0 and setting.new() if limit is None else done.returncode == 3 and not setting.out.exists()


def test_2_13_the_temporary_of_a_living_writer_stays(setting):
    setting.out.write_bytes(OLD)
    first = subprocess.Popen(setting.command, env=setting.environment("write", 4, "stop"), stdout=subprocess.DEVNULL)
    assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
    try:
        (temporary,) = setting.leftovers()
        ok("convert", setting.model, setting.out, "--type", "f16")
        assert setting.leftovers() == [temporary] and not setting.old()
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(first.pid, 0)[1]) == 0
    first.returncode = 0
    assert setting.new() and not setting.leftovers()


def test_2_13_random_kills(tmp_path, shim):
    """A longer conversion, killed at random times; SWIGLU_KILLS sets how often."""
    setting = Setting(tmp_path, shim, layers=4, d=512, ff=1024)
    begin = time.monotonic()
    setting.run("none", 1, 0)
    whole, pick = time.monotonic() - begin, random.Random(2)
    ends = []
    for _ in range(int(os.environ.get("SWIGLU_KILLS", 20))):
        setting.out.write_bytes(OLD)
        process = subprocess.Popen(setting.command, stdout=subprocess.DEVNULL)
        time.sleep(pick.uniform(0, whole))
        process.kill()
        ends.append(process.wait())
        assert setting.old() or setting.new()
    assert -signal.SIGKILL in ends
    hit, done = setting.run("none", 1, 0)
    assert done.returncode == 0 and setting.new() and not setting.leftovers()


# ---- places ----

def test_2_15_a_file_over_itself(setting):
    data = setting.model.read_bytes()
    ok("convert", setting.model, setting.model, "--type", "bf16")
    assert setting.model.read_bytes() == setting.expected != data
    ok("convert", setting.model, setting.model, "--type", "bf16")
    assert setting.model.read_bytes() == setting.expected


@pytest.mark.parametrize("mode", [0o444, 0o600, 0o664, 0o755, 0o4750])
def test_2_16_a_replaced_file_passes_on_its_mode(setting, mode):
    setting.out.write_bytes(OLD)
    setting.out.chmod(mode)
    ok(*setting.command[1:])
    assert setting.new() and stat.S_IMODE(setting.out.stat().st_mode) == mode & 0o777


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_2_16_a_new_file_follows_the_umask(setting, mask):
    old = os.umask(mask)
    try:
        ok(*setting.command[1:])
    finally:
        os.umask(old)
    assert stat.S_IMODE(setting.out.stat().st_mode) == 0o666 & ~mask


def test_2_16_read_only_input(setting):
    setting.model.chmod(0o444)
    ok(*setting.command[1:])
    assert setting.new()


def test_2_16_read_only_folder(setting):
    """Root may write anywhere, so there the folder is one that nobody can write to."""
    if os.getuid():
        setting.folder.chmod(0o555)
        out = setting.out
    else:
        out = "/proc/model.gguf"
    line = fails("convert", setting.model, out, "--type", "f16", saying="cannot create a file beside it")
    setting.folder.chmod(0o755)
    assert str(out) in line and not setting.leftovers()


@pytest.mark.parametrize("pointed", ["file", "nothing", "folder"])
def test_2_16_a_link_is_replaced_not_followed(setting, tmp_path, pointed):
    goal = tmp_path / "goal"
    if pointed == "file":
        goal.write_bytes(OLD)
    elif pointed == "folder":
        goal.mkdir()
    setting.out.symlink_to(goal)
    ok(*setting.command[1:])
    assert not setting.out.is_symlink() and setting.new() and not setting.leftovers()
    assert goal.exists() == (pointed != "nothing") and (pointed != "file" or goal.read_bytes() == OLD)


@pytest.mark.parametrize("kind", ["folder", "fifo", "slash", "gone"])
def test_2_16_places_that_are_no_file(setting, kind):
    out = setting.out
    if kind == "folder":
        out.mkdir()
    elif kind == "fifo":
        os.mkfifo(out)
    elif kind == "gone":
        out = setting.folder / "gone" / "model.gguf"
    before = os.listdir(setting.folder)
    target = f"{setting.folder}/" if kind == "slash" else out
    fails("convert", setting.model, target, "--type", "f16", timeout=10)
    assert os.listdir(setting.folder) == before


def test_long_and_odd_names(setting):
    for name in ("x" * 255, "-", "a b\n\x1b[2J.gguf", "\u00e9" * 127):
        out = setting.folder / name
        ok("convert", "--type", "bf16", "--", setting.model, out)
        assert out.read_bytes() == setting.expected
        out.unlink()
    ok("convert", setting.model, "model.gguf", "--type", "bf16", cwd=setting.folder)
    assert setting.new() and not setting.leftovers()
    fails("convert", setting.model, setting.folder / ("x" * 256), "--type", "bf16", saying=os.strerror(errno.ENAMETOOLONG))
    assert not setting.leftovers()


def test_2_17_eight_writers_at_once(setting):
    results = set()
    for kind in ("f32", "f16", "bf16"):
        ok("convert", setting.model, setting.out, "--type", kind)
        results.add(setting.out.read_bytes())
    assert len(results) == 3
    for _ in range(3):
        writers = [subprocess.Popen([TOOL, "convert", setting.model, setting.out, "--type", ("f32", "f16", "bf16")[i % 3]],
                                    stdout=subprocess.DEVNULL) for i in range(8)]
        assert [w.wait(60) for w in writers] == [0] * 8
        assert setting.out.read_bytes() in results and not setting.leftovers()


def test_progress_is_shown_on_a_terminal_only(setting):
    assert not call(*setting.command[1:]).stderr
    main, terminal = os.openpty()
    done = subprocess.run(setting.command, stdout=subprocess.DEVNULL, stderr=terminal, timeout=60)
    os.close(terminal)
    shown = drain(main)
    assert done.returncode == 0 and "100% of " in shown and "[====" in shown
    assert shown.endswith("\x1b[K")
    assert len(tensors(setting.out)) == 13
