"""Logins by tokens over raw sockets: a refused token, a session that ends with its token, and its renewal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ottla.dataplane.handlers.sasl import SaslHandlers
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.security.oauth.provider_keys import ProviderKeys
from ottla.dataplane.security.oauth.settings import KeySource, TokenRules
from ottla.dataplane.security.sasl.oauthbearer import BearerMechanism
from ottla.dataplane.server import HandlerTable, Server
from ottla.dataplane.server.authentication import AuthenticationSettings
from ottla.network.http_get import DocumentUnavailable
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.dataplane.server.test_authentication import LISTENER, Handlers, Peer, connect
from tests.oauth_issuer import AUDIENCE, ISSUER, claims_of, key_set, new_key, signed

KEY = new_key("key", "P-256")
RULES = TokenRules(issuer=ISSUER, audiences=frozenset({AUDIENCE}))
SKEW_S = RULES.skew_ms / 1000
OAUTHBEARER = "OAUTHBEARER"


def message(lasts_s: float = 300, **claims: Any) -> bytes:
    token = signed(claims_of(lasts_s=lasts_s, **claims), KEY, "ES256")
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@asynccontextmanager
async def server(keys: bytes | None = key_set(KEY)) -> AsyncIterator[Server]:
    async def read() -> bytes:
        if keys is None:
            raise DocumentUnavailable("nobody there")
        return keys

    provider = ProviderKeys(KeySource("https://issuer.test/keys"), read, time.monotonic)
    table = HandlerTable(Handlers())
    broker = Server(table)
    table.add(SaslHandlers(broker.authentications))
    mechanism = BearerMechanism(RULES, provider, wall_ms)
    broker.authentication = {
        LISTENER: AuthenticationSettings({mechanism.name: mechanism}, failure_delay_ms=20)
    }
    broker.listen(LISTENER, "127.0.0.1", 0)
    broker.start()
    provider.start()
    try:
        yield broker
    finally:
        broker.close()
        await provider.close()


async def log_in(peer: Peer, token: bytes) -> SaslAuthenticateResponse:
    return await peer.log_in(OAUTHBEARER, token)


async def test_the_session_lasts_as_long_as_the_token() -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await log_in(peer, message(lasts_s=60))
        assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b"")
        assert 58_000 < response.session_lifetime_ms <= 60_000
        assert await peer.who() == "User:ann"


async def test_a_refused_token_is_told_before_the_login_fails() -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await log_in(peer, message(aud="others"))
        assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
        response = await peer.authenticate(b"\x01")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == '{"status":"invalid_token"}'
        assert await peer.is_closed()
        assert broker.authentication[LISTENER].counts.failures == 1


async def test_a_refused_token_serves_nothing_in_between() -> None:
    async with server() as broker:
        peer = await connect(broker)
        await log_in(peer, message(aud="others"))
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()


async def test_garbage_is_refused_as_such() -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await log_in(peer, b"n,,\x01\x01")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials with SASL mechanism OAUTHBEARER" in (response.error_message or "")
        assert await peer.is_closed()


async def test_a_token_that_expired_within_the_skew_serves_nothing() -> None:
    async with server() as broker:
        peer = await connect(broker)
        response = await log_in(peer, message(lasts_s=-SKEW_S / 2, iat=time.time() - 100))
        assert (response.error_code, response.session_lifetime_ms) == (ErrorCode.NONE, 0)
        peer.send(DescribeClusterRequest(), 0)
        assert await peer.is_closed()
        assert broker.authentication[LISTENER].counts.expired == 1


async def test_a_new_token_renews_the_session_of_its_user_alone() -> None:
    async with server() as broker:
        peer, other, late = [await connect(broker) for _ in range(3)]
        for each in (peer, other, late):
            assert 0 < (await log_in(each, message(lasts_s=3))).session_lifetime_ms <= 3000
        await asyncio.sleep(1.05)
        assert (await log_in(peer, message(lasts_s=60))).session_lifetime_ms > 50_000
        changed = await log_in(other, message(sub="bob"))
        assert changed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await other.is_closed()
        await asyncio.sleep(2.1)
        assert await peer.who() == "User:ann"
        late.send(DescribeClusterRequest(), 0)
        assert await late.is_closed()


async def test_without_keys_the_connection_ends_unanswered_so_that_clients_try_again() -> None:
    async with server(keys=None) as broker:
        peer = await connect(broker)
        await peer.handshake(OAUTHBEARER)
        peer.send(SaslAuthenticateRequest(auth_bytes=message()), 2)
        assert await peer.is_closed()
        assert broker.authentication[LISTENER].counts.failures == 1
