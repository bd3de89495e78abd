"""The check of clear-text passwords (PLAIN) by the SCRAM credentials of the quorum, so that no file has passwords.

A check hashes the password some thousand times, so it runs in a thread. A correct password is remembered for a while,
as a digest under a key of this process, and only as long as the credential is unchanged.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from ....protocol.credentials.scram import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from .login import LoginRefused
from .scram import ScramCredentials
from .unknown_users import UnknownUsers

REMEMBERED_S: Final = 300.0
WAITING_MAX: Final = 64
"""The maximum number of logins that wait for a thread; further logins are refused, as clients try again."""
_REMEMBERED_MAX: Final = 10_000


class ScramPasswords:
    """A check of the passwords of users who have a SCRAM credential of either mechanism."""

    def __init__(
        self, credentials: ScramCredentials, unknown_users: UnknownUsers, now_s: Callable[[], float]
    ) -> None:
        self._credentials = credentials
        self._unknown_users = unknown_users
        self._now_s = now_s
        self._key = os.urandom(32)
        self._right: dict[bytes, float] = {}
        self._waiting = 0
        # Only one password is hashed at a time: a storm of logins uses at most one core.
        self._turn = asyncio.Lock()

    async def check(self, user: str, password: str) -> bool:
        """Return whether a user has this password.

        It takes the same time for unknown users. Raises LoginRefused if too many logins wait.
        """
        stand_in, known = self._unknown_users.for_password(user), self._known(user)
        if not await self._matches(*known or stand_in, user, password):
            return False
        # The password may have been changed, or the user deleted, while it was hashed.
        return known is not None and self._known(user) == known

    def _known(self, user: str) -> tuple[ScramMechanism, ScramCredential] | None:
        """Return the mechanism and the SCRAM credential by which a user's password is checked: that of the first
        mechanism for which the user has a credential. Returns None for an unknown user.
        """
        for mechanism in SCRAM_MECHANISMS.values():
            credential = self._credentials.find(mechanism, user)
            if credential is not None:
                return mechanism, credential
        return None

    async def _matches(
        self, mechanism: ScramMechanism, credential: ScramCredential, user: str, password: str
    ) -> bool:
        digest = self._digest(credential, user, password)
        if self._right.get(digest, 0.0) > self._now_s():
            return True
        if self._waiting >= WAITING_MAX:
            raise LoginRefused(f"{WAITING_MAX} passwords are waiting to be checked")
        self._waiting += 1
        try:
            async with self._turn:
                same = await asyncio.to_thread(_is_of, mechanism, credential, password)
        finally:
            self._waiting -= 1
        if same:
            self._remember(digest)
        return same

    def _digest(self, credential: ScramCredential, user: str, password: str) -> bytes:
        parts = (user.encode(), password.encode(), credential.stored_key)
        message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, message, sha256)

    def _remember(self, digest: bytes) -> None:
        now = self._now_s()
        if len(self._right) >= _REMEMBERED_MAX:
            self._right = {each: until for each, until in self._right.items() if until > now}
        if len(self._right) < _REMEMBERED_MAX:
            self._right[digest] = now + REMEMBERED_S


def _is_of(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    made = ScramCredential.of_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)
