"""Leader epochs against the epoch of every single offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log import LeaderEpochs

_growth = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12)


def _grow(growth: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """Return epochs, and the epoch of each offset; a step is (rise of the epoch, number of records)."""
    epochs, epoch = LeaderEpochs(), 0
    owners: list[int] = []
    for rise, records in growth:
        epoch += rise
        if records:
            epochs.assign(epoch, len(owners))
            owners += [epoch] * records
    return epochs, owners


def _end_by_brute_force(owners: list[int], epoch: int) -> tuple[int, int]:
    if not owners or epoch < 0 or epoch > owners[-1]:
        return -1, -1
    known = [owner for owner in owners if owner <= epoch]
    if not known:
        return epoch, 0
    return known[-1], len(known)


@given(_growth, st.integers(-1, 40))
def test_ends_and_owners_are_those_of_the_records(growth: list[tuple[int, int]], asked: int) -> None:
    epochs, owners = _grow(growth)
    assert epochs.latest_epoch == (owners[-1] if owners else -1)
    assert [epochs.epoch_at(offset) for offset in range(len(owners))] == owners
    assert epochs.end_offset_for(asked, len(owners)) == _end_by_brute_force(owners, asked)


@given(_growth, st.integers(1, 5))
def test_a_leadership_without_records_is_no_progress(growth: list[tuple[int, int]], rise: int) -> None:
    epochs, owners = _grow(growth)
    written = owners[-1] if owners else -1
    assert epochs.last_written(len(owners)) == written
    epochs.assign(epochs.latest_epoch + rise, len(owners))
    assert epochs.last_written(len(owners)) == (written if owners else epochs.latest_epoch)
    assert epochs.last_written(len(owners) + 1) == epochs.latest_epoch


@given(_growth, st.integers(0, 50), st.integers(0, 50))
def test_truncation_from_both_ends(growth: list[tuple[int, int]], start: int, end: int) -> None:
    epochs, owners = _grow(growth)
    end = min(end, len(owners))
    start = min(start, end)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    assert [epochs.epoch_at(offset) for offset in range(start, end)] == owners[start:end]
    assert all(start_offset <= end for _, start_offset in epochs.entries)


def test_a_contradicting_entry_wins_over_what_it_contradicts() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    epochs.assign(4, 15)
    assert epochs.entries == ((1, 0), (3, 10), (4, 15))
    epochs.assign(4, 30)
    assert epochs.entries == ((1, 0), (3, 10), (4, 15)), "a known epoch keeps its start"
    epochs.assign(6, 15)
    assert epochs.entries == ((1, 0), (3, 10), (6, 15)), "an epoch without records is replaced"
