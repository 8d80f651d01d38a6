# SPDX-License-Identifier: Apache-2.0
"""Every row of the hostile inputs is in a table or in a test's name: none can be lost when tests move."""
import pathlib
import re

TEST = pathlib.Path(__file__).resolve().parent.parent
ROWS = {f"{letter}{i:02}" for letter, n in (("G", 78), ("S", 34), ("N", 20)) for i in range(1, n + 1)}
# A row of a table, or a number in the name of a test.
TABLE = re.compile(r'^    (?:\*\[)?\(f?"([GSN]\d\d)\b', re.M)
NAME = re.compile(r"^def (test_\w+)", re.M)


def rows_of(folder):
    found = set()
    for path in sorted((TEST / folder).glob("*.py")):
        text = path.read_text()
        found.update(TABLE.findall(text))
        for name in NAME.findall(text):
            found.update(number.upper() for number in re.findall(r"(?<=_)[GSNgsn]\d\d(?=_|$)", name))
    return found & ROWS


def test_every_row_is_tested():
    found = {letter: rows_of(folder) for letter, folder in (("G", "io"), ("S", "safetensors"), ("N", "cli"))}
    for letter, rows in found.items():
        assert {row for row in ROWS if row[0] == letter} - rows == set(), letter
    assert sum(len({row for row in rows if row[0] == letter}) for letter, rows in found.items()) == 132
