"""PLAIN with SCRAM credentials: right and wrong passwords, the cache, and the number of waiting logins."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ottla.dataplane.security.sasl.login import LoginRefused
from ottla.dataplane.security.sasl.scram import ScramCredentials, sealed_credential
from ottla.dataplane.security.sasl.scram_passwords import REMEMBERED_S, WAITING_MAX, ScramPasswords
from ottla.dataplane.security.sasl.unknown_users import UnknownUsers
from ottla.dataplane.security.sealing import Sealer
from ottla.protocol.cluster.cluster_image import ScramKey, SealedCredential
from ottla.protocol.credentials.scram import (
    ITERATIONS_MIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
)

SEALER = Sealer([b"cluster secret"])
ANN = ("ann", SCRAM_SHA_256.code)


class Users:
    """The credentials of an image, a clock, and how often a credential was looked up."""

    def __init__(self) -> None:
        self.sealed: dict[ScramKey, SealedCredential] = {}
        self.now = 0.0
        self.passwords = ScramPasswords(
            ScramCredentials(SEALER, lambda: self.sealed),
            UnknownUsers(b"key", lambda: self.sealed),
            lambda: self.now,
        )

    def set(
        self,
        user: str,
        password: str,
        mechanism: ScramMechanism = SCRAM_SHA_256,
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        key = (user, mechanism.code)
        credential = ScramCredential.of_password(mechanism, password, b"salt", iterations)
        self.sealed[key] = sealed_credential(SEALER, key, credential)


@pytest.fixture
async def users() -> Users:
    return Users()


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
async def test_only_the_password_that_was_set_is_right(users: Users, mechanism: ScramMechanism) -> None:
    users.set("ann", "secret", mechanism)
    assert await users.passwords.check("ann", "secret")
    assert await users.passwords.check("ann", "secret")
    assert not await users.passwords.check("ann", "Secret")
    assert not await users.passwords.check("bob", "secret")


async def test_a_password_that_was_right_is_wrong_as_soon_as_it_is_changed_or_deleted(users: Users) -> None:
    users.set("ann", "secret")
    assert await users.passwords.check("ann", "secret")
    users.set("ann", "other")
    assert not await users.passwords.check("ann", "secret")
    assert await users.passwords.check("ann", "other")
    users.sealed.clear()
    assert not await users.passwords.check("ann", "other")


@pytest.mark.parametrize("password", ["other", "secret", None])
async def test_a_password_that_is_changed_or_deleted_while_it_is_hashed_is_wrong(
    users: Users, password: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.set("ann", "secret")
    of_password = ScramCredential.of_password
    hashing, changed = threading.Event(), threading.Event()

    def slowly(*args: Any) -> ScramCredential:
        hashing.set()
        assert changed.wait(60)
        return of_password(*args)

    with monkeypatch.context() as patched:
        patched.setattr(ScramCredential, "of_password", slowly)
        checking = asyncio.create_task(users.passwords.check("ann", "secret"))
        assert await asyncio.to_thread(hashing.wait, 60)
        users.sealed.clear()
        if password is not None:
            made = of_password(SCRAM_SHA_256, password, b"other salt", ITERATIONS_MIN)
            users.sealed[ANN] = sealed_credential(SEALER, ANN, made)
        changed.set()
        assert not await checking
    assert await users.passwords.check("ann", "secret") is (password == "secret")


async def test_what_is_remembered_is_hashed_anew_after_a_while(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.set("ann", "secret")
    hashed = 0
    of_password = ScramCredential.of_password

    def counted(*arguments: object) -> ScramCredential:
        nonlocal hashed
        hashed += 1
        return of_password(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ScramCredential, "of_password", counted)
    for _ in range(3):
        assert await users.passwords.check("ann", "secret")
    assert hashed == 1
    users.now = REMEMBERED_S + 1
    assert await users.passwords.check("ann", "secret")
    assert hashed == 2


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
async def test_who_does_not_exist_is_hashed_like_who_does(
    users: Users, mechanism: ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.set("ann", "secret", mechanism, iterations=8192)
    hashed = []
    of_password = ScramCredential.of_password

    def noted(by: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
        hashed.append((by, len(salt), iterations))
        return of_password(by, password, salt, iterations)

    monkeypatch.setattr(ScramCredential, "of_password", noted)
    for name in ("ann", "bob", "bob"):
        assert not await users.passwords.check(name, "guess")
    assert hashed == [(mechanism, len(b"salt"), 8192)] * 3


async def test_more_than_some_may_not_wait(users: Users) -> None:
    users.set("ann", "secret")
    checks = [asyncio.ensure_future(users.passwords.check("ann", str(n))) for n in range(WAITING_MAX + 1)]
    ended = await asyncio.gather(*checks, return_exceptions=True)
    assert ended[:-1] == [False] * WAITING_MAX
    assert isinstance(ended[-1], LoginRefused)
