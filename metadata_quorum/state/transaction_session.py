"""Which requests about a transaction are those of its client as it is now, and which were delayed (KAFKA-17754).

Clients that keep their epoch from one transaction to the next cannot tell by it which transaction a request means. A
request that was held up on an old connection, while its client went on over a new one, must not end the next
transaction.
"""

from __future__ import annotations

from ...protocol.cluster.transaction_table import Phase, TransactionMetadata
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import ClientOrigin


def check_session(transaction: TransactionMetadata, origin: ClientOrigin) -> None:
    """Refuse what comes neither on the connection that was used last nor on one that was made after that use.

    KafkaError: NETWORK_EXCEPTION, whereupon the broker closes the connection without an answer: a client that is alive
    asks again on a new one.
    """
    if _session(origin) == transaction.session or origin.birth >= transaction.session_offset:
        return
    raise KafkaError(
        ErrorCode.NETWORK_EXCEPTION,
        f"connection {origin.connection} of broker {origin.broker_id} is older than what the client of "
        f"{transaction.transactional_id!r} did last",
    )


def check_session_of_epoch(transaction: TransactionMetadata, origin: ClientOrigin) -> None:
    """The same for a request with the present epoch. As long as that is fresh from InitTransactionalId nothing with it
    can have been delayed, on whatever connection it comes: some clients have one for InitProducerId, and another for
    what follows.

    KafkaError: as `check_session`.
    """
    if transaction.phase is not Phase.EMPTY:
        check_session(transaction, origin)


def with_session(
    transaction: TransactionMetadata, origin: ClientOrigin, metadata_offset: int
) -> TransactionMetadata:
    """As it is once its command counts; its first record takes the image to `metadata_offset`."""
    return transaction.but(
        session=_session(origin),
        session_offset=metadata_offset,
        updated_ms=max(origin.now_ms, transaction.updated_ms),
    )


def _session(origin: ClientOrigin) -> tuple[int, int, int]:
    return origin.broker_id, origin.broker_epoch, origin.connection
