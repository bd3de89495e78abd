"""Failures that the client itself detects. All are subclasses of KafkaError, so `except KafkaError` covers them.

The `code` of a failure is Kafka's if Kafka's clients report one, and otherwise a code reserved for clients
(`ErrorCode.is_of_client`). No failure of the client has UNKNOWN_SERVER_ERROR, which means that a server failed. The
text of a failure (`str`) is its message alone: names of codes stand in texts only where a broker sent the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from .records import TopicPartition


class ClientError(KafkaError):
    """A failure that the client detected; `code` is the one that Kafka's clients report, or below -1."""

    error_code = ErrorCode.CLIENT_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(self.error_code, message)
        self.args = (message,)  # A copy of the exception, as between processes, is made with these.

    def __str__(self) -> str:
        return self.message


class ConnectionLost(ClientError):
    """A connection that broke or could not be made; a pending request may or may not have been executed."""

    error_code = ErrorCode.NETWORK_EXCEPTION


class RequestTimedOut(ClientError):
    """A request without an answer in time; it may or may not have been executed."""

    error_code = ErrorCode.REQUEST_TIMED_OUT


class VersionUnsupported(ClientError):
    """A request for which client and broker have no version in common."""

    error_code = ErrorCode.UNSUPPORTED_VERSION


class NoBrokerReachable(ClientError):
    """A cluster of which no bootstrap server and no known broker answered."""

    error_code = ErrorCode.NETWORK_EXCEPTION


class AuthenticationFailed(ClientError):
    """A login that the broker refused, or a broker that did not prove its identity.

    As in Java, the client does not retry: the pending call fails.
    """

    error_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class TlsFailed(AuthenticationFailed):
    """A TLS handshake without agreement, or a certificate that client or broker does not trust."""

    error_code = ErrorCode.TLS_FAILED


class AuthorizationFailed(KafkaError):
    """An operation that the cluster does not allow the logged-in user.

    `operation` is Kafka's name of the operation, such as "WRITE", and empty if the client does not know it. `resource`
    names its object, such as "topic 'orders'".
    """

    def __init__(self, code: ErrorCode, message: str, *, operation: str = "", resource: str = "") -> None:
        super().__init__(code, message)
        self.operation = operation
        self.resource = resource


class ClientClosed(ClientError):
    """A call to a producer, consumer or admin that was closed."""

    error_code = ErrorCode.CLIENT_CLOSED


class SerializationFailed(ClientError):
    """An exception in a serializer or deserializer, which is the cause: the record was not sent, or could not be read.

    For an unreadable record, `partition` and `offset` name its place. The consumer did not skip it: the next read
    raises again, until `consumer.seek(error.partition, error.offset + 1)`. For reads of whole transactions
    `commit_index` names the record's transaction: `after=error.commit_index` skips that transaction.
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
    """A batch in the log that cannot be read: damaged, with or without a wrong checksum, or of an unknown format.

    `partition` and `offset` name its beginning, `next_offset` is the place at which reading can continue. The consumer
    did not skip it: the next read fetches it again, since another leader may have an intact copy, and otherwise raises
    again, until `consumer.seek(error.partition, error.next_offset)`. For reads of whole transactions
    `consumer.transactions(passing_over=[error])` skips it. `code` is the code of the damage, usually CORRUPT_MESSAGE.
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
        self.args = (reason, partition, offset, next_offset)
        self.code = reason.code
        self.reason = reason
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class UnreadableValue(UnreadableRecords):
    """A record whose value is an object of a store that is missing or wrong, or that cannot be fetched.

    The consumer did not skip it: the next read fetches the object again, until `consumer.seek(error.partition,
    error.next_offset)`. For reads of whole transactions `consumer.transactions(passing_over=[error])` leaves out this
    record alone.
    """

    @property
    def without_store(self) -> bool:
        """True if the consumer has no store, so that no such value can be read."""
        return isinstance(self.reason, NoObjectStore)


class LostLock(ClientError):
    """A record of a share group whose lock ended before the acknowledgement counted.

    The group delivers the record again, to any of its members. If the connection broke after the acknowledgement was
    sent, the acknowledgement may have counted.
    """

    error_code = ErrorCode.INVALID_RECORD_STATE


class MadeBeforeFork(ClientError):
    """A synchronous client used in a forked child but made by the parent, which keeps its connections."""

    error_code = ErrorCode.MADE_BEFORE_FORK


