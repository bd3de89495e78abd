"""WriteDeadLetters (20015): a broker writes dead letters of share groups. An API of Ottla's own, under a key that Kafka
does not use."""

from __future__ import annotations

from ..wire.schema import Message, Request, bytes_, int16, int32, int64, request, response, string, uuid


@response(20015, "0", flexible="0+")
class WriteDeadLettersResponse(Message):
    """Answer to WriteDeadLettersRequest."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )


@request(20015, "0", flexible="0+", response=WriteDeadLettersResponse)
class WriteDeadLettersRequest(Request[WriteDeadLettersResponse]):
    """Request to append dead letters in a transaction, with acks=all. Only brokers send it, to a partition's leader.

    The partition becomes part of the transaction. Topics without errors.deadletterqueue.group.enable=true are refused.
    """

    transactional_id: str = string(about="Transactional id of the share-partition.")
    producer_id: int = int64(about="Producer id in the transaction.")
    producer_epoch: int = int16(about="Producer epoch in the transaction.")
    topic_id: bytes = uuid(about="Id of the topic for dead letters.")
    partition: int = int32(about="Partition index.")
    records: bytes = bytes_(about="One record batch of format v2.")
