"""SCRAM-SHA-256 and SCRAM-SHA-512: users whose keys the quorum keeps (KIP-554)."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import Final

from ....protocol.cluster_image import ScramKey, SealedCredential
from ....protocol.scram import (
    ScramCredential,
    ScramMechanism,
    ScramRefused,
    ScramServer,
    ScramUser,
    unknown_user_credential,
)
from ..sealing import SealBroken, Sealer
from .login import LoggedIn, LoginRefused

MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_NONCE_BYTES: Final = 24


class ScramCredentials:
    """The credentials of a broker's image, readable."""

    def __init__(self, sealer: Sealer, sealed: Callable[[], Mapping[ScramKey, SealedCredential]]) -> None:
        """`sealed`: the credentials as the image has them now."""
        self._sealer = sealer
        self._sealed = sealed

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """A user's credential, None without one. Raises LoginRefused if no present secret opens it."""
        key = (user, mechanism.code)
        sealed = self._sealed().get(key)
        if sealed is None:
            return None
        try:
            keys = self._sealer.open(sealed.sealed_keys, subject_of(key))
        except SealBroken as error:
            raise LoginRefused(str(error)) from None
        size = mechanism.digest_bytes
        return ScramCredential(sealed.salt, keys[:size], keys[size:], sealed.iterations)


def subject_of(key: ScramKey) -> bytes:
    """What the sealed keys of a credential are about."""
    name, mechanism = key
    return b"scram\0%d\0" % mechanism + name.encode()


def sealed_credential(sealer: Sealer, key: ScramKey, credential: ScramCredential) -> SealedCredential:
    """The credential as the quorum keeps it."""
    keys = credential.stored_key + credential.server_key
    return SealedCredential(credential.salt, sealer.seal(keys, subject_of(key)), credential.iterations)


class ScramLogins:
    """Offers one of the two mechanisms to the users whom the quorum knows."""

    def __init__(self, mechanism: ScramMechanism, credentials: ScramCredentials, node_key: bytes) -> None:
        """`node_key`: makes up what users who do not exist are asked; the same on all brokers."""
        self.name = mechanism.name
        self._mechanism = mechanism
        self._credentials = credentials
        self._node_key = node_key

    def begin(self) -> ScramLogin:
        """A new attempt."""
        nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        return ScramLogin(ScramServer(self._mechanism, nonce, self._find))

    def _find(self, user: ScramUser) -> ScramCredential:
        if user.extensions:
            raise ScramRefused(f"extensions are not known here: {', '.join(sorted(user.extensions))[:100]}")
        found = self._credentials.find(self._mechanism, user.name)
        return found or unknown_user_credential(self._mechanism, self._node_key, user.name)


class ScramLogin:
    """One attempt: two messages."""

    def __init__(self, server: ScramServer) -> None:
        self._server = server
        self.outcome: LoggedIn | None = None

    @property
    def claimed(self) -> str:
        """The user of the first message."""
        return self._server.user.name if self._server.user is not None else ""

    async def receive(self, message: bytes) -> bytes:
        """The challenge, then the server's proof. Raises LoginRefused."""
        try:
            answer = self._server.receive(message)
        except ScramRefused as error:
            raise LoginRefused(str(error)) from None
        if self._server.done:
            self.outcome = LoggedIn(self.claimed)
        return answer
