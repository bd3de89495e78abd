"""Both ends of a Kerberos login with MIT's library and a KDC, without a broker: accepted logins,
and reported errors.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.client.security.kerberos import KerberosClientLogin
from ottla.client.security.logins import Ask, ClientLoginRefused, ClientLoginUndecided
from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.security.sasl.kerberos import KerberosLogin, KerberosLogins
from ottla.dataplane.security.sasl.kerberos_acceptor import KerberosAcceptor, KerberosSettings
from ottla.dataplane.security.sasl.login import LoggedIn, LoginRefused, LoginUndecided
from ottla.protocol.settings.config_key import ConfigError
from tests.kerberos import OTHER_REALM, REALM, Kdc, kdc, needs_kerberos

pytestmark = [needs_kerberos, pytest.mark.xdist_group("test_kerberos_logins")]

HOST = "broker.test"
SERVICE = f"kafka/{HOST}"
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with kdc(tmp_path_factory.mktemp("kdc")) as running:
        for principal in (SERVICE, "kafka/other.test", "ann", "ann/laptop"):
            running.add(principal)
        running.keytab("broker", SERVICE)
        running.keytab("other", "kafka/other.test")
        running.keytab("ann", "ann")
        running.keytab("laptop", "ann/laptop")
        yield running


@pytest.fixture
def login(realm: Kdc) -> Iterator[Callable[[], KerberosLogin]]:
    made: list[KerberosAcceptor] = []

    def begin() -> KerberosLogin:
        if not made:
            made.append(KerberosAcceptor(settings(realm)))
        (acceptor,) = made
        return KerberosLogins(acceptor.context, acceptor.mapping, acceptor.threads, wall_ms).begin()

    begin()
    yield begin
    made[0].close()


def settings(realm: Kdc, keytab: str = "broker", rules: str = "DEFAULT") -> KerberosSettings:
    return KerberosSettings(
        "gssapi.sasl.jaas.config", str(realm.folder / f"{keytab}.keytab"), f"{SERVICE}@{REALM}", rules
    )


def client(realm: Kdc, name: str = "ann", principal: str | None = None) -> KerberosClientLogin:
    keytab = str(realm.folder / f"{name}.keytab")
    return KerberosClientLogin("kafka", None, principal or name, keytab)


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], KerberosClientLogin]:
    """Return a function that makes the client of the user with the tickets in a file."""

    def of(cache: Path) -> KerberosClientLogin:
        monkeypatch.setenv("KRB5CCNAME", str(cache))
        return KerberosClientLogin("kafka", None, None, None)

    return of


def asking(login: KerberosLogin) -> Ask:
    async def ask(message: bytes) -> bytes:
        return await login.receive(message) or b""

    return ask


async def logged_in(client_login: KerberosClientLogin, login: KerberosLogin, host: str = HOST) -> LoggedIn:
    await (await client_login.prepare(host))(asking(login))
    assert login.outcome is not None
    return login.outcome


async def test_a_keytab_lets_in_for_as_long_as_its_ticket(
    realm: Kdc, login: Callable[[], KerberosLogin]
) -> None:
    client_login = client(realm)
    for _ in range(2):
        outcome = await logged_in(client_login, login())
        assert outcome.user == "ann"
        assert outcome.expires_at_ms is not None
        # The library adds the five minutes that clocks may differ.
        assert abs(outcome.expires_at_ms - wall_ms() - DAY_MS) < 10 * 60 * 1000


async def test_a_principal_of_two_components(realm: Kdc, login: Callable[[], KerberosLogin]) -> None:
    assert (await logged_in(client(realm, "laptop", "ann/laptop"), login())).user == "ann"


async def test_a_ticket_of_the_user_lets_in_and_the_domain_name_says_for_which_broker(
    realm: Kdc, login: Callable[[], KerberosLogin], tickets: Callable[[Path], KerberosClientLogin]
) -> None:
    client_login = tickets(realm.ticket("ann"))
    assert (await logged_in(client_login, login())).user == "ann"
    named = KerberosClientLogin("kafka", HOST, None, None)
    assert (await logged_in(named, login(), "10.0.0.1")).user == "ann"


async def test_a_keytab_that_was_replaced_counts(
    realm: Kdc, login: Callable[[], KerberosLogin], tickets: Callable[[Path], KerberosClientLogin]
) -> None:
    of_before = tickets(realm.ticket("ann"))
    assert (await logged_in(of_before, login())).user == "ann"
    realm.keytab("broker", SERVICE)
    with pytest.raises(LoginRefused, match=f"Cannot find key for {SERVICE}@{REALM} kvno"):
        await logged_in(of_before, login())
    assert (await logged_in(tickets(realm.ticket("ann")), login())).user == "ann"


async def test_a_client_with_a_keytab_gets_a_new_ticket_after_a_refusal(
    realm: Kdc, login: Callable[[], KerberosLogin]
) -> None:
    client_login = client(realm)
    await logged_in(client_login, login())
    realm.keytab("broker", SERVICE)
    with pytest.raises(LoginRefused, match="Cannot find key"):
        await logged_in(client_login, login())
    assert (await logged_in(client_login, login())).user == "ann"


async def test_a_client_with_a_keytab_gets_a_new_ticket_once_the_old_has_ended(
    realm: Kdc, login: Callable[[], KerberosLogin]
) -> None:
    realm.add("brief", life="2 seconds")
    realm.keytab("brief", "brief")
    client_login = client(realm, "brief")
    began = time.monotonic()
    while time.monotonic() - began < 3.5:
        assert (await logged_in(client_login, login())).user == "brief"
        await asyncio.sleep(0.1)


async def test_without_its_keytab_a_broker_cannot_tell(
    realm: Kdc, login: Callable[[], KerberosLogin]
) -> None:
    client_login, keytab = client(realm), realm.folder / "broker.keytab"
    aside = keytab.rename(realm.folder / "aside")
    with pytest.raises(LoginUndecided, match=r"broker\.keytab' not found"):
        await logged_in(client_login, login())
    aside.rename(keytab)
    assert (await logged_in(client_login, login())).user == "ann"


async def test_without_a_place_for_what_it_has_seen_a_broker_cannot_tell(
    realm: Kdc,
    login: Callable[[], KerberosLogin],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("KRB5RCACHEDIR", str(realm.folder / "missing"))
    with pytest.raises(LoginUndecided, match=r"No such file or directory .*missing/krb5_\d+\.rcache2"):
        await logged_in(client(realm), login())
    assert "nobody can log in by Kerberos now: No such file" in caplog.text


async def test_a_ticket_for_another_broker_is_refused(realm: Kdc, login: Callable[[], KerberosLogin]) -> None:
    with pytest.raises(LoginRefused, match=r"(request ticket server|decrypt ticket for) kafka/other\.test"):
        await logged_in(client(realm), login(), "other.test")


async def test_what_is_no_token_is_refused(login: Callable[[], KerberosLogin]) -> None:
    for token in (b"x", b"\0ann\0secret", bytes(1000), b"\x60\x82\xff\xff" + bytes(100)):
        with pytest.raises(LoginRefused, match="Invalid token"):
            await login().receive(token)


async def test_tokens_with_wrong_bytes_are_refused(realm: Kdc, login: Callable[[], KerberosLogin]) -> None:
    tokens: list[bytes] = []

    async def keep(token: bytes) -> bytes:
        tokens.append(token)
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await (await client(realm).prepare(HOST))(keep)
    chance = random.Random(1)
    (token,) = tokens
    for _ in range(500):
        changed = bytearray(token[: chance.choice([len(token), chance.randrange(1, len(token))])])
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        attempt = login()
        try:
            await attempt.receive(bytes(changed))
        except (LoginRefused, LoginUndecided):
            pass
        assert attempt.outcome is None


async def test_a_token_counts_once(realm: Kdc, login: Callable[[], KerberosLogin]) -> None:
    sent: list[bytes] = []
    first = login()

    async def ask(token: bytes) -> bytes:
        sent.append(token)
        return await asking(first)(token)

    await (await client(realm).prepare(HOST))(ask)
    again = login()
    with pytest.raises(LoginUndecided, match="replay"):
        await again.receive(sent[0])
    assert again.outcome is None


async def test_clocks_that_differ_are_refused(
    realm: Kdc, login: Callable[[], KerberosLogin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(token: bytes) -> bytes:
        made = time.monotonic()
        strict = tmp_path / "krb5.conf"
        text = realm.configuration.read_text()
        strict.write_text(text.replace("[libdefaults]", "[libdefaults]\n  clockskew = 1"))
        monkeypatch.setenv("KRB5_CONFIG", str(strict))
        while time.monotonic() - made < 2.1:
            await asyncio.sleep(0.1)
        return await asking(login())(token)

    with pytest.raises(LoginRefused, match="Clock skew too great"):
        await (await client(realm).prepare(HOST))(late)


async def test_users_of_another_realm_need_a_rule(realm: Kdc) -> None:
    realm.trust()
    realm.add("ann", realm=OTHER_REALM)
    realm.keytab("stranger", "ann", realm=OTHER_REALM)
    client_login = client(realm, "stranger", f"ann@{OTHER_REALM}")

    def begin(rules: str) -> KerberosLogin:
        acceptor = KerberosAcceptor(settings(realm, rules=rules))
        closing.callback(acceptor.close)
        return KerberosLogins(acceptor.context, acceptor.mapping, acceptor.threads, wall_ms).begin()

    with ExitStack() as closing:
        with pytest.raises(
            LoginRefused, match=rf"no rule applies to 'ann@OTHER\.TEST', .* realm is '{REALM}'"
        ):
            await logged_in(client_login, begin("DEFAULT"))
        outcome = await logged_in(
            client_login, begin("DEFAULT,RULE:[1:$1@$0](.*@OTHER.TEST)s/@.*/-of-other/")
        )
    assert outcome.user == "ann-of-other"


async def nobody(_: bytes) -> bytes:
    raise AssertionError("nothing is sent")


@pytest.mark.parametrize(
    ("name", "principal", "host", "complaint"),
    [
        ("ann", "ann", "unknown.test", r"Server .* not found .* is for kafka/unknown\.test: .*_domain_name"),
        ("missing", "ann", HOST, r"`klist -k .*missing\.keytab` shows whose keys"),
        ("ann", "bob", HOST, r"it has to be that of bob"),
    ],
)
async def test_what_a_client_is_told(
    realm: Kdc, name: str, principal: str, host: str, complaint: str
) -> None:
    with pytest.raises(ClientLoginRefused, match=complaint):
        await (await client(realm, name, principal).prepare(host))(nobody)


async def test_who_has_no_ticket_or_an_old_one_is_told_to_get_one(
    realm: Kdc, tickets: Callable[[Path], KerberosClientLogin]
) -> None:
    with pytest.raises(ClientLoginRefused, match=r"No Kerberos credentials .*`kinit NAME@REALM`"):
        await (await tickets(realm.folder / "none").prepare(HOST))(nobody)
    client_login = tickets(realm.ticket("ann", "-l", "1s"))
    deadline = time.monotonic() + 60
    while (reason := await _told(client_login)) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    assert "Ticket expired; get a ticket by `kinit" in reason


async def _told(client_login: KerberosClientLogin) -> str | None:
    """Return the reason why the login fails; None if it succeeds."""
    try:
        await (await client_login.prepare(HOST))(_ends)
    except ConnectionAbortedError:
        return None
    except ClientLoginRefused as error:
        return str(error)
    raise AssertionError("it has logged in without a broker")


async def _ends(_: bytes) -> bytes:
    raise ConnectionAbortedError


async def test_without_a_kdc_a_client_tries_again(realm: Kdc) -> None:
    client_login = client(realm)
    realm.stop()
    with pytest.raises(ClientLoginUndecided, match="Cannot contact any KDC for realm"):
        await (await client_login.prepare(HOST))(nobody)
    realm.start()
    with pytest.raises(ConnectionAbortedError):
        await (await client_login.prepare(HOST))(_ends)


@pytest.mark.parametrize(
    ("keytab", "rules", "complaint"),
    [
        ("missing", "", r"gssapi\.sasl\.jaas\.config: .*missing\.keytab cannot be used: .*not found"),
        ("ann", "", "No key table entry found for kafka/broker.test"),
        ("broker", "RULE:", r"sasl\.kerberos\.principal\.to\.local\.rules: 'RULE:' is no rule"),
    ],
)
def test_what_ends_the_start_of_a_broker(realm: Kdc, keytab: str, rules: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        KerberosAcceptor(settings(realm, keytab, rules))
