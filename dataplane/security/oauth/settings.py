"""The requirements of a listener for tokens, from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ....network.tls.settings import StoreSource

OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class KeySource:
    """The location of the keys that tokens are signed with. Equal sources are read once."""

    url: str
    """Address with the scheme https, http or file."""
    trusted: StoreSource | None = None
    """Certificates that may sign the server's; None for the system's."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The requirements for the claims of a token."""

    issuer: str | None = None
    """The required issuer; None accepts any issuer, or none at all."""
    audiences: frozenset[str] = frozenset()
    """The accepted audiences; empty accepts any audience, or none at all."""
    skew_ms: int = 30_000
    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: frozenset[str] = frozenset()
    needs_issue_time: bool = True


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """The settings for a listener's checks of tokens."""

    rules: TokenRules
    source: KeySource | None
    """The source of keys; None if tokens have no signature."""
    remarks: tuple[str, ...] = ()
    """Remarks to log at each start."""
