"""Imports form no circle between files, nor between siblings in a folder.

Import-linter checks only the declared layers. This test reads every import, including imports for types alone.
"""

from __future__ import annotations

from tests.imports import circles, import_graph, modules, packages, siblings

LEFT_BETWEEN_FILES: set[frozenset[str]] = set()
"""Remaining circles between files. Remove resolved circles, and add none."""

LEFT_BETWEEN_SIBLINGS: dict[str, set[frozenset[str]]] = {}
"""Remaining circles between the files and folders of a package."""


def test_no_circle_between_files() -> None:
    assert circles(import_graph()) == LEFT_BETWEEN_FILES


def test_no_circle_between_siblings() -> None:
    found = {package: circles(siblings(import_graph(), package)) for package in packages()}
    assert {package: those for package, those in found.items() if those} == LEFT_BETWEEN_SIBLINGS


def test_only_packages_that_exist_have_circles_left() -> None:
    assert set(LEFT_BETWEEN_SIBLINGS) <= set(packages())


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "f"}, "f": {"e"}}
    assert circles(graph) == {frozenset({"b", "c"}), frozenset({"e", "f"})}


def test_folders_are_seen_as_wholes() -> None:
    graph = {"p.a.one": {"p.b"}, "p.b": set(), "p.a.two": {"q"}, "p.b.three": {"p.a.two", "p"}}
    assert siblings(graph, "p") == {"a": {"b"}, "b": {"a", "__init__"}}


def test_imports_of_every_kind_are_read() -> None:
    graph = import_graph()
    assert "ottla.protocol.errors" in graph["ottla.client.failures"]  # relative
    assert "ottla.version" in graph["ottla"]  # by the full name
    assert (
        "ottla.dataplane.log.partition_log" in graph["ottla.dataplane.log.clean_shutdown"]
    )  # for types alone
    assert "ottla.protocol.nearest" in graph["ottla"]  # in a function
    assert "ottla.protocol.errors" in graph["ottla.protocol.records._record_codec"]  # from C
    assert all(imported <= modules().keys() for imported in graph.values())
