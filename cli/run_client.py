"""Runs a command's coroutine on an event loop, and turns refusals of the cluster into plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ..client.failures import AuthenticationFailed, ConnectionLost, NoBrokerReachable
from ..protocol.errors import KafkaError
from .failures import CommandFailed, UsageError

ResultT = TypeVar("ResultT")
_HOW = "a profile, -X or --command-config say how a cluster that is secured is reached"


def run_client(coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a command on an event loop of its own. Raises CommandFailed for what the cluster refuses."""
    try:
        return asyncio.run(coroutine)
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


def refusal(error: KafkaError) -> str:
    """A refusal as people read it: the reason, then Kafka's name of it."""
    return f"{error.message} ({error.code.name})"


def raise_refusals(failures: Mapping[str, KafkaError]) -> None:
    """Raises CommandFailed that names everything that was refused, if anything was."""
    if failures:
        raise CommandFailed("; ".join(f"{what}: {refusal(error)}" for what, error in failures.items()))
