"""Acknowledgements of a share group's records in a transaction: the request, and the error of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_fetch import AcknowledgeTopic
from ...protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ..failures import cluster_error
from ..producing.accumulator import ProducerIdentity


class ShareGroupMetadata(NamedTuple):
    """A member of a share group in a share session with one leader, at the session's next epoch."""

    group_id: str
    member_id: str
    session_epoch: int


def share_acknowledgement(
    transactional_id: str,
    identity: ProducerIdentity,
    member: ShareGroupMetadata,
    topics: Sequence[AcknowledgeTopic],
) -> TxnShareAcknowledgeRequest:
    """Return the request that makes acknowledgements part of a producer's transaction. The records' leader answers."""
    return TxnShareAcknowledgeRequest(
        transactional_id=transactional_id,
        producer_id=identity.id,
        producer_epoch=identity.epoch,
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=member.session_epoch,
        topics=list(topics),
    )


def acknowledgement_failure(answer: TxnShareAcknowledgeResponse) -> KafkaError | None:
    """Return the first error of an answer, or None. After an error the transaction has to be aborted."""
    if answer.error_code:
        return cluster_error(ErrorCode.of(answer.error_code), "acknowledgements", answer.error_message)
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.error_code:
                place = f"partition {partition.partition_index} of topic {topic.topic_id.hex()}"
                return cluster_error(ErrorCode.of(partition.error_code), place, partition.error_message)
    return None
