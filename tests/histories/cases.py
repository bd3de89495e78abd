"""Tables of histories: clean histories, and broken histories by the names of the invariants that find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from tests.histories.invariants import HistoryBroken, check_all
from tests.histories.operations import History, Operation

Case = tuple[str, Sequence[Operation]]
"""The peculiarity of a history, and its operations."""


def passes(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Run a test with each case as its `operations`."""
    return pytest.mark.parametrize("operations", [pytest.param(case, id=name) for name, case in cases])


def is_found(table: Mapping[str, Iterable[Case]]) -> pytest.MarkDecorator:
    """Run a test with each case of the table as its `operations` and the violated invariants as its `names`.

    The keys of the table are names separated by blanks.
    """
    return pytest.mark.parametrize(
        ("names", "operations"),
        [
            pytest.param(set(names.split()), case, id=f"{names}: {name}")
            for names, cases in table.items()
            for name, case in cases
        ],
    )


def check_finds(names: set[str], operations: Sequence[Operation]) -> None:
    """Assert that exactly the named invariants find a violation."""
    with pytest.raises(HistoryBroken) as caught:
        check_all(History(operations))
    assert set(caught.value.names) == names, caught.value
