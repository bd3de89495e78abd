"""The cluster's metadata at one moment, and the requests that make such a snapshot."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar

from ...client.admin import Admin, ClusterDescription, OngoingReassignment, QuorumDescription
from ...client.admin.partition_states import TopicStates, topic_states, worst_first
from ...client.connections.metadata import PartitionInfo, TopicInfo
from ...client.failures import ClientError
from ...client.records import TopicPartition
from ...protocol.errors import KafkaError

FENCED: Final = "fenced"
DOWN: Final = "down"
SUGGESTED_MAX: Final = 200
"""The most topics whose names a field suggests."""
AnswerT = TypeVar("AnswerT")
QUORUM_TIMEOUT_MS: Final = 3_000
"""Milliseconds to wait for the quorum: a broker waits for a quorum without a leader, and the page would wait, too."""
TRIES, PAUSE_S = 4, 0.25
"""The attempts for topics that are about to get a leader."""


@dataclass(frozen=True)
class ClusterSnapshot:
    """The cluster's brokers, topics, quorum and reassignments at one moment.

    If the quorum does not answer, `quorum` is None and `quorum_trouble` is the reason. If the cluster does not list its
    reassignments, `reassigning` is empty and `reassigning_trouble` is the reason.
    """

    at_s: float
    cluster: ClusterDescription
    topics: tuple[TopicInfo, ...]
    quorum: QuorumDescription | None
    quorum_trouble: str
    reassigning: Mapping[TopicPartition, OngoingReassignment]
    reassigning_trouble: str = ""

    @cached_property
    def leads(self) -> Counter[int]:
        """The number of partitions that each broker leads."""
        return Counter(partition.leader for _, partition in self.partitions())

    @cached_property
    def held(self) -> Counter[int]:
        """The number of replicas of each broker."""
        return Counter(chain.from_iterable(partition.replicas for _, partition in self.partitions()))

    @cached_property
    def suggested_topics(self) -> list[str]:
        """The names of users' topics that forms suggest, SUGGESTED_MAX at most."""
        return [topic.name for topic in self.topics if not topic.is_internal][:SUGGESTED_MAX]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        """Yield all partitions."""
        for topic in self.topics:
            for partition in topic.partitions.values():
                yield TopicPartition(topic.name, partition.index), partition

    @cached_property
    def adding(self) -> Mapping[TopicPartition, Sequence[int]]:
        """The replicas that reassignments add to partitions."""
        return {name: reassignment.adding for name, reassignment in self.reassigning.items()}

    @cached_property
    def states(self) -> Mapping[str, TopicStates]:
        """The states of each topic's partitions."""
        return {topic.name: topic_states(topic, self.adding) for topic in self.topics}

    @cached_property
    def problems(self) -> list[TopicStates]:
        """The topics with offline or under-replicated partitions, in the order of `worst_first`."""
        return worst_first(states for states in self.states.values() if not states.is_healthy)

    @cached_property
    def absent(self) -> Mapping[int, str]:
        """The state of each broker that is not active: FENCED, or DOWN if it has replicas and is not registered."""
        live = {broker.id for broker in self.cluster.brokers}
        return dict.fromkeys(self.held.keys() - live, DOWN) | dict.fromkeys(self.cluster.fenced, FENCED)

    @cached_property
    def offline_total(self) -> int:
        """The number of partitions without a leader."""
        return sum(topic.offline for topic in self.problems)

    @cached_property
    def under_replicated_total(self) -> int:
        """The number of partitions with a replica outside the ISR, without the replicas that a reassignment adds."""
        return sum(topic.under_replicated for topic in self.problems)


async def take_snapshot(admin: Admin, at_s: float) -> ClusterSnapshot:
    """Request the cluster's metadata, and return it as the snapshot of time `at_s` (seconds since 1970).

    Raises KafkaError if the cluster does not describe its brokers and topics.
    """
    cluster, topics, quorum, reassigning = await asyncio.gather(
        admin.describe_cluster(),
        _all_topics(admin),
        answer_or_error(admin.describe_quorum(timeout_ms=QUORUM_TIMEOUT_MS)),
        answer_or_error(admin.list_partition_reassignments()),
    )
    return ClusterSnapshot(
        at_s,
        cluster,
        tuple(topics),
        None if isinstance(quorum, KafkaError) else quorum,
        quorum.message if isinstance(quorum, KafkaError) else "",
        {} if isinstance(reassigning, KafkaError) else reassigning,
        reassigning.message if isinstance(reassigning, KafkaError) else "",
    )


async def _all_topics(admin: Admin) -> list[TopicInfo]:
    """Return the descriptions of all topics.

    The request is repeated on retriable errors, since Kafka's brokers report no leader for a topic that is just being
    created.
    """
    for _ in range(TRIES - 1):
        try:
            return await admin.describe_topics()
        except KafkaError as error:
            if not error.code.retriable or isinstance(error, ClientError):
                raise
        await asyncio.sleep(PAUSE_S)
    return await admin.describe_topics()


async def answer_or_error(question: Coroutine[object, object, AnswerT]) -> AnswerT | KafkaError:
    """Return the cluster's answer, or the KafkaError if this request fails.

    Pages need it where a user may lack a right, or a cluster a feature, while other requests succeed.
    """
    try:
        return await question
    except KafkaError as error:
        return error
