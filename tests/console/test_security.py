"""Access to the console, and the permitted origins of changes."""

from __future__ import annotations

import pytest

from ottla.console.security import ListenAddress, door_of, listen_address, origin_of
from tests.console.fakes import HOST, ORIGIN, TOKEN, Browser, FakeAdmin, partition, topic

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin(topic("orders", partition()))


@pytest.fixture
def browser(admin: FakeAdmin) -> Browser:
    return Browser(admin, may_change=True)


def test_without_the_token_nothing_is_shown(browser: Browser) -> None:
    for address in ("/", "/overview", "/topics", "/events/overview", "/no/such/page"):
        answer = browser.client.get(address)
        assert answer.status_code == 401
        assert "orders" not in answer.text
    assert browser.client.post("/topics/delete?name=orders", headers={"origin": ORIGIN}).status_code == 401


def test_who_comes_by_a_link_of_others_can_go_on(browser: Browser) -> None:
    # The cookie is not sent with such a link, and is with one on a page of the console.
    answer = browser.client.get("/topics/topic?name=%22%3E%3Cscript%3E&x=y")
    assert answer.status_code == 401
    assert 'href="/topics/topic?name=%22%3E%3Cscript%3E&amp;x=y"' in answer.text
    answer = browser.client.get(f"{ORIGIN}//evil.example/<b>")
    assert 'href="/evil.example/' in answer.text
    assert "<b>" not in answer.text


@pytest.mark.parametrize("file", ["none.js", "%2e%2e/settings.py", "/etc/passwd"])
def test_a_file_that_is_not_there_is_no_fault(
    browser: Browser, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    """Any client of the console, even without a token, could fill its log with tracebacks."""
    answer = browser.client.get(f"{ORIGIN}/static/{file}")
    assert (answer.status_code, answer.text) == (404, "the console has no such file\n")
    assert browser.client.post(f"{ORIGIN}/static/console.js").status_code == 405
    assert "Traceback" not in caplog.text


def test_the_token_becomes_a_cookie_and_leaves_the_address(browser: Browser) -> None:
    answer = browser.client.get("/topics", params={"q": "or", "token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics?q=or")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert browser.client.get("/topics").status_code == 200


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "\u00e4"])
def test_another_token_lets_nobody_in(browser: Browser, token: str) -> None:
    answer = browser.client.get("/overview", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "others", ['prefs={"theme": "dark"}', "a b=c", "alone", 'open="', "\u00e9=1", "path=/"]
)
def test_cookies_of_other_programs_on_this_host_do_no_harm(browser: Browser, others: str) -> None:
    """Browsers send them to every port. Cookies like these prevented every login."""
    own = f"{browser.door.cookie}={browser.door.entered}"
    for cookies in (f"{others}; {own}", f"{own}; {others}"):
        headers = {"cookie": cookies.encode("latin-1")}
        assert browser.client.get("/overview", headers=headers).status_code == 200, cookies


