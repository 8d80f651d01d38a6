#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that compilers and linters do not know: which floor may see which, where allocation, threads and
vector headers may appear, sizes of files and functions, licence lines, blanks. With --fix repairs blanks (make fmt)."""
import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The aims are 120 columns, 600 lines a file and 60 a function; a little grace saves ugly breaks.
LINE_COLUMNS, FILE_LINES, FUNCTION_LINES, ISA_LINES = 130, 620, 75, 40

# Folder of src/ -> folders whose headers it may include, besides its own and the public ones.
FLOORS = {
    "base": set(),
    "cpu": {"base"},
    "dtype": {"base"},
    "ref": {"base", "dtype"},
    "io": {"base", "dtype"},
    "kern": {"base", "cpu", "dtype"},
    "ffn": {"base", "cpu", "dtype", "kern"},
    "api": {"base", "cpu", "dtype", "kern", "ffn", "ref", "io"},
}
# Inside src/: pattern, the files that may hold it, what to say.
CONFINED = [
    (r"#\s*include\s*<(immintrin|arm_neon)\.h>", r"kern/vec_\w+\.h", "vector headers belong to kern/vec_*.h"),
    (r"\bpthread_(create|mutex_|cond_|join)|#\s*include\s*<threads\.h>", r"api/threads\.c", "threads belong to api/threads.c"),
    (r"\b(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|mmap|munmap)\s*\(", r"base/alloc\.c",
     "allocation goes through base/alloc.h"),
    (r"\b(printf|fprintf|puts|putchar|perror|exit|_exit|abort|atexit|getenv|setenv|signal|sigaction)\s*\(", r"(?!)",
     "the library never prints, exits, reads the environment or installs a handler"),
    (r"\balloca\s*\(", r"(?!)", "no stack memory of variable size"),
]
# Every public function is defined in src/api/, but for what lower floors start from themselves.
BELOW = {"src/base/act.c", "src/base/status.c", "src/dtype/dtype.c", "src/ffn/desc.c"}
PUBLIC = re.compile(r"^SWIGLU_API[^;{]*?\b(swiglu_\w+)\(", re.M)
REGISTRY_HOST = re.compile(r"(pypi|pythonhosted|deb\.debian|npmjs|crates)\.(org|io)")
# What a list holds is asked of the library elsewhere: list -> pattern of the names that cli and python may not spell. The
# float types are no such names, since rows and computes are called so, too. verb_plan.c shows a choice of five formats.
LISTS = {"src/dtype/dtype.def": re.compile(r"^DTYPE\(\w+, \"(\w+)\", (?!1,)", re.M)}
MAY_SPELL = {"cli/verb_plan.c"}
C_FILES = {".c", ".h", ".def"}
CODE = C_FILES | {".py", ".sh", ".cmake"}
COMMENT_OR_STRING = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)

problems = []


def complain(path, line, text):
    problems.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def code_only(text):
    """C text with comments and literals blanked, lines kept."""
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_text(path, text, fix):
    if fix:
        lines = [line.rstrip() for line in text.splitlines()]
        while lines and not lines[-1]:
            lines.pop()
        fixed = "\n".join(lines) + "\n" if lines else ""
        if fixed != text:
            path.write_text(fixed)
            text = fixed
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            complain(path, number, "trailing blanks (make fmt)")
        if "\t" in line and path.name != "Makefile":
            complain(path, number, "tab")
        if path.suffix in CODE and len(line) > LINE_COLUMNS:
            complain(path, number, f"{len(line)} columns, at most {LINE_COLUMNS}")
        if REGISTRY_HOST.search(line):
            complain(path, number, "names a package registry's host; name the package")
    if text and not text.endswith("\n"):
        complain(path, len(text.splitlines()), "no newline at the end (make fmt)")
    if path.suffix in CODE or path.name in ("Makefile", "CMakeLists.txt"):
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in text.splitlines()[:2]):
            complain(path, 1, "no SPDX-License-Identifier line at the top")
        limit = ISA_LINES if path.name.startswith("isa_") else FILE_LINES
        if len(text.splitlines()) > limit:
            complain(path, 1, f"{len(text.splitlines())} lines, at most {limit}")


def check_functions(path, code):
    """A function ends at the first line that is a lone closing brace and begins at the unindented line before its body."""
    start = None
    for number, line in enumerate(code.splitlines(), 1):
        if line.startswith("}") and start is not None:
            if number - start + 1 > FUNCTION_LINES:
                complain(path, start, f"a function of {number - start + 1} lines, at most {FUNCTION_LINES}")
            start = None
        elif re.match(r"[A-Za-z_].*\(", line) and not line.rstrip().endswith((";", "}")):
            start = number
        elif line.startswith(("struct", "enum", "union", "static const", "typedef")) and line.rstrip().endswith("{"):
            start = None


def check_c(path, text):
    code = code_only(text)
    for number, line in enumerate(code.splitlines(), 1):
        if re.match(r"\s*#\s*if\s+0\b", line):
            complain(path, number, "#if 0: delete it, the history keeps it")
    check_functions(path, code)
    parts = path.relative_to(ROOT).parts
    includes = [(number, m.group(1)) for number, line in enumerate(text.splitlines(), 1)
                if (m := re.match(r'\s*#\s*include\s*"([^"]+)"', line))]
    if parts[0] == "src":
        inside = "/".join(parts[1:])
        for pattern, allowed, message in CONFINED:
            for number, line in enumerate(code.splitlines(), 1):
                if re.search(pattern, line) and not re.fullmatch(allowed, inside):
                    complain(path, number, message)
        if parts[1] not in FLOORS:
            complain(path, 1, f"src/{parts[1]} is no floor; tools/lint_source.py lists them")
        for number, name in includes:
            folder = name.split("/")[0]
            if folder not in FLOORS.get(parts[1], set()) | {parts[1], "swiglu"}:
                complain(path, number, f"{parts[1]} must not see {name}")
    elif parts[0] in ("cli", "examples"):
        for number, name in includes:
            if "/" in name and not name.startswith("swiglu/"):
                complain(path, number, f"{parts[0]} sees the public headers only, not {name}")


def words(path):
    """(line, word) of each identifier and each one-word literal of C code, or each literal of Python code."""
    if path.suffix == ".py":
        nodes = ast.walk(ast.parse(path.read_text()))
        yield from ((n.lineno, n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        return
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), path.read_text(), flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, word) for word in re.findall(r"\bSWIGLU_\w+|(?<=\")\w+(?=\")", line))


def check_lists(files):
    """Names of a list stand in the list: a second place that spells them is forgotten when one is added."""
    for list_name, pattern in LISTS.items():
        names = set(pattern.findall((ROOT / list_name).read_text()))
        for path in files:
            where = path.relative_to(ROOT)
            if where.parts[0] not in ("cli", "python") or path.suffix not in (".c", ".h", ".py") or str(where) in MAY_SPELL:
                continue
            for number, word in words(path):
                if word.lower().removeprefix("swiglu_") in names:
                    complain(path, number, f"{word} is a name of {list_name}; ask the library for the list")


def check_public(files):
    """A public function is found in src/api/."""
    headers = [path for path in files if path.relative_to(ROOT).parts[0] == "include" and path.suffix == ".h"]
    names = {name for path in headers for name in PUBLIC.findall(code_only(path.read_text()))}
    definition = re.compile(r"^[a-z][\w *]*?\b(swiglu_\w+)\([^;{]*\)\s*\{", re.M)
    for path in files:
        where = str(path.relative_to(ROOT))
        if not where.startswith("src/") or where.startswith("src/api/") or where in BELOW or path.suffix != ".c":
            continue
        code = code_only(path.read_text())
        for match in definition.finditer(code):
            if match.group(1) in names:
                complain(path, code.count("\n", 0, match.start()) + 1, f"{match.group(1)} is public: define it in src/api/")


def check_index(files):
    """docs/README.md leads to every page."""
    index = (ROOT / "docs/README.md").read_text()
    for path in files:
        where = path.relative_to(ROOT / "docs") if path.is_relative_to(ROOT / "docs") else None
        if where and path.suffix == ".md" and str(where) != "README.md" and f"]({where.as_posix()})" not in index:
            complain(path, 1, "docs/README.md has no line for this page")


def check_unique_names(files):
    """Within src, cli and include a file name means one file."""
    seen = {}
    for path in files:
        top = path.relative_to(ROOT).parts[0]
        if path.suffix in (".c", ".h") and top in ("src", "cli", "include"):
            first = seen.setdefault((top, path.name), path)
            if first != path:
                complain(path, 1, f"the name is taken by {first.relative_to(ROOT)}")


def main():
    fix = sys.argv[1:] == ["--fix"]
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode().split("\0")
    files = sorted({ROOT / name for name in listed if name and (ROOT / name).is_file()})
    for path in files:
        data = path.read_bytes()
        if b"\0" in data or path.name == "LICENSE":
            continue
        text = data.decode()
        check_text(path, text, fix)
        if path.suffix in C_FILES:
            check_c(path, text)
    check_unique_names(files)
    check_public(files)
    check_index(files)
    check_lists(files)
    print("\n".join(problems) or f"{len(files)} files keep the house rules")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
