"""The house rules, checked: pyproject's packages match the folders, files stay small, and modules and classes have
docstrings.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.imports import ROOT, modules, nodes, tree

FLOORS = (
    "network",
    "protocol",
    "metadata_quorum",
    "dataplane",
    "client",
    "spark_integration",
    "console",
    "lake",
    "cli",
    "ottla",
)
"""Packages outside of ottla, with their folders. Spark finds data sources in top-level packages called pyspark_..."""
LINES_MAX = 600
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


@cache
def sources() -> dict[Path, str]:
    """Return the text of every Python file of the product, by its path from the root."""
    return {
        path.relative_to(ROOT): path.read_text()
        for floor in FLOORS
        for path in sorted((ROOT / floor).rglob("*.py"))
    }


def in_python() -> dict[Path, str]:
    """Return the names of the product's Python modules, by the paths of their files from the root."""
    return {path.relative_to(ROOT): name for name, path in modules().items() if path.suffix == ".py"}


def test_every_folder_with_code_is_a_package() -> None:
    """setup.py finds packages by their `__init__.py` below the listed folders."""
    folders = {path.parent for path in sources()}
    assert [folder for folder in sorted(folders) if not (ROOT / folder / "__init__.py").exists()] == []
    listed = re.search(r"^FOLDERS = (\[[^]]+\])", (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert listed is not None
    assert set(re.findall(r"\w+", listed.group(1))) == set(FLOORS) - {"ottla"}


def test_type_checkers_see_every_floor() -> None:
    assert {path.name for path in (ROOT / ".typing/ottla").iterdir()} >= set(FLOORS) - {"ottla"}


def test_files_are_small_enough_to_read() -> None:
    lines = {path: len(text.splitlines()) for path, text in sources().items()}
    long = [f"{path} has {count} lines" for path, count in lines.items() if count > LINES_MAX]
    assert not long, "\n".join(long)


def test_nothing_is_left_unfinished() -> None:
    unfinished = [
        f"{path}:{number}: {line.strip()}"
        for path, text in sources().items()
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not unfinished, "\n".join(unfinished)


def test_modules_and_public_classes_say_what_they_are() -> None:
    silent = [
        f"{path}:1: the module" for path, name in in_python().items() if not ast.get_docstring(tree(name))
    ]
    silent += [
        f"{path}:{node.lineno}: {node.name}"
        for path, name in in_python().items()
        for node in tree(name).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert not silent, "\n".join(silent)


def test_failures_are_not_swallowed() -> None:
    swallowed = [
        f"{path}:{node.lineno}"
        for path, name in in_python().items()
        for node in nodes(name)
        if isinstance(node, ast.ExceptHandler) and _swallows_everything(node)
    ]
    assert not swallowed, "\n".join(swallowed)


def _swallows_everything(handler: ast.ExceptHandler) -> bool:
    broad = handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )
    return broad and len(handler.body) == 1 and isinstance(handler.body[0], ast.Pass)
