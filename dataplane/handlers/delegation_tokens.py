"""CreateDelegationToken (1-3), RenewDelegationToken (1-2), ExpireDelegationToken (1-2), DescribeDelegationToken (1-3):
tokens by which programs log in for a user (KIP-48, KIP-373).

The quorum keeps tokens, and brokers derive their secrets. The answer to a change comes once this broker applies it.
"""

from __future__ import annotations

import base64
import logging
import os
from typing import Final

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.credentials.delegation_tokens import TokenLifetimes, TokenState
from ...protocol.credentials.scram import SCRAM_MECHANISMS, SCRAM_MECHANISMS_BY_CODE
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import token_commands as commands
from ...protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedRenewer,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ...protocol.settings.security_protocol import SecurityProtocol
from ..quorum.access import Quorum
from ..security.authorization.access import Access
from ..security.authorization.needs import NOTHING, handler_asks
from ..security.delegation_tokens import DelegationTokens
from ..security.peer_session import PeerSession
from ..security.principal import ANONYMOUS, USER, Principal
from ..server.handler import ClientRequest, handles

logger = logging.getLogger("ottla.authorizer")

_ID_BYTES: Final = 16
_NO_TIME: Final = -1


class DelegationTokenHandlers:
    """Shows tokens, and passes changes to the quorum."""

    def __init__(self, quorum: Quorum, tokens: DelegationTokens | None, lifetimes: TokenLifetimes) -> None:
        """Create the handlers. `tokens` is None if tokens are not enabled."""
        self._quorum = quorum
        self._tokens = tokens
        self._lifetimes = lifetimes

    def _enabled(self) -> DelegationTokens:
        if self._tokens is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._tokens

    @handles(
        CreateDelegationTokenRequest,
        1,
        3,
        needs=handler_asks("nothing; CREATE_TOKENS User for another owner"),
    )
    async def create(
        self, request: ClientRequest, message: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        """Create a token of the sender, or of another owner if the sender may create tokens for that owner."""
        requester = request.session.principal
        owner = requester
        if message.owner_principal_name:
            owner = Principal(message.owner_principal_type or "", message.owner_principal_name)
        response = CreateDelegationTokenResponse(
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
        )
        try:
            _check_may_ask(request.session)
            _check_new(request.access, requester, owner, message)
        except KafkaError as error:
            response.error_code = error.code
            response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = _NO_TIME
            return response
        try:
            await self._create(request, message, owner, response)
        except KafkaError as error:
            response.error_code = error.code
        return response

    async def _create(
        self,
        request: ClientRequest,
        message: CreateDelegationTokenRequest,
        owner: Principal,
        response: CreateDelegationTokenResponse,
    ) -> None:
        tokens = self._enabled()
        now_ms = tokens.now_ms()
        expires_at_ms, ends_at_ms = self._lifetimes.of_new(now_ms, message.max_lifetime_ms)
        token_id = base64.urlsafe_b64encode(os.urandom(_ID_BYTES)).decode().rstrip("=")
        command = commands.CreateDelegationToken(
            token_id=token_id,
            owner=str(owner),
            requester=str(request.session.principal),
            renewers=[f"{each.principal_type}:{each.principal_name}" for each in message.renewers],
            issued_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
            ends_at_ms=ends_at_ms,
            key_id=tokens.key_id,
            user=self._scram_user(request.session),
        )
        await self._quorum.submit(command, author=request.session)
        _tell(request, "created", token_id, f" of {owner}")
        response.token_id, response.hmac = token_id, tokens.new_secret(token_id)
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms, response.max_timestamp_ms = expires_at_ms, ends_at_ms

    def _scram_user(self, session: PeerSession) -> str:
        """Return the user whose SCRAM credential a peer has logged in with; empty if it used another credential."""
        from ..security.sasl.plain import PLAIN  # loaded late: most brokers have no listener with passwords

        name = session.principal.name
        if session.mechanism in SCRAM_MECHANISMS:
            return name
        keys = ((name, mechanism) for mechanism in SCRAM_MECHANISMS_BY_CODE)
        # PLAIN logins may be verified with the passwords of SCRAM (sasl.plain.verify).
        is_known = any(key in self._quorum.image.scram_credentials for key in keys)
        return name if session.mechanism == PLAIN and is_known else ""

    @handles(RenewDelegationTokenRequest, 1, 2, needs=NOTHING)
    async def renew(
        self, request: ClientRequest, message: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        """Extend a token's life, if its owner or a renewer asks."""
        response = RenewDelegationTokenResponse()
        try:
            token, now_ms = self._asked_about(request, response, bytes(message.hmac))
            command = commands.RenewDelegationToken(
                token_id=token.token_id,
                principal=str(request.session.principal),
                now_ms=now_ms,
                period_ms=self._lifetimes.renewal(message.renew_period_ms),
            )
            response.expiry_timestamp_ms = (
                await self._quorum.submit(command, author=request.session)
            ).expires_at_ms
            _tell(request, "renewed", token.token_id)
        except KafkaError as error:
            response.error_code = error.code
        return response

    @handles(ExpireDelegationTokenRequest, 1, 2, needs=NOTHING)
    async def expire(
        self, request: ClientRequest, message: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        """Set another end of a token's life, or remove the token at once, if its owner or a renewer asks."""
        response = ExpireDelegationTokenResponse()
        try:
            token, now_ms = self._asked_about(request, response, bytes(message.hmac))
            command = commands.ExpireDelegationToken(
                token_id=token.token_id,
                principal=str(request.session.principal),
                now_ms=now_ms,
                period_ms=message.expiry_time_period_ms,
            )
            response.expiry_timestamp_ms = (
                await self._quorum.submit(command, author=request.session)
            ).expires_at_ms
            _tell(request, "removed" if message.expiry_time_period_ms < 0 else "expired", token.token_id)
        except KafkaError as error:
            response.error_code = error.code
        return response

    def _asked_about(
        self,
        request: ClientRequest,
        response: RenewDelegationTokenResponse | ExpireDelegationTokenResponse,
        secret: bytes,
    ) -> tuple[TokenState, int]:
        """Return the token that a request to renew or expire names by its secret, and the present time in ms. Raises
        KafkaError."""
        response.expiry_timestamp_ms = _NO_TIME
        _check_may_ask(request.session)
        response.expiry_timestamp_ms = 0
        tokens = self._enabled()
        token = tokens.with_secret(secret)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token, tokens.now_ms()

    @handles(
        DescribeDelegationTokenRequest,
        1,
        3,
        needs=handler_asks("nothing; DESCRIBE DelegationToken or DESCRIBE_TOKENS User for tokens of others"),
    )
    def describe(
        self, request: ClientRequest, message: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        """Return the tokens that concern the sender, and other tokens that it has the right to see."""
        try:
            _check_may_ask(request.session)
            tokens = self._enabled()
        except KafkaError as error:
            return DescribeDelegationTokenResponse(error_code=error.code)
        owners = None
        if message.owners is not None:
            owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in message.owners}
        sender = str(request.session.principal)
        return DescribeDelegationTokenResponse(
            tokens=[
                _described(token, tokens.secret(token.token_id))
                for token in tokens.all()
                if (owners is None or any(map(token.concerns, owners)))
                and _may_see(request.access, sender, token)
            ]
        )


def _check_may_ask(session: PeerSession) -> None:
    """Raises KafkaError unless the peer has proved its identity as a client, by something other than a token."""
    unproved = session.security_protocol is SecurityProtocol.PLAINTEXT or (
        session.security_protocol is SecurityProtocol.SSL and session.principal == ANONYMOUS
    )
    if unproved or session.token_id is not None or session.principal.type != USER:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _check_new(
    access: Access, requester: Principal, owner: Principal, message: CreateDelegationTokenRequest
) -> None:
    """Raises KafkaError for a token that the sender may not get."""
    if owner != requester and not access.allows(AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    # A login acts as a User of this name, so an owner of another type would become a User.
    if owner.type != USER or any(each.principal_type != USER for each in message.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)


def _may_see(access: Access, sender: str, token: TokenState) -> bool:
    return (
        token.concerns(sender)
        or access.allows(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, quiet=True)
        or access.allows(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner, quiet=True)
    )


def _described(token: TokenState, secret: bytes) -> DescribedDelegationToken:
    owner, requester = Principal.parse(token.owner), Principal.parse(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.ends_at_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )


def _tell(request: ClientRequest, what: str, token_id: str, more: str = "") -> None:
    session = request.session
    logger.info(
        "Principal = %s from host = %s %s delegation token %s%s",
        session.principal, session.host, what, token_id, more,
    )  # fmt: skip
