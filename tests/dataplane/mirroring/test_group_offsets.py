"""Committed offsets of a source's groups, as brokers of several versions report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.dataplane.mirroring.group_offsets import GroupOffsets, PartitionOffsets
from ottla.dataplane.patterns import compile_pattern
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import (
    FaultKind,
    MirrorFault,
    MirrorPartition,
    mirror_partition_record,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.headers import encode_request
from ottla.protocol.messages.metadata_records import TopicRecord
from ottla.protocol.messages.mirror_records import MirrorRecord, MirrorTopicRecord
from ottla.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.wire.schema import ZERO_UUID

HERE, THERE, ANOTHER = b"h" * 16, b"s" * 16, b"a" * 16
STORED = {"a": 5, "b": 7, "denied": 9, "ottla-lake-lake.orders": 5}
"""Committed offset of each group in partition 0 of `orders`."""


class OneBroker:
    """A source that knows OffsetFetch up to a version."""

    def __init__(self, last: int) -> None:
        self._last = last
        self.topic_id = THERE

    async def ask(self, broker_id: int, message: Any, *, at_most: int | None = None) -> Any:
        if isinstance(message, ListGroupsRequest):
            return ListGroupsResponse(groups=[ListedGroup(group_id=group_id) for group_id in STORED])
        assert isinstance(message, OffsetFetchRequest)
        version = min(self._last, 10 if at_most is None else at_most)
        # like a connection, raises for fields that the version does not have
        encode_request(message, version, 1, "test")
        if version >= 8:
            return OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(
                        group_id=group.group_id,
                        error_code=_error_of(group.group_id),
                        topics=[
                            OffsetFetchResponseTopics(
                                name="orders" if version < 10 else "",
                                topic_id=self.topic_id if version >= 10 else ZERO_UUID,
                                partitions=[
                                    OffsetFetchResponsePartitions(committed_offset=STORED[group.group_id]),
                                    OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
                                ],
                            )
                        ],
                    )
                    for group in message.groups
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
    """A recorder of all commits."""

    def __init__(self) -> None:
        self.taken: dict[str, PartitionOffsets] = {}

    async def have_a_place(self) -> None:
        pass

    def takes(self, group_id: str) -> bool:
        return True

    async def commit(self, group_id: str, offsets: PartitionOffsets, mirror: str) -> None:
        assert mirror == "m"
        self.taken[group_id] = offsets


def _image(fault: FaultKind = FaultKind.NONE) -> ClusterImage:
    """Return the image of a cluster that copies `orders`."""
    image = ClusterImage()
    for record in (
        MirrorRecord(name="m", source_cluster_id="there", topics=".*", groups=".*", phase=1),
        TopicRecord(topic_id=HERE, name="orders"),
        MirrorTopicRecord(topic_id=HERE, mirror="m", source_topic_id=THERE),
    ):
        image.apply(record)
    if fault:
        stopped = MirrorPartition(fault=MirrorFault(fault, 3, 9, "for some reason"))
        image.apply(mirror_partition_record(HERE, 0, stopped))
    return image


async def _followed(source: OneBroker, image: ClusterImage) -> dict[str, PartitionOffsets]:
    commits = Commits()
    there: Any = source
    await GroupOffsets("m", there, compile_pattern(".*", "groups"), commits, lambda: image).bring_up_to_date(
        [1]
    )
    return commits.taken


@pytest.mark.parametrize("last", [7, 9, 10])
async def test_offsets_follow_from_brokers_that_tell_of_one_group_at_a_time(last: int) -> None:
    wanted: Mapping[str, Mapping[tuple[str, int], tuple[int, str]]] = {
        "a": {("orders", 0): (5, "")},
        "b": {("orders", 0): (7, "")},
    }
    assert await _followed(OneBroker(last), _image()) == wanted


async def test_offsets_of_the_lakes_tables_do_not_follow() -> None:
    """Retention of the copy would otherwise drop records that a table of this cluster lacks."""
    assert "ottla-lake-lake.orders" in STORED
    assert set(await _followed(OneBroker(10), _image())) == {"a", "b"}


async def test_offsets_in_a_topic_that_was_made_anew_do_not_follow_before_that_is_known() -> None:
    """The group would otherwise go on in the copy of the former topic, after records that it has not read."""
    source = OneBroker(10)
    source.topic_id = ANOTHER
    assert await _followed(source, _image()) == {}


@pytest.mark.parametrize("last", [7, 9, 10])
@pytest.mark.parametrize("fault", [FaultKind.DIVERGED, FaultKind.MADE_ANEW])
async def test_offsets_do_not_follow_while_the_source_has_other_records(last: int, fault: FaultKind) -> None:
    assert await _followed(OneBroker(last), _image(fault)) == {}


@pytest.mark.parametrize("fault", [FaultKind.GAP, FaultKind.UNREADABLE])
async def test_offsets_follow_where_the_source_has_the_same_records_though_it_lacks_some(
    fault: FaultKind,
) -> None:
    assert (await _followed(OneBroker(10), _image(fault)))["a"] == {("orders", 0): (5, "")}
