"""WriteDeadLetters (0): dead letters of share groups that another broker writes, for partitions that this broker leads.

The API is Ottla's own, and for brokers alone. They may write to no topic that does not allow dead letters.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.dead_letters import WriteDeadLettersRequest, WriteDeadLettersResponse
from ...protocol.records.record_batch import HEADER_SIZE, parse_header
from ...protocol.settings.transactional_ids import LETTERS_PREFIX
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles
from ..share.feature import check_share_level
from ..share.letter_office import check_allows_letters
from ..share.transaction_writer import TransactionWriter
from ..transactions.broker_appends import BrokerAppends


class DeadLetterHandlers:
    """The handler of other brokers' dead letters."""

    def __init__(self, appends: BrokerAppends, image: Callable[[], ClusterImage]) -> None:
        self._appends, self._image = appends, image

    @handles(WriteDeadLettersRequest, 0, 0, needs=cluster(AclOperation.CLUSTER_ACTION), brokers_only=True)
    async def write(
        self, _request: ClientRequest, message: WriteDeadLettersRequest
    ) -> WriteDeadLettersResponse:
        """Append dead letters in a share-partition's transaction. Answer once they are below the high watermark."""
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
        writer = TransactionWriter(message.transactional_id, message.producer_id, message.producer_epoch)
        _check_batch(message.records, writer)
        await self._appends.append_here(message.topic_id, message.partition, message.records, writer)
        return WriteDeadLettersResponse()


def _check_batch(records: bytes, writer: TransactionWriter) -> None:
    """Raise KafkaError INVALID_REQUEST unless the bytes are one batch of the writer's transaction."""
    if len(records) >= HEADER_SIZE:
        header = parse_header(records)
        producer = header.producer_id, header.producer_epoch
        if header.size == len(records) and header.is_transactional and producer == writer[1:]:
            return
    raise KafkaError(ErrorCode.INVALID_REQUEST, "the records are not one batch of the named transaction")