class TransactionFailed(ClientError):
    """A failure inside a transaction, which can now only be aborted. The underlying error is the cause."""

    error_code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionAborted(ClientError):
    """A record of an aborted transaction: readers of committed records will never see it."""

    error_code = ErrorCode.TRANSACTION_ABORTABLE


class ProducerFenced(ClientError):
    """A producer whose transactional id another producer has taken over, or whose transaction exceeded its timeout.

    The producer can no longer be used: close it.
    """

    error_code = ErrorCode.PRODUCER_FENCED


class OutOfTurn(ClientError):
    """A call that does not fit the state of the transaction, such as a begin while another transaction is open."""

    error_code = ErrorCode.INVALID_TXN_STATE


class SpoolUnusable(ClientError):
    """A spool folder (a producer's undelivered records on disk) that cannot be used, or no longer.

    Another producer has it, it is damaged or a copy, or the disk failed. Its records stay in the folder.
    """

    error_code = ErrorCode.SPOOL_UNUSABLE


class SpoolFileDeleted(SpoolUnusable):
    """A file of a spool that was deleted while a producer used it; all or some of its records are lost."""


class SpoolFull(ClientError):
    """A record that was not accepted, since the spool stayed full for longer than `max_block_ms`."""

    error_code = ErrorCode.REQUEST_TIMED_OUT


class LeftInSpool(ClientClosed):
    """A record that was not delivered before the producer stopped. It stays in the spool for the next producer."""


class SpoolPositionLost(ClientError):
    """A spool whose delivered position the cluster has forgotten while records were pending.

    The message has two offsets, of which `Admin.alter_offsets` commits one: the first sends the pending records again,
    the second continues after them.
    """

    error_code = ErrorCode.SPOOL_POSITION_LOST


class ObjectStoreFailed(ClientError):
    """An object store that refused a call, such as a folder that does not exist or a bucket without the right."""


class ObjectStoreUnavailable(ObjectStoreFailed):
    """An object store that did not answer in time, or failed for the moment; the object may or may not exist."""


class ObjectExists(ObjectStoreFailed):
    """An object that was not created, since an object with its key exists."""


class NoObjectStore(ObjectStoreFailed):
    """A value in an object store that the consumer was not given."""


class ObjectDamaged(ObjectStoreFailed):
    """An object whose bytes differ from the referenced bytes."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class ObjectMissing(ObjectStoreFailed):
    """An object that the store does not have."""


class BackupUnusable(ClientError):
    """A backup that cannot be used as asked: no such cut or topic, a later format, or a missing or damaged object."""


class BackupRefused(ClientError):
    """A backup or restoration that does not begin or continue, since another one, or the cluster, is in its way."""


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
    server_message: str | None = None,
    *,
    operation: str = "",
    name: str = "",
    user: str | None = None,
) -> KafkaError:
    """Return the exception for a cluster's error code, not raised yet; AuthorizationFailed if it is a denial.

    `where` begins the message, `server_message` is the broker's error text. `operation`, `name` and `user`: the
    attempted operation, the name of its topic, group or transactional id, and the user that attempted it.
    """
    kind = _DENIED.get(code)
    if kind is None:
        text = server_message or code.message
        return KafkaError(code, f"{where}: {text}" if where else text)
    resource = f"{kind} {name!r}" if name and kind != "cluster" else kind
    whom = f" for User:{user}" if user is not None else ""
    what = f"{operation} on {resource}" if operation else (server_message or f"no right on this {resource}")
    hint = " (WRITE on a topic suffices)" if operation == "IDEMPOTENT_WRITE" else ""
    denied = f"denied: {what}{hint}{whom}"
    return AuthorizationFailed(
        code, f"{where}: {denied}" if where else denied, operation=operation, resource=resource
    )


def seen_by(user: str | None) -> str:
    """Return the end of a sentence such as `there is no topic 'orders'`: a user sees no topic without DESCRIBE on it.

    `user` is the user of the client's login; None if the client does not know it.
    """
    return "" if user is None else f" that User:{user} may see"


def restated(error: KafkaError, message: str) -> KafkaError:
    """Return a copy of an error with another message, not raised yet.

    The copy keeps the classes that programs look for: AuthorizationFailed, and AuthenticationFailed with its
    subclasses.
    """
    if isinstance(error, AuthorizationFailed):
        return AuthorizationFailed(error.code, message, operation=error.operation, resource=error.resource)
    if isinstance(error, AuthenticationFailed):
        return type(error)(message)
    return KafkaError(error.code, message)
