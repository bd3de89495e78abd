"""Logins with a user and a password of the cluster: the user of a browser's requests, the session's length, and the
number of attempts.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from ottla.client.admin import Admin
from ottla.client.failures import AuthenticationFailed, NoBrokerReachable, TlsFailed
from ottla.client.foreign_names import Secret
from ottla.console.app import build
from ottla.console.bounds import (
    ATTEMPTS_S,
    ATTEMPTS_WITHOUT_PAUSE,
    IDLE_S,
    NAMES_REMEMBERED_MAX,
    SESSION_S,
    SESSIONS_MAX,
    SESSIONS_OF_USER_MAX,
)
from ottla.console.login import PasswordLogin
from ottla.console.login_limits import CountedLogin, LoginLimits
from ottla.console.pages import all_areas
from ottla.console.rendering import Templates
from ottla.console.security import ListenAddress, door_of_logins
from ottla.console.serving import check_login
from ottla.console.sessions import Session, Sessions, TooManySessions
from tests.console.fakes import (
    HOSTILE,
    ORIGIN,
    FakeAdmin,
    hidden_fields,
    partition,
    seen,
    session_with,
    topic,
)

PASSWORD = "of-ann-1234"


class UserAdmin(FakeAdmin):
    """An admin client with its user's rights, until it is stopped."""

    is_stopped = False

    async def stop(self) -> None:
        self.is_stopped = True


class Console:
    """A console of a fake cluster with logins. `now_s` is its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.trouble: Exception | None = None
        self.clients: list[UserAdmin] = []
        self.logins: list[tuple[str, str]] = []
        self.door = door_of_logins(ListenAddress("127.0.0.1", 9280), ["https://console.example.com"])
        self.sessions = Sessions(now=lambda: self.now_s)
        templates = Templates()
        entrance = PasswordLogin(self.door, self.sessions, self._open, templates, now=lambda: self.now_s)
        self._app = build(
            door=self.door, entrance=entrance, areas=all_areas(), may_change=True, templates=templates
        )

    def browser(self, origin: str = ORIGIN, client: str = "testclient") -> LoginBrowser:
        app, where = self._app, (client, 50_000)
        options = {"follow_redirects": False, "raise_server_exceptions": False}
        return LoginBrowser(TestClient(app, base_url=origin, client=where, **options), origin)

    async def _open(self, user: str, password: Secret) -> Session:
        self.logins.append((user, password))
        if self.trouble is not None:
            raise self.trouble
        if password != PASSWORD:
            raise AuthenticationFailed("the broker says no")
        admin = UserAdmin(topic(f"of-{user}", partition()))
        self.clients.append(admin)
        connection = {"sasl_plain_username": user, "sasl_plain_password": password}
        form_value = f"form-{user}-{len(self.clients)}"
        given = {"user": user, "connection": connection, "form_value": form_value}
        return session_with(cast(Admin, admin), self.door, all_areas(), **given)


class LoginBrowser:
    def __init__(self, client: TestClient, origin: str) -> None:
        self.client, self.origin = client, origin

    def sign_in(
        self, user: str = "ann", password: str = PASSWORD, *, next_: str = "/topics"
    ) -> tuple[int, str]:
        """Return the status, and the page's text or the redirection."""
        answer = self.client.post(
            "/login", params={"next": next_}, data={"user": user, "password": password}, headers={"origin": self.origin}
        )  # fmt: skip
        return answer.status_code, answer.headers.get("location", "") or seen(answer.text)

    def post(self, address: str, **fields: str) -> int:
        return self.client.post(address, data=fields, headers={"origin": self.origin}).status_code


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def browser(console: Console) -> LoginBrowser:
    return console.browser()


def events_in(caplog: pytest.LogCaptureFixture) -> Iterator[dict[str, str]]:
    for record in caplog.records:
        if record.name.endswith("change_log"):
            yield json.loads(record.message)


def test_without_signing_in_nothing_is_shown(console: Console, browser: LoginBrowser) -> None:
    for address in ("/", "/overview", "/topics?q=a", "/events/overview", "/no/page", "/?token=x"):
        answer = browser.client.get(address)
        assert answer.status_code == 401
        assert 'name="password"' in answer.text
    assert browser.post("/topics/delete?name=of-ann", again="of-ann", step="apply") == 401
    assert console.clients == []


