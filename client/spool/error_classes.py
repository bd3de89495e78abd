"""The classes of failures of spooled records: only few failures are permanent. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..failures import ClientError


class ErrorClass(Enum):
    """A class of delivery failures: the records are sent again, or one record is rejected, or all records for the topic
    are."""

    AGAIN = "it may take them later"
    NOT_THIS = "it will never take one of them"
    NOT_THE_TOPIC = "it takes none for this topic"


_NOT_THE_TOPIC: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
_NOT_THIS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


def verdict(error: BaseException | None) -> ErrorClass:
    """Return the class of a failed batch's error, or of a failed look-up of a topic.

    An error that is not known to be permanent is retried: a mistake in the cluster must not cost a record.
    """
    if not isinstance(error, KafkaError) or isinstance(error, ClientError):
        return ErrorClass.AGAIN
    if error.code in _NOT_THE_TOPIC:
        return ErrorClass.NOT_THE_TOPIC
    return ErrorClass.NOT_THIS if error.code in _NOT_THIS else ErrorClass.AGAIN
