"""OffsetCommit (1-10), OffsetFetch (1-10), OffsetDelete (0): committed offsets of groups of either protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ...protocol.wire.schema import ZERO_UUID
from ..groups.committable_offsets import sort_commit
from ..groups.coordinator import GroupCoordinator
from ..groups.offsets import CommittedOffset, TopicPartition
from ..groups.shard import Shard
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import group, handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import WHOLE_CLUSTER_ELEMENTS, ClientRequest, handles

EPOCHS_VERSION = 9
"""The first version in which commits have a member epoch in place of a generation."""
TOPIC_IDS_VERSION = 10
_COORDINATOR_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors of a whole group that come with UNSTABLE_OFFSET_COMMIT in its partitions, for clients that know that error.

librdkafka to 2.15 sends no second OffsetFetch after NOT_COORDINATOR, nor after any of these if its assignment has
changed since the request (`rd_kafka_handle_OffsetFetch`, `rd_kafka_assignment_apply_offsets`). It reads nothing of the
partitions until another rebalance. It repeats the request for partitions with UNSTABLE_OFFSET_COMMIT. Other clients
check the error of the group first.
"""
UNSET = -1
ASK_AGAIN = -1000
"""The offset that comes with UNSTABLE_OFFSET_COMMIT, where Kafka answers -1: RD_KAFKA_OFFSET_STORED of librdkafka.

librdkafka to 2.15 keeps the offset of the refused partition if its assignment has changed since the request
(`rd_kafka_assignment_apply_offsets`). It takes -1 for "nothing is committed" and begins at `auto.offset.reset`. With
-1000 it asks again. Other clients check the error first.
"""


class _Found(NamedTuple):
    """The committed offset of a partition for the answer to OffsetFetch, or the error."""

    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE

    @property
    def offset(self) -> int:
        """The committed offset; one constant if there is none, and another while an open transaction may change it."""
        if self.error is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return ASK_AGAIN
        return self.committed.offset if self.committed else UNSET

    @property
    def leader_epoch(self) -> int:
        return self.committed.leader_epoch if self.committed else UNSET

    @property
    def metadata(self) -> str:
        return self.committed.metadata if self.committed else ""


