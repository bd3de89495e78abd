"""Areas: mounted and hidden pages, downloads, and answers to invalid requests."""

from __future__ import annotations

import pytest

from ottla.client.admin import Admin
from ottla.client.failures import RequestTimedOut, VersionUnsupported
from ottla.console.area import Area, BadQuestion, Download, NotThere, Rendered, View, Visit
from ottla.console.feature_detection import KNOWN_FOR_S, ClusterFeatures
from ottla.console.pages import all_areas
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import Browser, FakeAdmin, seen


def area(name: str, show: object = None, **given: object) -> Area:
    async def nothing(visit: Visit) -> Rendered:
        return Rendered(name, "failure.html")

    view = View(path=f"/{name}", show=show or nothing)  # type: ignore[arg-type]
    return Area(name=name, title=name.title(), place=1, parts=(view,), **given)  # type: ignore[arg-type]


def test_every_area_has_a_name_and_a_title_of_its_own() -> None:
    areas = all_areas()
    assert {"overview", "topics"} <= {area.name for area in areas}
    assert len({area.name for area in areas}) == len({area.title for area in areas}) == len(areas)
    for area in areas:
        assert isinstance(area.parts[0], View)


def test_a_path_belongs_to_its_area() -> None:
    stranger = Area(name="one", title="One", place=1, parts=(View(path="/other", show=None),))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="/other does not belong to area 'one'"):
        Browser(FakeAdmin(), areas=[stranger])


async def test_what_the_cluster_does_not_know_is_hidden() -> None:
    answers: dict[str, Exception | None] = {
        "known": None,
        "unknown": VersionUnsupported("no"),
        "refused": KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"),
        "unsupported": KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no"),
        "slow": RequestTimedOut("no"),
    }

    def probing(name: str) -> Area:
        async def probe(admin: Admin) -> None:
            if (answer := answers[name]) is not None:
                raise answer

        return area(name, probe=probe)

    now_s = 0.0
    offers = ClusterFeatures([probing(name) for name in answers], None, now=lambda: now_s)  # type: ignore[arg-type]
    assert [shown.name for shown in await offers.areas()] == ["known", "refused", "slow"]
    answers["unknown"] = None  # brokers were upgraded
    assert len(await offers.areas()) == 3
    now_s += KNOWN_FOR_S + 1
    assert [shown.name for shown in await offers.areas()] == ["known", "refused", "slow", "unknown"]


def test_bytes_are_never_shown_by_the_browser() -> None:
    async def payload(visit: Visit) -> Download:
        return Download(b"<script>alert(1)</script>", 'a"b\r\nset-cookie: x/../\u00e4.html')

    async def pieces(visit: Visit) -> Download:
        async def content():  # type: ignore[no-untyped-def]
            for piece in (b"one", b"two"):
                yield piece

        return Download(content(), "two")

    browser = Browser(FakeAdmin(), areas=[area("one", payload), area("two", pieces)]).enter()
    answer = browser.client.get("/one")
    assert answer.headers["content-type"] == "application/octet-stream"
    name = answer.headers["content-disposition"].removeprefix("attachment; filename=")
    assert name == '"a_b__set-cookie__x_..__.html"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.client.get("/two").content == b"onetwo"


def test_an_address_may_have_any_query() -> None:
    browser = Browser(FakeAdmin()).enter()
    for name in ("path", "query", "self", "name", "token%20", "%00", "page"):
        assert browser.client.get(f"/topics?{name}=1&{name}=2").status_code == 200
        assert browser.client.get(f"/nowhere?{name}=1").status_code == 404


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed"),
            403,
            "Not authorized",
        ),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"), 404, "Not found"),
        (VersionUnsupported("too old"), 501, "The cluster does not support this"),
        (RequestTimedOut("too slow"), 504, "The cluster took too long"),
        (TimeoutError(), 504, "no answer within 15 s"),
    ],
)
def test_what_the_cluster_says_becomes_plain_words(error: Exception, status: int, said: str) -> None:
    async def failing(visit: Visit) -> Rendered:
        raise error

    browser = Browser(FakeAdmin(), areas=[area("one", failing)]).enter()
    assert said in seen(browser.read("/one", status))


@pytest.mark.parametrize(
    ("error", "status", "may_pass"),
    [
        (NotThere("there is no topic 'x'"), 404, False),
        (BadQuestion("'page' is 1 or more"), 400, False),
        (VersionUnsupported("too old"), 501, False),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed"), 403, False),
        (RequestTimedOut("too slow"), 504, True),
        (KafkaError(ErrorCode.NOT_CONTROLLER, "moved"), 502, True),
    ],
)
def test_a_link_to_try_again_stands_where_it_may_help(error: Exception, status: int, may_pass: bool) -> None:
    async def failing(visit: Visit) -> Rendered:
        raise error

    page = Browser(FakeAdmin(), areas=[area("one", failing)]).enter().read("/one", status)
    assert ("Try again" in page) == may_pass
    assert '<a href="/one">' in page


def test_a_page_that_does_not_exist_leads_to_the_overview() -> None:
    page = Browser(FakeAdmin()).enter().read("/nowhere", 404)
    assert "Try again" not in page
    assert 'Go to <a href="/">Overview</a>' in page
