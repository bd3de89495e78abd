"""A package imports its own modules relatively: only what another package has is named in full."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.imports import ROOT, modules, tree

OUTSIDE = "ottla.spark_integration.pyspark_ottla"
"""Spark finds it as a package of its own, beside `ottla`: from there nothing of `ottla` is relative."""

IN_PYTHON = [
    module for module, path in modules().items() if path.suffix == ".py" and not module.startswith(OUTSIDE)
]


@pytest.mark.parametrize("module", IN_PYTHON)
def test_a_package_imports_its_own_modules_relatively(module: str) -> None:
    assert list(own_in_full(tree(module), package_of(module))) == []


def test_an_import_in_full_is_found() -> None:
    found = own_in_full(
        ast.parse(
            "import ottla.client.records\n"
            "from ottla.client import failures\n"
            "from ottla import client\n"
            "def later(): from ottla.client.consumer import Consumer\n"
        ),
        "client",
    )
    assert list(found) == [
        "ottla.client.records",
        "ottla.client.failures",
        "ottla.client",
        "ottla.client.consumer.Consumer",
    ]
    others = ast.parse(
        "from ottla.protocol import errors\nfrom .records import Topic\nimport ottla.clients\n"
    )
    assert list(own_in_full(others, "client")) == []


def test_the_door_is_a_package_too() -> None:
    door = ast.parse("from ottla.version import __version__\nfrom ottla.client.consumer import Consumer\n")
    assert list(own_in_full(door, "ottla")) == ["ottla.version.__version__"]


def package_of(module: str) -> str:
    """The folder at the root in which the module stands."""
    return modules()[module].relative_to(ROOT).parts[0]


def own_in_full(parsed: ast.Module, package: str) -> Iterator[str]:
    """What a module of the package imports of it by its full name."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if _is_own(name, package))


def _is_own(name: str, package: str) -> bool:
    if package != "ottla":
        return f"{name}.".startswith(f"ottla.{package}.")
    others = {path.relative_to(ROOT).parts[0] for path in modules().values()} - {package}
    return name.startswith("ottla.") and name.split(".")[1] not in others