_UNSTABLE = _Found(None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
_DENIED = _Found(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _committed_as(
    message: OffsetCommitRequest, errors: Mapping[tuple[str | bytes, int], ErrorCode], outcome: ErrorCode
) -> OffsetCommitResponse:
    """Return the answer to OffsetCommit, with `outcome` for every partition that has no error in `errors`."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=errors.get((topic.name or topic.topic_id, p.partition_index), outcome),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


class GroupOffsetHandlers:
    """The handlers of OffsetCommit, OffsetFetch and OffsetDelete, which use the groups of the coordinator."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        image: Callable[[], ClusterImage],
        now_ms: Callable[[], int],
        metadata_bytes_max: int,
    ) -> None:
        self._coordinator, self._image, self._now_ms = coordinator, image, now_ms
        self._metadata_bytes_max = metadata_bytes_max

    @handles(
        OffsetCommitRequest,
        1,
        10,
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=group(AclOperation.READ) & handler_asks("READ Topic"),
    )
    def offset_commit(self, request: ClientRequest, message: OffsetCommitRequest) -> None:
        """Commit the offsets of a group. Answer once their records are below the high watermark of the group's
        partition."""
        by_id = request.api_version >= TOPIC_IDS_VERSION
        accepted, errors = sort_commit(
            message.topics,
            self._image(),
            self._now_ms(),
            self._metadata_bytes_max,
            request.access,
            by_id=by_id,
        )

        def done(outcome: ErrorCode) -> None:
            request.reply(_committed_as(message, errors, outcome))

        try:
            shard = self._coordinator.shard_for(message.group_id, empty_id_allowed=True)
        except KafkaError as error:
            request.reply(_committed_as(message, _denials(errors), error.code))
            return
        shard.commit(
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id_or_member_epoch,
            accepted,
            done,
            knows_epochs=request.api_version >= EPOCHS_VERSION,
            holders=request.holders,
        )

    @handles(
        OffsetFetchRequest,
        1,
        10,
        errors=ErrorAnswers(arrays={"partition_indexes": "partitions"}, values={"committed_offset": UNSET}),
        elements_max=WHOLE_CLUSTER_ELEMENTS,
        needs=handler_asks("DESCRIBE Group; DESCRIBE Topic"),
    )
    async def offset_fetch(self, request: ClientRequest, message: OffsetFetchRequest) -> OffsetFetchResponse:
        if request.api_version < 8:
            return self._fetch_one(request.access, message)
        # Each group once: repeated names must not enlarge the answer.
        groups = {asked.group_id: asked for asked in reversed(message.groups)}
        return OffsetFetchResponse(
            groups=[
                self._fetch_group(request.access, asked, request.api_version, stable=message.require_stable)
                async for asked in in_time_slices(reversed(groups.values()))
            ]
        )

    def _fetch_group(
        self, access: Access, asked: OffsetFetchRequestGroup, version: int, *, stable: bool
    ) -> OffsetFetchResponseGroup:
        """Return the answer for one group since version 8. Topics with unknown ids have a separate error."""
        by_id = version >= TOPIC_IDS_VERSION
        group = OffsetFetchResponseGroup(group_id=asked.group_id)
        image = self._image()
        try:
            access.check(AclOperation.DESCRIBE, AclResourceType.GROUP, asked.group_id)
            shard = self._coordinator.shard_for(asked.group_id, empty_id_allowed=True)
            refusal = shard.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
            if refusal is not ErrorCode.NONE:
                raise KafkaError(refusal)
        except KafkaError as error:
            group.error_code = error.code
            # Sarama uses version 8, checks the errors of partitions first, and never asks for stable offsets.
            if error.code in _COORDINATOR_ELSEWHERE and (stable or version >= EPOCHS_VERSION):
                unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
                group.topics = [
                    _refused(topic, unstable, topic.partition_indexes) for topic in asked.topics or ()
                ]
            return group
        wanted: dict[str, list[int]] | None = None
        if asked.topics is not None:
            wanted = {}
            for topic in asked.topics:
                known = image.topics_by_id.get(topic.topic_id)
                if by_id and known is None:
                    group.topics.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID, topic.partition_indexes))
                    continue
                name = known.name if by_id and known is not None else topic.name
                if access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
                    wanted[name] = topic.partition_indexes
                else:
                    group.topics.append(
                        _refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.partition_indexes)
                    )
        for name, offsets in _committed(shard, asked.group_id, wanted, image, stable=stable):
            if wanted is None and not _is_shown(access, name):
                continue
            topic_id = image.topics[name].id if name in image.topics else ZERO_UUID
            if by_id and topic_id == ZERO_UUID:
                continue
            rows = [_fetched(p, found) for p, found in offsets]
            group.topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows))
        return group

    def _fetch_one(self, access: Access, message: OffsetFetchRequest) -> OffsetFetchResponse:
        """Return the answer for the one group of versions 1 to 7.

        Version 1 has no error for the group, so each partition has it.
        """
        wanted = None if message.topics is None else {t.name: t.partition_indexes for t in message.topics}
        try:
            access.check(AclOperation.DESCRIBE, AclResourceType.GROUP, message.group_id)
            shard = self._coordinator.shard_for(message.group_id, empty_id_allowed=True)
            denied = access.denied_topics(AclOperation.DESCRIBE, wanted or ())
            found_by_topic = _committed(
                shard, message.group_id, wanted, self._image(), stable=message.require_stable
            )
            if wanted is None:
                found_by_topic = [row for row in found_by_topic if _is_shown(access, row[0])]
            found_by_topic = [
                (name, [(p, _DENIED) for p, _ in rows]) if name in denied else (name, rows)
                for name, rows in found_by_topic
            ]
            code = ErrorCode.NONE
        except KafkaError as error:
            code = error.code
            asks_again = message.require_stable and code in _COORDINATOR_ELSEWHERE
            row = _UNSTABLE if asks_again else _Found(None, code)
            found_by_topic = [(name, [(p, row) for p in ps]) for name, ps in (wanted or {}).items()]
        return OffsetFetchResponse(
            error_code=code,
            topics=[
                OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=p,
                            committed_offset=found.offset,
                            committed_leader_epoch=found.leader_epoch,
                            metadata=found.metadata,
                            error_code=found.error,
                        )
                        for p, found in offsets
                    ],
                )
                for name, offsets in found_by_topic
            ],
        )

    @handles(OffsetDeleteRequest, 0, 0, needs=group(AclOperation.DELETE) & handler_asks("READ Topic"))
    def offset_delete(self, request: ClientRequest, message: OffsetDeleteRequest) -> None:
        """Delete committed offsets of a group. Answer once the tombstones are committed. Topics that the group consumes
        keep their offsets."""
        topics = self._image().topics
        denied = request.access.denied_topics(AclOperation.READ, (topic.name for topic in message.topics))
        errors = {
            (topic.name, p.partition_index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in message.topics
            for p in topic.partitions
            if topic.name not in topics or p.partition_index not in topics[topic.name].partitions
        }
        asked = [(t.name, p.partition_index) for t in message.topics for p in t.partitions]
        errors |= {each: ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in asked if each[0] in denied}

        def done(outcome: ErrorCode, subscribed: frozenset[str] = frozenset()) -> None:
            if outcome is not ErrorCode.NONE:
                request.reply(OffsetDeleteResponse(error_code=outcome))
                return
            errors.update(
                {
                    each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                    for each in asked
                    if each[0] in subscribed - denied
                }
            )
            request.reply(_deleted(message, errors))

        try:
            shard = self._coordinator.shard_for(message.group_id)
            shard.delete_offsets(message.group_id, [each for each in asked if each not in errors], done)
        except KafkaError as error:
            done(error.code)


def _deleted(
    message: OffsetDeleteRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=errors.get((topic.name, p.partition_index), ErrorCode.NONE),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _denials(errors: Mapping[tuple[str | bytes, int], ErrorCode]) -> dict[tuple[str | bytes, int], ErrorCode]:
    """Return the authorization errors among the errors of partitions: they stay, whatever else prevents the commit."""
    return {place: code for place, code in errors.items() if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def _is_shown(access: Access, topic: str) -> bool:
    return access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic, quiet=True)


def _refused(
    topic: OffsetFetchRequestTopics, code: ErrorCode, partitions: list[int]
) -> OffsetFetchResponseTopics:
    rows = [_fetched(p, _Found(None, code)) for p in partitions]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _fetched(partition: int, found: _Found) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=found.error,
    )


def _committed(
    shard: Shard,
    group_id: str,
    wanted: dict[str, list[int]] | None,
    image: ClusterImage,
    *,
    stable: bool,
) -> list[tuple[str, list[tuple[int, _Found]]]]:
    """Return offsets by topic: those of `wanted` (None if there is no committed offset), or all of the group's.

    Offsets that were committed for an earlier topic of the same name are left out. With `stable`, a partition has no
    offset while a transaction that has committed an offset for it is open.
    """
    pending = shard.offsets.pending

    def found(name: str, partition: int, committed: CommittedOffset | None) -> _Found:
        if stable and pending.has(group_id, (name, partition)):
            return _UNSTABLE
        topic = image.topics.get(name)
        return _Found(committed if committed is None or topic is None or committed.is_of(topic.id) else None)

    if wanted is not None:
        return [
            (name, [(p, found(name, p, shard.offsets.get(group_id, (name, p)))) for p in partitions])
            for name, partitions in wanted.items()
        ]
    by_topic: dict[str, list[tuple[int, _Found]]] = {}
    for (name, partition), committed in sorted(shard.offsets.of_group(group_id).items()):
        row = found(name, partition, committed)
        if row is _UNSTABLE or row.committed is not None:
            by_topic.setdefault(name, []).append((partition, row))
    return list(by_topic.items())
