"""The delegation tokens of a broker's image with their secrets, which follow from a key that only brokers have.

No record has a secret, so each broker makes it when it needs it. A credential for SCRAM takes milliseconds of hashing:
it is made in a thread, when somebody first logs in with the token, and kept while the token is there.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...protocol.credentials.delegation_tokens import TokenState, token_hmac, token_key_id, token_password
from ...protocol.credentials.scram import ITERATIONS_MIN, SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from ...protocol.session.node_secrets import Secrets

logger = logging.getLogger(__name__)

_SALT_BYTES: Final = 24


class DelegationTokens:
    """The tokens that this broker can make the secrets of."""

    def __init__(
        self, keys: Secrets, states: Callable[[], Mapping[str, TokenState]], now_ms: Callable[[], int]
    ) -> None:
        """`states`: the tokens as the image has them now. `now_ms`: the wall clock."""
        self._keys = {token_key_id(key): key for key in keys.accepted}
        self._first = keys.first
        self._states = states
        self.now_ms = now_ms
        self._ids: dict[bytes, str] = {}
        self._secrets: dict[str, bytes] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._strange_keys: set[bytes] = set()
        # One at a time: a storm of logins takes one core and no more, and most find what the first one made.
        self._turn = asyncio.Lock()

    @property
    def key_id(self) -> bytes:
        """Of the key that secrets of new tokens follow from."""
        return token_key_id(self._first)

    def new_secret(self, token_id: str) -> bytes:
        """The secret of a new token."""
        return token_hmac(self._first, token_id)

    def find(self, token_id: str) -> TokenState | None:
        """The token of an id, None if there is none, or none whose secret this broker can make."""
        return self._states().get(token_id) if token_id in self._secrets else None

    def valid(self, token_id: str) -> TokenState | None:
        """The same, if it has not ended."""
        token = self.find(token_id)
        return None if token is None or token.is_over(self.now_ms()) else token

    def with_secret(self, secret: bytes) -> TokenState | None:
        """The token that has this secret, None if there is none."""
        token_id = self._ids.get(secret)
        return None if token_id is None else self.find(token_id)

    def secret(self, token_id: str) -> bytes:
        """The secret of a token that was found."""
        return self._secrets[token_id]

    def all(self) -> list[TokenState]:
        """All that can be found, by id."""
        states = self._states()
        return [states[token_id] for token_id in sorted(self._secrets) if token_id in states]

    async def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """What a login with the token is checked by, None if there is no such token."""
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

    def changed(self, token_ids: Iterable[str]) -> None:
        """The image has other tokens with these ids, or none."""
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
            if state.key_id not in self._strange_keys:
                self._strange_keys.add(state.key_id)
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
    # No chance is needed: the secret itself cannot be guessed. So each broker asks a client for the same.
    salt = hmac.digest(secret, b"salt\0" + mechanism.name.encode(), "sha256")[:_SALT_BYTES]
    return ScramCredential.of_password(mechanism, token_password(secret), salt, ITERATIONS_MIN)
