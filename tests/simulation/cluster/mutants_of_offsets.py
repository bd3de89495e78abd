"""Mutants of committed offsets, as stock consumers use them."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from ottla.dataplane.handlers import group_offsets
from tests.simulation.cluster.planting import mutant


@mutant(
    "unstable-offset-is-none",
    "the offset beside UNSTABLE_OFFSET_COMMIT is -1",
    history="Apache Kafka answers so, and librdkafka to 2.15 then begins at `auto.offset.reset`",
    needs="An open transaction with offsets of a group, and a consumer whose assignment changes meanwhile.",
)
def unstable_offset_is_none() -> Iterator[None]:
    """A copier has committed 300 and sent 400 in a transaction that is open. Another member asks for the offset, and
    its assignment changes. It takes -1 for "nothing is committed", and copies everything from 0 on again."""
    with patch.object(group_offsets, "ASK_AGAIN", -1):
        yield


@mutant(
    "moved-group-without-partitions",
    "an answer that a group is coordinated elsewhere has no partitions",
    history="Apache Kafka answers so, and librdkafka to 2.15 then reads nothing until another rebalance",
    needs="A coordinator that changes between an assignment and the request for its offsets.",
)
def moved_group_without_partitions() -> Iterator[None]:
    """A member is given a partition, and the coordinator moves. The former one answers NOT_COORDINATOR to the member's
    OffsetFetch. The member looks for the new one, sends it heartbeats, and never asks it for offsets."""
    with patch.object(group_offsets, "_COORDINATOR_ELSEWHERE", frozenset()):
        yield


ALL = (unstable_offset_is_none, moved_group_without_partitions)
