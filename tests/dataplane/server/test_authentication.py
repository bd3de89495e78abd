"""Logins over raw sockets: every message in every state, messages of unauthenticated peers, and ends of sessions."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import pytest

from ottla.dataplane.handlers.authenticate_node import AuthenticateNodeHandlers
from ottla.dataplane.handlers.sasl import SaslHandlers
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused, LoginUndecided, Mechanism
from ottla.dataplane.security.sasl.plain import ListedUsers, PlainMechanism
from ottla.dataplane.security.sasl.scram import ScramCredentials, ScramLogins, sealed_credential
from ottla.dataplane.security.sasl.unknown_users import UnknownUsers
from ottla.dataplane.security.sealing import Sealer
from ottla.dataplane.server import ClientRequest, HandlerTable, Server, delayed_closes, handles
from ottla.dataplane.server.authentication import (
    BEFORE_TOKENS_BYTES,
    REAUTHENTICATION_APART_S,
    AuthenticationSettings,
)
from ottla.dataplane.server.authentications import FAILURES_PER_MINUTE, HELD_MS
from ottla.protocol.credentials.jaas import LoginModule
from ottla.protocol.credentials.scram import SCRAM_SHA_256, ScramClient, ScramCredential
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.headers import decode_response, request_pieces
from ottla.protocol.messages.node_authentication import AuthenticateNodeRequest
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.session.node_proof import NONCE_BYTES, ClientProof
from ottla.protocol.wire.schema import Message, Request
from tests.dataplane.server.conftest import read_frame, until
from tests.node_credentials import credentials

ResponseT = TypeVar("ResponseT", bound=Message)
LISTENER = "SASL"
SERVER_ID = 1
GOOD, WRONG = b"\0ann\0secret", b"\0ann\0guess"
USERS = ListedUsers(LoginModule("PlainLoginModule", "required", {"user_ann": "secret", "user_bob": "other"}))


class Handlers:
    """Two APIs: one without a required login, and one that reports the user."""

    @handles(ApiVersionsRequest, 0, 5, on_unsupported=lambda _handler: ApiVersionsResponse(error_code=35))
    def api_versions(self, request: ClientRequest, message: ApiVersionsRequest) -> ApiVersionsResponse:
        wrong = message.client_software_name == "?"
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST if wrong else ErrorCode.NONE)

    @handles(DescribeClusterRequest, 0, 2)
    def whoami(self, request: ClientRequest, message: DescribeClusterRequest) -> DescribeClusterResponse:
        return DescribeClusterResponse(cluster_id=str(request.session.principal))


class Expiring:
    """A mechanism whose credentials expire: the message is the user's name and the milliseconds."""

    name = "EXPIRING"

    def begin(self) -> ExpiringLogin:
        return ExpiringLogin()


class ExpiringLogin:
    def __init__(self) -> None:
        self.claimed = ""
        self.outcome: LoggedIn | None = None

    async def receive(self, message: bytes) -> bytes | None:
        name, _, ms = message.decode().partition(":")
        await asyncio.sleep(0)
        if not ms:
            raise LoginRefused("no time")
        self.outcome = LoggedIn(name, wall_ms() + int(ms))
        return b"until then"


class Peer:
    """A raw client with one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, message: Request[ResponseT], version: int) -> None:
        self.writer.writelines(bytes(piece) for piece in request_pieces(message, version, 7, "test"))

    def send_bare(self, token: bytes) -> None:
        self.writer.write(struct.pack(">i", len(token)) + token)

    async def ask(self, message: Request[ResponseT], version: int) -> ResponseT:
        self.send(message, version)
        return decode_response(type(message), memoryview(await read_frame(self.reader)), version)[1]

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    async def log_in(self, mechanism: str = "PLAIN", token: bytes = GOOD) -> SaslAuthenticateResponse:
        assert (await self.handshake(mechanism)).error_code == ErrorCode.NONE
        return await self.authenticate(token)

    async def who(self) -> str:
        return (await self.ask(DescribeClusterRequest(), 0)).cluster_id

    async def is_closed(self) -> bool:
        """Return whether the connection ends without data within some seconds."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 60) == b""
        except ConnectionResetError:
            return True  # the peer had unread data


