"""Failback: topics of this cluster become copies of topics that were copied from them. An extension of Ottla; see
docs/MIRRORS.md."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.failback import (
    DescribedLineage,
    DescribeLineagesRequest,
    FailBackMirrorRequest,
    FailedBackTopic,
    LineageTopic,
)
from ..bounds import Name, NumberOfBytes
from ..records import TopicPartition
from .admin_base import AdminBase
from .mirrors import sent_options
from .session import check, error_of

_TRIMMED: Final = -1
"""Offset of a promotion that is below the log start by now."""


@dataclass(frozen=True, slots=True)
class FailbackPartition:
    """A partition whose log becomes a copy of the source's log in a failback, or with `validate_only` would become a
    copy."""

    partition: int
    common_offset: int
    """The offset up to which the log equals that of the source. Copying resumes there."""
    log_end_offset: int
    """The end offset of the log before the failback."""
    lost: int
    """The number of records here that the source does not have."""


@dataclass(frozen=True, slots=True)
class FailbackTopic:
    """A topic that becomes a copy of the source's topic in a failback, or with `validate_only` would become a copy."""

    name: str
    refusal: KafkaError | None
    """The reason why the topic cannot become a copy; None if it can."""
    partitions: tuple[FailbackPartition, ...]
    """The topic's partitions; empty if the topic cannot become a copy."""

    @property
    def lost(self) -> int:
        """The number of the topic's records that the source does not have, in all partitions."""
        return sum(partition.lost for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Failback:
    """The result of a failback (topics here become copies of the source's topics), or with `validate_only` its expected
    result."""

    source_cluster_id: str
    topics: tuple[FailbackTopic, ...]

    @property
    def lost(self) -> int:
        """The number of records in all topics that the source does not have."""
        return sum(topic.lost for topic in self.topics)

    @property
    def needs_discard(self) -> bool:
        """True if some partition's log here continues after the offset up to which the source's log is equal. Only with
        `discard` is a failback then possible."""
        return any(
            partition.log_end_offset > partition.common_offset
            for topic in self.topics
            for partition in topic.partitions
        )


class FailbackAdmin(AdminBase):
    """The method that reverses the direction of a mirror (the copying of topics between clusters)."""

    async def failback_mirror(
        self,
        name: Name,
        *,
        source: Name,
        topics: str = ".*",
        groups: str = "",
        options: Mapping[str, str] | None = None,
        bandwidth: NumberOfBytes = 0,
        acls: bool = False,
        discard: bool = False,
        validate_only: bool = False,
    ) -> Failback:
        """Make promoted topics of this cluster copies of the topics of the cluster at `source` that were copied from
        them.

        The new mirror gets this `name`. All other parameters are the same as for `create_mirror`.

        Each partition resumes at the last offset up to which both logs are equal. If this cluster has records after
        that offset, KafkaError is raised with their number, and nothing changes. With `discard` those records are cut
        off instead. With `validate_only` nothing changes at all: the answer says which records would be lost, and which
        topics would be refused.
        """

        async def once() -> Failback:
            request = FailBackMirrorRequest(
                name=name,
                bootstrap_servers=source,
                topics=topics,
                groups=groups,
                options=sent_options(options),
                discards=discard,
                validate_only=validate_only,
                logs=await self._describe_logs(topics),
                bandwidth=bandwidth,
                acls=acls,
            )
            connection = await self.session.cluster.any_connection()
            response = await connection.request(request)
            check(response.error_code, f"mirror {name!r}", response.error_message)
            return Failback(response.source_cluster_id, tuple(map(_topic, response.topics)))

        return await self.session.with_retries(once)

    async def copied_ends(self, topics: Iterable[Name]) -> dict[TopicPartition, int]:
        """Return the offset at which the records end that a mirror or a restoration has copied into each partition.

        Records from this offset on were written in this cluster. It is 0 if the partition never was a copy, and the log
        start if all copied records are deleted. A topic that does not exist is left out. Raises KafkaError, and
        VersionUnsupported from clusters without mirrors.
        """
        ends: dict[TopicPartition, int] = {}
        for topic in topics:  # A pattern of all names could exceed the bounds of patterns.
            ends |= await self.session.with_retries(lambda name=topic: self._copied_ends(name))  # type: ignore[misc]
        return ends

    async def _copied_ends(self, name: str) -> dict[TopicPartition, int]:
        ends = {}
        for topic in await self._describe_logs(name.replace(".", r"\.")):
            for log in topic.partitions:
                check(log.error_code, f"{name}-{log.partition}", None)
                ends[TopicPartition(name, log.partition)] = _copied_end(log, is_copy=topic.is_copy)
        return ends

    async def _describe_logs(self, topics: str) -> list[LineageTopic]:
        """Return the descriptions by all brokers of the logs that they lead. Raises KafkaError if a broker does not
        answer."""
        request = DescribeLineagesRequest(topics=topics)

        async def ask(broker_id: int) -> list[LineageTopic]:
            response = await self.session.cluster.ask(broker_id, request)
            check(response.error_code, "topics", response.error_message)
            return response.topics

        brokers = await self.session.brokers_to_ask()
        if not brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is known")
        answers = await asyncio.gather(*map(ask, brokers))
        return [topic for answer in answers for topic in answer]


def _copied_end(log: DescribedLineage, *, is_copy: bool) -> int:
    if is_copy:
        return log.log_end_offset
    return log.log_start_offset if log.promoted_offset == _TRIMMED else log.promoted_offset


def _topic(topic: FailedBackTopic) -> FailbackTopic:
    return FailbackTopic(
        topic.name,
        error_of(topic.error_code, topic.error_message),
        tuple(
            FailbackPartition(
                partition.partition, partition.common_offset, partition.log_end_offset, partition.lost
            )
            for partition in topic.partitions
        ),
    )
