"""The keys of an authorization server: rotation, unknown keys, and a server that is down."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from ottla.dataplane.security.oauth.provider_keys import (
    ASKED_APART_S,
    UNKNOWN_S,
    NoKeysYet,
    ProviderKeys,
    reader_of,
)
from ottla.dataplane.security.oauth.settings import KeySource
from ottla.dataplane.security.oauth.tokens import Token, TokenRefused, read_token
from ottla.network.http_get import DocumentUnavailable
from tests.dataplane.server.conftest import until
from tests.oauth_issuer import claims_of, key_set, new_key, signed, unsigned

SOURCE = KeySource("https://issuer.test/keys", refresh_ms=3_600_000, backoff_ms=1, backoff_max_ms=4)
FIRST, SECOND = new_key("first"), new_key("second")


def token(key: str = "first") -> Token:
    return read_token(signed(claims_of(), {"first": FIRST, "second": SECOND}.get(key, FIRST), kid=key))


class Provider:
    """The answers of an authorization server, and a clock that stands still."""

    def __init__(self, source: KeySource = SOURCE) -> None:
        self.content: bytes | None = key_set(FIRST)
        self.asked = 0
        self.now_s = 1000.0
        self.held: asyncio.Event | None = None
        self.keys = ProviderKeys(source, self.read, lambda: self.now_s)

    async def read(self) -> bytes:
        self.asked += 1
        if self.held is not None:
            await self.held.wait()
        if self.content is None:
            raise DocumentUnavailable("nobody there")
        return self.content

    async def start(self) -> None:
        self.keys.start()
        await until(lambda: self.asked > 0 and self.keys._asking is None)


async def test_a_token_signed_by_a_key_of_the_provider_is_good() -> None:
    provider = Provider()
    await provider.start()
    await provider.keys.check(token())
    assert (len(provider.keys), provider.keys.age_s) == (1, 0.0)
    forged = read_token(signed(claims_of(), SECOND, kid="first"))
    with pytest.raises(TokenRefused, match="signature is wrong"):
        await provider.keys.check(forged)
    for algorithm in ("none", "HS256", "RS1"):
        with pytest.raises(TokenRefused, match=f"its algorithm is '{algorithm}'"):
            await provider.keys.check(read_token(unsigned(claims_of(), alg=algorithm, kid="unknown")))
    assert provider.asked == 1, "an unsupported algorithm causes no request"
    await provider.keys.close()


async def test_a_new_key_is_found_once_a_token_names_it() -> None:
    provider = Provider()
    await provider.start()
    provider.content = key_set(SECOND)
    provider.now_s += ASKED_APART_S
    await asyncio.gather(*(provider.keys.check(token("second")) for _ in range(5)))
    assert provider.asked == 2, "they share one question"
    with pytest.raises(TokenRefused, match=r"no key 'first' for RS256 at https://issuer\.test/keys"):
        await provider.keys.check(token("first"))
    await provider.keys.close()


async def test_unknown_keys_are_asked_for_seldom() -> None:
    provider = Provider()
    await provider.start()

    async def refused(key: str) -> None:
        with pytest.raises(TokenRefused, match=f"no key '{key}'"):
            await provider.keys.check(token(key))

    await refused("unknown")
    assert provider.asked == 1, "the last time was just now"
    provider.now_s += ASKED_APART_S
    await refused("unknown")
    assert provider.asked == 2
    provider.now_s += ASKED_APART_S
    await refused("unknown")
    assert provider.asked == 2, "it is remembered"
    await refused("another")
    assert provider.asked == 3
    provider.now_s += UNKNOWN_S
    await refused("unknown")
    assert provider.asked == 4
    await provider.keys.close()


async def test_unknown_keys_do_not_fill_the_memory() -> None:
    provider = Provider()
    await provider.start()
    for number in range(1100):
        provider.now_s += ASKED_APART_S / 1000
        provider.keys._remember_unknown(f"k{number}")
    assert len(provider.keys._unknown) == 1000
    provider.now_s += UNKNOWN_S + 1
    provider.keys._remember_unknown("last")
    assert list(provider.keys._unknown) == ["last"]
    await provider.keys.close()


async def test_the_last_keys_count_while_the_provider_is_down(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(KeySource(SOURCE.url, refresh_ms=1, backoff_ms=1, backoff_max_ms=2))
    await provider.start()
    provider.content = None
    await until(lambda: provider.keys._fails)
    provider.now_s += 5000
    await provider.keys.check(token())
    assert provider.keys.age_s == 5000
    seen = provider.asked
    await until(lambda: provider.asked > seen + 3)
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage() for each in warnings] == [
        "no keys from https://issuer.test/keys: nobody there; the last ones count"
    ]
    with pytest.raises(TokenRefused, match="no key 'second'"):
        await provider.keys.check(token("second"))
    provider.content = key_set(SECOND)
    await until(lambda: provider.keys.age_s == 0)
    await provider.keys.check(token("second"))
    await provider.keys.close()


async def test_a_set_that_is_none_changes_nothing() -> None:
    provider = Provider(KeySource(SOURCE.url, refresh_ms=1, backoff_ms=1))
    await provider.start()
    provider.content = b'{"keys": []}'
    await until(lambda: provider.keys._fails)
    await provider.keys.check(token())
    await provider.keys.close()


async def test_without_keys_since_the_start_nobody_is_refused_for_good() -> None:
    provider = Provider()
    provider.content = None
    await provider.start()
    with pytest.raises(NoKeysYet, match="since the start"):
        await provider.keys.check(token())
    provider.content = key_set(FIRST)
    await until(lambda: len(provider.keys) == 1)
    await provider.keys.check(token())
    await provider.keys.close()


async def test_the_first_logins_wait_for_the_first_keys() -> None:
    provider = Provider()
    provider.held = asyncio.Event()
    provider.keys.start()
    await until(lambda: provider.asked == 1)
    waiting = [asyncio.create_task(provider.keys.check(token())) for _ in range(3)]
    given_up = asyncio.create_task(provider.keys.check(token()))
    await asyncio.sleep(0)
    given_up.cancel()
    provider.held.set()
    await asyncio.gather(*waiting)
    assert provider.asked == 1
    await provider.keys.close()


async def test_whoever_waits_is_let_go_at_the_end() -> None:
    provider = Provider()
    provider.held = asyncio.Event()
    provider.keys.start()
    await until(lambda: provider.asked == 1)
    waiting = asyncio.create_task(provider.keys.check(token()))
    await asyncio.sleep(0)
    await provider.keys.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys of all.json"
    path.write_bytes(key_set(FIRST))
    read = reader_of(KeySource(f"file://{tmp_path}/keys%20of%20all.json"))
    keys = ProviderKeys(SOURCE, read, time.monotonic)
    keys.start()
    await until(lambda: len(keys) == 1)
    await keys.close()
    path.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(DocumentUnavailable, match="larger than 1048576 bytes"):
        await read()
    path.unlink()
    with pytest.raises(DocumentUnavailable, match="No such file"):
        await read()
