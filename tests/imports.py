"""The imports of the product's modules, read from their text, so that imports in functions and for type checking count
too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from ottla.network.garbage_collection import gc_paused

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
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

Graph = Mapping[str, Collection[str]]


@cache
def modules() -> dict[str, Path]:
    """Return the path of every module of the product by its full name, such as `ottla.client.consumer`.

    C extensions are included.
    """
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".c"):
                found[_module_name(path)] = path
    return found


@cache
def packages() -> tuple[str, ...]:
    """Return the full names of the modules that are packages."""
    return tuple(name for name, path in modules().items() if path.name == "__init__.py")


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file. The garbage collector leaves its nodes alone, as there are millions."""
    with gc_paused(stays=True):
        return ast.parse(path.read_text())


@cache
def tree(module: str) -> ast.Module:
    """Return the syntax tree of a module in Python."""
    return parsed(modules()[module])


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a module's syntax tree. The result is cached, since walking takes longer than parsing."""
    return tuple(ast.walk(tree(module)))


def import_base(module: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module between `from` and `import`."""
    if not node.level:
        return node.module or ""
    package = module.split(".")
    levels = node.level - (module in packages())
    package = package[: len(package) - levels]
    return ".".join([*package, *([node.module] if node.module else [])])


@cache
def import_graph() -> dict[str, set[str]]:
    """Return, for each module of the product, the set of product modules that it imports anywhere in its text."""
    return {module: {other for other in _imports(module) if other != module} for module in modules()}


def siblings(graph: Graph, package: str) -> dict[str, set[str]]:
    """Return the graph between the files and folders directly in a package; each folder is one node.

    The package's own `__init__.py` is one of the files.
    """
    between: dict[str, set[str]] = {}
    for module, imported in graph.items():
        for other in imported:
            if all(name == package or name.startswith(f"{package}.") for name in (module, other)):
                start, end = _child(package, module), _child(package, other)
                if start != end:
                    between.setdefault(start, set()).add(end)
    return between


def circles(graph: Graph) -> set[frozenset[str]]:
    """Return the largest groups of two or more nodes in which every node leads to every other node."""
    graph = _without_ends(graph)
    leads_to: dict[str, set[str]] = {}
    for start in graph:
        reached: set[str] = set()
        waiting = [start]
        while waiting:
            for node in set(graph.get(waiting.pop(), ())) - reached:
                reached.add(node)
                waiting.append(node)
        leads_to[start] = reached
    return {
        frozenset(other for other in reached if start in leads_to.get(other, ()))
        for start, reached in leads_to.items()
        if start in reached
    }


def _without_ends(graph: Graph) -> Graph:
    """Return the nodes that may be on a circle: remove nodes that lead nowhere, repeatedly."""
    left = dict(graph)
    while ends := [node for node, others in left.items() if left.keys().isdisjoint(others)]:
        for node in ends:
            del left[node]
    return left


def _module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != "ottla":
        parts = ["ottla", *parts]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _imports(module: str) -> Iterator[str]:
    if modules()[module].suffix == ".c":
        yield from re.findall(r'PyImport_ImportModule\("(ottla\.[\w.]+)"\)', modules()[module].read_text())
        return
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            base = import_base(module, node)
            if base not in modules():
                continue
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in modules() else base


def _child(package: str, module: str) -> str:
    return module.removeprefix(package).lstrip(".").split(".")[0] or "__init__"
