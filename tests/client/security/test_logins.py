"""The client's SASL mechanisms, tested with the server's half or literal messages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from ottla.client.failures import AuthenticationFailed
from ottla.client.security.called_for import CredentialsUnavailable
from ottla.client.security.logins import (
    BearerClientLogin,
    ClientLogin,
    ClientLoginRefused,
    PlainClientLogin,
    ScramClientLogin,
)
from ottla.client.security.oauth import BearerTokens
from ottla.client.security.options import Token
from ottla.protocol.credentials.scram import SCRAM_MECHANISMS, ScramCredential, ScramUser
from tests.protocol.scram_exchange import AnsweringServer

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]


async def test_plain_sends_user_and_password() -> None:
    sent: list[bytes] = []

    async def ask(message: bytes) -> bytes:
        sent.append(message)
        return b""

    await (await PlainClientLogin("änn", "pä=ss,").prepare("broker"))(ask)
    assert sent == ["\0änn\0pä=ss,".encode()]


async def test_a_password_is_asked_for_at_each_login() -> None:
    given = iter(["one", "two", "three"])
    sent: list[bytes] = []

    async def ask(message: bytes) -> bytes:
        sent.append(message)
        return b""

    async def later() -> str:
        await asyncio.sleep(0)
        return next(given)

    login = PlainClientLogin("u", lambda: next(given))
    await (await login.prepare("broker"))(ask)
    await (await login.prepare("broker"))(ask)
    await (await PlainClientLogin("u", later).prepare("broker"))(ask)
    assert sent == [b"\0u\0one", b"\0u\0two", b"\0u\0three"]


@pytest.mark.parametrize(
    ("password", "is_final"), [(lambda: "", True), (lambda: None, True), (lambda: 1 / 0, False)]
)
async def test_a_password_that_does_not_come_is_told(password: Callable[[], str], is_final: bool) -> None:
    with pytest.raises(CredentialsUnavailable, match="sasl_plain_password was called") as failed:
        await PlainClientLogin("u", password).prepare("broker")
    assert failed.value.is_final is is_final


@pytest.mark.parametrize("kind", ["PLAIN", "OAUTHBEARER"])
async def test_while_nobody_gives_another_credential_the_last_one_is_used(kind: str) -> None:
    given: list[str] = ["one"]
    sent: list[bytes] = []

    class Tokens:
        def token(self) -> str:
            return given.pop()

    async def ask(message: bytes) -> bytes:
        sent.append(message)
        if refuses:
            raise AuthenticationFailed("not this one")
        return b""

    login: ClientLogin = (
        PlainClientLogin("u", given.pop) if kind == "PLAIN" else BearerClientLogin(BearerTokens(Tokens()), {})
    )
    refuses = False
    attempts = [await login.prepare("broker") for _ in range(3)]
    assert not given
    for attempt in attempts:
        await attempt(ask)
    assert len({*sent}) == 1
    refuses = True
    for attempt in attempts:
        with pytest.raises(
            CredentialsUnavailable, match=r"not take the last .*, and there is no new one"
        ) as failed:
            await attempt(ask)
        assert not failed.value.is_final, "the next one may be taken"


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("with_token", [False, True])
async def test_scram_proves_both_ends(name: str, with_token: bool) -> None:
    mechanism = SCRAM_MECHANISMS[name]
    users: list[ScramUser] = []

    def find(user: ScramUser) -> ScramCredential:
        users.append(user)
        return ScramCredential.of_password(mechanism, "secret", b"salt")

    server = AnsweringServer(mechanism, "nonce", find)

    async def ask(message: bytes) -> bytes:
        return server.receive(message)

    await (await ScramClientLogin(mechanism, "a,b=c", "secret", with_token=with_token).prepare("broker"))(ask)
    assert server.done
    assert users == [ScramUser("a,b=c", {"tokenauth": "true"} if with_token else {})]


async def test_a_false_server_is_refused() -> None:
    def find(_: ScramUser) -> ScramCredential:
        real = ScramCredential.of_password(SHA_256, "secret", b"salt")
        return ScramCredential(real.salt, real.stored_key, b"another", real.iterations)

    server = AnsweringServer(SHA_256, "nonce", find)

    async def ask(message: bytes) -> bytes:
        return server.receive(message)

    with pytest.raises(ClientLoginRefused, match="may be a false one"):
        await (await ScramClientLogin(SHA_256, "u", "secret").prepare("broker"))(ask)


@pytest.mark.parametrize("iterations", ["4095", "1000001", "99999999999", "-1"])
async def test_a_server_cannot_make_the_client_work_for_hours(iterations: str) -> None:
    async def ask(message: bytes) -> bytes:
        nonce = message.decode().rpartition("r=")[2]
        return f"r={nonce}x,s=c2FsdA==,i={iterations}".encode()

    began = time.process_time()
    with pytest.raises(ClientLoginRefused, match="iterations"):
        await (await ScramClientLogin(SHA_256, "u", "secret").prepare("broker"))(ask)
    assert time.process_time() - began < 5


class Provider:
    """A token provider with kafka-python's interface: plain, and with extensions."""

    def __init__(self, *tokens: Token) -> None:
        self._tokens = list(tokens)
        self.asked = 0

    def token(self) -> Token:
        self.asked += 1
        return self._tokens.pop(0)

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class AsyncProvider:
    """A token provider with aiokafka's interface."""

    async def token(self) -> str:
        await asyncio.sleep(0)
        return "abc"


