#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the whole library as one file, out/swiglu.c, beside copies of its public headers: `cc -std=c11 -O2 -c swiglu.c`.

Order: system headers, then every header with an include guard once (dependencies first), then each source file as a
section of its own. Headers without a guard are templates: they are pasted wherever they are included, inside the target
region that is open there. What one file keeps to itself may share a name with another file's: the preprocessor is asked
which file-scope names a source defines, and a name with two owners is renamed by a macro in each of their sections.
Macros of a section end with it.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(swiglu/[^>]+)>)')
SYSTEM = re.compile(r"^\s*#\s*include\s+<([^>]+)>")
GUARD = re.compile(r"^#ifndef (\w+_H)\n#define \1\n(.*)\n#endif\n*\Z", re.M | re.S)
FEATURE = re.compile(r"^\s*#\s*define\s+_(?:GNU|DEFAULT|POSIX_C|XOPEN)_SOURCE\b")
LICENSE_LINE = "/* SPDX-License-Identifier: Apache-2.0 */\n"
VECTOR_HEADERS = {"immintrin.h": "__x86_64__", "cpuid.h": "__x86_64__", "arm_neon.h": "__aarch64__"}

HEAD = """\
/* libswiglu {version} as one file, made by tools/amalgamate.py; edit the sources instead.
 * Build: cc -std=c11 -O2 -c swiglu.c, with swiglu.h, model.h and version.h beside it; link with -pthread -lm. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
/* No contraction of a * b + c, whatever the compiler's default is: the bits are a contract (docs/numerics.md). */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-delete-null-pointer-checks")
#endif
"""


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)


def guarded_body(text):
    """The text between a header's include guard, or None for a template."""
    match = GUARD.search(strip_comments(text).strip() + "\n")
    if not match:
        return None
    guard = match.group(1)
    body = re.sub(rf"#ifndef {guard}\n#define {guard}\n", "", text, count=1)
    return body[: body.rindex("#endif")]


class Amalgamation:
    def __init__(self):
        self.system = []  # hoisted <...> headers in order of appearance
        self.shared = {}  # guarded header -> its pasted body

    def find(self, name, includer):
        for base in (includer.parent, ROOT / "src", ROOT / "include"):
            if (base / name).is_file():
                return (base / name).resolve()
        sys.exit(f"amalgamate: {includer}: no file {name}")

    def public(self, path):
        return ROOT / "include" in path.parents

    def paste(self, path, text):
        """text with its local includes pasted or, for guarded headers, collected; system headers hoisted."""
        out, depth = [], 0
        for line in text.splitlines(keepends=True):
            local, system = INCLUDE.match(line), SYSTEM.match(line)
            if re.match(r"\s*#\s*if", line):
                depth += 1
            elif re.match(r"\s*#\s*endif", line):
                depth -= 1
            if local:
                target = self.find(local.group(1) or local.group(2), path)
                if not self.public(target):
                    out.append(self.include(target))
            elif system and (depth == 0 or system.group(1) in VECTOR_HEADERS):
                if system.group(1) not in self.system:
                    self.system.append(system.group(1))
            elif not FEATURE.match(line) and line != LICENSE_LINE:
                out.append(line)
        return "".join(out)

    def include(self, path):
        if path in self.shared:
            return ""
        text = path.read_text()
        body = guarded_body(text)
        if body is None:
            return self.paste(path, text)
        pasted = self.paste(path, body)  # what it includes itself is collected before it
        self.shared[path] = pasted
        return ""


TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\.?\d[\w.]*|\S')


def preprocessed_tokens(source, compiler):
    """Tokens of a source that come from its own text or a template, in order; a list that a guarded header includes is that
    header's."""
    command = [compiler, "-std=c11", "-E", "-I", ROOT / "include", "-I", ROOT / "src", source]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    own, stack = {}, []
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]+)"(?: (\d))?', line)
        if marker:
            name, flag = marker.groups()
            if name not in own:
                path = Path(name).resolve()
                own[name] = (ROOT / "src" in path.parents and path.is_file()
                             and (path.suffix == ".c" or guarded_body(path.read_text()) is None))
            if flag == "1":
                stack.append(name)
            elif flag == "2":
                stack.pop()
            stack[-1:] = [name]
        elif stack and all(own[name] for name in stack) and not line.startswith("#"):
            yield from TOKEN.findall(line)


