"""SCRAM-SHA-256 and SCRAM-SHA-512: logins of users whose keys the quorum keeps (KIP-554), and by delegation tokens
(KIP-48).

A client that logs in with a token sends the extension tokenauth=true. Its name is the id of the token.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import Final

from ....protocol.cluster.cluster_image import ScramKey, SealedCredential
from ....protocol.credentials.scram import (
    NONCE_BYTES,
    SCRAM_MECHANISMS,
    TOKEN_AUTH_EXTENSION,
    ScramCredential,
    ScramMechanism,
    ScramRefused,
    ScramServer,
    ScramUser,
)
from ..delegation_tokens import DelegationTokens
from ..principal import Principal
from ..sealing import SealBroken, Sealer
from .login import LoggedIn, LoginRefused
from .unknown_users import UnknownUsers

MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_NOBODY: Final = b"nobody"


class ScramCredentials:
    """The SCRAM credentials of the users in a broker's image, decrypted when asked for."""

    def __init__(self, sealer: Sealer, sealed: Callable[[], Mapping[ScramKey, SealedCredential]]) -> None:
        """`sealed` returns the credentials of the current image."""
        self._sealer = sealer
        self._sealed = sealed
        # This is decrypted for an unknown user, so that the search takes as long as for a known one.
        self._stand_ins = {
            each.code: SealedCredential(b"", sealer.seal(bytes(2 * each.digest_bytes), _NOBODY), 0)
            for each in SCRAM_MECHANISMS.values()
        }

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential; None without one. Raises LoginRefused if no present secret opens it."""
        key, nobody = (user, mechanism.code), self._stand_ins[mechanism.code]
        subject, sealed = subject_of(key), self._sealed().get(key, nobody)
        try:
            keys = self._sealer.open(sealed.sealed_keys, _NOBODY if sealed is nobody else subject)
        except SealBroken as error:
            raise LoginRefused(str(error)) from None
        size = mechanism.digest_bytes
        found = ScramCredential(sealed.salt, keys[:size], keys[size:], sealed.iterations)
        return None if sealed is nobody else found


def subject_of(key: ScramKey) -> bytes:
    """Return the text that identifies a credential (its user and mechanism) to the encryption, which authenticates it
    together with the encrypted keys.
    """
    name, mechanism = key
    return b"scram\0%d\0" % mechanism + name.encode()


def sealed_credential(sealer: Sealer, key: ScramKey, credential: ScramCredential) -> SealedCredential:
    """Return the SCRAM credential with encrypted keys, as the quorum's metadata keep it."""
    keys = credential.stored_key + credential.server_key
    return SealedCredential(credential.salt, sealer.seal(keys, subject_of(key)), credential.iterations)


class ScramLogins:
    """A SCRAM mechanism for the users whom the quorum knows, and for delegation tokens."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: ScramCredentials,
        unknown_users: UnknownUsers,
        tokens: DelegationTokens | None = None,
    ) -> None:
        """`tokens` is None if the broker has no delegation tokens."""
        self.name = mechanism.name
        self._mechanism = mechanism
        self._credentials = credentials
        self._unknown_users = unknown_users
        self._tokens = tokens

    def begin(self) -> ScramLogin:
        """Return a new login attempt of a client."""
        nonce = base64.b64encode(os.urandom(NONCE_BYTES)).decode()
        return ScramLogin(self, ScramServer(self._mechanism, nonce))

    async def credential(self, user: ScramUser, *, is_token: bool) -> ScramCredential:
        """Return the SCRAM credential by which the login is checked: of the user, of the delegation token, or a
        stand-in for an unknown user. Raises LoginRefused.
        """
        # It is also made for known users, so that they take as long as unknown ones.
        stand_in = self._unknown_users.credential(self._mechanism, user.name)
        if not is_token:
            found = self._credentials.find(self._mechanism, user.name)
        elif self._tokens is None:
            raise LoginRefused("delegation tokens are not enabled: there is no delegation.token.secret.key")
        else:
            found = await self._tokens.credential(self._mechanism, user.name)
        return found or stand_in

    def of_user(self, user: str, proved: ScramCredential) -> LoggedIn:
        """Return the result of a user's login that was checked by the credential `proved`.

        Raises LoginRefused if the user's credential was replaced or deleted meanwhile: a login counts by the state at
        its end.
        """
        if self._credentials.find(self._mechanism, user) != proved:
            raise LoginRefused("the credential of the user was changed or deleted during the login")
        return LoggedIn(user)

    def of_token(self, token_id: str) -> LoggedIn:
        """Return the result of a login that proved the secret of a delegation token. Raises LoginRefused if the token
        has expired.
        """
        token = self._tokens.valid(token_id) if self._tokens is not None else None
        if token is None:
            raise LoginRefused("the delegation token has ended")
        return LoggedIn(Principal.parse(token.owner).name, token.expires_at_ms, token_id)


class ScramLogin:
    """A login attempt by SCRAM, which takes two messages of the client."""

    def __init__(self, logins: ScramLogins, server: ScramServer) -> None:
        self._logins = logins
        self._server = server
        self._is_token = False
        self._credential: ScramCredential | None = None
        self.outcome: LoggedIn | None = None

    @property
    def claimed(self) -> str:
        """The user name, or the delegation token's id, in the client's first message."""
        return self._server.user.name if self._server.user is not None else ""

    async def receive(self, message: bytes) -> bytes:
        """Return the answer to the client's next message: first the challenge, then the server's proof. Raises
        LoginRefused.
        """
        try:
            if self._server.user is None:
                user = self._server.claim(message)
                self._is_token = _is_token(user)
                self._credential = await self._logins.credential(user, is_token=self._is_token)
                return self._server.challenge(self._credential)
            answer = self._server.finish(message)
        except ScramRefused as error:
            raise LoginRefused(str(error)) from None
        assert self._credential is not None, "a proof without a challenge"
        if self._is_token:
            self.outcome = self._logins.of_token(self.claimed)
        else:
            self.outcome = self._logins.of_user(self.claimed, self._credential)
        return answer


def _is_token(user: ScramUser) -> bool:
    """Return whether the name in the client's first message is the id of a delegation token. Raises LoginRefused for
    extensions that Kafka's clients do not send.
    """
    unknown = user.extensions.keys() - {TOKEN_AUTH_EXTENSION}
    if unknown:
        raise LoginRefused(f"extensions are not known here: {', '.join(sorted(unknown))[:100]}")
    given = user.extensions.get(TOKEN_AUTH_EXTENSION, "false").lower()
    if given not in ("true", "false"):
        raise LoginRefused(
            f"the extension {TOKEN_AUTH_EXTENSION} is {given[:20]!r}: it has to be true or false"
        )
    return given == "true"
