"""Handshakes on sockets that do not block."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

TLS_HANDSHAKE: Final = 0x16
"""The first byte of whoever begins TLS."""
HANDSHAKE_FAILURE: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""What TLS says before it hangs up: a fatal alert. Whoever expected something else may know it by its first bytes."""


async def _nothing() -> None:
    pass


async def accept_tls(
    sock: socket.socket, context: ssl.SSLContext, turn: Callable[[], Awaitable[None]] = _nothing
) -> ssl.SSLSocket:
    """Answer a client's handshake. `turn` is awaited before each step, which may take the processor a millisecond.

    The socket is closed in any failure, cancellation included. Raises OSError.
    """
    wrapped = context.wrap_socket(
        sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
    )
    return await _shake_hands(wrapped, turn)


async def dial_tls(sock: socket.socket, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    """Begin TLS with a server that was dialled by `name`.

    The socket is closed in any failure, cancellation included. Raises OSError.
    """
    wrapped = context.wrap_socket(
        sock, server_hostname=name, do_handshake_on_connect=False, suppress_ragged_eofs=False
    )
    return await _shake_hands(wrapped, _nothing)


async def _shake_hands(wrapped: ssl.SSLSocket, turn: Callable[[], Awaitable[None]]) -> ssl.SSLSocket:
    try:
        while True:
            await turn()
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await readable(wrapped)
            except ssl.SSLWantWriteError:
                await _writable(wrapped)
            else:
                return wrapped
    except BaseException:
        wrapped.close()
        raise


async def readable(sock: socket.socket) -> None:
    """Wait until there is something to receive, or the peer is gone."""
    loop, fd = asyncio.get_running_loop(), sock.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, partial(_wake, ready))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _writable(sock: socket.socket) -> None:
    loop, fd = asyncio.get_running_loop(), sock.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, partial(_wake, ready))
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    with suppress(asyncio.InvalidStateError):
        ready.set_result(None)


def reason_of(error: ssl.SSLError) -> str:
    """What OpenSSL says, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
