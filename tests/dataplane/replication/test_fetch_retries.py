"""A follower's retries for partitions that a leader refuses: at once, then less and less often, and least if thousands
wait.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.dataplane.replication.fetch_values import PartitionAnswer, PartitionKey, SessionAnswer
from ottla.dataplane.replication.follower.fetching import (
    POSITIONS_MAX,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    RETRY_SPACING_S,
    FetchLimits,
    LeaderSession,
)
from ottla.protocol.errors import ErrorCode

TOPIC = b"t" * 16


def replica(index: int) -> Any:
    epochs = SimpleNamespace(latest_epoch=0)
    log = SimpleNamespace(log_start_offset=0, log_end_offset=0, leader_epochs=epochs)
    follower = SimpleNamespace(leader_epoch=0)
    return SimpleNamespace(topic_id=TOPIC, index=index, follower=follower, log=log, acknowledged_offset=0)


def delays(partitions: int, rounds: int) -> list[set[float]]:
    """Return the waiting times of the partitions after each of `rounds` refusals."""
    waits: dict[PartitionKey, float] = {}
    session = LeaderSession(1, FetchLimits(), waits.__setitem__, lambda partition, error: None)
    for index in range(partitions):
        session.follow(replica(index))
    found = []
    for _ in range(rounds):
        for _ in range(-(-partitions // POSITIONS_MAX)):
            fetch = session.next_fetch(7)
            assert fetch is not None
            assert 0 < len(fetch.positions) <= POSITIONS_MAX
            refused = [
                PartitionAnswer(position.key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for position in fetch.positions
            ]
            assert session.answered(SessionAnswer(1, refused))
        assert not session.has_more_to_say
        found.append(set(waits.values()))
        for key in waits:
            session.again(key)
    return found


def test_few_partitions_are_asked_for_five_times_a_second() -> None:
    waits = delays(3, 12)
    assert waits[0] == {RETRY_FIRST_S}
    assert waits[1] == {2 * RETRY_FIRST_S}
    assert waits[-1] == {RETRY_MAX_S}


def test_thousands_of_partitions_are_asked_for_a_thousand_times_a_second() -> None:
    waits = delays(4_000, 16)
    assert waits[0] == {RETRY_FIRST_S}  # most leaders are ready within milliseconds of an election
    assert waits[-1] == {4_000 * RETRY_SPACING_S}
