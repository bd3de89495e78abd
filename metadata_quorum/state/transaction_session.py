"""A check that separates a client's current requests about a transaction from delayed ones (KAFKA-17754).

Clients that keep their epoch between transactions cannot express which transaction a request means. A request that was
delayed on an old connection, while its client continued on a new one, must not end the next transaction.
"""

from __future__ import annotations

from ...protocol.cluster.transaction_table import Phase, TransactionMetadata
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import ClientOrigin


def check_session(transaction: TransactionMetadata, origin: ClientOrigin) -> None:
    """Refuse a client's request about a transaction if it comes on an outdated connection: neither on the connection
    last used for the transaction, nor on one that was made after that use.

    KafkaError: NETWORK_EXCEPTION, at which the broker closes the connection without an answer; a live client repeats
    the request on a new connection.
    """
    if _session(origin) == transaction.session or origin.birth >= transaction.session_offset:
        return
    raise KafkaError(
        ErrorCode.NETWORK_EXCEPTION,
        f"connection {origin.connection} of broker {origin.broker_id} is older than what the client of "
        f"{transaction.transactional_id!r} did last",
    )


def check_session_of_epoch(transaction: TransactionMetadata, origin: ClientOrigin) -> None:
    """Refuse a delayed request with the current epoch, as `check_session` does.

    While the epoch is fresh from InitTransactionalId no such request can have been delayed, on whatever connection it
    comes: some clients use separate connections for InitProducerId and for what follows.

    KafkaError: as `check_session`.
    """
    if transaction.phase is not Phase.EMPTY:
        check_session(transaction, origin)


def with_session(
    transaction: TransactionMetadata, origin: ClientOrigin, metadata_offset: int
) -> TransactionMetadata:
    """Return the transaction with the command's client connection as the last used one. The command's first record
    takes the image to `metadata_offset`."""
    return transaction.but(
        session=_session(origin),
        session_offset=metadata_offset,
        updated_ms=max(origin.now_ms, transaction.updated_ms),
    )


def _session(origin: ClientOrigin) -> tuple[int, int, int]:
    return origin.broker_id, origin.broker_epoch, origin.connection
