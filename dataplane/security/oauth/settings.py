"""The requirements of a listener for tokens, from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ....network.tls.settings import StoreSource
from ....protocol.settings.config_fields import ms_of_seconds, setting


@dataclass(frozen=True, slots=True)
class KeySource:
    """The location of an authorization server's signing keys, and the schedule for reading them. Listeners with equal
    sources share the keys.
    """

    url: str
    """Address with the scheme https, http or file."""
    trusted: StoreSource | None = None
    """Certificates that may sign the server's; None for the system's."""
    refresh_ms: int = setting("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    backoff_ms: int = setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")
    backoff_max_ms: int = setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The requirements of a listener for the claims of a token, such as issuer, audience and scopes."""

    issuer: str | None = None
    """The required issuer; None accepts any issuer, or none at all."""
    audiences: frozenset[str] = frozenset()
    """The accepted audiences; empty accepts any audience, or none at all."""
    skew_ms: int = setting("sasl.oauthbearer.clock.skew.seconds", ms_of_seconds)
    user_claim: str = setting("sasl.oauthbearer.sub.claim.name", str)
    scope_claim: str = setting("sasl.oauthbearer.scope.claim.name", str)
    required_scopes: frozenset[str] = frozenset()
    needs_issue_time: bool = True


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """The settings by which a listener checks OAUTHBEARER tokens."""

    rules: TokenRules
    source: KeySource | None
    """The source of keys; None if tokens have no signature."""
    remarks: tuple[str, ...] = ()
    """Remarks to log at each start."""
