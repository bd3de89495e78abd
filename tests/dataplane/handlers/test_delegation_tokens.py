"""Requests about delegation tokens: who may ask, in which order refusals come, and what an answer has in its fields."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.dataplane.handlers.delegation_tokens import DelegationTokenHandlers
from ottla.dataplane.security.authorization.access import Access
from ottla.dataplane.security.delegation_tokens import DelegationTokens
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS, NODE, Principal
from ottla.dataplane.server import ClientRequest
from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.acls import AclOperation
from ottla.protocol.credentials.delegation_tokens import TokenLifetimes, token_hmac
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SECURITY
from ottla.protocol.messages.cluster_commands import FormCluster, InitialFeature
from ottla.protocol.messages.command import accepted
from ottla.protocol.messages.delegation_tokens import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribedTokenOwner,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.protocol.messages.quorum_commands import decode_result, encode_command
from ottla.protocol.messages.user_commands import AlterScramCredentials, ScramCredentialChange
from ottla.protocol.session.node_secrets import Secrets
from ottla.protocol.settings.security_protocol import SecurityProtocol

KEY = b"the key of tokens"
HOUR = 3_600_000
BY_PASSWORD = PeerSession(
    Principal("User", "ann"), "10.0.0.1", "SASL", SecurityProtocol.SASL_SSL, mechanism="PLAIN"
)
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@dataclass
class Rights:
    """Some rights, by operation, type and name of the resource."""

    allowed: set[tuple[int, str]] = field(default_factory=set)

    def allows(self, operation: int, resource_type: int, name: str, *, quiet: bool = False) -> bool:
        return (operation, name) in self.allowed


class Broker:
    """Handlers above a real controller."""

    def __init__(self, *, enabled: bool = True, level: int = 2) -> None:
        self.controller = Controller()
        self.now_ms = 1_000_000
        form = FormCluster(cluster_id="c", features=[InitialFeature(feature=SECURITY, level=level)])
        self.controller.apply(1, 1, encode_command(None, form))
        self.tokens = DelegationTokens(
            Secrets((KEY,)), lambda: self.controller.image.delegation_tokens, lambda: self.now_ms
        )
        quorum = cast(Any, SimpleNamespace(submit=self.submit, image=self.controller.image))
        self.handlers = DelegationTokenHandlers(
            quorum, self.tokens if enabled else None, TokenLifetimes(3 * HOUR, HOUR)
        )

    def alter_user(self, keys: bytes) -> None:
        """Give ann a password, or delete her: without keys."""
        change = ScramCredentialChange(
            name="ann", mechanism=1, iterations=4096, salt=b"salt", sealed_keys=keys
        )
        command = AlterScramCredentials(changes=[change], removes_tokens=True)
        self.controller.apply(1, 1, encode_command(None, command))

    async def submit(self, command: Any, *, author: PeerSession) -> Any:
        assert author is not None, "the quorum's log names who asked"
        before = set(self.controller.image.delegation_tokens)
        applied = self.controller.apply(1, 1, encode_command(None, command))
        self.tokens.changed(before | set(self.controller.image.delegation_tokens))
        return accepted(decode_result(command, applied.result))

    async def ask(self, message: Any, session: PeerSession = BY_PASSWORD, *rights: tuple[int, str]) -> Any:
        access = cast(Access, Rights(set(rights)))
        request = cast(ClientRequest, SimpleNamespace(session=session, access=access))
        handler = {
            CreateDelegationTokenRequest: self.handlers.create,
            RenewDelegationTokenRequest: self.handlers.renew,
            ExpireDelegationTokenRequest: self.handlers.expire,
            DescribeDelegationTokenRequest: self.handlers.describe,
        }[type(message)]
        answer: Any = handler(request, message)
        return await answer if inspect.isawaitable(answer) else answer


def of(name: str) -> PeerSession:
    return replace(BY_PASSWORD, principal=Principal("User", name))


def for_owner(kind: str | None, name: str | None, **more: Any) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=name, **more)


@pytest.mark.parametrize(
    ("session", "allowed"),
    [
        (BY_PASSWORD, True),
        (replace(BY_PASSWORD, security_protocol=SecurityProtocol.SASL_PLAINTEXT), True),
        (replace(BY_PASSWORD, security_protocol=SecurityProtocol.SSL, mechanism=None), True),
        (replace(BY_PASSWORD, security_protocol=SecurityProtocol.SSL, principal=ANONYMOUS), False),
        (replace(BY_PASSWORD, security_protocol=SecurityProtocol.PLAINTEXT, principal=ANONYMOUS), False),
        (replace(BY_PASSWORD, token_id="id"), False),
        (replace(BY_PASSWORD, principal=Principal(NODE, "1")), False),
    ],
)
async def test_who_may_ask(session: PeerSession, allowed: bool) -> None:
    broker = Broker()
    created = await broker.ask(CreateDelegationTokenRequest(), session)
    assert (created.error_code == NOT_ALLOWED) is not allowed
    for message in (
        RenewDelegationTokenRequest(hmac=created.hmac),
        ExpireDelegationTokenRequest(hmac=created.hmac),
        DescribeDelegationTokenRequest(owners=None),
    ):
        answer = await broker.ask(message, session)
        assert answer.error_code == (ErrorCode.NONE if allowed else NOT_ALLOWED)
        if not allowed and not isinstance(message, DescribeDelegationTokenRequest):
            assert answer.expiry_timestamp_ms == -1
    if not allowed:
        assert (created.principal_name, created.token_requester_principal_name) == (
            session.principal.name,
        ) * 2
        assert (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms) == (
            -1,
        ) * 3
        assert (created.token_id, created.hmac) == ("", b"")


GROUP = CreatableRenewer(principal_type="Group", principal_name="x")
CREATE_FOR_BOB = (AclOperation.CREATE_TOKENS, "User:bob")


@pytest.mark.parametrize(
    ("message", "rights", "enabled", "level", "code"),
    [
        (
            for_owner("User", "bob", renewers=[GROUP]),
            [],
            False,
            1,
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ),
        (
            for_owner("User", "bob", renewers=[GROUP]),
            [CREATE_FOR_BOB],
            False,
            1,
            ErrorCode.INVALID_PRINCIPAL_TYPE,
        ),
        (for_owner("User", "bob"), [CREATE_FOR_BOB], False, 1, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (for_owner("User", "bob"), [CREATE_FOR_BOB], True, 1, ErrorCode.UNSUPPORTED_VERSION),
        (for_owner("User", "bob"), [CREATE_FOR_BOB], True, 2, ErrorCode.NONE),
        (for_owner("User", "ann"), [], True, 2, ErrorCode.NONE),
        (for_owner("User", ""), [], True, 2, ErrorCode.NONE),
        (for_owner(None, None), [], True, 2, ErrorCode.NONE),
        (for_owner("Group", "bob"), [], True, 2, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        (
            for_owner("Group", "bob"),
            [(AclOperation.CREATE_TOKENS, "Group:bob")],
            True,
            2,
            ErrorCode.INVALID_PRINCIPAL_TYPE,
        ),
        (for_owner(None, "bob"), [], True, 2, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    ],
)
async def test_refusals_of_a_new_token_come_in_kafkas_order(
    message: CreateDelegationTokenRequest,
    rights: list[tuple[int, str]],
    enabled: bool,
    level: int,
    code: ErrorCode,
) -> None:
    broker = Broker(enabled=enabled, level=level)
    answer = await broker.ask(message, BY_PASSWORD, *rights)
    assert answer.error_code == code
    assert answer.token_requester_principal_name == "ann"
    assert answer.principal_name == (message.owner_principal_name or "ann")
    assert bool(answer.hmac) is (code == ErrorCode.NONE)
    assert len(broker.controller.image.delegation_tokens) == (code == ErrorCode.NONE)


async def test_without_a_key_there_is_nothing_to_ask_for() -> None:
    broker = Broker(enabled=False)
    for message in (
        RenewDelegationTokenRequest(hmac=b"x"),
        ExpireDelegationTokenRequest(hmac=b"x"),
        DescribeDelegationTokenRequest(owners=[]),
    ):
        assert (await broker.ask(message)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize(
    ("asked_ms", "ends_ms", "expires_ms"),
    [(-1, 3 * HOUR, HOUR), (0, 3 * HOUR, HOUR), (60_000, 60_000, 60_000), (9 * HOUR, 3 * HOUR, HOUR)],
)
async def test_what_a_new_token_has(asked_ms: int, ends_ms: int, expires_ms: int) -> None:
    broker = Broker()
    renewers = [CreatableRenewer(principal_type="User", principal_name=name) for name in ("eve", "a:b")]
    message = CreateDelegationTokenRequest(max_lifetime_ms=asked_ms, renewers=renewers)
    token = await broker.ask(message)
    assert token.issue_timestamp_ms == broker.now_ms
    assert token.max_timestamp_ms - broker.now_ms == ends_ms
    assert token.expiry_timestamp_ms - broker.now_ms == expires_ms
    assert token.hmac == token_hmac(KEY, token.token_id)
    (shown,) = (await broker.ask(DescribeDelegationTokenRequest(owners=None))).tokens
    assert (shown.token_id, shown.hmac) == (token.token_id, token.hmac)
    assert [(renewer.principal_type, renewer.principal_name) for renewer in shown.renewers] == [
        ("User", "eve"),
        ("User", "a:b"),
    ]


async def test_who_may_renew_and_expire() -> None:
    broker = Broker()
    message = for_owner(
        "User", "bob", renewers=[CreatableRenewer(principal_type="User", principal_name="eve")]
    )
    secret = (await broker.ask(message, of("ann"), CREATE_FOR_BOB)).hmac
    for name, code in (
        ("ann", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("bob", ErrorCode.NONE),
        ("eve", ErrorCode.NONE),
        ("joe", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
    ):
        renewed = await broker.ask(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=-1), of(name))
        expires = broker.now_ms + HOUR if not code else 0
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (code, expires)
        shortened = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=5_000)
        assert (await broker.ask(shortened, of(name))).error_code == code
    unknown = await broker.ask(ExpireDelegationTokenRequest(hmac=b"x"), of("bob"))
    assert (unknown.error_code, unknown.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    broker.now_ms += 5_001
    assert (
        await broker.ask(RenewDelegationTokenRequest(hmac=secret), of("joe"))
    ).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    removed = await broker.ask(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1), of("eve"))
    assert (removed.error_code, removed.expiry_timestamp_ms) == (ErrorCode.NONE, broker.now_ms)
    assert broker.tokens.all() == []


async def test_who_sees_which_tokens() -> None:
    broker = Broker()
    message = for_owner(
        "User", "bob", renewers=[CreatableRenewer(principal_type="User", principal_name="eve")]
    )
    of_bob = (await broker.ask(message, of("ann"), CREATE_FOR_BOB)).token_id
    of_joe = (await broker.ask(CreateDelegationTokenRequest(), of("joe"))).token_id

    async def seen(who: str, owners: list[str] | None, *rights: tuple[int, str]) -> set[str]:
        asked = None
        if owners is not None:
            asked = [DescribedTokenOwner(principal_type="User", principal_name=name) for name in owners]
        answer = await broker.ask(DescribeDelegationTokenRequest(owners=asked), of(who), *rights)
        return {token.token_id for token in answer.tokens}

    for who in ("ann", "bob", "eve"):
        assert await seen(who, None) == {of_bob}
        assert await seen(who, ["joe"]) == set()
        assert await seen(who, []) == set()
    assert await seen("ann", ["eve"]) == {of_bob}, "a renewer counts like an owner, as in Kafka"
    assert await seen("zoe", None) == set()
    assert await seen("zoe", None, (AclOperation.DESCRIBE, of_joe)) == {of_joe}
    assert await seen("zoe", None, (AclOperation.DESCRIBE_TOKENS, "User:bob")) == {of_bob}
    assert await seen("zoe", ["joe"], (AclOperation.DESCRIBE_TOKENS, "User:bob")) == set()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_a_user_who_is_deleted_meanwhile_gets_no_token(mechanism: str) -> None:
    """The broker has let the user in, and its image lags behind the quorum's."""
    broker, session = Broker(), replace(BY_PASSWORD, mechanism=mechanism)
    broker.alter_user(b"keys")
    lagging = cast(Any, SimpleNamespace(submit=broker.submit, image=broker.controller.image.frozen()))
    assert (await broker.ask(CreateDelegationTokenRequest(), session)).error_code == ErrorCode.NONE
    broker.handlers = DelegationTokenHandlers(lagging, broker.tokens, TokenLifetimes(3 * HOUR, HOUR))
    broker.alter_user(b"")
    refused = await broker.ask(CreateDelegationTokenRequest(), session)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert broker.controller.image.delegation_tokens == {}


async def test_a_user_of_no_scram_credential_gets_tokens() -> None:
    broker = Broker()
    for mechanism in ("PLAIN", "OAUTHBEARER", "GSSAPI", None):
        session = replace(BY_PASSWORD, mechanism=mechanism)
        assert (await broker.ask(CreateDelegationTokenRequest(), session)).error_code == ErrorCode.NONE
