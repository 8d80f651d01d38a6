#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/cases.md lists public bug reports and the tests that name them. This checks that each row says where its case is
tested, as the tests have it, or why not yet; --fix writes the places anew (make fmt)."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOC = ROOT / "docs" / "cases.md"
ROW = re.compile(r"^\| (C\d{3}) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$")
CASE = re.compile(r"(?<![0-9A-Za-z])[Cc](\d{3})(?![0-9A-Za-z])")
FUNCTION = {".py": re.compile(r"^\s*def (test_\w+)"), ".c": re.compile(r"^static void (\w+)\(void \*\*state\)")}
NOT_YET = "belongs to "


def places():
    """Case -> where tests name it: "file: test" where it is the test's name, else the file."""
    found = {}
    for path in sorted((ROOT / "test").rglob("*")):
        if path.suffix not in (".c", ".h", ".py", ".sh"):
            continue
        file = str(path.relative_to(ROOT))
        for line in path.read_text().splitlines():
            for number in CASE.findall(line):
                function = FUNCTION.get(path.suffix) and FUNCTION[path.suffix].match(line)
                of_case = found.setdefault(f"C{number}", {}).setdefault(file, [])
                if function and function.group(1) not in of_case:
                    of_case.append(function.group(1))
    return {case: "; ".join(f"{file}: {', '.join(names)}" if names else file for file, names in files.items())
            for case, files in found.items()}


def main():
    fix = sys.argv[1:] == ["--fix"]
    tested, problems, rows, lines = places(), [], [], []
    for line in DOC.read_text().splitlines():
        row = ROW.match(line)
        if row:
            case, subject, report, where = row.groups()
            rows.append(case)
            right = tested.get(case, where if where.startswith(NOT_YET) else "")
            if not right:
                problems.append(f"{case}: no test names it, and no feature is said to bring one ({NOT_YET}...)")
            elif right != where and not fix:
                problems.append(f"{case}: {where!r} should be {right!r} (make fmt)")
            line = f"| {case} | {subject} | {report} | {right or where} |"
        elif re.match(r"\| C\d", line):
            problems.append(f"not a row of four cells: {line}")
        lines.append(line)
    problems += [f"{case}: tested in {where}, but has no row" for case, where in sorted(tested.items()) if case not in rows]
    if rows != sorted(set(rows)):
        problems.append("rows are out of order or twice")
    if fix:
        DOC.write_text("\n".join(lines) + "\n")
    print("\n".join(f"docs/cases.md: {problem}" for problem in problems) or f"{len(rows)} cases are where they should be")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
