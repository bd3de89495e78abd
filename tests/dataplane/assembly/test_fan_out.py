"""No module of the assembly knows too many others: a module that grows is split by subject."""

from __future__ import annotations

from tests.imports import import_graph

IMPORTS_MAX = 60


def test_no_module_imports_too_many_others() -> None:
    counts = {
        module: len(imported)
        for module, imported in import_graph().items()
        if module.startswith("ottla.dataplane.assembly.")
    }
    assert len(counts) > 15
    assert not {module: count for module, count in counts.items() if count > IMPORTS_MAX}
