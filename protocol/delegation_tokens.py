"""Delegation tokens (KIP-48): what the cluster keeps of each, the rules about it, and how its secret is made.

A token is an id and a secret, the HMAC of the id under a key that brokers have. The quorum keeps no secret, so its
records and snapshots are worth nothing to who wants to log in. A client logs in by SCRAM with the id as its name and
the HMAC, as base64, as its password.

Pure: times are milliseconds since 1970 and come in as arguments. Principals are texts, like User:ann.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

LONG_MAX: Final = 2**63 - 1
TOKENS_MAX: Final = 100_000
"""Of a cluster."""
TOKENS_OF_REQUESTER_MAX: Final = 10_000
"""Who asks for more gets none: one user must not use up what all share."""
RENEWERS_MAX: Final = 100
"""Of a token."""
_KEY_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TokenState:
    """A token, without its secret."""

    token_id: str
    owner: str
    """Whom a login with it acts as."""
    requester: str
    """Who asked for it."""
    renewers: tuple[str, ...]
    issued_at_ms: int
    expires_at_ms: int
    """Unless it is renewed."""
    ends_at_ms: int
    """At the latest."""
    key_id: bytes
    """Of the key that its secret follows from."""

    def is_over(self, now_ms: int) -> bool:
        """Whether nobody can log in with it any more."""
        return self.ends_at_ms < now_ms or self.expires_at_ms < now_ms

    def may_be_changed_by(self, principal: str) -> bool:
        """Whether a principal may renew and expire it. Who asked for it for somebody else may not."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether a principal may see it without any other right."""
        return principal in (self.owner, self.requester) or principal in self.renewers


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """How long tokens may live (delegation.token.max.lifetime.ms), and how long without being renewed
    (delegation.token.expiry.time.ms)."""

    longest_ms: int = 604_800_000
    renewed_for_ms: int = 86_400_000

    def of_new(self, now_ms: int, asked_ms: int) -> tuple[int, int]:
        """When a new token expires, and when it ends at the latest. `asked_ms`: not above 0 asks for the most."""
        longest_ms = min(self.longest_ms, asked_ms) if asked_ms > 0 else self.longest_ms
        ends_at_ms = after(now_ms, longest_ms)
        return min(ends_at_ms, after(now_ms, self.renewed_for_ms)), ends_at_ms

    def renewal(self, asked_ms: int) -> int:
        """For how long a token is renewed. `asked_ms`: not above 0 asks for the most."""
        return min(self.renewed_for_ms, asked_ms) if asked_ms > 0 else self.renewed_for_ms


def after(now_ms: int, period_ms: int) -> int:
    """A time as far away as there is one."""
    return min(now_ms + period_ms, LONG_MAX)


def token_hmac(key: bytes, token_id: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(key, token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    """The password of a login with a token whose secret this is."""
    return base64.b64encode(secret).decode()


def token_key_id(key: bytes) -> bytes:
    """A short name of a key, which does not tell the key."""
    return sha256(b"delegation token key\0" + key).digest()[:_KEY_ID_BYTES]
