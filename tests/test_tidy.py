"""The house rules, checked: what pyproject says is what stands there, files stay small, everything says what
it is.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = (
    "network",
    "protocol",
    "metadata_quorum",
    "dataplane",
    "client",
    "spark_integration",
    "cli",
    "ottla",
)
ELSEWHERE = {"pyspark_ottla": "spark_integration/pyspark_ottla"}
"""Packages outside of ottla, and where they stand: Spark finds data sources in top-level packages called pyspark_..."""
LINES_MAX = 600
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def sources() -> Iterator[Path]:
    for floor in FLOORS:
        yield from sorted((ROOT / floor).rglob("*.py"))


SOURCES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in sources()]


def test_every_folder_with_code_is_a_declared_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent.relative_to(ROOT) for path in sources()} - set(map(Path, ELSEWHERE.values()))
    assert set(declared["packages"]) == {
        ".".join(folder.parts if folder.parts[0] == "ottla" else ("ottla", *folder.parts))
        for folder in folders
    } | set(ELSEWHERE)
    assert declared["package-dir"] == ELSEWHERE | {
        "ottla" if floor == "ottla" else f"ottla.{floor}": floor for floor in FLOORS
    }


def test_type_checkers_see_every_floor() -> None:
    assert {path.name for path in (ROOT / ".typing/ottla").iterdir()} >= set(FLOORS) - {"ottla"}


@pytest.mark.parametrize("path", SOURCES)
def test_a_file_is_small_enough_to_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", SOURCES)
def test_nothing_is_left_unfinished(path: Path) -> None:
    assert not UNFINISHED.search(path.read_text())


@pytest.mark.parametrize("path", SOURCES)
def test_modules_and_public_classes_say_what_they_are(path: Path) -> None:
    module = ast.parse(path.read_text())
    silent = [
        node.name
        for node in module.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert ast.get_docstring(module), "the module has no docstring"
    assert not silent


@pytest.mark.parametrize("path", SOURCES)
def test_failures_are_not_swallowed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
            assert not (broad and silent), f"line {node.lineno} swallows everything"
