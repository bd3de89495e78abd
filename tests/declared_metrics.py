"""The metrics that the modules of a package declare: each stands beside what it measures, wherever that is."""

from __future__ import annotations

import ast
from importlib import import_module
from types import ModuleType

from ottla.protocol.exposition import Metric
from tests.imports import modules, tree

DECLARING = {"Metric", "gauge", "counter"}


def metrics_modules(package: str = "ottla") -> list[ModuleType]:
    """The modules of a package that declare metrics, in the order of their names."""
    return [
        import_module(name)
        for name, path in sorted(modules().items())
        if path.suffix == ".py" and f"{name}.".startswith(f"{package}.") and declared_names(name)
    ]


def declared_names(module: str) -> set[str]:
    """The names that a module gives to metrics."""
    return {
        target.id
        for node in tree(module).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in DECLARING
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def declared_metrics(package: str = "ottla") -> list[Metric]:
    """All metrics of a package: by module, and in each in the order in which they are declared."""
    return [
        value
        for module in metrics_modules(package)
        for name, value in vars(module).items()
        if name in declared_names(module.__name__) and isinstance(value, Metric)
    ]
