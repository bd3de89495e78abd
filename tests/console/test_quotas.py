"""Quotas in the console: whose, how they are shown, and changes with a preview."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import pytest

from ottla.client.admin.quotas import Entity
from ottla.console.area import BadQuestion
from ottla.console.pages.access.quotas import (
    entity_of,
    inherited_words,
    limits_of,
    quota_changes,
    quota_command,
    quota_rows,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, hidden_fields, seen

ANN = {"user": "ann"}
OF_ANN = "/access/quotas/alter?user=ann"


class Limiting(FakeAdmin):
    """Keeps quotas."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas: list[tuple[Entity, dict[str, float]]] = [(ANN, {"producer_byte_rate": 1000.0})]

    async def describe_quotas(self, matching: Entity | None = None) -> list[tuple[Entity, dict[str, float]]]:
        return self.quotas

    async def alter_quotas(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        self.calls.append(("quotas", (dict(entity), dict(changes), validate_only)))
        if "no_such" in changes:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "there is no quota 'no_such'")


@pytest.fixture
def admin() -> Limiting:
    return Limiting()


@pytest.fixture
def browser(admin: Limiting) -> Browser:
    return Browser(admin, may_change=True).enter()


def test_a_name_with_spaces_around_it_has_quotas_of_its_own(admin: Limiting, browser: Browser) -> None:
    browser.change("/access/quotas/alter?user=+ann", **{"quota consumer_byte_rate": "5"})
    assert [given[0] for what, given in admin.calls] == [{"user": " ann"}, {"user": " ann"}]


def test_quotas_are_changed_after_a_preview(admin: Limiting, browser: Browser) -> None:
    assert OF_ANN in browser.read("/access")
    page = browser.read(OF_ANN)
    assert 'name="quota producer_byte_rate" value="1000"' in page
    assert "consumer_byte_rate bytes/s, above 0 no limit Bytes that clients read from each" in seen(page)
    assert "connection_creation_rate" not in page
    fields = hidden_fields(page) | {"quota consumer_byte_rate": "2_000", "quota producer_byte_rate": ""}
    preview = seen(browser.send(OF_ANN, step="preview", **fields))
    assert "consumer_byte_rate nothing 2,000 producer_byte_rate 1,000 nothing" in preview
    assert "ottla quota set --user ann consumer_byte_rate=2000" in preview
    assert "ottla quota unset --user ann producer_byte_rate" in preview
    assert admin.changes() == []
    assert browser.change(OF_ANN, **fields).startswith("/access?done=")
    changes = {"consumer_byte_rate": 2000.0, "producer_byte_rate": None}
    assert admin.calls[-1] == ("quotas", (ANN, changes, False))


def test_new_quotas_leave_the_others(admin: Limiting, browser: Browser) -> None:
    fields = {"user": "ann", "client-id": "", "quota request_percentage": "50.5", "quota a": ""}
    preview = seen(browser.send("/access/quotas/new", step="preview", **fields))
    assert "request_percentage nothing 50.5" in preview
    assert "producer_byte_rate" not in preview.partition("on the command line")[0]
    browser.change("/access/quotas/new", **{"default client-id": "yes", "quota a": "1"})
    assert admin.calls[-1] == ("quotas", ({"client-id": None}, {"a": 1.0}, False))
    form = browser.read("/access/quotas/new?of=address")
    assert 'name="ip"' in form
    assert 'name="user"' not in form
    assert "connection_creation_rate" in form
    browser.change("/access/quotas/new?of=address", ip="10.0.0.7", **{"quota connection_creation_rate": "5"})
    assert admin.calls[-1] == ("quotas", ({"ip": "10.0.0.7"}, {"connection_creation_rate": 5.0}, False))
    assert "nothing to change" in seen(browser.send("/access/quotas/new", 400, user="ann"))


