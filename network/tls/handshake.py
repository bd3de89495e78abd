"""TLS handshakes on non-blocking sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Final

from .stream import TlsStream

TLS_HANDSHAKE: Final = 0x16
"""First byte that a peer sends when it begins TLS."""
HANDSHAKE_FAILURE: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""A fatal alert, which TLS sends before it hangs up. A client that expected another protocol may recognise its first
bytes."""
_SUBJECT_LETTERS_MAX: Final = 200


async def dial_tls(sock: socket.socket, context: ssl.SSLContext, name: str) -> TlsStream:
    """Begin TLS with a server that was dialled by `name`.

    The socket is closed in any failure, cancellation included. Raises OSError.
    """
    return await begin_tls(TlsStream(sock, context, name))


async def begin_tls(stream: TlsStream) -> TlsStream:
    """Complete the handshake of a stream, and return the stream.

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
    """Add the subject that the refused certificate (in DER) states to the error, as a note."""
    from cryptography import x509

    from .checks import subject_of

    if certificate is not None:
        # The certificate is unverified: its subject may be of any length, and nonsense.
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
    """Return whether the other end closed the connection without TLS's close_notify. Depending on its version, Python
    reports this as SSLEOFError or as another error of OpenSSL."""
    return isinstance(error, ssl.SSLError) and (
        isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
    )


def reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason without the position in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        notes = "; ".join(getattr(error, "__notes__", ()))
        return f"the certificate is refused: {error.verify_message}{f' ({notes})' if notes else ''}"
    return (error.reason or str(error)).lower().replace("_", " ")
