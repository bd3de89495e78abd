"""The delegation tokens of a broker's image with their secrets, which are derived from a key that only brokers have.

No record contains a secret, so each broker derives it. A credential for SCRAM takes milliseconds of hashing. It is
derived in a thread at the first login with the token, and kept as long as the token exists.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.credentials.delegation_tokens import TokenState, token_hmac, token_key_id, token_password
from ...protocol.credentials.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from ...protocol.session.node_secrets import Secrets

logger = logging.getLogger(__name__)


class DelegationTokens:
    """The delegation tokens of the cluster image whose secrets this broker can derive."""

    def __init__(
        self, keys: Secrets, states: Callable[[], Mapping[str, TokenState]], now_ms: Callable[[], int]
    ) -> None:
        """`states` returns the tokens of the current image. `now_ms` is the wall clock."""
        self._keys = {token_key_id(key): key for key in keys.accepted}
        self._first = keys.first
        self._states = states
        self.now_ms = now_ms
        self._ids: dict[bytes, str] = {}
        self._secrets: dict[str, bytes] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._unknown_keys: set[bytes] = set()
        # Only one credential is derived at a time: a storm of logins uses at most one core, and most logins find it
        # derived already.
        self._turn = asyncio.Lock()

    @property
    def key_id(self) -> bytes:
        """The id of the key that secrets of new tokens are derived from."""
        return token_key_id(self._first)

    def new_secret(self, token_id: str) -> bytes:
        """Return the secret of a new delegation token, which is derived from its id and the current key."""
        return token_hmac(self._first, token_id)

    def find(self, token_id: str) -> TokenState | None:
        """Return the token with an id; None if it does not exist, or this broker cannot derive its secret."""
        return self._states().get(token_id) if token_id in self._secrets else None

    def valid(self, token_id: str) -> TokenState | None:
        """Return the delegation token with an id, as `find` does; None also if it has expired."""
        token = self.find(token_id)
        return None if token is None or token.is_over(self.now_ms()) else token

    def with_secret(self, secret: bytes) -> TokenState | None:
        """Return the delegation token that has this secret; None if there is none."""
        token_id = self._ids.get(secret)
        return None if token_id is None else self.find(token_id)

    def secret(self, token_id: str) -> bytes:
        """Return the secret of a token that `find` has returned."""
        return self._secrets[token_id]

    def all(self) -> list[TokenState]:
        """Return all delegation tokens whose secret this broker can derive, sorted by id."""
        states = self._states()
        return [states[token_id] for token_id in sorted(self._secrets) if token_id in states]

    async def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """Return the SCRAM credential for a login with a delegation token; None if there is no such token."""
        key = (token_id, mechanism.name)
        if token_id not in self._secrets or key in self._credentials:
            return self._credentials.get(key)
        async with self._turn:
            secret = self._secrets.get(token_id)
            if secret is None or key in self._credentials:
                return self._credentials.get(key)
            made = await asyncio.to_thread(_credential, mechanism, secret)
            if token_id in self._secrets:
                self._credentials[key] = made
            return made

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Update the delegation tokens that a change of the image affects."""
        if delta.delegation_tokens:
            self.changed(delta.delegation_tokens)

    def changed(self, token_ids: Iterable[str]) -> None:
        """Update the delegation tokens with these ids from the cluster image; forget those that were removed."""
        states = self._states()
        for token_id in token_ids:
            state = states.get(token_id)
            if state is None:
                self._forget(token_id)
            elif token_id not in self._secrets:
                self._add(state)

    def _add(self, state: TokenState) -> None:
        key = self._keys.get(state.key_id)
        if key is None:
            if state.key_id not in self._unknown_keys:
                self._unknown_keys.add(state.key_id)
                logger.warning(
                    "delegation token %s was made under key %s, which this broker does not have: nobody can log in "
                    "here with it. All brokers need the same delegation.token.secret.key",
                    state.token_id, state.key_id.hex(),
                )  # fmt: skip
            return
        secret = token_hmac(key, state.token_id)
        self._secrets[state.token_id] = secret
        self._ids[secret] = state.token_id

    def _forget(self, token_id: str) -> None:
        secret = self._secrets.pop(token_id, None)
        if secret is not None:
            del self._ids[secret]
        for mechanism in SCRAM_MECHANISMS:
            self._credentials.pop((token_id, mechanism), None)


def _credential(mechanism: ScramMechanism, secret: bytes) -> ScramCredential:
    # No random salt is needed, since the secret cannot be guessed. So each broker sends a client the same salt.
    salt = hmac.digest(secret, b"salt\0" + mechanism.name.encode(), "sha256")[:SALT_BYTES]
    return ScramCredential.of_password(mechanism, token_password(secret), salt, ITERATIONS_MIN)
