# SPDX-License-Identifier: Apache-2.0
"""The package is layered by name: who imports whom, and no private name is reached across packages."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "swiglu"
# Each layer and those that it may import; "" is the files at the top, which are the public names.
BELOW = {
    "_c": {"_c"},
    "arrays": {"_c", "arrays"},
    "torch": {"_c", "torch"},
    "dropin": {"_c", "arrays", "torch", "dropin"},
    "": {"_c", "arrays", "torch", "dropin", ""},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path):
    folder = path.relative_to(PACKAGE).parts[0]
    return "" if folder.endswith(".py") else folder


def imports(path):
    """(the module's parts below swiglu, name) of each name that a file imports from the package."""
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level + 1]
            for alias in node.names:
                yield (*base, *(node.module or "").split(".")) if node.module else base, alias.name


def test_all_files_are_seen():
    assert {layer_of(path) for path in FILES} == set(BELOW)
    assert any(list(imports(path)) for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_lies_below_it(path):
    layer = layer_of(path)
    for module, name in imports(path):
        target = module[0] if module else name
        known = target if target in BELOW else ""  # a file at the top
        assert known in BELOW[layer], f"imports {'.'.join(module)}.{name}"
        if target != layer:
            private = [part for part in (*module[1:], name) if part.startswith("_")]
            assert not private or private == ["_c"], f"reaches {'.'.join(module)}.{name}"