def scram(users: Mapping[str, str]) -> ScramLogins:
    sealer = Sealer([b"cluster secret"])
    sealed = {
        (user, SCRAM_SHA_256.code): sealed_credential(
            sealer,
            (user, SCRAM_SHA_256.code),
            ScramCredential.of_password(SCRAM_SHA_256, password, b"salt"),
        )
        for user, password in users.items()
    }
    return ScramLogins(
        SCRAM_SHA_256, ScramCredentials(sealer, lambda: sealed), UnknownUsers(b"key", lambda: sealed)
    )


@asynccontextmanager
async def server(
    *, reauthentication_max_ms: int = 0, timeout_ms: int = 10_000, failure_delay_ms: int = 20
) -> AsyncIterator[Server]:
    mechanisms: list[Mechanism] = [
        PlainMechanism(USERS.check),
        scram({"ann": "secret"}),
        Expiring(),
        Faulty(),
        Undecided(),
        Silent(),
    ]
    table = HandlerTable(Handlers())
    broker = Server(table)
    table.add(SaslHandlers(broker.authentications))
    table.add(AuthenticateNodeHandlers(credentials(SERVER_ID)))
    broker.authentication = {
        LISTENER: AuthenticationSettings(
            {mechanism.name: mechanism for mechanism in mechanisms},
            reauthentication_max_ms=dict.fromkeys(("PLAIN",), reauthentication_max_ms),
            failure_delay_ms=failure_delay_ms,
            timeout_ms=timeout_ms,
        )
    }
    broker.listen(LISTENER, "127.0.0.1", 0)
    broker.listen("OPEN", "127.0.0.1", 0)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


async def connect(broker: Server, listener: str = LISTENER) -> Peer:
    port = next(each.port for each in broker.listeners if each.name == listener)
    return Peer(*await asyncio.open_connection("127.0.0.1", port))


@pytest.mark.parametrize("asks_versions", [False, True])
async def test_a_login_gives_the_connection_its_principal(asks_versions: bool) -> None:
    async with server() as broker:
        peer = await connect(broker)
        if asks_versions:
            assert (await peer.ask(ApiVersionsRequest(), 3)).error_code == ErrorCode.NONE
        response = await peer.log_in()
        assert (response.error_code, response.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert await peer.who() == "User:ann"
        assert broker.authentication[LISTENER].counts.successes == 1


async def test_scram_logs_in_by_two_messages() -> None:
    async with server() as broker:
        peer = await connect(broker)
        client = ScramClient(SCRAM_SHA_256, "ann", "secret", "nonce")
        challenge = await peer.log_in("SCRAM-SHA-256", client.first())
        final = await peer.authenticate(client.final(challenge.auth_bytes))
        client.check(final.auth_bytes)
        assert await peer.who() == "User:ann"


async def test_after_a_handshake_of_version_0_messages_are_bare() -> None:
    async with server() as broker:
        peer = await connect(broker)
        assert (await peer.handshake(version=0)).error_code == ErrorCode.NONE
        peer.send_bare(GOOD)
        assert await read_frame(peer.reader) == b""
        assert await peer.who() == "User:ann"
        failing = await connect(broker)
        await failing.handshake(version=0)
        failing.send_bare(b"")
        assert await failing.is_closed()


async def test_a_failed_login_is_told_without_a_reason_and_the_connection_closed() -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await peer.log_in(token=WRONG)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
        )
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()
        assert broker.authentication[LISTENER].counts.failures == 1


async def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await peer.handshake("GSSAPI")
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        offered = ["EXPIRING", "FAULTY", "PLAIN", "SCRAM-SHA-256", "SILENT", "UNDECIDED"]
        assert response.mechanisms == offered
        assert await peer.is_closed()


async def test_versions_are_told_once_and_again_only_after_a_refusal() -> None:
    async with server() as broker:
        peer = await connect(broker)
        assert (await peer.ask(ApiVersionsRequest(client_software_name="?"), 3)).error_code == 42
        assert (await peer.ask(ApiVersionsRequest(), 3)).error_code == ErrorCode.NONE
        peer.send(ApiVersionsRequest(), 3)
        assert await peer.is_closed()


