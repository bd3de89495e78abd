"""The choice of batches to write, for runs, crashes and replays in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark_integration.outside.failures import QueryReplaced
from ottla.spark_integration.outside.numbering import NONE_YET, Batch, Kept, Numbering, is_new


@dataclass
class Driver:
    """A run of the query: Spark gives it batches, and notes each completed one."""

    run: str
    numbering: Numbering = field(default_factory=lambda: Numbering("q"))
    dead: bool = False


@dataclass
class Outside:
    """The stored state of an outside system, and the number of times it took each batch."""

    kept: Kept | None = None
    taken: dict[int, int] = field(default_factory=dict)


def give(driver: Driver, outside: Outside, number: int) -> None:
    """Handle a batch like `exactly_once`: all in one transaction."""
    batch = Batch("q", "the query", driver.run, "writer", number)
    if driver.numbering.is_new(outside.kept, batch):
        outside.taken[number] = outside.taken.get(number, 0) + 1
        outside.kept = Kept("the query", driver.run, "writer", number)
    else:
        assert outside.kept is not None
        outside.kept = Kept("the query", driver.run, "writer", outside.kept.number)
    driver.numbering.begun(batch)


@given(
    st.lists(
        st.sampled_from(["batch", "batch, then a crash", "a new driver", "a zombie's batch"]), max_size=40
    )
)
def test_every_batch_is_taken_once_and_a_zombie_never_writes(events: list[str]) -> None:
    outside, done = Outside(), 0  # number of batches that Spark has noted
    drivers = [Driver("run 0")]
    for event in events:
        if event == "a zombie's batch":
            for zombie in drivers[:-1]:
                before = dict(outside.taken)
                if zombie.numbering._begun and outside.kept and outside.kept.run != zombie.run:
                    with pytest.raises(QueryReplaced):
                        give(zombie, outside, done)
                assert outside.taken == before
        elif event == "a new driver":
            drivers.append(Driver(f"run {len(drivers)}"))
        else:
            give(drivers[-1], outside, done)
            if event == "batch":
                done += 1
            else:
                drivers.append(Driver(f"run {len(drivers)}"))
        assert all(count == 1 for count in outside.taken.values())
        assert set(outside.taken) >= set(range(done))


BATCH = Batch("q", "the query", "a run", "a writer", 7)


@pytest.mark.parametrize(
    ("kept", "begun", "new"),
    [
        (None, False, True),
        (Kept("the query", "a run", "a writer", NONE_YET), True, True),
        (Kept("the query", "a run", "a writer", 6), True, True),
        (Kept("the query", "a run", "a writer", 7), True, False),
        (Kept("the query", "older run", "another writer", 7), False, False),
        (Kept("the query", "older run", "another writer", 6), False, True),
        (Kept("the query", "older run", "another writer", 9), False, False),
    ],
)
def test_what_is_above_the_kept_number_is_new(kept: Kept | None, begun: bool, new: bool) -> None:
    assert is_new(kept, BATCH, begun) is new


@pytest.mark.parametrize(
    ("kept", "begun", "message"),
    [
        (Kept("other query", "a run", "a writer", 3), False, "that of another query.*id the query"),
        (Kept("the query", "a run", "another writer", 7), False, "another function of the same query"),
        (Kept("the query", "newer run", "a writer", 7), True, "another run of the query.*has taken over"),
    ],
)
def test_who_shares_a_name_is_refused(kept: Kept, begun: bool, message: str) -> None:
    with pytest.raises(QueryReplaced, match="batch 7 of query 'q'.*" + message):
        is_new(kept, BATCH, begun)


def test_each_query_of_a_function_has_its_own_run() -> None:
    """A query's old run stays refused although another query has used the function since."""
    numbering = Numbering()
    numbering.begun(Batch("a", "a", "old run", "writer", 0))
    numbering.begun(Batch("b", "b", "run of b", "writer", 0))
    late = Batch("a", "a", "old run", "writer", 1)
    with pytest.raises(QueryReplaced, match="another run of the query"):
        numbering.is_new(Kept("a", "new run", "another writer", 0), late)
