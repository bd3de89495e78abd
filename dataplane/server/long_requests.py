"""Requests with very many elements, which are parsed in time slices.

A request is parsed in place, in its connection's receive buffer. So its memory stays counted in the receive budget, and
the connection passes on no other request meanwhile. A few such requests are parsed at the same time, and some more are
handled. The others wait in their buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.wire.codec import MalformedMessage
from ...protocol.wire.schema import Message
from .connection import ClientConnection
from .handler import Handler

LONG_FRAME_BYTES: Final = 16 * 1024
"""The size in bytes up to which a request is parsed at once, as it cannot hold more elements than one turn takes."""
READ_AT_ONCE: Final = 4
RUN_AT_ONCE: Final = 32
"""The maximum number of requests that are parsed or handled, which may include a wait for the quorum."""
ELEMENTS_MAX: Final = 100_000
"""The maximum number of elements of any request: a larger one would take too much memory, so its parsing stops."""
ELEMENTS_AT_ONCE: Final = 1000
"""The number of elements that are parsed in one turn."""

_M = TypeVar("_M", bound=Message)


async def read_in_time_slices(
    connection: ClientConnection, steps: Generator[int, None, _M]
) -> tuple[_M, int] | None:
    """Parse a long request in steps, between which the event loop has other turns. Return the message and the number of
    its array elements; None if the connection was closed meanwhile, which frees the buffer.

    Raises MalformedMessage, also for more than `ELEMENTS_MAX`.
    """
    elements = turn = 0
    try:
        while not connection.closed:
            count = next(steps)
            elements += count
            if elements > ELEMENTS_MAX:
                raise MalformedMessage(f"it has more than {ELEMENTS_MAX} elements in its arrays")
            turn += count
            if turn > ELEMENTS_AT_ONCE:
                turn = 0
                await asyncio.sleep(0)
    except StopIteration as done:
        return done.value, elements
    return None


def check_elements(handler: Handler, elements: int) -> None:
    """Raise POLICY_VIOLATION if the handler allows fewer elements, as Kafka does for large batches of its admin
    client."""
    if elements > handler.elements_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Unable to perform excessively large batch operation: {elements} elements in the request's arrays, "
            f"at most {handler.elements_max} are allowed",
        )