@pytest.mark.parametrize(
    "first",
    [
        DescribeClusterRequest(),
        SaslAuthenticateRequest(auth_bytes=GOOD),
    ],
)
async def test_nothing_is_served_before_a_login(first: Request[Message]) -> None:
    async with server() as broker:
        peer = await connect(broker)
        peer.send(first, 0)
        if isinstance(first, SaslAuthenticateRequest):
            refused = decode_response(type(first), memoryview(await read_frame(peer.reader)), 0)[1]
            assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE  # type: ignore[attr-defined]
        assert await peer.is_closed()


async def test_a_request_behind_the_handshake_closes_the_connection_unserved() -> None:
    async with server() as broker:
        peer = await connect(broker)
        await peer.handshake()
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()


async def test_requests_sent_along_with_the_last_message_are_served_after_it() -> None:
    async with server() as broker:
        peer = await connect(broker)
        await peer.handshake("EXPIRING")
        peer.send(SaslAuthenticateRequest(auth_bytes=b"eve:60000"), 2)
        peer.send(DescribeClusterRequest(), 0)
        answer = decode_response(SaslAuthenticateRequest, memoryview(await read_frame(peer.reader)), 2)[1]
        assert 59_000 < answer.session_lifetime_ms <= 60_000
        response = decode_response(DescribeClusterRequest, memoryview(await read_frame(peer.reader)), 0)[1]
        assert response.cluster_id == "User:eve"


async def test_who_does_not_log_in_in_time_is_closed() -> None:
    async with server(timeout_ms=50) as broker:
        peer = await connect(broker)
        assert await peer.is_closed()
        await until(lambda: not broker.connections)


@pytest.mark.parametrize(
    "garbage", [b"", b"x", b"\0\x11\0\1\0\0\0\7\xff", b"\0\x11\0\x63\0\0\0\7\0\0", bytes(600)]
)
async def test_garbage_of_a_stranger_closes_its_connection(garbage: bytes) -> None:
    async with server() as broker:
        peer = await connect(broker)
        peer.send_bare(garbage)
        assert await peer.is_closed()


async def test_a_stranger_may_not_send_much() -> None:
    async with server() as broker:
        peer = await connect(broker)
        peer.writer.write(struct.pack(">i", 600_000))
        assert await peer.is_closed()


