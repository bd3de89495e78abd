"""Delegation tokens (KIP-48): creation, renewal, expiry and removal. The secrets of tokens are not stored here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ...protocol.cluster.acls import TEXT_BYTES_MAX, check_principal
from ...protocol.cluster.cluster_image import ClusterImage, delegation_token_record
from ...protocol.credentials.delegation_tokens import (
    RENEWERS_MAX,
    TOKENS_MAX,
    TOKENS_OF_REQUESTER_MAX,
    TokenState,
    after,
)
from ...protocol.credentials.scram import SCRAM_MECHANISMS_BY_CODE
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import SECURITY_WITH_TOKENS
from ...protocol.messages.command import PlainResult
from ...protocol.messages.metadata_records import DelegationTokenRemovedRecord
from ...protocol.messages.token_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
    TokenExpiryResult,
)
from .features import check_security
from .refusal import check_allowed
from .workspace import Workspace


def create(work: Workspace, command: CreateDelegationToken) -> PlainResult:
    """Store a new delegation token in the image. Raises KafkaError."""
    check_allowed(command, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    check_security(work, "delegation tokens need", SECURITY_WITH_TOKENS)
    if not command.token_id or command.token_id in work.image.delegation_tokens:
        raise _invalid(f"a new token cannot have the id {command.token_id!r}")
    if len(command.renewers) > RENEWERS_MAX:
        raise _invalid(f"{len(command.renewers)} renewers: a token may have {RENEWERS_MAX}")
    _check_principals([command.owner, command.requester, *command.renewers])
    if not 0 <= command.issued_at_ms <= command.expires_at_ms <= command.ends_at_ms:
        raise _invalid("a token has to expire after it was issued, and not after its end")
    _check_number(work, command.requester)
    if command.user and not has_credential(work.image, command.user):
        # The user was deleted meanwhile, and its tokens with it.
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    work.emit(
        delegation_token_record(
            TokenState(
                command.token_id,
                command.owner,
                command.requester,
                tuple(command.renewers),
                command.issued_at_ms,
                command.expires_at_ms,
                command.ends_at_ms,
                command.key_id,
            )
        )
    )
    return PlainResult()


def renew(work: Workspace, command: RenewDelegationToken) -> TokenExpiryResult:
    """Extend a delegation token's validity, at most until its maximum lifetime. Raises KafkaError."""
    token = _found(work, command.token_id)
    if token.is_over(command.now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_owner(token, command.principal)
    return _end_at(work, token, after(command.now_ms, command.period_ms))


def expire(work: Workspace, command: ExpireDelegationToken) -> TokenExpiryResult:
    """Let a delegation token expire after a period, or remove it at once if the period is negative, even an expired
    token. Raises KafkaError."""
    token = _found(work, command.token_id)
    _check_owner(token, command.principal)
    if command.period_ms < 0:
        work.emit(DelegationTokenRemovedRecord(token_id=token.token_id))
        return TokenExpiryResult(expires_at_ms=command.now_ms)
    if token.is_over(command.now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _end_at(work, token, after(command.now_ms, command.period_ms))


def remove_expired(work: Workspace, command: RemoveExpiredTokens) -> PlainResult:
    """Remove expired tokens."""
    for token_id in command.token_ids:
        token = work.image.delegation_tokens.get(token_id)
        if token is not None and token.is_over(command.now_ms):
            work.emit(DelegationTokenRemovedRecord(token_id=token_id))
    return PlainResult()


def remove_of_deleted(work: Workspace, users: Collection[str]) -> None:
    """Remove the tokens of deleted users: tokens that act as such a user, and tokens that such a user has requested,
    whose secret the user knows.

    Users with a credential left keep their tokens.
    """
    deleted = {f"User:{user}" for user in users if not has_credential(work.image, user)}
    if not deleted:
        return
    tokens = work.image.delegation_tokens.values()
    # In the same order on all nodes: after a snapshot the image's order differs.
    for token_id in sorted(
        token.token_id for token in tokens if token.owner in deleted or token.requester in deleted
    ):
        work.emit(DelegationTokenRemovedRecord(token_id=token_id))


def has_credential(image: ClusterImage, user: str) -> bool:
    """Return whether a user has a SCRAM credential in the image, of any mechanism."""
    return any((user, mechanism) in image.scram_credentials for mechanism in SCRAM_MECHANISMS_BY_CODE)


def _found(work: Workspace, token_id: str) -> TokenState:
    token = work.image.delegation_tokens.get(token_id)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_owner(token: TokenState, principal: str) -> None:
    if not token.may_be_changed_by(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _end_at(work: Workspace, token: TokenState, wanted_ms: int) -> TokenExpiryResult:
    expires_at_ms = min(token.ends_at_ms, wanted_ms)
    work.emit(delegation_token_record(replace(token, expires_at_ms=expires_at_ms)))
    return TokenExpiryResult(expires_at_ms=expires_at_ms)


def _check_principals(principals: Iterable[str]) -> None:
    for principal in principals:
        check_principal(principal)
        if len(principal.encode()) > TEXT_BYTES_MAX:
            raise _invalid(f"a principal is too long: at most {TEXT_BYTES_MAX} bytes are allowed")


def _check_number(work: Workspace, requester: str) -> None:
    tokens = work.image.delegation_tokens
    if len(tokens) >= TOKENS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {len(tokens)} tokens: expire some first")
    if len(tokens) >= TOKENS_OF_REQUESTER_MAX:
        count = sum(token.requester == requester for token in tokens.values())
        if count >= TOKENS_OF_REQUESTER_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{requester} has asked for {count} tokens: expire some first"
            )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
