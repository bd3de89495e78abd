"""Logins by SCRAM against sealed credentials: what cannot be opened refuses the login, and says why to the log."""

from __future__ import annotations

import asyncio

import pytest

from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused
from ottla.dataplane.security.sasl.scram import ScramCredentials, ScramLogin, ScramLogins, sealed_credential
from ottla.dataplane.security.sasl.scram_passwords import ScramPasswords
from ottla.dataplane.security.sealing import Sealer
from ottla.protocol.scram import SCRAM_SHA_256, ScramClient, ScramCredential

ANN = ("ann", SCRAM_SHA_256.code)
SEALED = sealed_credential(
    Sealer([b"old secret"]), ANN, ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt")
)


def credentials(*secrets: bytes) -> ScramCredentials:
    """As a broker reads them that has these cluster secrets."""
    return ScramCredentials(Sealer(secrets), lambda: {ANN: SEALED})


def logged_in(*secrets: bytes) -> ScramLogin:
    login = ScramLogins(SCRAM_SHA_256, credentials(*secrets), b"key").begin()
    client = ScramClient(SCRAM_SHA_256, "ann", "pw", "nonce")
    challenge = asyncio.run(login.receive(client.first()))
    client.check(asyncio.run(login.receive(client.final(challenge))))
    return login


def test_a_user_logs_in_while_the_secret_is_there_under_which_the_password_was_set() -> None:
    assert logged_in(b"new secret", b"old secret").outcome == LoggedIn("ann")


def test_a_credential_that_no_secret_opens_refuses_the_login() -> None:
    with pytest.raises(LoginRefused, match="follows from no secret in"):
        logged_in(b"new secret")


async def test_so_does_a_password_in_the_clear() -> None:
    passwords = ScramPasswords(credentials(b"new secret"), lambda: 0.0)
    with pytest.raises(LoginRefused, match="follows from no secret in"):
        await passwords.check("ann", "pw")