def skip_group(tokens, at):
    """Index after the group that opens at tokens[at]."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at] in "({[") - (tokens[at] in ")}]")
        at += 1
        if depth == 0:
            break
    return at


def declared_names(declaration):
    """Names that one file-scope declaration keeps to its file: tags, enumerators, typedefs and static entities."""
    names, flat, at = set(), [], 0
    while at < len(declaration):  # flat: the declaration without groups, each replaced by its opening bracket
        token = declaration[at]
        if token in ("__attribute__", "__asm__", "_Alignas"):
            at = skip_group(declaration, at + 1)
        elif token in "({[":
            end = skip_group(declaration, at)
            if token == "{" and flat and ("enum" in flat[-2:]):
                body = declaration[at + 1 : end - 1]
                names.update(t for i, t in enumerate(body)
                             if re.match(r"[A-Za-z_]", t) and (i == 0 or body[i - 1] == ","))
            if token == "(" and declaration[at + 1] == "*" and "typedef" in flat:
                names.add(declaration[at + 2])
            flat.append(token)
            at = end
        else:
            flat.append(token)
            at += 1
    for i, token in enumerate(flat):
        if token in ("struct", "union", "enum") and i + 2 < len(flat) and flat[i + 2] == "{":
            names.add(flat[i + 1])
    if "static" in flat or "typedef" in flat:
        for i, token in enumerate(flat):
            if re.match(r"[A-Za-z_]", token) and (flat[i + 1 : i + 2] or [";"])[0] in ("(", "[", "=", ";", ","):
                names.add(token)
                if flat[i + 1 : i + 2] == ["("]:
                    break  # a function: what follows is its body
    return names


def file_scope_names(source, compiler):
    tokens = list(preprocessed_tokens(source, compiler))
    names, start, at = set(), 0, 0
    while at < len(tokens):
        if tokens[at] in "({[":
            body = tokens[at] == "{"
            function = body and at > start and tokens[at - 1] == ")"
            at = skip_group(tokens, at)
            if not function:
                continue
        elif tokens[at] != ";":
            at += 1
            continue
        else:
            at += 1
        names |= declared_names(tokens[start:at])
        start = at
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder to write to (default: out)")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"), help="compiler whose preprocessor is asked")
    options = parser.parse_args()

    sources = sorted((ROOT / "src").glob("*/*.c"))
    owners = defaultdict(set)
    for source in sources:
        for name in file_scope_names(source, options.cc):
            owners[name].add(source)

    whole = Amalgamation()
    sections = []
    for source in sources:
        text = whole.paste(source, source.read_text())
        renames = sorted(n for n, files in owners.items() if len(files) > 1 and source in files)
        macros = sorted(set(re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M)))
        section = [f"\n/* ---- {source.relative_to(ROOT)} ---- */\n"]
        section += [f"#define {n} {n}_in_{source.stem}\n" for n in renames]
        section += [text]
        section += [f"#undef {n}\n" for n in sorted(set(renames) | set(macros))]
        sections.append("".join(section))

    version = re.search(r'VERSION_STRING "([^"]+)"', (ROOT / "include/swiglu/version.h").read_text()).group(1)
    out = [LICENSE_LINE, HEAD.format(version=version)]
    for name in whole.system:
        condition = VECTOR_HEADERS.get(name)
        out.append(f"#if defined({condition})\n#include <{name}>\n#endif\n" if condition else f"#include <{name}>\n")
    out.append('#include "swiglu.h"\n#include "model.h"\n')
    for path, text in whole.shared.items():
        out.append(f"\n/* ---- {path.relative_to(ROOT)} ---- */\n{text}")
    out += sections

    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "swiglu.c").write_text("".join(out))
    for header in (ROOT / "include/swiglu").glob("*.h"):
        shutil.copy(header, options.out)
    print(f"{options.out / 'swiglu.c'}: {len(sources)} source files as one")


if __name__ == "__main__":
    main()
