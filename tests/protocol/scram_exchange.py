"""A server's end of SCRAM that answers message by message."""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.credentials.scram import ScramCredential, ScramMechanism, ScramServer, ScramUser


class AnsweringServer:
    """A server whose `find` returns the credential of the claimed user."""

    def __init__(
        self, mechanism: ScramMechanism, nonce: str, find: Callable[[ScramUser], ScramCredential]
    ) -> None:
        self._server = ScramServer(mechanism, nonce)
        self._find = find

    @property
    def done(self) -> bool:
        return self._server.done

    @property
    def user(self) -> ScramUser | None:
        return self._server.user

    def receive(self, message: bytes) -> bytes:
        """Return the answer to the client's next message."""
        if self._server.user is None:
            return self._server.challenge(self._find(self._server.claim(message)))
        return self._server.finish(message)