async def test_a_client_renews_its_login_and_stays_who_it_is() -> None:
    async with server(reauthentication_max_ms=60_000) as broker:
        peer = await connect(broker)
        assert (await peer.log_in()).session_lifetime_ms == 60_000
        (connection,) = broker.connections
        before = connection.session
        assert (await peer.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE, (
            "sooner than a second after"
        )
        assert await peer.who() == "User:ann"
        await asyncio.sleep(1.05)
        assert (await peer.log_in()).error_code == ErrorCode.NONE
        assert connection.session is not before
        assert await peer.who() == "User:ann"


@pytest.mark.parametrize(
    ("mechanism", "token"), [("PLAIN", b"\0bob\0other"), ("EXPIRING", b"ann:60000"), ("PLAIN", WRONG)]
)
async def test_a_renewal_by_another_user_or_mechanism_or_password_ends_the_connection(
    mechanism: str, token: bytes
) -> None:
    async with server(reauthentication_max_ms=60_000) as broker:
        peer = await connect(broker)
        await peer.log_in()
        await asyncio.sleep(1.05)
        response = await peer.log_in(mechanism, token)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "during re-authentication" in (response.error_message or "")
        assert await peer.is_closed()


async def test_nothing_but_the_renewal_comes_between_its_messages() -> None:
    async with server(reauthentication_max_ms=60_000) as broker:
        peer = await connect(broker)
        await peer.log_in()
        await asyncio.sleep(1.05)
        await peer.handshake()
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()


async def test_an_expired_session_serves_a_renewal_and_nothing_else() -> None:
    async with server() as broker:
        peer, other = await connect(broker), await connect(broker)
        for each in (peer, other):
            assert 0 < (await each.log_in("EXPIRING", b"ann:1100")).session_lifetime_ms <= 1100
            assert await each.who() == "User:ann"
        await asyncio.sleep(1.2)
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()
        assert broker.authentication[LISTENER].counts.expired == 1
        assert (await other.log_in("EXPIRING", b"ann:60000")).error_code == ErrorCode.NONE
        assert await other.who() == "User:ann"


async def test_a_credential_that_has_expired_already_serves_nothing() -> None:
    async with server() as broker:
        peer = await connect(broker)
        await peer.handshake("EXPIRING")
        peer.send(SaslAuthenticateRequest(auth_bytes=b"ann:-5000"), 2)
        peer.send(DescribeClusterRequest(), 0)
        answer = decode_response(SaslAuthenticateRequest, memoryview(await read_frame(peer.reader)), 2)[1]
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert await peer.is_closed()


async def test_sessions_of_a_user_are_ended_when_told_so() -> None:
    async with server() as broker:
        ann, bob = await connect(broker), await connect(broker)
        await ann.log_in()
        await bob.log_in(token=b"\0bob\0other")
        broker.authentications.end(
            lambda session: session.principal.name == "ann", "its password was changed"
        )
        assert await ann.is_closed()
        assert await bob.who() == "User:bob"


async def test_the_oldest_stranger_makes_room_for_one_more_of_its_address() -> None:
    async with server() as broker:
        logged_in = await connect(broker)
        await logged_in.log_in()
        unauthenticated = [await connect(broker) for _ in range(51)]
        assert await unauthenticated[0].is_closed()
        assert (await unauthenticated[50].log_in()).error_code == ErrorCode.NONE
        assert await logged_in.who() == "User:ann"


async def test_before_a_mechanism_is_chosen_nothing_large_is_read(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as broker:
        peer = await connect(broker)
        peer.writer.write(struct.pack(">i", BEFORE_TOKENS_BYTES + 1))
        assert await peer.is_closed()
        assert "allowed are 8 to 8192 (before a login)" in caplog.text
        peer = await connect(broker)
        await peer.handshake()
        token = b"\0ann\0" + b"x" * 4 * BEFORE_TOKENS_BYTES
        assert (await peer.authenticate(token)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_who_renews_a_login_may_send_no_more_than_a_stranger() -> None:
    async with server(reauthentication_max_ms=60_000) as broker:
        peer = await connect(broker)
        await peer.log_in()
        await asyncio.sleep(REAUTHENTICATION_APART_S)
        await peer.handshake()
        peer.writer.write(struct.pack(">i", 524_289))
        assert await peer.is_closed()


async def test_only_so_many_failures_wait_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_closes, "DELAYED_MAX", 1)
    async with server(failure_delay_ms=60_000) as broker:
        first, second = await connect(broker), await connect(broker)
        for peer in (first, second):
            assert (await peer.log_in(token=WRONG)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await second.is_closed()
        assert len(broker.connections) == 1


def test_a_delay_is_longer_by_up_to_a_fifth() -> None:
    class Timers:
        def __init__(self) -> None:
            self.delays_s: list[float] = []

        def call_later(self, delay_s: float, *_: object) -> None:
            self.delays_s.append(delay_s)

    timers = Timers()
    closes = delayed_closes.DelayedCloses(cast(asyncio.AbstractEventLoop, timers))
    for _ in range(200):
        closes.close_later(lambda: None, 100)
    assert all(0.1 <= delay_s <= 0.12 for delay_s in timers.delays_s)
    assert max(timers.delays_s) - min(timers.delays_s) > 0.01


@pytest.mark.parametrize("secret", [None, b"another secret, which this cluster does not have"])
async def test_a_node_needs_no_mechanism_but_the_cluster_secret(secret: bytes | None) -> None:
    async with server() as broker:
        peer = await connect(broker)
        own = credentials(2) if secret is None else credentials(2, secret=secret)
        proof = ClientProof(own, SERVER_ID, bytes(NONCE_BYTES))
        answer = await peer.ask(AuthenticateNodeRequest(auth_bytes=proof.claim), 0)
        peer.send(AuthenticateNodeRequest(auth_bytes=proof.receive(answer.auth_bytes)), 0)
        if secret is None:
            await read_frame(peer.reader)
            assert await peer.who() == "OttlaNode:2"
        else:
            assert await peer.is_closed()


async def test_a_node_that_has_proved_nothing_yet_is_served_nothing() -> None:
    async with server() as broker:
        peer = await connect(broker)
        proof = ClientProof(credentials(2), SERVER_ID, bytes(NONCE_BYTES))
        await peer.ask(AuthenticateNodeRequest(auth_bytes=proof.claim), 0)
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()


async def test_without_sasl_both_apis_answer_that_it_is_not_their_time() -> None:
    async with server() as broker:
        peer = await connect(broker, "OPEN")
        assert (await peer.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.authenticate(GOOD)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.who() == "User:ANONYMOUS"


class Faulty:
    """A mechanism whose implementation fails."""

    name = "FAULTY"

    def begin(self) -> FaultyLogin:
        return FaultyLogin()


class FaultyLogin(ExpiringLogin):
    async def receive(self, message: bytes) -> bytes:
        raise RuntimeError("a fault")


async def test_a_fault_of_a_mechanism_refuses_the_login_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await asyncio.wait_for(peer.log_in("FAULTY", b"x"), 60)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await peer.is_closed()
    assert "RuntimeError: a fault" in caplog.text


class Undecided:
    """A mechanism that cannot decide now."""

    name = "UNDECIDED"

    def begin(self) -> UndecidedLogin:
        return UndecidedLogin()


class UndecidedLogin(ExpiringLogin):
    async def receive(self, message: bytes) -> bytes:
        raise LoginUndecided("a clock is wrong")


async def test_a_login_that_nobody_can_decide_ends_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with server() as broker:
        for version in (0, 1):
            peer = await connect(broker)
            await peer.handshake("UNDECIDED", version)
            if version:
                peer.send(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
            else:
                peer.send_bare(b"x")
            assert await peer.is_closed()
    assert "by UNDECIDED is undecided: a clock is wrong" in caplog.text


class Silent:
    """A mechanism without a last answer."""

    name = "SILENT"

    def begin(self) -> SilentLogin:
        return SilentLogin()


class SilentLogin(ExpiringLogin):
    async def receive(self, message: bytes) -> bytes | None:
        self.outcome = LoggedIn(message.decode())
        return None


async def test_a_mechanism_without_a_last_answer_says_nothing_in_bare_messages() -> None:
    """Kafka does so after GSSAPI: the client sends its first request, and reads the answer to that."""
    async with server() as broker:
        bare = await connect(broker)
        await bare.handshake("SILENT", version=0)
        bare.send_bare(b"ann")
        assert await bare.who() == "User:ann"
        headed = await connect(broker)
        assert (await headed.log_in("SILENT", b"ann")).auth_bytes == b""
        assert await headed.who() == "User:ann"


async def test_an_address_whose_logins_fail_again_and_again_waits_before_the_next() -> None:
    async with server() as broker:
        for _ in range(FAILURES_PER_MINUTE):
            failing = await connect(broker)
            await failing.log_in(token=WRONG)
        began = asyncio.get_running_loop().time()
        peer = await connect(broker)
        assert (await peer.log_in()).error_code == ErrorCode.NONE
        assert asyncio.get_running_loop().time() - began >= HELD_MS / 1000


async def test_the_end_of_a_session_comes_earlier_and_never_later() -> None:
    async with server() as broker:
        bounded, other = await connect(broker), await connect(broker)
        await bounded.log_in("EXPIRING", b"ann:60000")
        await other.log_in("EXPIRING", b"bob:60000")

        def until_ms(ms: int) -> None:
            end = wall_ms() + ms
            broker.authentications.bound_lives(
                lambda session: end if session.principal.name == "ann" else None
            )

        until_ms(200)
        until_ms(3_600_000)
        assert await bounded.who() == "User:ann"
        await asyncio.sleep(0.25)
        bounded.send(DescribeClusterRequest(), 0)
        assert await bounded.is_closed()
        assert broker.authentication[LISTENER].counts.expired == 1
        assert await other.who() == "User:bob"


async def test_a_session_without_an_end_gets_one() -> None:
    async with server() as broker:
        peer = await connect(broker)
        await peer.log_in()
        broker.authentications.bound_lives(lambda _session: 0)
        await asyncio.sleep(0.05)
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()
