"""Delegation tokens (KIP-48): the state that the cluster stores of each, the rules about it, and the derivation of its
secret.

A token is an id and a secret, the HMAC of the id under a key that brokers have. The quorum stores no secret, so no
client can log in with its records and snapshots alone. A client logs in by SCRAM with the id as its name and the HMAC,
as base64, as its password.

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
"""Highest number of tokens of a cluster."""
TOKENS_OF_REQUESTER_MAX: Final = 10_000
"""Highest number of tokens that one principal may have asked for, so that one user cannot use up the cluster's
limit."""
RENEWERS_MAX: Final = 100
"""Highest number of renewers of a token."""
_KEY_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TokenState:
    """The state of a delegation token as the quorum stores it: id, owner, requester, renewers and times, without its
    secret."""

    token_id: str
    owner: str
    """Principal that a login with the token acts as."""
    requester: str
    """Principal that asked for the token."""
    renewers: tuple[str, ...]
    issued_at_ms: int
    expires_at_ms: int
    """Time at which the token expires unless it is renewed."""
    ends_at_ms: int
    """Latest time at which the token can expire."""
    key_id: bytes
    """Short name of the key from which the token's secret is derived; see `token_key_id`."""

    def is_over(self, now_ms: int) -> bool:
        """Return whether the token has expired, so that no client can log in with it any more."""
        return self.ends_at_ms < now_ms or self.expires_at_ms < now_ms

    def may_be_changed_by(self, principal: str) -> bool:
        """Return whether a principal may renew and expire the token. A principal that asked for it on behalf of another
        owner may not."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Return whether a principal may see the token without any other right."""
        return principal in (self.owner, self.requester) or principal in self.renewers


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """Lifetimes of delegation tokens in ms: the longest (delegation.token.max.lifetime.ms), and the time until a token
    expires without renewal (delegation.token.expiry.time.ms)."""

    longest_ms: int = 604_800_000
    renewed_for_ms: int = 86_400_000

    def of_new(self, now_ms: int, asked_ms: int) -> tuple[int, int]:
        """Return the time at which a new token expires, and the latest time at which it can expire. `asked_ms`: 0 or
        less asks for the longest lifetime."""
        longest_ms = min(self.longest_ms, asked_ms) if asked_ms > 0 else self.longest_ms
        ends_at_ms = after(now_ms, longest_ms)
        return min(ends_at_ms, after(now_ms, self.renewed_for_ms)), ends_at_ms

    def renewal(self, asked_ms: int) -> int:
        """Return for how many ms a token is renewed, limited by the configuration. `asked_ms`: 0 or less asks for the
        longest time."""
        return min(self.renewed_for_ms, asked_ms) if asked_ms > 0 else self.renewed_for_ms


def after(now_ms: int, period_ms: int) -> int:
    """Return the time `period_ms` after `now_ms`, at most the largest 64-bit number."""
    return min(now_ms + period_ms, LONG_MAX)


def token_hmac(key: bytes, token_id: str) -> bytes:
    """Return a delegation token's secret: the HMAC-SHA-512 of its id with the brokers' key."""
    return hmac.digest(key, token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    """Return the password by which a client logs in with a token of this secret: the secret as base64."""
    return base64.b64encode(secret).decode()


def token_key_id(key: bytes) -> bytes:
    """Return a short id of the brokers' key for tokens: the beginning of a SHA-256 hash, which does not reveal the
    key."""
    return sha256(b"delegation token key\0" + key).digest()[:_KEY_ID_BYTES]