async def test_a_token_goes_with_its_extensions() -> None:
    sent: list[bytes] = []

    async def ask(message: bytes) -> bytes:
        sent.append(message)
        return b""

    await (await BearerClientLogin(BearerTokens(Provider("abc")), {"pool": "p"}).prepare("broker"))(ask)
    await (await BearerClientLogin(BearerTokens(AsyncProvider()), {}).prepare("broker"))(ask)
    assert sent == [
        b"n,,\x01auth=Bearer abc\x01pool=p\x01logicalCluster=lkc-1\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01",
    ]


async def test_a_refused_token_is_told_and_forgotten() -> None:
    sent: list[bytes] = []

    async def ask(message: bytes) -> bytes:
        sent.append(message)
        return json.dumps({"status": "invalid_token"}).encode() if len(sent) == 1 else b""

    provider = Provider(("one", time.time() + 100), "two")
    tokens = BearerTokens(provider)
    with pytest.raises(ClientLoginRefused, match="does not take the token: status invalid_token"):
        await (await BearerClientLogin(tokens, {}).prepare("broker"))(ask)
    assert sent[1] == b"\x01"
    assert (await tokens.current()).text == "two"


async def test_a_token_is_kept_for_most_of_its_life() -> None:
    now = [1000.0]
    provider = Provider(("one", 1100.0), ("two", 1200.0), "three", "four")
    tokens = BearerTokens(provider, clock=lambda: now[0])
    texts = await asyncio.gather(*(tokens.current() for _ in range(5)))
    assert {text for text, _ in texts} == {"one"}
    assert provider.asked == 1
    now[0] = 1074.0
    assert (await tokens.current())[0] == "one"
    now[0] = 1076.0
    assert (await tokens.current())[0] == "two", "logins are renewed at four fifths of it, with a new one"
    now[0] = 1199.0
    assert (await tokens.current())[0] == "three", "without an end it is asked for each time"
    assert (await tokens.current())[0] == "four"


@pytest.mark.parametrize("given", ["", None, "with\nline", 7, "x" * 70_000])
async def test_what_is_no_token_is_told_without_showing_it(given: Token) -> None:
    with pytest.raises(CredentialsUnavailable, match=r"token\(\) gave"):
        await BearerTokens(Provider(given)).current()


async def test_a_provider_that_fails_is_told() -> None:
    with pytest.raises(
        CredentialsUnavailable, match=r"token\(\) of sasl_oauth_token_provider failed: IndexError"
    ) as failed:
        await BearerTokens(Provider()).current()
    assert not failed.value.is_final
