"""Failback: topics of this cluster become copies of what were their copies. Ottla's own; see docs/MIRRORS.md."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.failback import (
    DescribeLineagesRequest,
    FailBackMirrorRequest,
    FailedBackTopic,
    LineageTopic,
)
from .admin_base import AdminBase
from .mirrors import sent_options
from .session import check, error_of


@dataclass(frozen=True, slots=True)
class FailbackPartition:
    """A partition that becomes a copy, or would."""

    partition: int
    common_offset: int
    """Up to here the log is what the source has. It goes on there."""
    log_end_offset: int
    """Where the log ended."""
    lost: int
    """Records here that the source does not have."""


@dataclass(frozen=True, slots=True)
class FailbackTopic:
    """A topic that becomes a copy, or would."""

    name: str
    refusal: KafkaError | None
    """Why it cannot become a copy; None if it can."""
    partitions: tuple[FailbackPartition, ...]
    """Empty where it cannot."""

    @property
    def lost(self) -> int:
        """Records of all partitions."""
        return sum(one.lost for one in self.partitions)


@dataclass(frozen=True, slots=True)
class Failback:
    """What a failback does, or would do."""

    source_cluster_id: str
    topics: tuple[FailbackTopic, ...]

    @property
    def lost(self) -> int:
        """Records of all topics that the source does not have."""
        return sum(topic.lost for topic in self.topics)

    @property
    def needs_discard(self) -> bool:
        """Whether some log goes on behind what the source has."""
        return any(
            one.log_end_offset > one.common_offset for topic in self.topics for one in topic.partitions
        )


class FailbackAdmin(AdminBase):
    """Turns the direction of a mirror."""

    async def failback_mirror(
        self,
        name: str,
        *,
        source: str,
        topics: str = ".*",
        groups: str = "",
        options: Mapping[str, str] | None = None,
        bandwidth: int = 0,
        acls: bool = False,
        discard: bool = False,
        validate_only: bool = False,
    ) -> Failback:
        """Make topics of this cluster copies of topics of the cluster at `source` that were copied from them and are
        promoted. The new mirror has this `name`. All else is as for `create_mirror`.

        Each partition goes on where both logs are alike. Where this cluster has records behind that, KafkaError names
        their number, and nothing changes. With `discard` they are cut off instead. With `validate_only` nothing changes
        at all: the answer tells what would be lost, and which topics would be refused.
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
                logs=await self._tell_of_logs(topics),
                bandwidth=bandwidth,
                acls=acls,
            )
            connection = await self.session.cluster.any_connection()
            told = await connection.request(request)
            check(told.error_code, f"mirror {name!r}", told.error_message)
            return Failback(told.source_cluster_id, tuple(map(_topic, told.topics)))

        return await self.session.with_retries(once)

    async def _tell_of_logs(self, topics: str) -> list[LineageTopic]:
        """What each broker tells of the logs that it leads. Raises KafkaError if one does not answer."""
        request = DescribeLineagesRequest(topics=topics)

        async def ask(broker_id: int) -> list[LineageTopic]:
            told = await self.session.cluster.ask(broker_id, request)
            check(told.error_code, "topics", told.error_message)
            return told.topics

        brokers = await self.session.brokers_to_ask()
        if not brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is known")
        answers = await asyncio.gather(*map(ask, brokers))
        return [topic for answer in answers for topic in answer]


def _topic(told: FailedBackTopic) -> FailbackTopic:
    return FailbackTopic(
        told.name,
        error_of(told.error_code, told.error_message),
        tuple(
            FailbackPartition(one.partition, one.common_offset, one.log_end_offset, one.lost)
            for one in told.partitions
        ),
    )
