"""Modules import modules of their own package relatively; only imports from other packages use full names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.imports import FOLDERS, ROOT, modules, tree

OUTSIDE = "ottla.spark_integration.pyspark_ottla"
"""Module that Spark loads as a top-level package beside `ottla`, so its imports from `ottla` cannot be relative."""

IN_PYTHON = [
    module for module, path in modules().items() if path.suffix == ".py" and not module.startswith(OUTSIDE)
]


def test_a_package_imports_its_own_modules_relatively() -> None:
    found = [
        f"{modules()[module].relative_to(ROOT)}:{line}: {name}"
        for module in IN_PYTHON
        for line, name in own_in_full(tree(module), package_of(module))
    ]
    assert not found, "\n".join(found)


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
        (1, "ottla.client.records"),
        (2, "ottla.client.failures"),
        (3, "ottla.client"),
        (4, "ottla.client.consumer.Consumer"),
    ]
    others = ast.parse(
        "from ottla.protocol import errors\nfrom .records import Topic\nimport ottla.clients\n"
    )
    assert list(own_in_full(others, "client")) == []


def test_the_door_is_a_package_too() -> None:
    door = ast.parse("from ottla.version import __version__\nfrom ottla.client.consumer import Consumer\n")
    assert list(own_in_full(door, "ottla")) == [(1, "ottla.version.__version__")]


def package_of(module: str) -> str:
    """Return the top-level folder of a module."""
    return modules()[module].relative_to(ROOT).parts[0]


def own_in_full(parsed: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of each import from the module's own package."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if _is_own(name, package))


def _is_own(name: str, package: str) -> bool:
    if package != "ottla":
        return f"{name}.".startswith(f"ottla.{package}.")
    return name.startswith("ottla.") and name.split(".")[1] not in {*FOLDERS} - {package}
