"""DescribeShareGroupOffsets (0-1), AlterShareGroupOffsets (0), DeleteShareGroupOffsets (0): the start offsets of share
groups (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import SHARE
from ...protocol.messages import share_group_offsets as offsets
from ...protocol.wire.schema import ZERO_UUID
from ..groups.consumer.member import TopicPartition
from ..groups.consumer.subscriptions import TopicCatalog
from ..groups.coordinator import GroupCoordinator
from ..groups.persister import SharePersister, StateSummary
from ..groups.share.group import ShareGroup
from ..groups.share.state_partitions import BY_SETTING
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import group, handler_asks
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, as_kafka_error, handles
from ..share.feature import check_level

EndOffsets = Callable[[Iterable[tuple[str, int]]], Awaitable[Mapping[tuple[str, int], int]]]
"""A function that returns the high watermarks of partitions, by topic and index, as far as their leaders answer."""

_UNKNOWN = -1
_NO_OFFSETS = "There is no offset information to delete."
_READS_AT_ONCE = 100


class ShareGroupOffsetHandlers:
    """The handlers of the requests about start offsets, which use the groups of the coordinator and the states of their
    partitions."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        topics: TopicCatalog,
        persister: SharePersister,
        end_offsets: EndOffsets,
        share_version: Callable[[], int],
    ) -> None:
        """Create the handlers. `share_version` returns the level of the feature `share.version`."""
        self._coordinator, self._topics, self._persister = coordinator, topics, persister
        self._end_offsets, self._share_version = end_offsets, share_version

    # ------------------------------------------------------------ DescribeShareGroupOffsets

    @handles(
        offsets.DescribeShareGroupOffsetsRequest,
        0,
        1,
        feature=SHARE,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("DESCRIBE Group; DESCRIBE Topic"),
    )
    async def describe(
        self, request: ClientRequest, message: offsets.DescribeShareGroupOffsetsRequest
    ) -> offsets.DescribeShareGroupOffsetsResponse:
        """Return the start offsets of groups, each group once. Partitions without a state have the offset -1."""
        wanted = {each.group_id: each for each in message.groups}
        return offsets.DescribeShareGroupOffsetsResponse(
            groups=[
                await self._described(request.access, each) async for each in in_time_slices(wanted.values())
            ]
        )

    async def _described(self, access: Access, wanted: offsets.WantedGroup) -> offsets.DescribedGroup:
        group_id = wanted.group_id
        try:
            check_level(self._share_version())
            access.check(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)
            found = self._coordinator.shard_for(group_id).groups.get(group_id)
        except KafkaError as error:
            return offsets.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
        # As in Kafka, a group of another kind and a missing group have no offsets, and that is no error.
        present = found if isinstance(found, ShareGroup) else None
        partitions = self._asked(present, wanted.topics)
        denied = access.denied_topics(AclOperation.DESCRIBE, partitions)
        if wanted.topics is None:
            partitions = {name: indexes for name, indexes in partitions.items() if name not in denied}
            denied = set()
        states = await self._summaries(present, {n: p for n, p in partitions.items() if n not in denied})
        ends = await self._end_offsets(
            place for place, state in states.items() if not isinstance(state, KafkaError) and _has_lag(state)
        )
        return offsets.DescribedGroup(
            group_id=group_id,
            topics=[
                offsets.DescribedTopic(
                    topic_name=name,
                    topic_id=ZERO_UUID if name in denied else self._topics.ids.get(name, ZERO_UUID),
                    partitions=[
                        _denied(index)
                        if name in denied
                        else _offset(index, states.get((name, index)), ends.get((name, index)))
                        for index in indexes
                    ],
                )
                for name, indexes in partitions.items()
            ],
        )

    def _asked(
        self, present: ShareGroup | None, topics: Iterable[offsets.WantedTopic] | None
    ) -> dict[str, list[int]]:
        """Return the partitions to describe, by topic: those that the request names, or all that have a state."""
        if topics is not None:
            asked: dict[str, dict[int, None]] = {}
            for topic in topics:
                asked.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
            return {name: list(indexes) for name, indexes in asked.items()}
        if present is None:
            return {}
        names = self._topics.names
        return {
            names[topic_id]: sorted(named.partitions)
            for topic_id, named in present.states.initialized.items()
            if topic_id in names
        }

    async def _summaries(
        self, present: ShareGroup | None, partitions: Mapping[str, Iterable[int]]
    ) -> dict[tuple[str, int], StateSummary | KafkaError]:
        """Return the states of these partitions, or errors. Partitions without a state are left out."""
        if present is None:
            return {}
        found: dict[tuple[str, int], StateSummary | KafkaError] = {}
        limit = asyncio.Semaphore(_READS_AT_ONCE)

        async def read(name: str, index: int) -> None:
            async with limit:
                try:
                    found[name, index] = await self._persister.summary(
                        present.group_id, self._topics.ids[name], index
                    )
                except Exception as error:
                    found[name, index] = as_kafka_error(error, f"state of {name}-{index}")

        ids = self._topics.ids
        await asyncio.gather(
            *(
                read(name, index)
                for name, indexes in partitions.items()
                for index in indexes
                if name in ids and index in present.states.ready(ids[name])
            )
        )
        return found

    # ------------------------------------------------------------ AlterShareGroupOffsets

    @handles(
        offsets.AlterShareGroupOffsetsRequest,
        0,
        0,
        feature=SHARE,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=group(AclOperation.READ) & handler_asks("READ Topic"),
    )
    async def alter(
        self, request: ClientRequest, message: offsets.AlterShareGroupOffsetsRequest
    ) -> offsets.AlterShareGroupOffsetsResponse:
        """Set start offsets of a group without members. A missing group is created. Answer once the states of all
        partitions are written."""
        check_level(self._share_version())
        refused: dict[tuple[str, int], KafkaError] = {}
        accepted: dict[TopicPartition, int] = {}
        names = {topic.topic_name for topic in message.topics}
        denied = request.access.denied_topics(AclOperation.READ, names)
        for topic in message.topics:
            for partition in topic.partitions:
                place = topic.topic_name, partition.partition_index
                try:
                    accepted[self._existing(*place, denied)] = _checked(partition.start_offset)
                except KafkaError as error:
                    refused[place] = error
        outcome: Mapping[TopicPartition, ErrorCode] = {}
        if denied < names:
            shard = self._coordinator.shard_for(message.group_id)
            outcome = await shard.share.alter(message.group_id, accepted, request.holders)
        return offsets.AlterShareGroupOffsetsResponse(
            responses=[
                offsets.AlteredTopic(
                    topic_name=topic.topic_name,
                    topic_id=self._id_unless(topic.topic_name, denied),
                    partitions=[
                        self._altered(topic.topic_name, partition.partition_index, refused, outcome)
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    def _existing(self, topic: str, index: int, denied: set[str]) -> TopicPartition:
        """Return the id and index of a partition. Raises KafkaError: TOPIC_AUTHORIZATION_FAILED,
        UNKNOWN_TOPIC_OR_PARTITION."""
        if topic in denied:
            raise denial(AclResourceType.TOPIC)
        topic_id = self._topics.ids.get(topic)
        if topic_id is None or not 0 <= index < self._topics.counts[topic_id]:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_id, index

    def _altered(
        self,
        topic: str,
        index: int,
        refused: Mapping[tuple[str, int], KafkaError],
        outcome: Mapping[TopicPartition, ErrorCode],
    ) -> offsets.AlteredOffset:
        error = refused.get((topic, index))
        if error is None:
            topic_id = self._topics.ids.get(topic, ZERO_UUID)
            # A partition without an outcome was removed meanwhile.
            code = outcome.get((topic_id, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            error = KafkaError(code) if code else None
        if error is None:
            return offsets.AlteredOffset(partition_index=index)
        return offsets.AlteredOffset(
            partition_index=index, error_code=error.code, error_message=error.message
        )

    def _id_unless(self, topic: str, denied: set[str]) -> bytes:
        return ZERO_UUID if topic in denied else self._topics.ids.get(topic, ZERO_UUID)

    # ------------------------------------------------------------ DeleteShareGroupOffsets

    @handles(
        offsets.DeleteShareGroupOffsetsRequest,
        0,
        0,
        feature=SHARE,
        needs=group(AclOperation.DELETE) & handler_asks("READ Topic"),
    )
    async def delete(
        self, request: ClientRequest, message: offsets.DeleteShareGroupOffsetsRequest
    ) -> offsets.DeleteShareGroupOffsetsResponse:
        """Delete the start offsets of whole topics from a group without members. Answer once their states are
        deleted."""
        check_level(self._share_version())
        names = dict.fromkeys(topic.topic_name for topic in message.topics)
        denied = request.access.denied_topics(AclOperation.READ, names)
        ids = {
            name: self._topics.ids[name] for name in names if name in self._topics.ids and name not in denied
        }
        outcome: Mapping[bytes, ErrorCode] = {}
        if denied < names.keys():
            shard = self._coordinator.shard_for(message.group_id)
            outcome = await shard.share.delete_offsets(message.group_id, ids.values())
        return offsets.DeleteShareGroupOffsetsResponse(
            responses=[_deleted(name, ids.get(name), name in denied, outcome) for name in names]
        )


def _offset(index: int, state: StateSummary | KafkaError | None, end: int | None) -> offsets.DescribedOffset:
    """Return the row of a partition: `end` is its high watermark, None if it is unknown."""
    if state is None:
        return offsets.DescribedOffset(partition_index=index, start_offset=_UNKNOWN)
    if isinstance(state, KafkaError):
        return offsets.DescribedOffset(
            partition_index=index, start_offset=_UNKNOWN, error_code=state.code, error_message=state.message
        )
    lag = _UNKNOWN
    if _has_lag(state) and end is not None:
        lag = max(0, end - state.start_offset - state.delivery_complete_count)
    return offsets.DescribedOffset(
        partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )


def _has_lag(state: StateSummary) -> bool:
    """Return whether the number of records is known whose delivery is complete."""
    return _UNKNOWN not in (state.start_offset, state.delivery_complete_count)


def _deleted(
    topic: str, topic_id: bytes | None, is_denied: bool, outcome: Mapping[bytes, ErrorCode]
) -> offsets.DeletedTopic:
    if is_denied:
        error: KafkaError | None = denial(AclResourceType.TOPIC)
    elif topic_id is None:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif topic_id not in outcome:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_OFFSETS)
    else:
        error = KafkaError(outcome[topic_id]) if outcome[topic_id] else None
    # As in Kafka, a topic has its id only if states of the topic were to be deleted.
    shown = topic_id if topic_id in outcome and topic_id is not None else ZERO_UUID
    if error is None:
        return offsets.DeletedTopic(topic_name=topic, topic_id=shown)
    return offsets.DeletedTopic(
        topic_name=topic, topic_id=shown, error_code=error.code, error_message=error.message
    )


def _checked(start_offset: int) -> int:
    """Return a start offset that a client sent. Raises KafkaError INVALID_REQUEST for a number below -1, which stands
    for share.auto.offset.reset."""
    if start_offset < BY_SETTING:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"start offset {start_offset}: it must be {BY_SETTING} (by share.auto.offset.reset) or more",
        )
    return start_offset


def _denied(index: int) -> offsets.DescribedOffset:
    error = denial(AclResourceType.TOPIC)
    return offsets.DescribedOffset(
        partition_index=index, start_offset=_UNKNOWN, error_code=error.code, error_message=error.message
    )
