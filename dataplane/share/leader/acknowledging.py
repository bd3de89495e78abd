"""The acknowledgements of one request: applied at once, and answered when all of them are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.cluster.acls import AclOperation
from ....protocol.errors import ErrorCode, KafkaError
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...security.authorization.access import Access
from ...server.handler import as_kafka_error
from ..acknowledgements import AcknowledgedRange
from ..sessions import SessionKey, SharedPartition
from .dependencies import ShareKey
from .write_queue import Written

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import ClusterImage
    from ....protocol.messages.share_fetch import AcknowledgementBatch, AcknowledgeTopic, FetchTopic
    from .share_partitions import SharePartitions


def acknowledged_ranges(
    topics: Iterable[FetchTopic | AcknowledgeTopic],
) -> dict[SharedPartition, list[AcknowledgedRange]]:
    """Return the acknowledged ranges that a request has for each partition that it names, which may be none."""
    found: dict[SharedPartition, list[AcknowledgedRange]] = {}
    for topic in topics:
        for part in topic.partitions:
            ranges = found.setdefault(SharedPartition(topic.topic_id, part.partition_index), [])
            ranges.extend(map(_range, part.acknowledgement_batches))
    return found


def _range(batch: AcknowledgementBatch) -> AcknowledgedRange:
    return AcknowledgedRange(batch.first_offset, batch.last_offset, batch.acknowledge_types, batch.delay_ms)


class AcknowledgeRound:
    """The steps of one request that end later: writes of its acknowledgements, and others that the handler adds."""

    def __init__(self, finished: Callable[[], None]) -> None:
        """`finished` is called once, after `sealed`, when all steps have ended."""
        self.results: dict[SharedPartition, KafkaError | None] = {}
        """Outcome of the acknowledgements of each partition; None for success."""
        self._finished = finished
        self._left = 1

    def step(self) -> Callable[[], None]:
        """Add a step, and return the function that ends it."""
        self._left += 1
        return self._ended

    def sealed(self) -> None:
        """Note that no further step begins."""
        self._ended()

    def _ended(self) -> None:
        self._left -= 1
        if not self._left:
            self._finished()

    def expect(self, partition: SharedPartition) -> Written:
        """Add the acknowledgements of a partition as a step, and return the function that gets their outcome."""
        self._left += 1
        return partial(self._arrived, partition)

    def _arrived(self, partition: SharedPartition, error: KafkaError | None) -> None:
        self.results[partition] = error
        self._ended()

    def apply(
        self,
        partitions: SharePartitions,
        key: SessionKey,
        named: Mapping[SharedPartition, Sequence[AcknowledgedRange]],
        access: Access,
        image: ClusterImage,
        *,
        has_renewals: bool,
    ) -> None:
        """Apply the acknowledgements of a member. An error concerns its partition alone."""

        def acknowledge(partition: ShareKey, ranges: Sequence[AcknowledgedRange], done: Written) -> None:
            partitions.acknowledge(partition, key.member_id, ranges, done, has_renewals=has_renewals)

        self._apply(acknowledge, key, named, access, image)

    def apply_in_transaction(
        self,
        partitions: SharePartitions,
        key: SessionKey,
        named: Mapping[SharedPartition, Sequence[AcknowledgedRange]],
        access: Access,
        image: ClusterImage,
        writer: TransactionalProducer,
    ) -> None:
        """Apply the acknowledgements of a member in a producer's transaction. An error concerns its partition alone."""

        def acknowledge(partition: ShareKey, ranges: Sequence[AcknowledgedRange], done: Written) -> None:
            partitions.acknowledge_in_transaction(partition, key.member_id, ranges, writer, done)

        self._apply(acknowledge, key, named, access, image)

    def _apply(
        self,
        acknowledge: Callable[[ShareKey, Sequence[AcknowledgedRange], Written], None],
        key: SessionKey,
        named: Mapping[SharedPartition, Sequence[AcknowledgedRange]],
        access: Access,
        image: ClusterImage,
    ) -> None:
        for partition, ranges in named.items():
            if not ranges:
                continue
            share_key = ShareKey(key.group_id, *partition)
            done = self.expect(partition)
            try:
                check_readable(partition, access, image)
                acknowledge(share_key, ranges, done)
            except Exception as error:
                done(as_kafka_error(error, f"an acknowledgement of {share_key}"))


def check_readable(partition: SharedPartition, access: Access, image: ClusterImage) -> None:
    """Raise KafkaError unless a client may read a topic: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED."""
    topic = image.topics_by_id.get(partition.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {partition.topic_id.hex()}")
    if access.grants is not None:
        access.check_topic(AclOperation.READ, topic.name)
