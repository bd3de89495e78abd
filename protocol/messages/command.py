"""Base classes of commands to the metadata quorum. Each command is a message that declares the class of its result.

Example:

    @data()
    class AllocateProducerIds(Command[AllocateProducerIdsResult]):
        broker_id: int = int32(about="Id of the broker that asks.")

`quorum_commands` gives each command its number, and encodes it.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, get_args

from ..errors import ErrorCode, KafkaError
from ..wire.schema import Message, data, int16, string


class CommandResult(Message):
    """Base class of the results of commands to the quorum. Each result declares an error code and a message, which
    concern the whole command."""

    __slots__ = ()

    error_code: int
    error_message: str


ResultT = TypeVar("ResultT", bound=CommandResult)
_ResultT_co = TypeVar("_ResultT_co", bound=CommandResult, covariant=True)


class Command(Message, Generic[_ResultT_co]):
    """Base class of commands to the quorum. The class in brackets is the class of the command's result."""

    __slots__ = ()


@data()
class PlainResult(CommandResult):
    """Result of a command that has no values to return: success, or an error code with a message."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str = string(about="Explanation for people.")


class CommandRefused(KafkaError):
    """A command that the quorum applied and refused. Any other KafkaError leaves open whether the command was
    applied."""


class _Outcome(Protocol):
    """A message with an error code: the result of a command, or the part of a result about one of its elements."""

    error_code: int
    error_message: str


def result_type(command: type[Command[ResultT]]) -> type[ResultT]:
    """Return the class of the results of this class of commands."""
    bases: tuple[Any, ...] = command.__dict__["__orig_bases__"]
    declared: type[ResultT] = get_args(bases[0])[0]
    return declared


def refusal(outcome: _Outcome) -> CommandRefused | None:
    """Return the error in a command's result, or in an element of it, with the quorum's message; None for success."""
    code = outcome.error_code
    return CommandRefused(ErrorCode.of(code), outcome.error_message) if code else None


def accepted(result: ResultT) -> ResultT:
    """Return the command's result unchanged. Raises CommandRefused if its error code says that the command was
    refused."""
    refused = refusal(result)
    if refused is not None:
        raise refused
    return result