def test_who_signs_in_sees_what_that_user_sees(console: Console, browser: LoginBrowser) -> None:
    assert browser.sign_in(next_="/topics?q=of") == (303, "/topics?q=of")
    page = seen(browser.client.get("/topics").text)
    assert "of-ann" in page
    assert "ann Sign out" in page
    other = console.browser()
    other.sign_in("bob")
    page = seen(other.client.get("/topics").text)
    assert "of-bob" in page
    assert "of-ann" not in page
    assert console.logins == [("ann", PASSWORD), ("bob", PASSWORD)]


def test_the_cookie_is_for_this_browser_alone(console: Console) -> None:
    for origin, is_secure in ((ORIGIN, False), ("https://console.example.com", True)):
        browser = console.browser(origin)
        answer = browser.client.post(
            "/login", data={"user": "ann", "password": PASSWORD}, headers={"origin": origin}
        )
        parts = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(parts)
        assert ("Secure" in parts) is is_secure
        number = parts[0].partition("=")[2]
        assert len(number) > 40
        assert number not in repr(vars(console.sessions))


def test_a_wrong_password_opens_nothing(console: Console, browser: LoginBrowser) -> None:
    status, page = browser.sign_in(password="guess")
    assert status == 401
    assert "knows no such user with this password" in page
    assert browser.client.get("/topics").status_code == 401
    assert browser.sign_in(user="")[0] == browser.sign_in(password="")[0] == 400
    assert console.logins == [("ann", "guess")]


@pytest.mark.parametrize(
    ("trouble", "status", "said"),
    [
        (NoBrokerReachable("nobody answers"), 503, "nobody answers"),
        (TlsFailed("the certificate has expired"), 503, "the certificate has expired"),
        (ValueError("sasl_plain_username has a zero character"), 400, "zero character"),
    ],
)
def test_what_is_no_fault_of_the_user_is_told_and_does_not_count(
    console: Console, browser: LoginBrowser, trouble: Exception, status: int, said: str
) -> None:
    console.trouble = trouble
    for _ in range(ATTEMPTS_WITHOUT_PAUSE + 1):
        found, page = browser.sign_in()
        assert (found, said in page) == (status, True)


def test_attempts_are_limited(
    console: Console, browser: LoginBrowser, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(ATTEMPTS_WITHOUT_PAUSE):
        assert browser.sign_in(password="guess")[0] == 401
    status, page = browser.sign_in()
    assert (status, "in 1 seconds" in page) == (429, True)
    assert len(console.logins) == ATTEMPTS_WITHOUT_PAUSE
    assert browser.sign_in("bob")[0] == 303
    console.now_s = 1.0
    assert browser.sign_in()[0] == 303
    logins = list(events_in(caplog))
    assert [login["result"] for login in logins[-3:]] == [
        "refused: too many attempts",
        "signed in",
        "signed in",
    ]
    assert {login["event"] for login in logins} == {"login"}
    assert "guess" not in caplog.text
    assert PASSWORD not in caplog.text


def test_a_stranger_elsewhere_keeps_nobody_out(console: Console) -> None:
    stranger, ann = console.browser(client="10.9.9.9"), console.browser(client="10.0.0.7")
    for second in range(1_000):
        console.now_s = float(second)
        stranger.sign_in(password="guess")
    assert stranger.sign_in(password="guess")[0] == 429
    assert ann.sign_in()[0] == 303
    assert stranger.sign_in("bob")[0] == 303, "other users of the same proxy sign in as well"


def test_pauses_grow_and_failures_are_forgotten() -> None:
    attempts, now_s, pauses = LoginLimits(), 0.0, []
    for _ in range(ATTEMPTS_WITHOUT_PAUSE + 8):
        found = attempts.begin("ann", "10.0.0.7", now_s)
        if isinstance(found, int):
            pauses.append(found)
            assert attempts.begin("ann", "10.0.0.7", now_s + found - 0.5) == 1
            now_s += found
            found = attempts.begin("ann", "10.0.0.7", now_s)
        assert isinstance(found, CountedLogin)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert isinstance(attempts.begin("ann", "10.0.0.8", now_s), CountedLogin)
    assert isinstance(attempts.begin("bob", "10.0.0.7", now_s), CountedLogin)
    now_s += ATTEMPTS_S
    for _ in range(ATTEMPTS_WITHOUT_PAUSE):
        assert isinstance(attempts.begin("ann", "10.0.0.7", now_s), CountedLogin)
    assert attempts.begin("ann", "10.0.0.7", now_s) == 1


def test_attempts_are_counted_from_their_beginning_and_by_network() -> None:
    attempts = LoginLimits()
    addresses = [f"2001:db8::{number}" for number in range(ATTEMPTS_WITHOUT_PAUSE)]
    begun = [attempts.begin("ann", address, 1.0) for address in addresses]
    assert attempts.begin("ann", "2001:db8::ffff", 1.0) == 1
    assert isinstance(attempts.begin("ann", "2001:db8:0:1::1", 1.0), CountedLogin)
    assert isinstance(begun[0], CountedLogin)
    attempts.take_back(begun[0])
    assert isinstance(attempts.begin("ann", "2001:db8::ffff", 1.0), CountedLogin)


def test_the_names_that_are_counted_are_bounded() -> None:
    attempts = LoginLimits()
    for _ in range(ATTEMPTS_WITHOUT_PAUSE):
        assert isinstance(attempts.begin("ann", "10.0.0.7", 0.0), CountedLogin)
    for number in range(NAMES_REMEMBERED_MAX - 1):
        assert isinstance(attempts.begin(f"user-{number}", "10.0.0.8", 0.5), CountedLogin)
    assert attempts.begin("ann", "10.0.0.7", 0.5) == 1
    assert isinstance(attempts.begin("one more", "10.0.0.8", 0.5), CountedLogin), (
        "no user waits for unauthenticated clients"
    )
    assert isinstance(attempts.begin("ann", "10.0.0.7", 0.5), CountedLogin), "the oldest are forgotten"


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://evil.example"}, {"origin": ORIGIN, "sec-fetch-site": "cross-site"}]
)
def test_a_form_of_others_signs_nobody_in(
    console: Console, browser: LoginBrowser, headers: dict[str, str]
) -> None:
    answer = browser.client.post("/login", data={"user": "ann", "password": PASSWORD}, headers=headers)
    assert answer.status_code == 403
    assert console.logins == []


