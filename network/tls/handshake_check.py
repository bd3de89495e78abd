"""A handshake in memory, which tests whether two contexts agree before a connection depends on it."""

from __future__ import annotations

import ssl

_ROUNDS_MAX = 10


def check_handshake(accepting: ssl.SSLContext, dialling: ssl.SSLContext, name: str | None) -> None:
    """Perform a TLS handshake in memory between a server's context and a client's context. Raises ssl.SSLError if they
    do not agree. The client compares the server's certificate with the host `name`, or with none if it is None."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        dialling.wrap_bio(to_client, to_server, server_hostname=name),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_ROUNDS_MAX):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return
    raise ssl.SSLError("the handshake does not end")
