"""Committed offsets of a source's groups, as brokers of several ages tell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.dataplane.mirroring.group_offsets import GroupOffsets, PartitionOffsets
from ottla.dataplane.patterns import compile_pattern
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

STORED = {"a": 5, "b": 7, "denied": 9}
"""What each group has committed of partition 0 of `orders`."""


class OneBroker:
    """A source that knows OffsetFetch up to a version."""

    def __init__(self, last: int) -> None:
        self._last = last

    async def ask(self, broker_id: int, message: Any, *, at_most: int | None = None) -> Any:
        if isinstance(message, ListGroupsRequest):
            return ListGroupsResponse(groups=[ListedGroup(group_id=one) for one in STORED])
        assert isinstance(message, OffsetFetchRequest)
        version = min(self._last, 10 if at_most is None else at_most)
        encode_request(message, version, 1, "test")  # as a connection does: raises for fields that it lacks
        if version >= 8:
            return OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(
                        group_id=one.group_id,
                        error_code=_error_of(one.group_id),
                        topics=[
                            OffsetFetchResponseTopics(
                                name="orders",
                                partitions=[
                                    OffsetFetchResponsePartitions(committed_offset=STORED[one.group_id]),
                                    OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
                                ],
                            )
                        ],
                    )
                    for one in message.groups
                ]
            )
        return OffsetFetchResponse(
            error_code=_error_of(message.group_id),
            topics=[
                OffsetFetchResponseTopic(
                    name="orders",
                    partitions=[
                        OffsetFetchResponsePartition(committed_offset=STORED[message.group_id]),
                        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
                    ],
                )
            ],
        )


def _error_of(group_id: str) -> int:
    return int(ErrorCode.GROUP_AUTHORIZATION_FAILED if group_id == "denied" else ErrorCode.NONE)


class Commits:
    """Takes all, and remembers it."""

    def __init__(self) -> None:
        self.taken: dict[str, PartitionOffsets] = {}

    async def have_a_place(self) -> None:
        pass

    def takes(self, group_id: str) -> bool:
        return True

    async def commit(self, group_id: str, offsets: PartitionOffsets, mirror: str) -> None:
        assert mirror == "m"
        self.taken[group_id] = offsets


@pytest.mark.parametrize("last", [7, 9, 10])
async def test_offsets_follow_from_brokers_that_tell_of_one_group_at_a_time(last: int) -> None:
    commits = Commits()
    source: Any = OneBroker(last)
    groups = GroupOffsets("m", source, compile_pattern(".*", "groups"), commits, lambda: {"orders"})
    await groups.bring_up_to_date([1])
    wanted: Mapping[str, Mapping[tuple[str, int], tuple[int, str]]] = {
        "a": {("orders", 0): (5, "")},
        "b": {("orders", 0): (7, "")},
    }
    assert commits.taken == wanted
