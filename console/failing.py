"""Errors as pages of the console show them: an HTTP status, a heading, and the reason in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..client.failures import (
    AuthenticationFailed,
    AuthorizationFailed,
    ClientError,
    ConnectionLost,
    NoBrokerReachable,
    RequestTimedOut,
    VersionUnsupported,
)
from ..protocol.errors import ErrorCode, KafkaError
from .area import BadQuestion, NotThere
from .bounds import QUESTION_S

EXPECTED = (KafkaError, BadQuestion, NotThere, TimeoutError)
"""Errors that pages may raise. Other errors are faults of the console."""
_MISSING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}


NOT_SUPPORTED: Final = 501


@dataclass(frozen=True, slots=True)
class Failure:
    """An error for a page: the HTTP status of the answer, a heading, and the reason."""

    status: int
    heading: str
    reason: str

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed later."""
        return self.status >= 500 and self.status != NOT_SUPPORTED


def failure_of(error: Exception) -> Failure:
    """Return the HTTP status, heading and reason that a page shows for an exception. `error` is one of EXPECTED."""
    match error:
        case BadQuestion():
            return Failure(400, "The request is not valid", str(error))
        case NotThere():
            return Failure(404, "Not found", str(error))
        case NoBrokerReachable() | ConnectionLost():
            return Failure(503, "The cluster does not answer", error.message)
        case AuthenticationFailed():
            return Failure(503, "The cluster refuses the console's login", error.message)
        case VersionUnsupported():
            return Failure(NOT_SUPPORTED, "The cluster does not support this", error.message)
        case RequestTimedOut():
            return Failure(504, "The cluster took too long", error.message)
        case KafkaError():
            return _refusal(error)
        case _:
            reason = f"there was no answer within {QUESTION_S:.0f} s"
            return Failure(504, "The cluster took too long", reason)


def _refusal(error: KafkaError) -> Failure:
    if isinstance(error, AuthorizationFailed) and error.operation:
        resource = "the cluster" if error.resource == "cluster" else error.resource
        right = f"the console's user needs the right {error.operation} on {resource}"
        return Failure(403, "Not authorized", f"{right} ({error.code.name})")
    reason = error.message if isinstance(error, ClientError) else f"{error.message} ({error.code.name})"
    if error.code in _MISSING:
        return Failure(404, "Not found", reason)
    if error.code.name.endswith("AUTHORIZATION_FAILED"):
        return Failure(403, "Not authorized", reason)
    return Failure(502, "The cluster refused", reason)
