"""Handshakes on sockets that do not block."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Final

from .stream import TlsStream

TLS_HANDSHAKE: Final = 0x16
"""The first byte of whoever begins TLS."""
HANDSHAKE_FAILURE: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""What TLS says before it hangs up: a fatal alert. Whoever expected something else may know it by its first bytes."""
_SUBJECT_LETTERS_MAX: Final = 200


async def dial_tls(sock: socket.socket, context: ssl.SSLContext, name: str) -> TlsStream:
    """Begin TLS with a server that was dialled by `name`.

    The socket is closed in any failure, cancellation included. Raises OSError.
    """
    return await begin_tls(TlsStream(sock, context, name))


async def begin_tls(stream: TlsStream) -> TlsStream:
    """The same stream, once its handshake is done.

    The socket is closed in any failure, cancellation included. Raises OSError.
    """
    try:
        while True:
            is_done = stream.step()
            while not stream.flush():
                await _writable(stream)
            if is_done:
                return stream
            await _readable(stream)
    except BaseException as error:
        if isinstance(error, ssl.SSLCertVerificationError):
            note_whose(error, stream.shown_certificate())
        stream.close()
        raise


def note_whose(refused: ssl.SSLCertVerificationError, certificate: bytes | None) -> None:
    """Note in the error whose certificate it was, in DER, by what that says."""
    from cryptography import x509

    from .checks import subject_of

    if certificate is not None:
        # Nobody has vouched for what it says: it may be of any length, and nonsense.
        with suppress(ValueError):
            name = subject_of(x509.load_der_x509_certificate(certificate))
            refused.add_note(f"it says that it is of {name[:_SUBJECT_LETTERS_MAX]}")


async def _readable(stream: TlsStream) -> None:
    loop, fd = asyncio.get_running_loop(), stream.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, partial(_wake, ready))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _writable(stream: TlsStream) -> None:
    loop, fd = asyncio.get_running_loop(), stream.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, partial(_wake, ready))
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    with suppress(asyncio.InvalidStateError):
        ready.set_result(None)


def is_sudden_end(error: BaseException | None) -> bool:
    """Return whether the other end closed the connection without a word of TLS. Some versions of Python tell that by an
    error of OpenSSL's, others by none."""
    return isinstance(error, ssl.SSLError) and (
        isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
    )


def reason_of(error: ssl.SSLError) -> str:
    """What OpenSSL says, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        notes = "; ".join(getattr(error, "__notes__", ()))
        return f"the certificate is refused: {error.verify_message}{f' ({notes})' if notes else ''}"
    return (error.reason or str(error)).lower().replace("_", " ")
