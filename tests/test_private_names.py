"""A name with a leading underscore is used in the module that defines it, and in no other.

Types are not looked at. An attribute counts as another module's if some module of the product defines it and this one
does not; so does what a subclass uses of a base class in another module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.imports import ROOT, import_base, modules, nodes

OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}
"""The standard library documents these: the underscore keeps them apart from fields."""

IN_PYTHON = [module for module, path in modules().items() if path.suffix == ".py"]


def test_no_private_name_of_another_module_is_used() -> None:
    used = [
        f"{modules()[module].relative_to(ROOT)}:{line}: {name}"
        for module in IN_PYTHON
        for line, name in (*_imported(module), *_attributes(module))
    ]
    assert not used, "\n".join(used)


def _imported(module: str) -> Iterator[tuple[int, str]]:
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and (base := import_base(module, node)) in modules():
            for alias in node.names:
                if _is_private(alias.name) and f"{base}.{alias.name}" not in modules():
                    yield node.lineno, alias.name


def _attributes(module: str) -> Iterator[tuple[int, str]]:
    of_others = _defined_anywhere() - _defined(module)
    for node in nodes(module):
        if isinstance(node, ast.Attribute) and node.attr in of_others:
            yield node.lineno, node.attr


@cache
def _defined(module: str) -> frozenset[str]:
    """Return the private names of functions, classes, variables and attributes that the module sets."""
    names = set()
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(filter(_is_private, names))


@cache
def _defined_anywhere() -> frozenset[str]:
    return frozenset().union(*map(_defined, IN_PYTHON)) - OF_NAMED_TUPLES


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"
