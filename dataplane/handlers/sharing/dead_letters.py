"""Writes of other brokers' dead letters. They may write to no topic that does not allow dead letters."""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.dead_letters import WriteDeadLettersRequest
from ....protocol.records.record_batch import HEADER_SIZE, parse_header
from ....protocol.settings.transactional_ids import LETTERS_PREFIX
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...share.feature import check_share_level
from ...share.letter_office import check_allows_letters
from ...transactions.broker_appends import BrokerAppends


class DeadLetterWrites:
    """The dead letters that other brokers write to partitions that this broker leads."""

    def __init__(self, appends: BrokerAppends, image: Callable[[], ClusterImage]) -> None:
        self._appends, self._image = appends, image

    async def write(self, message: WriteDeadLettersRequest) -> None:
        """Append dead letters in a share-partition's transaction, and wait until they are below the high watermark.

        Raises KafkaError.
        """
        image = self._image()
        check_share_level(image.features)
        topic = image.topics_by_id.get(message.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {message.topic_id.hex()} does not exist")
        check_allows_letters(image, topic.name)
        if not message.transactional_id.startswith(LETTERS_PREFIX):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the transactional id belongs to no share-partition's dead letters"
            )
        writer = TransactionalProducer(message.transactional_id, message.producer_id, message.producer_epoch)
        _check_batch(message.records, writer)
        await self._appends.append_here(message.topic_id, message.partition, message.records, writer)


def _check_batch(records: bytes, writer: TransactionalProducer) -> None:
    """Raise KafkaError INVALID_REQUEST unless the bytes are one batch of the writer's transaction."""
    if len(records) >= HEADER_SIZE:
        header = parse_header(records)
        producer = header.producer_id, header.producer_epoch
        if header.size == len(records) and header.is_transactional and producer == writer[1:]:
            return
    raise KafkaError(ErrorCode.INVALID_REQUEST, "the records are not one batch of the named transaction")
