"""Outgoing TCP connections to hosts that have several addresses (Happy Eyeballs, RFC 8305)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from .resolving import Found, addresses_of, not_to_encode
from .threads import in_thread

NEXT_AFTER_S = 0.25
"""Delay after which the next address is tried beside the last (RFC 8305's connection attempt delay)."""


async def connected_socket(
    host: str, port: int, prepare: Callable[[socket.socket], None] = lambda _: None
) -> socket.socket:
    """Connect to the first address of `host` that answers, and return a non-blocking socket.

    An address may drop packets silently. The next address is tried beside it after `NEXT_AFTER_S`, or at once after a
    refusal. There is no time limit here: the caller sets one. `prepare` is called with each socket before it connects.
    Raises the OSError of the last address that failed.
    """
    left = _in_turn(await _resolve(host, port))
    attempts: set[asyncio.Task[socket.socket]] = set()
    failure = OSError(f"{host} has no address")
    try:
        while left or attempts:
            if left:
                attempts.add(asyncio.ensure_future(_connect(left.pop(0), prepare)))
            patience_s = NEXT_AFTER_S if left else None
            done, _ = await asyncio.wait(attempts, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                attempts.discard(attempt)
                try:
                    return attempt.result()
                except OSError as error:
                    failure = error
        raise failure
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close)  # the attempt may have succeeded in this very turn of the loop


async def _resolve(host: str, port: int) -> Sequence[Found]:
    try:
        return addresses_of(host, port, socket.AI_NUMERICHOST)  # a numeric address needs no name server
    except socket.gaierror:
        return await in_thread(addresses_of, host, port)
    except UnicodeError as error:
        raise OSError(f"{host!r} can be the name of no host: {error}") from None


def _in_turn(found: Sequence[Found]) -> list[Found]:
    """Return IPv6 and IPv4 addresses in alternation, each family in the order found."""
    families = [
        [result for result in found if result[0] == family]
        for family in dict.fromkeys(result[0] for result in found)
    ]
    return [result for result in chain.from_iterable(zip_longest(*families)) if result is not None]


async def _connect(found: Found, prepare: Callable[[socket.socket], None]) -> socket.socket:
    family, kind, protocol, _, address = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        prepare(sock)
        host, *rest = address
        await asyncio.get_running_loop().sock_connect(sock, (not_to_encode(host), *rest))
    except BaseException:
        sock.close()
        raise
    return sock


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