ELSEWHERE = (
    "//evil.example/",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "\\/evil.example",
    "https://evil.example",
    "https:evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    "/\n/evil.example",
    "/\r\n/evil.example",
    " //evil.example",
    "/ /evil.example",
    "/\x00/evil.example",
    "/\x0b/evil.example",
    "/\x1f//evil.example",
    "/\t\\evil.example",
    "javascript:alert(1)",
    "//evil.example\\@a",
    "/\u3000/evil.example",
    "/\u2028/evil.example",
    "/\x85/evil.example",
    "/\ufeff//evil.example",
    "//%09/evil.example",
    "/.//evil.example",
    "/..//evil.example",
    "/a/..//evil.example",
    "//\tevil.example",
    "\u00ad//evil.example",
    "/%09/evil.example",
    "/%2f/evil.example",
    "/%5cevil.example",
    "?next=//evil.example",
    "#//evil.example",
    "@evil.example",
    ":80/a",
)


def origin_in_a_browser(address: str, base: str) -> str:
    """Return the origin to which browsers resolve an address, by the relevant rules of the URL standard."""
    address = re.sub(r"[\t\n\r]", "", address.strip("".join(map(chr, range(0x21)))))
    slashes = address.replace("\\", "/")
    if slashes.startswith("//"):
        return f"{base.partition(':')[0]}://{slashes[2:].lstrip('/').partition('/')[0]}"
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", address)
    return base if scheme is None else scheme[0]


@pytest.mark.parametrize("wanted", ELSEWHERE)
def test_it_leads_to_no_other_host(console: Console, browser: LoginBrowser, wanted: str) -> None:
    asked = browser.client.get("/login", params={"next": wanted})
    shown = [html.unescape(address) for address in re.findall(r'(?:<a href|action)="([^"]*)"', asked.text)]
    forms = [address for address in shown if address.startswith("/login")]
    nested = [parse_qs(urlsplit(address).query).get("next", ["/"])[0] for address in forms]
    status, target = browser.sign_in(next_=wanted)
    assert status == 303
    again = browser.client.get("/login", params={"next": wanted}).headers["location"]
    for address in (target, again, *shown, *nested):
        assert origin_in_a_browser(address, ORIGIN) == ORIGIN, address


@pytest.mark.parametrize(
    "wanted",
    ["/", "/topics", "/topics/topic?name=%22%3E&x=y+z", "/messages?topic=a%2Fb&json=%24.x+%3D+1#row"],
)
def test_it_leads_back_to_a_page_of_the_console(browser: LoginBrowser, wanted: str) -> None:
    assert browser.sign_in(next_=wanted) == (303, wanted)


