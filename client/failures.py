"""What the client itself can fail with. Every one is a KafkaError, so one except covers all.

Its code is Kafka's where Kafka's clients report one, and else a code of clients (`ErrorCode.is_of_client`). None has
UNKNOWN_SERVER_ERROR, which says that a server failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from .records import TopicPartition


class ClientError(KafkaError):
    """A failure that the client found; `code` is the one that Kafka's clients report, or below -1."""

    error_code = ErrorCode.CLIENT_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(self.error_code, message)


class ConnectionLost(ClientError):
    """The connection could not be made or broke: a request under way may or may not have been carried out."""

    error_code = ErrorCode.NETWORK_EXCEPTION


class RequestTimedOut(ClientError):
    """No answer in time: the request may or may not have been carried out."""

    error_code = ErrorCode.REQUEST_TIMED_OUT


class VersionUnsupported(ClientError):
    """The broker speaks no version of this request that the client speaks."""

    error_code = ErrorCode.UNSUPPORTED_VERSION


class NoBrokerReachable(ClientError):
    """None of the bootstrap servers and none of the known brokers answered."""

    error_code = ErrorCode.NETWORK_EXCEPTION


class AuthenticationFailed(ClientError):
    """A broker does not take what the client logs in with, or did not prove itself. As in Java, nothing is tried again
    for it: what was asked for has failed.
    """

    error_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class TlsFailed(AuthenticationFailed):
    """Client and broker do not agree on TLS, or one does not believe the other's certificate."""

    error_code = ErrorCode.TLS_FAILED


class AuthorizationFailed(KafkaError):
    """The cluster does not allow it to the user as whom the client is logged in.

    `operation` is Kafka's name of what was to be done, as "WRITE", and empty where the client does not know it.
    `resource` tells with what, as "topic 'orders'".
    """

    def __init__(self, code: ErrorCode, message: str, *, operation: str = "", resource: str = "") -> None:
        super().__init__(code, message)
        self.operation = operation
        self.resource = resource


class ClientClosed(ClientError):
    """The producer, consumer or admin was closed."""

    error_code = ErrorCode.CLIENT_CLOSED


class SerializationFailed(ClientError):
    """A serializer raised, which is the cause, or a deserializer: the record was not sent, or could not be read.

    Of a record that could not be read `partition` and `offset` tell where it is. It was not passed over: the next read
    raises again, until `consumer.seek(error.partition, error.offset + 1)`. Where whole transactions are read
    `commit_index` tells of which it is: `after=error.commit_index` leaves that one out.
    """

    error_code = ErrorCode.INVALID_RECORD

    def __init__(
        self,
        message: str,
        *,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        commit_index: int | None = None,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.commit_index = commit_index


class UnreadableRecords(ClientError):
    """What stands in the log there cannot be read: it is damaged, be its checksum right, or of an unknown format.

    `partition` and `offset` tell where it begins, `next_offset` where reading can go on. It was not passed over: the
    next read fetches it anew, as another leader may have it whole, and raises again, until
    `consumer.seek(error.partition, error.next_offset)`. Where whole transactions are read
    `consumer.transactions(passing_over=[error])` leaves it out. `code` is that of the damage, CORRUPT_MESSAGE mostly.
    """

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(
        self,
        reason: KafkaError,
        partition: TopicPartition,
        offset: int,
        next_offset: int,
        *,
        what: str = "the batch",
        way_on: str | None = None,
    ) -> None:
        where = f"{partition.topic}-{partition.partition}: {what} at offset {offset}"
        way_on = way_on or f"seek to {next_offset} to go on behind it"
        super().__init__(f"{where} cannot be read: {reason.message}; {way_on}")
        self.code = reason.code
        self.reason = reason
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class MadeBeforeFork(ClientError):
    """A synchronous client was made, then the process was forked: its connections stay with the parent."""

    error_code = ErrorCode.MADE_BEFORE_FORK


class TransactionFailed(ClientError):
    """Something went wrong inside a transaction: all that can be done with it is to abort it. The cause is what it was
    raised from.
    """

    error_code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionAborted(ClientError):
    """The record was part of a transaction that is aborted: readers of committed records will never see it."""

    error_code = ErrorCode.TRANSACTION_ABORTABLE


class ProducerFenced(ClientError):
    """Another producer has taken over the transactional id, or a transaction was open for longer than its timeout. This
    producer is of no more use: close it.
    """

    error_code = ErrorCode.PRODUCER_FENCED


class OutOfTurn(ClientError):
    """A call that does not fit the state of the transaction, as to begin one while another is open."""

    error_code = ErrorCode.INVALID_TXN_STATE


class SpoolUnusable(ClientError):
    """The folder of a spool cannot be used, or not any more: another producer has it, it is damaged or a copy, or the
    disk failed. Its records are where they were.
    """

    error_code = ErrorCode.SPOOL_UNUSABLE


class SpoolFileDeleted(SpoolUnusable):
    """Somebody has deleted a file of a spool while a producer used it: its records are gone, or some of them."""


class SpoolFull(ClientError):
    """The spool held as much as it may for longer than `max_block_ms`: the record was not taken."""

    error_code = ErrorCode.REQUEST_TIMED_OUT


class LeftInSpool(ClientClosed):
    """The producer was stopped before the record was delivered. It is in the spool: the next producer delivers it."""


class SpoolPositionLost(ClientError):
    """The cluster has forgotten how far a spool was delivered while some of it was under way; see docs/CLIENT.md."""

    error_code = ErrorCode.SPOOL_POSITION_LOST


_DENIED: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "delegation token",
}


def cluster_error(
    code: ErrorCode,
    where: str,
    told: str | None = None,
    *,
    operation: str = "",
    name: str = "",
    user: str | None = None,
) -> KafkaError:
    """What the cluster answered, as an exception that nobody has raised yet; AuthorizationFailed if it is a denial.

    `where` begins the message, `told` is the broker's own text. `operation` and `name`: what was to be done with which
    topic, group or transactional id; `user`: as whom.
    """
    kind = _DENIED.get(code)
    if kind is None:
        text = told or code.message
        return KafkaError(code, f"{where}: {text}" if where else text)
    resource = f"{kind} {name!r}" if name and kind != "cluster" else kind
    whom = f" for User:{user}" if user is not None else ""
    what = f"{operation} on {resource}" if operation else (told or f"no right on this {resource}")
    denied = f"denied: {what}{whom}"
    return AuthorizationFailed(
        code, f"{where}: {denied}" if where else denied, operation=operation, resource=resource
    )


def restated(error: KafkaError, message: str) -> KafkaError:
    """The same failure with another message, not raised yet, of the same class where programs look for it."""
    if isinstance(error, AuthorizationFailed):
        return AuthorizationFailed(error.code, message, operation=error.operation, resource=error.resource)
    if isinstance(error, AuthenticationFailed):
        return type(error)(message)
    return KafkaError(error.code, message)
