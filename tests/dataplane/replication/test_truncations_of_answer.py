"""A follower truncates a few logs in one turn of its loop, and asks the leader about the others again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.dataplane.replication.fetch_values import EpochEnd, PartitionAnswer, SessionAnswer
from ottla.dataplane.replication.follower.fetching import TRUNCATIONS_MAX, FetchLimits, LeaderSession
from ottla.protocol.errors import ErrorCode

TOPIC = b"t" * 16
PARTITIONS = 2 * TRUNCATIONS_MAX + 1


def replica(index: int, truncated: list[int]) -> Any:
    return SimpleNamespace(
        topic_id=TOPIC,
        index=index,
        follower=SimpleNamespace(leader_epoch=0),
        log=SimpleNamespace(
            log_start_offset=0, log_end_offset=5, leader_epochs=SimpleNamespace(latest_epoch=0)
        ),
        acknowledged_offset=5,
        following=SimpleNamespace(truncate_diverging=lambda end, start: truncated.append(index)),
    )


def test_many_diverging_logs_are_truncated_a_few_in_each_answer() -> None:
    truncated: list[int] = []
    session = LeaderSession(1, FetchLimits(), lambda key, delay_s: None, lambda partition, error: None)
    for index in range(PARTITIONS):
        session.follow(replica(index, truncated))
    asked, counts = [], []
    while len(truncated) < PARTITIONS:
        fetch = session.next_fetch(7)
        assert fetch is not None
        diverging = [position for position in fetch.positions if position.key[1] not in truncated]
        before = len(truncated)
        parts = [
            PartitionAnswer(position.key, ErrorCode.NONE, diverging=EpochEnd(0, 1)) for position in diverging
        ]
        assert session.answered(SessionAnswer(1, parts))
        asked.append(len(diverging))
        counts.append(len(truncated) - before)
    assert asked == [PARTITIONS, PARTITIONS - TRUNCATIONS_MAX, PARTITIONS - 2 * TRUNCATIONS_MAX]
    assert counts == [TRUNCATIONS_MAX, TRUNCATIONS_MAX, 1]
    assert sorted(truncated) == list(range(PARTITIONS))
