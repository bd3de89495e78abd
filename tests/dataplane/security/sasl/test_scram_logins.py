"""SCRAM logins with sealed credentials: a credential that cannot be opened refuses the login, and the log states the
reason.
"""

from __future__ import annotations

import asyncio

import pytest

from ottla.dataplane.security.delegation_tokens import DelegationTokens
from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused
from ottla.dataplane.security.sasl.scram import ScramCredentials, ScramLogin, ScramLogins, sealed_credential
from ottla.dataplane.security.sasl.scram_passwords import ScramPasswords
from ottla.dataplane.security.sasl.unknown_users import UnknownUsers
from ottla.dataplane.security.sealing import Sealer
from ottla.protocol.credentials.delegation_tokens import TokenState, token_hmac, token_key_id, token_password
from ottla.protocol.credentials.scram import SCRAM_SHA_256, ScramClient, ScramCredential
from ottla.protocol.session.node_secrets import Secrets

ANN = ("ann", SCRAM_SHA_256.code)
SEALED = sealed_credential(
    Sealer([b"old secret"]), ANN, ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt")
)
STAND_INS = UnknownUsers(b"key", lambda: {ANN: SEALED})


def credentials(*secrets: bytes) -> ScramCredentials:
    """Return the credentials that a broker with these cluster secrets reads."""
    return ScramCredentials(Sealer(secrets), lambda: {ANN: SEALED})


def logged_in(*secrets: bytes) -> ScramLogin:
    login = ScramLogins(SCRAM_SHA_256, credentials(*secrets), STAND_INS).begin()
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
    passwords = ScramPasswords(credentials(b"new secret"), STAND_INS, lambda: 0.0)
    with pytest.raises(LoginRefused, match="follows from no secret in"):
        await passwords.check("ann", "pw")


@pytest.mark.parametrize("password", ["new", "pw", None])
async def test_a_credential_that_is_changed_or_deleted_during_a_login_refuses_it(
    password: str | None,
) -> None:
    """This holds even if the same password is set again: the proof is about the credential at the challenge."""
    sealer, users = Sealer([b"old secret"]), {ANN: SEALED}
    logins = ScramLogins(SCRAM_SHA_256, ScramCredentials(sealer, lambda: users), STAND_INS)
    login, client = logins.begin(), ScramClient(SCRAM_SHA_256, "ann", "pw", "nonce")
    challenge = await login.receive(client.first())
    del users[ANN]
    if password is not None:
        changed = ScramCredential.of_password(SCRAM_SHA_256, password, b"other salt")
        users[ANN] = sealed_credential(sealer, ANN, changed)
    with pytest.raises(LoginRefused, match="changed or deleted during the login"):
        await login.receive(client.final(challenge))
    assert login.outcome is None


async def test_a_credential_that_is_sealed_under_a_new_secret_during_a_login_does_not_refuse_it() -> None:
    sealer, users = Sealer([b"new secret", b"old secret"]), {ANN: SEALED}
    logins = ScramLogins(SCRAM_SHA_256, ScramCredentials(sealer, lambda: users), STAND_INS)
    login, client = logins.begin(), ScramClient(SCRAM_SHA_256, "ann", "pw", "nonce")
    challenge = await login.receive(client.first())
    users[ANN] = sealed_credential(sealer, ANN, ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt"))
    client.check(await login.receive(client.final(challenge)))
    assert login.outcome == LoggedIn("ann")


KEY = b"the key of tokens"
TOKENS = {"id": TokenState("id", "User:a:b", "User:bob", (), 0, 1_000, 2_000, token_key_id(KEY))}
PASSWORD = token_password(token_hmac(KEY, "id"))


class TokenLogins:
    """Logins of a broker with a single token."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.states = dict(TOKENS)
        self.now_ms = 0
        self.tokens = DelegationTokens(Secrets((KEY,)), lambda: self.states, lambda: self.now_ms)
        self.tokens.changed(self.states)
        self.logins = ScramLogins(
            SCRAM_SHA_256, credentials(b"old secret"), STAND_INS, self.tokens if enabled else None
        )

    async def log_in(
        self, user: str = "id", password: str = PASSWORD, extension: str | None = "true"
    ) -> ScramLogin:
        login = self.logins.begin()
        client = ScramClient(
            SCRAM_SHA_256, user, password, "nonce", {} if extension is None else {"tokenauth": extension}
        )
        challenge = await login.receive(client.first())
        self.challenged()
        client.check(await login.receive(client.final(challenge)))
        return login

    def challenged(self) -> None:
        """Step between the two messages of a client."""


@pytest.mark.parametrize("extension", ["true", "TRUE"])
async def test_a_token_logs_in_as_its_owner_until_it_expires(extension: str) -> None:
    assert (await TokenLogins().log_in(extension=extension)).outcome == LoggedIn("a:b", 1_000, "id")


@pytest.mark.parametrize("extension", [None, "false"])
async def test_without_the_extension_a_name_is_a_user(extension: str | None) -> None:
    assert (await TokenLogins().log_in("ann", "pw", extension)).outcome == LoggedIn("ann")
    with pytest.raises(LoginRefused, match="proof is wrong"):
        await TokenLogins().log_in(extension=extension)


@pytest.mark.parametrize(
    ("user", "password", "extension", "reason"),
    [
        ("ann", "pw", "true", "proof is wrong"),
        ("nobody", PASSWORD, "true", "proof is wrong"),
        ("id", "guess", "true", "proof is wrong"),
        ("id", PASSWORD, "yes", "true or false"),
    ],
)
async def test_what_is_no_token_does_not_log_in(
    user: str, password: str, extension: str, reason: str
) -> None:
    with pytest.raises(LoginRefused, match=reason):
        await TokenLogins().log_in(user, password, extension)


async def test_tokens_have_to_be_enabled() -> None:
    with pytest.raises(LoginRefused, match=r"there is no delegation\.token\.secret\.key"):
        await TokenLogins(enabled=False).log_in()


async def test_a_token_that_has_expired_does_not_log_in() -> None:
    logins = TokenLogins()
    logins.now_ms = 1_001
    with pytest.raises(LoginRefused, match="has ended"):
        await logins.log_in()


async def test_a_token_that_goes_during_a_login_does_not_log_in() -> None:
    class Revoked(TokenLogins):
        def challenged(self) -> None:
            del self.states["id"]
            self.tokens.changed(["id"])

    with pytest.raises(LoginRefused, match="has ended"):
        await Revoked().log_in()


async def test_other_extensions_are_refused() -> None:
    login = TokenLogins().logins.begin()
    client = ScramClient(SCRAM_SHA_256, "id", PASSWORD, "nonce", {"other": "x"})
    with pytest.raises(LoginRefused, match="not known here: other"):
        await login.receive(client.first())