def test_a_quota_that_others_have_set_since_the_form_was_shown_stays(
    admin: Limiting, browser: Browser
) -> None:
    fields = hidden_fields(browser.read(OF_ANN)) | {
        "quota consumer_byte_rate": "",
        "quota producer_byte_rate": "7",
    }
    admin.quotas[0][1]["consumer_byte_rate"] = 5.0
    browser.change(OF_ANN, **fields)
    assert admin.calls[-1] == ("quotas", (ANN, {"producer_byte_rate": 7.0}, False))


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"user": "ann"}, "2 of user (any other)"),
        ({"user": "ann", "client-id": "c"}, "1 of user ann"),
        ({"user": None}, "4 of client-id (any other)"),
        ({"client-id": "c"}, "4 of client-id (any other)"),
        ({"client-id": "known", "user": "bob"}, "2 of user (any other)"),
        ({"client-id": None}, "no limit"),
        ({"ip": "10.0.0.7"}, "9 of ip (any other)"),
        ({"ip": None}, "no limit"),
    ],
)
def test_the_quota_that_holds_without_an_own_one(entity: Entity, words: str) -> None:
    found: list[tuple[Entity, dict[str, float]]] = [
        ({"user": "ann"}, {"a": 1.0}),
        ({"user": None}, {"a": 2.0}),
        ({"client-id": "known"}, {"a": 3.0}),
        ({"client-id": None}, {"a": 4.0}),
        ({"ip": None}, {"a": 9.0}),
        ({"user": "eve", "client-id": "c"}, {"a": 5.0}),
    ]
    assert inherited_words(entity, "a", found) == words


def test_what_the_cluster_refuses_is_said(admin: Limiting, browser: Browser) -> None:
    page = seen(browser.send(OF_ANN, 502, step="preview", **{"quota no_such": "1"}))
    assert "there is no quota 'no_such'" in page


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "whose quotas?"),
        ({"user": "ann", "default user": "yes"}, "either 'ann' or any other"),
        ({"user": "ann", "ip": "10.0.0.7"}, "go with no user"),
    ],
)
def test_an_entity_that_cannot_be(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason.replace("?", r"\?")):
        entity_of(given)


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1,5", "10,00", "0", "-1"])
def test_numbers_that_cannot_be(text: str) -> None:
    with pytest.raises(BadQuestion, match="a is a number above 0, not"):
        limits_of({"a": text})


def test_quotas_are_shown_with_all_their_digits(admin: Limiting, browser: Browser) -> None:
    admin.quotas = [(ANN, {"consumer_byte_rate": 10737418240.0, "request_percentage": 0.0000125})]
    (row,) = quota_rows(admin.quotas)
    assert row.quotas == "consumer_byte_rate 10,737,418,240, request_percentage 0.0000125"
    form = browser.read(OF_ANN)
    assert 'value="10737418240"' in form
    assert "10,737,418,240 (10.0 GiB/s)" in seen(form)
    assert 'value="0.0000125"' in form
    fields = {"quota consumer_byte_rate": "123456789012.5", "quota request_percentage": ""}
    preview = seen(browser.send(OF_ANN, step="preview", **fields))
    for text in ("10,737,418,240", "123,456,789,012.5", "0.0000125", "consumer_byte_rate=123456789012.5"):
        assert text in preview
    assert limits_of({"a": "12,345,678.5", "b": None}) == {"a": 12345678.5, "b": None}


def test_nothing_to_change_is_said() -> None:
    with pytest.raises(BadQuestion, match="nothing to change"):
        quota_changes({"a": 1.0}, {"a": 1.0})


def test_an_address_leads_back_to_its_entity() -> None:
    for entity in ({"user": "ann", "client-id": None}, {"ip": None}, {"user": "a&b=c #"}):
        (row,) = quota_rows([(entity, {"a": 1.0})])
        assert entity_of(dict(parse_qsl(urlsplit(row.address).query))) == entity
    assert quota_command({"user": "a b", "client-id": None}, {"x": 1e15}) == (
        "ottla quota set --user 'a b' --default-client-id x=1000000000000000"
    )


def test_names_that_strangers_choose_are_text(admin: Limiting, browser: Browser) -> None:
    admin.quotas = [({"user": HOSTILE}, {HOSTILE: 1.0})]
    assert "<script>alert" not in browser.read("/access")
    (row,) = quota_rows(admin.quotas)
    assert "<script>alert" not in browser.read(row.address)


def test_a_console_that_only_reads_shows_no_links_to_forms(admin: Limiting) -> None:
    page = Browser(admin).enter().read("/access")
    assert "producer_byte_rate" in page
    assert "/access/quotas" not in page