def test_what_strangers_write_into_a_link_is_text(browser: LoginBrowser) -> None:
    for answer in (
        browser.client.get("/login", params={"next": f"/{HOSTILE}"}),
        browser.client.get("/topics", params={HOSTILE: HOSTILE}),
        browser.client.post("/login", data={"user": HOSTILE, "password": "x"}, headers={"origin": ORIGIN}),
    ):
        assert "<script>" not in answer.text
        assert "<img" not in answer.text


def test_who_signs_out_is_out_and_the_clients_are_closed(console: Console, browser: LoginBrowser) -> None:
    browser.sign_in()
    assert browser.post("/logout", form_value="wrong") == 403
    assert browser.client.get("/topics").status_code == 200
    number = browser.client.cookies.get(console.door.cookie)
    assert browser.post("/logout", form_value="form-ann-1") == 303
    assert console.clients[0].is_stopped
    browser.client.cookies.set(console.door.cookie, number or "")
    assert browser.client.get("/topics").status_code == 401
    assert len(console.sessions) == 0


def test_the_form_of_another_session_changes_nothing(console: Console, browser: LoginBrowser) -> None:
    browser.sign_in("ann")
    other = console.browser()
    other.sign_in("bob")
    assert other.post("/topics/create", form_value="form-ann-1", topic="new", step="apply") == 403
    assert console.clients[1].changes() == []


def test_changes_are_logged_with_who(browser: LoginBrowser, caplog: pytest.LogCaptureFixture) -> None:
    browser.sign_in()
    form = {"form_value": "form-ann-1", "topic": "new"}
    preview = browser.client.post("/topics/create", data=form, headers={"origin": browser.origin})
    assert browser.post("/topics/create", **hidden_fields(preview.text), step="apply") == 303
    (change,) = [event for event in events_in(caplog) if event["event"] == "change"]
    assert (change["user"], change["who"]) == ("ann", "testclient")
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("step_s", [IDLE_S, IDLE_S - 1])
def test_a_session_ends_unused_or_after_a_day(console: Console, browser: LoginBrowser, step_s: float) -> None:
    browser.sign_in()
    for _ in range(int(SESSION_S / step_s)):
        console.now_s += step_s
        is_in = browser.client.get("/topics").status_code == 200
        assert is_in is (step_s < IDLE_S)
    console.now_s += step_s
    assert browser.client.get("/topics").status_code == 401
    asyncio.run(console.sessions.end_unused())
    assert console.clients[0].is_stopped


async def test_so_many_may_be_signed_in() -> None:
    now_s = 0.0
    sessions = Sessions(now=lambda: now_s)
    door = door_of_logins(ListenAddress("127.0.0.1", 9280))

    async def enter(user: str) -> tuple[UserAdmin, str]:
        admin = UserAdmin()
        return admin, await sessions.add(session_with(cast(Admin, admin), door, [], user=user))

    of_ann = []
    for _ in range(SESSIONS_OF_USER_MAX):
        of_ann.append(await enter("ann"))
        now_s += 1
    assert sessions.find(of_ann[0][1]) is not None  # now the second was not used for longest
    await enter("ann")
    assert [admin.is_stopped for admin, _ in of_ann] == [False, True, False, False]
    for number in range(SESSIONS_MAX - SESSIONS_OF_USER_MAX):
        await enter(f"user-{number}")
    with pytest.raises(TooManySessions, match=f"{SESSIONS_MAX} people are signed in"):
        await enter("late")
    await sessions.stop()
    assert of_ann[0][0].is_stopped
    assert len(sessions) == 0


def test_passwords_go_over_tls_or_stay_on_this_machine() -> None:
    with pytest.raises(ValueError, match="not loopback"):
        door_of_logins(ListenAddress("192.0.2.7", 9280))
    with pytest.raises(ValueError, match="--public is https://"):
        door_of_logins(ListenAddress("127.0.0.1", 9280), ["http://console.example.com"])
    door = door_of_logins(ListenAddress("192.0.2.7", 9280), ["https://console.example.com"])
    assert door.origins == {"https://console.example.com"}


@pytest.mark.parametrize(
    "connection",
    [
        {},
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
        {"security_protocol": "SASL_PLAINTEXT"},
    ],
)
def test_a_cluster_without_passwords_takes_no_logins(connection: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="--login needs a cluster that has users with passwords"):
        check_login(connection)
    check_login({"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"})
