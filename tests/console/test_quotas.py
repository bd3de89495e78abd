"""Quotas in the console: whose, how they are shown, and changes with a preview."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import pytest

from ottla.client.admin.quotas import Entity
from ottla.console.area import BadQuestion
from ottla.console.pages.access.quotas import (
    entity_of,
    quota_changes,
    quota_command,
    quota_rows,
    quotas_of,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, seen

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
    browser.change("/access/quotas/alter?user=+ann", quotas="consumer_byte_rate=5")
    assert [given[0] for what, given in admin.calls] == [{"user": " ann"}, {"user": " ann"}]


def test_quotas_are_changed_after_a_preview(admin: Limiting, browser: Browser) -> None:
    assert OF_ANN in browser.read("/access")
    assert "producer_byte_rate=1000</textarea>" in browser.read(OF_ANN)
    fields = {"quotas": "consumer_byte_rate=2_000"}
    preview = seen(browser.send(OF_ANN, step="preview", **fields))
    assert "consumer_byte_rate nothing 2,000 producer_byte_rate 1,000 nothing" in preview
    assert "ottla quota set --user ann consumer_byte_rate=2000" in preview
    assert "ottla quota unset --user ann producer_byte_rate" in preview
    assert admin.changes() == []
    assert browser.change(OF_ANN, **fields).startswith("/access?done=")
    changes = {"consumer_byte_rate": 2000.0, "producer_byte_rate": None}
    assert admin.calls[-1] == ("quotas", (ANN, changes, False))


def test_new_quotas_leave_the_others(admin: Limiting, browser: Browser) -> None:
    fields = {"user": "ann", "client-id": "", "quotas": "request_percentage=50.5"}
    preview = seen(browser.send("/access/quotas/new", step="preview", **fields))
    assert "request_percentage nothing 50.5" in preview
    assert "producer_byte_rate" not in preview.partition("on the command line")[0]
    browser.change("/access/quotas/new", **{"default client-id": "yes"}, quotas="a=1")
    assert admin.calls[-1] == ("quotas", ({"client-id": None}, {"a": 1.0}, False))


def test_what_the_cluster_refuses_is_said(admin: Limiting, browser: Browser) -> None:
    page = seen(browser.send(OF_ANN, 502, step="preview", quotas="no_such=1"))
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


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=x", "a=nan", "a=inf", "a=1,5", "a=10,00", "a=1\na=2"])
def test_numbers_that_cannot_be(text: str) -> None:
    with pytest.raises(BadQuestion):
        quotas_of(text)


def test_quotas_are_shown_with_all_their_digits(admin: Limiting, browser: Browser) -> None:
    admin.quotas = [(ANN, {"consumer_byte_rate": 10737418240.0, "request_percentage": 0.0000125})]
    (row,) = quota_rows(admin.quotas)
    assert row.quotas == "consumer_byte_rate 10,737,418,240, request_percentage 0.0000125"
    form = browser.read(OF_ANN)
    assert "consumer_byte_rate=10737418240\nrequest_percentage=0.0000125" in form
    preview = seen(browser.send(OF_ANN, step="preview", quotas="consumer_byte_rate=123456789012.5"))
    for text in ("10,737,418,240", "123,456,789,012.5", "0.0000125", "consumer_byte_rate=123456789012.5"):
        assert text in preview
    assert quotas_of("a=12,345,678.5") == {"a": 12345678.5}


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
