"""Execution of a command's requests to a cluster; refusals by the cluster become errors in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ..client.failures import AuthenticationFailed, ClientError, ConnectionLost, NoBrokerReachable
from ..protocol.errors import ErrorCode, KafkaError
from .failures import CommandFailed, UsageError
from .terminal.progress import waiting

ResultT = TypeVar("ResultT")
_HOW = "a profile, -X or --command-config say how a cluster that is secured is reached"


def run_client(coroutine: Coroutine[Any, Any, ResultT], *, waits_for: str | None = "the cluster") -> ResultT:
    """Run a command's coroutine on a new event loop.

    If it takes longer than two seconds, standard error says that the command waits for `waits_for`. None is for
    coroutines that show their own progress or results.

    Raises CommandFailed if the cluster refuses a request, and UsageError for an invalid option.
    """
    try:
        return asyncio.run(coroutine if waits_for is None else _waiting(coroutine, waits_for))
    except NoBrokerReachable as error:
        raise CommandFailed(
            f"{error.message}. Is the cluster up? -b HOST:PORT or OTTLA_BOOTSTRAP says where; {_HOW}"
        ) from error
    except (AuthenticationFailed, ConnectionLost) as error:
        raise CommandFailed(f"{error.message}; {_HOW}") from error
    except KafkaError as error:
        raise CommandFailed(refusal(error)) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


async def _waiting(coroutine: Coroutine[Any, Any, ResultT], whom: str) -> ResultT:
    async with waiting(whom):
        return await coroutine


def may_be_executed(error: BaseException) -> bool:
    """Return whether the cluster may have executed the request that failed with this error.

    A broker's refusal rules it out, and so does ValueError, by which the client refuses an argument.
    """
    if isinstance(error, KafkaError) and not isinstance(error, ClientError):
        return error.code is ErrorCode.REQUEST_TIMED_OUT
    return not isinstance(error, ValueError)


def refusal(error: KafkaError) -> str:
    """Return the text of a refusal: the reason, then Kafka's name of the error if the cluster sent it."""
    return error.message if isinstance(error, ClientError) else f"{error.message} ({error.code.name})"


def raise_refusals(failures: Mapping[str, KafkaError]) -> None:
    """Raise CommandFailed with the texts of all refusals by the cluster, if there are any.

    The keys name the refused things.
    """
    if failures:
        raise CommandFailed("; ".join(f"{what}: {refusal(error)}" for what, error in failures.items()))
