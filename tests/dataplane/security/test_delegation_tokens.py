"""Secrets of delegation tokens: equal to Kafka's, kept while the token exists, also across a change of the key."""

from __future__ import annotations

import asyncio
import base64
import logging

import pytest

from ottla.dataplane.security import delegation_tokens
from ottla.dataplane.security.delegation_tokens import DelegationTokens
from ottla.protocol.credentials.delegation_tokens import TokenState, token_hmac, token_key_id, token_password
from ottla.protocol.credentials.scram import SCRAM_MECHANISMS, SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from ottla.protocol.session.node_secrets import Secrets

OLD, NEW = b"the old key", b"the new key"


def state(token_id: str, key: bytes = OLD, expires_at_ms: int = 1_000) -> TokenState:
    return TokenState(token_id, "User:ann", "User:ann", (), 0, expires_at_ms, 2_000, token_key_id(key))


class Broker:
    """A broker's tokens, and its image."""

    def __init__(self, *keys: bytes) -> None:
        self.image: dict[str, TokenState] = {}
        self.now_ms = 0
        self.tokens = DelegationTokens(Secrets(keys), lambda: self.image, lambda: self.now_ms)

    def keep(self, *states: TokenState) -> None:
        self.image |= {token.token_id: token for token in states}
        self.tokens.changed(token.token_id for token in states)

    def forget(self, token_id: str) -> None:
        del self.image[token_id]
        self.tokens.changed([token_id])


def test_a_secret_is_what_kafka_makes_of_key_and_id() -> None:
    """Apache Kafka 4.4 answered this to CreateDelegationToken."""
    secret = token_hmac(b"the secret of these tokens", "ASn6eHHZRXiMxBxn3OBZ0w")
    assert secret == bytes.fromhex(
        "24471d7794c4908f473214c8a9358cbb28f224378dadb8e34f267c3ea172d51f"
        "6ab7270106b5517bc43d9faacf11613988833 36b98ee2218f3d624a437959485".replace(" ", "")
    )
    assert base64.b64decode(token_password(secret)) == secret


def test_tokens_are_found_by_their_secrets_as_long_as_they_are_there() -> None:
    broker = Broker(OLD)
    broker.keep(state("a"), state("b", expires_at_ms=10))
    secret = broker.tokens.secret("a")
    assert secret == token_hmac(OLD, "a")
    assert broker.tokens.with_secret(secret) == state("a")
    assert broker.tokens.with_secret(b"x") is None
    broker.now_ms = 11
    assert broker.tokens.valid("b") is None
    assert broker.tokens.find("b") is not None, "an expired token may be removed by its owner"
    broker.keep(state("a", expires_at_ms=5))
    assert broker.tokens.with_secret(secret) == state("a", expires_at_ms=5)
    broker.forget("a")
    assert broker.tokens.with_secret(secret) is None
    assert [token.token_id for token in broker.tokens.all()] == ["b"]


def test_tokens_of_an_older_key_stay_valid_and_those_of_a_strange_one_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(NEW, OLD)
    assert broker.tokens.key_id == token_key_id(NEW)
    assert broker.tokens.new_secret("c") == token_hmac(NEW, "c")
    with caplog.at_level(logging.WARNING):
        broker.keep(state("a", OLD), state("b", NEW), state("x", b"strange"), state("y", b"strange"))
    assert broker.tokens.secret("a") == token_hmac(OLD, "a")
    assert broker.tokens.secret("b") == token_hmac(NEW, "b")
    assert broker.tokens.find("x") is None
    (line,) = caplog.messages
    assert token_key_id(b"strange").hex() in line
    assert "delegation.token.secret.key" in line


async def test_a_storm_of_logins_makes_one_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = delegation_tokens._credential

    def counted(mechanism: object, secret: bytes) -> ScramCredential:
        made.append(secret.hex())
        return make(SCRAM_SHA_256, secret)

    monkeypatch.setattr(delegation_tokens, "_credential", counted)
    broker = Broker(OLD)
    broker.keep(state("a"))
    found = await asyncio.gather(*(broker.tokens.credential(SCRAM_SHA_256, "a") for _ in range(20)))
    assert len(made) == 1
    assert len(set(map(id, found))) == 1
    assert await broker.tokens.credential(SCRAM_SHA_256, "b") is None
    broker.forget("a")
    assert await broker.tokens.credential(SCRAM_SHA_256, "a") is None


async def test_each_broker_asks_a_client_for_the_same() -> None:
    first, another = Broker(OLD), Broker(OLD)
    for broker in (first, another):
        broker.keep(state("a"))
    for mechanism in SCRAM_MECHANISMS.values():
        found = await first.tokens.credential(mechanism, "a")
        assert found == await another.tokens.credential(mechanism, "a")
        expected = token_password(token_hmac(OLD, "a"))
        assert found == ScramCredential.of_password(mechanism, expected, found.salt if found else b"")
    assert await first.tokens.credential(SCRAM_SHA_256, "a") != await first.tokens.credential(
        SCRAM_SHA_512, "a"
    )


async def test_a_token_that_goes_while_its_credential_is_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(OLD)
    broker.keep(state("a"))
    login = asyncio.create_task(broker.tokens.credential(SCRAM_SHA_256, "a"))
    await asyncio.sleep(0)
    broker.forget("a")
    await login
    assert await broker.tokens.credential(SCRAM_SHA_256, "a") is None
