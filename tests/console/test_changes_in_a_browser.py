"""Forms of changes and their previews in a real browser: accessible, on a phone, and without JavaScript.

They need Chromium and Playwright, and are skipped where one is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from ottla.client.admin import BROKER_RESOURCE, ConfigEntry, OngoingReassignment
from ottla.client.admin.quotas import Entity
from tests.chromium import NEEDS_CHROMIUM, launched
from tests.console.brokers_with_replicas import ReplicasAdmin, partition_on
from tests.console.fakes import HOSTILE, topic
from tests.console.served import PATIENCE_S, ServedConsole
from tests.console.test_acls import READS, Authorizing
from tests.console.test_console_in_a_browser import show_on, violations
from tests.console.test_quotas import Limiting
from tests.console.test_reassignments import ORDERS
from tests.console.test_users import ANN, ANN_TOO, WithUsers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FORMS: dict[str, dict[str, str]] = {
    "/topics/alter?name=orders": {"set retention.ms": "5"},
    "/topics/create": {"topic": "new"},
    "/access/users/create": {"user": "carol"},
    "/access/users/delete?user=ann": {"again": "ann"},
    "/access/acls/create?resource=group": {"principal": "bob", "operation READ": "yes", "of": "reports"},
    "/access/acls/delete?principal=User:ann": {},
    "/access/quotas/alter?user=ann": {"quota producer_byte_rate": "5"},
    "/access/quotas/new?of=address": {"ip": "10.0.0.7", "quota connection_creation_rate": "5"},
    "/reassignments/topic?name=orders": {"broker 4": "yes", "limit": "5"},
    "/reassignments/broker?id=2": {"topics": "orders"},
    "/reassignments/cancel": {},
    "/reassignments/elect": {"topic": "turned"},
    "/reassignments/unclean?topic=lost": {"again": "lost"},
}
"""Forms, each with the fields that a user fills in."""
SCREENS = (("light", 1440), ("dark", 360))

pytestmark = NEEDS_CHROMIUM


class Changing(ReplicasAdmin):
    """A cluster with replicas, a move, partitions to elect leaders for, users, ACLs and quotas."""

    def __init__(self) -> None:
        super().__init__(
            topic("orders", partition_on(0, 1, 2, 3), partition_on(1, 2, 3, 1)),
            topic("turned", partition_on(0, 1, 3, leader=3)),
            topic("lost", partition_on(0, 5, 2, leader=-1, isr=(5,))),
            topic("moving", partition_on(0, 1, 3)),
        )
        self.ongoing = {ORDERS._replace(topic="moving"): OngoingReassignment((1, 4, 3), (4,), (3,))}
        self.acls, self.authorizer, self.is_open = [READS], Authorizing().authorizer, "false"
        self.logins = {(login.user, login.mechanism): login for login in (ANN, ANN_TOO)}
        self.passwords: dict[tuple[str, str], str] = {}
        self.refusal = None
        self.quotas: list[tuple[Entity, dict[str, float]]] = [({"user": "ann"}, {"producer_byte_rate": 2e6})]

    describe_acls = Authorizing.describe_acls
    describe_scram_credentials = WithUsers.describe_scram_credentials
    alter_scram_credentials = WithUsers.alter_scram_credentials
    describe_quotas = Limiting.describe_quotas
    alter_quotas = Limiting.alter_quotas

    async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
        own = await super().describe_configs(kind, name)
        authorizer = ConfigEntry("authorizer.class.name", self.authorizer, "broker file", False, False, True)
        return [*own, authorizer] if kind == BROKER_RESOURCE else own


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def admin() -> Changing:
    return Changing()


@pytest.fixture
def console(admin: Changing) -> Iterator[ServedConsole]:
    with ServedConsole(admin) as served:
        yield served


def opened(chromium: Browser, console: ServedConsole, address: str, **options: Any) -> Page:
    """Return a page of the console in a context of its own."""
    page = chromium.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(console.entry)
    page.goto(console.origin + address)
    return page


def fill(page: Page, fields: dict[str, str]) -> None:
    """Fill in a form, and open its preview."""
    for name, value in fields.items():
        field = page.locator(f'[name="{name}"]')
        if value == "yes":
            field.check()
        else:
            field.fill(value)
    page.click("text=Show what changes")
    page.get_by_role("button", name="Do it").wait_for()
    page.wait_for_load_state()  # The button may be there before the style sheet.


@pytest.mark.parametrize("address", FORMS)
def test_forms_and_previews_are_accessible(chromium: Browser, console: ServedConsole, address: str) -> None:
    page = opened(chromium, console, address)
    check_on(page, SCREENS)
    fill(page, FORMS[address])
    check_on(page, reversed(SCREENS))
    page.context.close()


@pytest.mark.parametrize("address", ["/reassignments", "/access", "/topics/topic?name=turned"])
def test_pages_with_links_to_forms_are_accessible(
    chromium: Browser, console: ServedConsole, address: str
) -> None:
    page = opened(chromium, console, address)
    check_on(page, SCREENS)
    page.context.close()


def check_on(page: Page, screens: Iterable[tuple[str, int]]) -> None:
    """Check that axe finds nothing on these screens, and that the page is not wider. The last screen stays."""
    for scheme, width in screens:
        show_on(page, scheme, width)
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_user_is_created_without_javascript(
    chromium: Browser, console: ServedConsole, admin: Changing
) -> None:
    page = opened(chromium, console, "/access", java_script_enabled=False)
    page.click("text=Create a user")
    fill(page, {"user": "carol"})
    page.click("text=Do it")
    password = page.inner_text("pre.secret")
    assert admin.passwords == {("carol", "SCRAM-SHA-512"): password}
    assert violations(opened(chromium, console, "/access")) == []
    page.click("text=I have stored it")
    assert "carol" in page.inner_text("main")
    assert password not in page.content()


def test_replicas_are_moved_without_javascript(
    chromium: Browser, console: ServedConsole, admin: Changing
) -> None:
    page = opened(chromium, console, "/reassignments", java_script_enabled=False)
    page.fill("#name", "orders")
    page.click("text=Choose brokers")
    page.get_by_label("broker 3:").uncheck()
    fill(page, {"broker 4": "yes", "partitions": "0"})
    page.click("text=Do it")
    page.get_by_text("the reassignment of 1 partition has begun").wait_for()
    assert page.get_by_role("link", name="orders-0", exact=True).count() == 1
    assert ORDERS in admin.ongoing


def test_a_page_of_reassignments_is_kept_up_to_date(
    chromium: Browser, console: ServedConsole, admin: Changing
) -> None:
    page = opened(chromium, console, "/reassignments")
    page.get_by_text("moving-0").wait_for()
    admin.ongoing[ORDERS] = OngoingReassignment((1, 2, 5), (5,), (3,))
    page.get_by_role("link", name="orders-0", exact=True).wait_for()
    admin.ongoing.clear()
    page.get_by_text("No partition is being reassigned.").wait_for()


@pytest.mark.parametrize(
    "address", ["/reassignments/topic?name=", "/access/users/delete?user=", "/access/acls/delete?of="]
)
def test_text_of_strangers_is_text(
    chromium: Browser, console: ServedConsole, admin: Changing, address: str
) -> None:
    admin.topics[HOSTILE] = topic(HOSTILE, partition_on(0, 1, 2))
    page = opened(chromium, console, address + quote(HOSTILE, safe=""))
    assert page.locator("img, script:not([src='/static/console.js'])").count() == 0
