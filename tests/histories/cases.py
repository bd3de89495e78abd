"""Tables of histories: clean ones, and broken ones by the names of the invariants that find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from tests.histories.invariants import HistoryBroken, check_all
from tests.histories.operations import History, Operation

Case = tuple[str, Sequence[Operation]]
"""What is peculiar about a history, and what happened."""


def passes(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """A test of `operations`, once for each of them."""
    return pytest.mark.parametrize("operations", [pytest.param(case, id=name) for name, case in cases])


def is_found(table: Mapping[str, Iterable[Case]]) -> pytest.MarkDecorator:
    """A test of `operations` that all of `names` find and no other invariant does, once for each case of the table;
    its keys are names with blanks between them."""
    return pytest.mark.parametrize(
        ("names", "operations"),
        [
            pytest.param(set(names.split()), case, id=f"{names}: {name}")
            for names, cases in table.items()
            for name, case in cases
        ],
    )


def check_finds(names: set[str], operations: Sequence[Operation]) -> None:
    """All of these invariants find something in it, and no others."""
    with pytest.raises(HistoryBroken) as caught:
        check_all(History(operations))
    assert set(caught.value.names) == names, caught.value
