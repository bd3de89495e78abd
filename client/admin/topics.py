"""Methods for topics and their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ..backoff import Backoff
from ..bounds import Count, Name
from ..connections.metadata import TopicInfo
from .admin_base import AdminBase
from .session import check
from .values import NewTopic, config_text


class TopicAdmin(AdminBase):
    """The methods that create, list, describe and delete topics."""

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics and wait until brokers know their leaders; with `validate_only` only check.

        Raises ValueError for a number of partitions or replicas that differs from the topic's `assignments`.
        """
        wanted = list(topics)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=self.session.timeout_ms,
            validate_only=validate_only,
        )

        async def once() -> None:
            connection = await self.session.cluster.any_connection()
            response = await connection.request(request)
            for topic in response.topics:
                what = f"topic {topic.name!r}"
                check(topic.error_code, what, topic.error_message, operation="CREATE", name=topic.name)

        await self.session.with_retries(once)
        if not validate_only:
            await self._wait_until_led([topic.name for topic in wanted])

    async def delete_topics(self, names: Iterable[Name]) -> None:
        """Delete topics with all their records."""
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self.session.timeout_ms)
        connection = await self.session.cluster.any_connection()
        version = connection.version_for(DeleteTopicsRequest, at_most=5)  # version 6 may go by topic id
        response = await connection.request(request, version=version)
        for topic in response.responses:
            what = f"topic {topic.name!r}"
            check(topic.error_code, what, topic.error_message, operation="DELETE", name=topic.name or "")

    async def create_partitions(self, topic: Name, total: Count, *, validate_only: bool = False) -> None:
        """Raise the number of partitions of `topic` to `total`; with `validate_only` only check."""
        wanted = CreatePartitionsTopic(name=topic, count=total, assignments=None)
        request = CreatePartitionsRequest(
            topics=[wanted], timeout_ms=self.session.timeout_ms, validate_only=validate_only
        )
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        for result in response.results:
            what = f"topic {result.name!r}"
            check(result.error_code, what, result.error_message, operation="ALTER", name=topic)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted((await self.session.metadata()).topics)

    async def describe_topics(self, names: Iterable[Name] | None = None) -> list[TopicInfo]:
        """Return partitions, leaders and replicas of these topics, or of all. Raises KafkaError,
        UNKNOWN_TOPIC_OR_PARTITION, for a name that does not exist."""
        names = None if names is None else list(names)
        metadata = await self.session.metadata(names)
        described = []
        for name in sorted(metadata.topics) if names is None else names:
            info = metadata.topics.get(name)
            if info is None or info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            check(info.error, f"topic {name!r}", None, operation="DESCRIBE", name=name)
            described.append(info.info())
        return described

    async def _wait_until_led(self, names: Sequence[str]) -> None:
        """Return when every broker that answers knows a leader for every partition, or after 5 s."""
        deadline = asyncio.get_running_loop().time() + 5
        backoff = Backoff(100)
        while asyncio.get_running_loop().time() < deadline:
            topics = (await self.session.metadata()).topics
            infos = [topics.get(name) for name in names]
            if all(info is not None and len(info.available) == len(info.partitions) > 0 for info in infos):
                return
            await asyncio.sleep(backoff.next_s())


def _creatable(topic: NewTopic) -> CreatableTopic:
    """Return the request's form of a topic. With explicit assignments both numbers are -1, as the protocol requires."""
    _check_agreement(topic)
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
        for index, brokers in topic.assignments.items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.num_partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[
            CreatableTopicConfig(name=key, value=config_text(value)) for key, value in topic.configs.items()
        ],
    )


def _check_agreement(topic: NewTopic) -> None:
    """Raise ValueError if a topic's numbers contradict its assignments."""
    if not topic.assignments:
        return
    partitions = len(topic.assignments)
    if topic.num_partitions not in (-1, partitions):
        raise ValueError(
            f"num_partitions of topic {topic.name!r} is {topic.num_partitions}, but its assignments have {partitions}"
        )
    for index, brokers in topic.assignments.items():
        if topic.replication_factor not in (-1, len(brokers)):
            raise ValueError(
                f"replication_factor of topic {topic.name!r} is {topic.replication_factor}, but its assignments give "
                f"partition {index} {len(brokers)}"
            )
