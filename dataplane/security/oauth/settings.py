"""What a listener asks of tokens, as its configuration says it."""

from __future__ import annotations

from dataclasses import dataclass

from ....network.tls.settings import StoreSource

OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the keys are that tokens are signed with. Equal sources are asked once."""

    url: str
    """https:, http: or file:"""
    trusted: StoreSource | None = None
    """Who may vouch for the server; None: whom the system trusts."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What the claims of a token have to be."""

    issuer: str | None = None
    """None: any, or none at all."""
    audiences: frozenset[str] = frozenset()
    """Empty: any, or none at all."""
    skew_ms: int = 30_000
    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: frozenset[str] = frozenset()
    needs_issue_time: bool = True


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """How a listener checks tokens."""

    rules: TokenRules
    source: KeySource | None
    """None: tokens have no signature."""
    remarks: tuple[str, ...] = ()
    """What is told at each start."""
