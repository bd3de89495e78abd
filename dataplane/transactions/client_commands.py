"""Commands about transactions on behalf of a client: the origin of its request, and the errors that it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transaction_commands import ClientOrigin
from ..quorum.access import Quorum
from ..server.handler import ClientRequest

END_TIMEOUT_S = 5.0
"""Maximum time that a client waits for the markers of its transaction before it has to ask again."""
_UNKNOWN_OUTCOMES = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE}
)
"""Errors after which the outcome of a command is unknown (see `quorum.access`).

A client that took such an error for a refusal would repeat a command that was committed.
"""


class ClientOrigins:
    """The source of `ClientOrigin`s, which record the connection, the broker and the time of a client's request for the
    quorum."""

    def __init__(self, broker_id: int, quorum: Quorum, wall_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._quorum = quorum
        self.wall_ms = wall_ms

    def of(self, request: ClientRequest) -> ClientOrigin:
        """Return the origin of a client's request: its connection, this broker's id and registration epoch, and the
        time in ms."""
        return ClientOrigin(
            broker_id=self._broker_id,
            broker_epoch=self._quorum.broker_epoch,
            connection=request.connection.number,
            birth=request.connection.birth,
            now_ms=self.wall_ms(),
        )


@contextmanager
def errors_for_client(
    request: ClientRequest, *, knows_fenced: bool = True, knows_abortable: bool = True
) -> Iterator[None]:
    """Turn each KafkaError of the quorum into an error that the client can act upon.

    `knows_fenced`: the client's version of the request has PRODUCER_FENCED. `knows_abortable`: the client may get
    TRANSACTION_ABORTABLE. If the request may have been delayed on an old connection, every answer would mislead a
    client that is alive. So the connection is closed, and the client asks again on a new connection.
    """
    try:
        yield
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.NETWORK_EXCEPTION:
            request.close_connection()
        if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, error.message) from error
        if code in _UNKNOWN_OUTCOMES:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        raise


def unreportable_epoch(transactional_id: str) -> KafkaError:
    """Return the error for a producer whose transaction was aborted, if the version of its request has no field for its
    next epoch.

    A client that knows KIP-360 asks for the epoch upon this error.
    """
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"the transaction of {transactional_id!r} was aborted, and its producer has another epoch now",
    )