def test_a_token_leads_to_no_other_host(browser: Browser) -> None:
    answer = browser.client.get(f"{ORIGIN}//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/"


@pytest.mark.parametrize(
    "host",
    ["evil.example:9280", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:9280", "", "10.0.0.1:9280"],
)
def test_a_name_that_is_not_the_consoles_is_refused(browser: Browser, host: str) -> None:
    browser.enter()
    for address in ("/overview", "/static/console.js"):
        assert browser.client.get(address, headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", [HOST, "localhost:9280", "LOCALHOST:9280"])
def test_its_own_names_are_known(browser: Browser, host: str) -> None:
    assert browser.client.get("/static/console.css", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9280"},  # another address of the console than that of the request
        {"origin": f"https://{HOST}"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"origin": ORIGIN, "sec-fetch-site": "same-site"},
    ],
)
def test_a_change_from_elsewhere_is_refused(
    admin: FakeAdmin, browser: Browser, headers: dict[str, str]
) -> None:
    browser.enter()
    fields = {"form_value": browser.door.form_value, "again": "orders", "step": "apply"}
    answer = browser.client.post("/topics/delete?name=orders", data=fields, headers=headers)
    assert answer.status_code == 403
    assert "orders" in admin.topics


@pytest.mark.parametrize("value", ["", "wrong", TOKEN])
def test_a_form_that_is_not_the_consoles_changes_nothing(
    admin: FakeAdmin, browser: Browser, value: str
) -> None:
    browser.enter().send("/topics/delete?name=orders", 403, form_value=value, again="orders", step="apply")
    assert admin.changes() == []


def test_a_form_of_another_kind_or_without_an_end_is_refused(browser: Browser) -> None:
    browser.enter()
    origin = {"origin": ORIGIN}
    assert browser.client.post("/topics/create", json={}, headers=origin).status_code == 415
    form = origin | {"content-type": "application/x-www-form-urlencoded"}
    endless = browser.client.post("/topics/create", content=iter([b"a=b"]), headers=form)
    assert endless.status_code == 413
    large = browser.client.post("/topics/create", content=b"a=" + b"b" * 2**20, headers=form)
    assert large.status_code == 413


def test_other_methods_are_refused(browser: Browser) -> None:
    browser.enter()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert browser.client.request(method, "/overview").status_code == 405


@pytest.mark.parametrize(
    "address", ["/overview", "/static/console.js", "/no/page", "/topics/topic?name=none"]
)
def test_every_answer_forbids_code_of_others(browser: Browser, address: str) -> None:
    for answer in (browser.client.get(address), browser.enter().client.get(address)):
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"


def test_a_console_that_only_reads_takes_no_form(admin: FakeAdmin) -> None:
    browser = Browser(admin).enter()
    assert "--allow-changes" in browser.read("/topics/create", 403)
    browser.send("/topics/delete?name=orders", 403, again="orders", step="apply")
    assert admin.calls == []
    assert "/topics/delete" not in browser.read("/topics/topic?name=orders")


def test_listening_for_others_needs_a_token_and_a_name() -> None:
    with pytest.raises(ValueError, match="--token-file"):
        door_of(ListenAddress("192.0.2.7", 9280))
    with pytest.raises(ValueError, match="--public"):
        door_of(ListenAddress("0.0.0.0", 9280), token=TOKEN)
    with pytest.raises(ValueError, match="16 is the least"):
        door_of(ListenAddress("127.0.0.1", 9280), token="short")
    door = door_of(ListenAddress("0.0.0.0", 9280), ["https://console.example.com"], TOKEN)
    assert door.knows_host("console.example.com")
    assert not door.knows_host("0.0.0.0:9280")
    assert door.set_cookie("console.example.com", "x").endswith("; Secure")
    assert "Secure" not in door_of(ListenAddress("127.0.0.1", 9280)).set_cookie(HOST, "x")


def test_the_head_of_an_event_stream_ends(browser: Browser) -> None:
    assert browser.enter().client.head("/events/overview").status_code == 200


def test_every_console_has_a_token_of_its_own() -> None:
    doors = [door_of(ListenAddress("127.0.0.1", 9280)) for _ in range(2)]
    assert len({door.token for door in doors}) == len({door.form_value for door in doors}) == 2


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("9280", ("127.0.0.1", 9280)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_addresses_to_listen_at(text: str, address: tuple[str, int]) -> None:
    found = listen_address(text)
    assert (found.host, found.port) == address
    assert found.is_loopback


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "localhost:http", "localhost:65536", "h:-1"])
def test_no_address_to_listen_at(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        listen_address(text)


@pytest.mark.parametrize(
    "text", ["console.example.com", "ftp://host", "http://", "http://host/path", "http://h?q"]
)
def test_no_public_address(text: str) -> None:
    with pytest.raises(ValueError, match="public address"):
        origin_of(text)


def test_public_addresses_are_as_browsers_send_them() -> None:
    assert origin_of("HTTPS://Console.Example.com:443/") == "https://console.example.com"
    assert origin_of("http://[::1]:9280") == "http://[::1]:9280"
