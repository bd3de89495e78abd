"""Requests about partitions, sent to the leader of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import Backoff
from ..failures import ConnectionLost, RequestTimedOut
from ..records import TopicPartition
from .session import AdminSession

PATIENCE_S = 3.0
"""Time in seconds for which a partition may have no leader before that is the answer."""
T = TypeVar("T")


async def ask_leaders(
    session: AdminSession,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Awaitable[dict[TopicPartition, T | KafkaError]]],
) -> dict[TopicPartition, T | KafkaError]:
    """Call `ask` with each leader and its partitions. While leaders change, ask again for up to PATIENCE_S.

    Returns the answer about each partition, or the KafkaError that says why its leader gave no answer.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    backoff = Backoff(200)
    found: dict[TopicPartition, T | KafkaError] = {}
    left = list(partitions)
    while left:
        by_leader = await _by_leader(session, left, found)
        answers = await asyncio.gather(*(_asked(leader, some, ask) for leader, some in by_leader.items()))
        for answer in answers:
            found.update(answer)
        left = [partition for partition in left if _may_change(found.get(partition))]
        if loop.time() > deadline:
            break
        if left:
            await asyncio.sleep(backoff.next_s())
    return found


async def _asked(
    leader: int,
    some: list[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Awaitable[dict[TopicPartition, T | KafkaError]]],
) -> dict[TopicPartition, T | KafkaError]:
    try:
        return await ask(leader, some)
    except (ConnectionLost, RequestTimedOut) as error:
        return dict.fromkeys(some, error)


async def _by_leader(
    session: AdminSession, partitions: list[TopicPartition], found: dict[TopicPartition, T | KafkaError]
) -> dict[int, list[TopicPartition]]:
    metadata = await session.metadata(partition.topic for partition in partitions)
    session.cluster.metadata.brokers.update(metadata.brokers)
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        info = metadata.partition(*partition)
        if info is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found[partition] = KafkaError(code, f"there is no {partition.topic}-{partition.partition}")
        elif info.leader < 0:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            found[partition] = KafkaError(code, f"{partition.topic}-{partition.partition} has no leader now")
        else:
            by_leader.setdefault(info.leader, []).append(partition)
    return by_leader


def _may_change(answer: object) -> bool:
    if not isinstance(answer, KafkaError):
        return answer is None
    return answer.code.retriable and answer.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
