"""Truncation by epoch compared with brute force: for any two logs the follower ends at the last common record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.replication.roles.follower import (
    EpochEnd,
    diverges,
    follower_high_watermark,
    restart_offset,
    truncation_offset,
)


def end_of(log: list[int], epoch: int) -> EpochEnd:
    """Return the end of an epoch by brute force; `log` is the epoch of each record."""
    known = [e for e in log if e <= epoch]
    if not known:
        return EpochEnd(-1, -1) if not log else EpochEnd(epoch, 0)
    return EpochEnd(known[-1], len(known))


@st.composite
def two_logs(draw):
    """Draw logs as leaders leave them: epochs rise along each, and an epoch has one writer, so two logs agree on an
    epoch's records as far as both go.
    """
    epochs = draw(st.lists(st.integers(0, 8), max_size=12).map(sorted))
    ours = list(epochs[: draw(st.integers(0, len(epochs)))])
    theirs = list(epochs[: draw(st.integers(0, len(epochs)))])
    top = max(epochs, default=0)
    odd = draw(st.lists(st.integers(1, 4), max_size=6).map(sorted))
    even = draw(st.lists(st.integers(1, 4), max_size=6).map(sorted))
    ours += [top + 2 * e + 1 for e in odd]
    theirs += [top + 2 * e for e in even]
    theirs.append(max(ours + theirs, default=0) + 1)  # the leader's own epoch has begun
    return ours, theirs


@given(two_logs())
def test_truncation_ends_at_the_last_common_record(logs) -> None:
    follower, leader = logs
    common = 0
    while common < min(len(follower), len(leader)) and follower[common] == leader[common]:
        common += 1
    rounds = 0
    while follower and diverges(follower[-1], len(follower), end_of(leader, follower[-1])):
        said = end_of(leader, follower[-1])
        offset = truncation_offset(said, end_of(follower, said.epoch), len(follower))
        assert common <= offset < len(follower), "each round cuts something, and never a common record"
        del follower[offset:]
        rounds += 1
        assert rounds <= 20
    assert follower == leader[: len(follower)]
    assert len(follower) == common


def test_where_a_follower_starts_anew() -> None:
    assert restart_offset(0, 5, 9) == 9, "retention passed it"
    assert restart_offset(7, 7, 3) == 3, "an empty log goes where the leader starts"
    assert restart_offset(0, 20, 3) is None, "records are never dropped for being above the leader's"
    assert restart_offset(0, 20, -1) is None


@given(st.integers(0, 50), st.integers(-1, 50), st.integers(0, 50))
def test_follower_high_watermark(current, leader, end) -> None:
    current = min(current, end)
    moved = follower_high_watermark(current, leader, end)
    assert current <= moved <= end
    assert moved == current or moved <= leader
