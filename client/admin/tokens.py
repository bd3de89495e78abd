"""Delegation tokens (KIP-48, KIP-373): short-lived credentials with which programs log in as their owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...protocol.cluster.acls import check_principal
from ...protocol.credentials.delegation_tokens import token_password
from ...protocol.errors import KafkaError
from ...protocol.messages.delegation_tokens import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribedTokenOwner,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ..bounds import Milliseconds, PositiveMilliseconds
from .admin_base import AdminBase
from .session import check

_WHAT = "delegation token"
_CLUSTERS_DEFAULT = -1
_AT_ONCE = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with its secret. Principals are texts, like User:ann; times are milliseconds since 1970."""

    token_id: str
    """The user name for a login with the token (`sasl_plain_username`)."""
    owner: str
    """The principal that a login with the token acts as."""
    requester: str
    """The principal that requested the token; empty if the broker is too old to report it."""
    renewers: tuple[str, ...]
    """The principals that may renew and expire the token besides its owner."""
    issued_at_ms: int
    expires_at_ms: int
    """Expiry time, unless the token is renewed."""
    ends_at_ms: int
    """Latest possible expiry time."""
    hmac: bytes = field(repr=False)
    """The token's secret."""

    @property
    def password(self) -> str:
        """The password for a login with the token (`sasl_plain_password`): the secret, as base64."""
        return token_password(self.hmac)


class TokenAdmin(AdminBase):
    """The methods that create, renew, expire and list delegation tokens. The connection must have logged in, and not
    with a token."""

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        max_lifetime_ms: PositiveMilliseconds | None = None,
        owner: str | None = None,
    ) -> DelegationToken:
        """Create a token of the user who asks, or of another `owner`, which requires CREATE_TOKENS on that user.

        Principals are texts, like User:scheduler. Without `max_lifetime_ms` the token may live as long as the cluster
        allows. It may take a moment until all brokers know the token. Raises ValueError for a lifetime of 0 or less and
        for a text that is no principal.
        """
        whose = (None, None) if owner is None else _split(owner)
        renewing = tuple(renewers)
        asked_ms = _CLUSTERS_DEFAULT if max_lifetime_ms is None else max_lifetime_ms
        request = CreateDelegationTokenRequest(
            owner_principal_type=whose[0],
            owner_principal_name=whose[1],
            renewers=[
                CreatableRenewer(principal_type=kind, principal_name=name)
                for kind, name in map(_split, renewing)
            ],
            max_lifetime_ms=asked_ms,
        )
        connection = await self.session.cluster.any_connection()
        response = await connection.request(request)
        check(response.error_code, _WHAT, None, operation="CREATE_TOKENS", name=owner or "")
        return DelegationToken(
            response.token_id,
            _joined(response.principal_type, response.principal_name),
            _joined(response.token_requester_principal_type, response.token_requester_principal_name),
            renewing,
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
            bytes(response.hmac),
        )

    async def renew_delegation_token(self, hmac: bytes, period_ms: PositiveMilliseconds | None = None) -> int:
        """Renew the token for `period_ms` from now on, or for as long as the cluster allows. Returns the expiry time in
        ms since 1970.

        Raises ValueError for a period of 0 or less.
        """
        asked_ms = _CLUSTERS_DEFAULT if period_ms is None else period_ms
        connection = await self.session.cluster.any_connection()
        response = await connection.request(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=asked_ms))
        check(response.error_code, _WHAT, None)
        return response.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, period_ms: Milliseconds | None = None) -> int:
        """Remove the token at once, or let it expire `period_ms` from now on. Returns the expiry time in ms since 1970.

        Connections that have logged in with the token are closed then. Raises ValueError for a negative period.
        """
        wanted_ms = _AT_ONCE if period_ms is None else period_ms
        connection = await self.session.cluster.any_connection()
        response = await connection.request(
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=wanted_ms)
        )
        check(response.error_code, _WHAT, None)
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Return the tokens of these owners, or all, as far as the user may see them.

        A user sees its own tokens and those that it requested or may renew. The rights DESCRIBE on the token and
        DESCRIBE_TOKENS on the owner show other tokens.
        """
        whose = None
        if owners is not None:
            whose = [
                DescribedTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_split, owners)
            ]
        response = await self.session.cluster.ask_any(DescribeDelegationTokenRequest(owners=whose))
        check(response.error_code, _WHAT, None)
        return sorted(map(_token, response.tokens), key=lambda token: (token.issued_at_ms, token.token_id))


def _token(described: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        described.token_id,
        _joined(described.principal_type, described.principal_name),
        _joined(described.token_requester_principal_type, described.token_requester_principal_name),
        tuple(_joined(each.principal_type, each.principal_name) for each in described.renewers),
        described.issue_timestamp,
        described.expiry_timestamp,
        described.max_timestamp,
        bytes(described.hmac),
    )


def _joined(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""


def _split(principal: str) -> tuple[str, str]:
    try:
        check_principal(principal)
    except KafkaError:
        raise ValueError(f"{principal!r} is no principal: it has to be of the form User:ann") from None
    kind, _, name = principal.partition(":")
    return kind, name
