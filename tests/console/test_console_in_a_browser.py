"""The console in a real browser: live pages, the keyboard, hostile text, the back button, no JavaScript.

They need Chromium and Playwright, and are skipped where one is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from ottla.client.records import TopicPartition
from tests.chromium import NEEDS_CHROMIUM, launched
from tests.console.brokers_with_folders import FoldersAdmin
from tests.console.fakes import HOSTILE, FakeAdmin, partition, topic
from tests.console.record_tables import record, table_of
from tests.console.served import PATIENCE_S, ServedConsole
from tests.console.test_groups import WithGroups
from tests.console.test_letters import letter, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PAGES = (
    "/overview",
    "/overview/partitions?state=under-replicated",
    "/overview/events",
    "/brokers",
    "/brokers/broker?id=1&all=yes",
    "/topics",
    "/topics?sort=-size",
    "/topics/topic?name=orders",
    "/topics/topic?name=orders&sort=-end&readers-sort=group&span=1h",
    "/groups?sort=-lag",
    "/groups/group?name=billing",
    "/letters",
    "/letters/replay?topic=orders",
    "/topics/create",
    "/topics/alter?name=orders",
    "/topics/alter?name=orders&as=lines",
    "/brokers/alter?id=1",
)
SCREENS = (("light", 1440), ("dark", 390))
"""Colour schemes and widths in which pages are shown."""

pytestmark = NEEDS_CHROMIUM


class Whole(WithGroups, FoldersAdmin):
    """A cluster with topics, groups and data folders."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def admin() -> FakeAdmin:
    admin = Whole()
    admin.topics |= {
        "payments": topic("payments", partition()),
        "__consumer_offsets": topic("__consumer_offsets", partition(), is_internal=True),
    }
    return admin


@pytest.fixture
def console(admin: FakeAdmin) -> Iterator[ServedConsole]:
    with ServedConsole(admin) as served:
        yield served


class Tab:
    """A page that has entered. Scripts that should not run, and errors, are kept in `faults`."""

    def __init__(self, context: BrowserContext, console: ServedConsole) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.faults: list[str] = []
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.origin = console.origin
        self.page.goto(console.entry)

    def open(self, address: str) -> Page:
        self.page.goto(self.origin + address)
        return self.page

    def until(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def focused(self) -> str:
        found: str = self.page.evaluate(
            "(document.activeElement.textContent || document.activeElement.id).trim()"
        )
        return found

    def tab_to(self, name: str) -> None:
        """Press Tab until the element with this text or id has the focus."""
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if self.focused() == name:
                return
        raise AssertionError(f"Tab does not reach {name!r}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


def playwright_error() -> type[Exception]:
    from playwright.sync_api import Error

    return Error


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    found = chromium.new_context()
    yield found
    found.close()


@pytest.fixture
def tab(context: BrowserContext, console: ServedConsole) -> Tab:
    return Tab(context, console)


@pytest.mark.parametrize("address", PAGES)
def test_a_page_keeps_all_rules_on_each_screen(tab: Tab, address: str) -> None:
    """The page's policy, what axe requires on a screen and on a phone, and the width of a small phone."""
    page = tab.open(address)
    if page.locator("body[data-events]").count():
        tab.until("live")
    assert tab.faults == []
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"  # the style sheet was taken
    for screen in SCREENS:
        show_on(page, *screen)
        assert violations(page) == []
    show_on(page, "light", 360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_page_is_kept_up_to_date(admin: FakeAdmin, tab: Tab) -> None:
    tab.open("/topics")
    tab.until("live")
    admin.topics["invoices"] = topic("invoices", partition(0, isr=(1, 2)))
    tab.until("invoices")
    tab.until("1 under-replicated")
    tab.open("/overview")
    admin.topics["invoices"] = topic("invoices", partition(0, leader=2))
    tab.until("broker 2 leads invoices-0")
    assert tab.faults == []


def test_what_the_keyboard_is_at_stays(admin: FakeAdmin, tab: Tab) -> None:
    page = tab.open("/topics")
    tab.until("live")
    tab.tab_to("payments")
    admin.topics["a-new-one"] = topic("a-new-one", partition())
    tab.until("a-new-one")
    assert tab.focused() == "payments"
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/topic?name=payments")


def test_a_line_that_was_opened_stays_open(admin: FakeAdmin, tab: Tab) -> None:
    page = tab.open("/overview")
    tab.until("live")
    admin.topics["payments"] = topic("payments", partition(leader=2, isr=(2, 3)))
    page.locator("#live_events summary").click()
    tab.until("broker 1 left the ISR of payments-0")
    admin.topics["orders"] = topic("orders", partition(0, isr=(2, 3)), partition(1))
    tab.until("2 lost an in-sync replica")
    assert page.get_by_text("broker 1 left the ISR of orders-0").is_visible()
    page.locator("#live_events summary").click()
    admin.topics["orders"] = topic("orders", partition(0, isr=(2, 3)), partition(1, isr=(2, 3)))
    tab.until("3 lost an in-sync replica")
    assert not page.get_by_text("broker 1 left the ISR of orders-0").is_visible()


def test_text_that_is_marked_is_not_replaced(admin: FakeAdmin, tab: Tab) -> None:
    page = tab.open("/topics/topic?name=orders")
    tab.until("live")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#live_partitions table'))")
    with page.expect_event("console", timeout=PATIENCE_S * 1000):
        page.evaluate(
            "new EventSource(document.body.dataset.events).addEventListener('fragment', (e) => "
            "JSON.parse(e.data).html.includes('777') && console.log('it came'))"
        )
        admin.ends[TopicPartition("orders", 1)] = 777
    assert "777" not in page.inner_text("#live_partitions")
    page.evaluate("getSelection().removeAllRanges()")
    admin.ends[TopicPartition("orders", 1)] = 778
    tab.until("778")


def test_a_topic_is_created_by_keyboard_alone(admin: FakeAdmin, tab: Tab) -> None:
    page = tab.open("/topics")
    page.keyboard.press("Tab")
    assert tab.focused() == "To the content"
    page.keyboard.press("Enter")
    tab.tab_to("Create a topic")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/create")
    tab.tab_to("field-topic")
    page.keyboard.type("typed")
    page.keyboard.press("Tab")
    page.keyboard.type("3")
    tab.tab_to("Show what changes")
    page.keyboard.press("Enter")
    tab.until("ottla topic create typed -p 3")
    assert "typed" not in admin.topics
    tab.tab_to("Do it")
    page.keyboard.press("Enter")
    tab.until("topic typed was created")
    assert "typed" in admin.topics
    assert tab.faults == []


def test_the_search_works_by_keyboard(tab: Tab) -> None:
    page = tab.open("/topics")
    tab.tab_to("q")
    page.keyboard.type("pay")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?q=pay")
    assert page.locator("#live_topics tbody tr").count() == 1


@pytest.mark.parametrize(
    "address",
    [
        "/overview",
        "/topics?q=",
        "/topics/topic?name=",
        "/topics/alter?name=",
        "/topics/delete?name=",
        "/x?n=",
    ],
)
def test_text_of_strangers_is_text(admin: FakeAdmin, tab: Tab, address: str) -> None:
    admin.topics[HOSTILE] = topic(HOSTILE, partition(0, isr=(1,)))
    admin.settings[HOSTILE] = {HOSTILE: HOSTILE}
    page = tab.open(address + quote(HOSTILE, safe=""))
    assert [fault for fault in tab.faults if "404" not in fault] == []  # there is no page /x
    assert page.locator("img, script:not([src='/static/console.js'])").count() == 0


def test_text_of_strangers_is_text_in_what_comes_later(admin: FakeAdmin, tab: Tab) -> None:
    page = tab.open("/overview")
    tab.until("live")
    admin.topics[HOSTILE] = topic(HOSTILE, partition(0, isr=(1,)))
    page.locator("#live_problems th a").wait_for()
    assert page.inner_text("#live_problems th a") == HOSTILE
    assert tab.faults == []


def test_the_back_button_leads_to_what_was_there(tab: Tab) -> None:
    page = tab.open("/topics?q=ord")
    page.click("text=orders")
    page.wait_for_url("**/topics/topic?name=orders")
    page.go_back()
    page.wait_for_url("**/topics?q=ord")
    assert page.input_value("#q") == "ord"
    tab.until("live")
    page.go_forward()
    page.wait_for_url("**/topics/topic?name=orders")
    tab.until("live")
    assert tab.faults == []


def test_after_a_change_the_back_button_changes_nothing(admin: FakeAdmin, tab: Tab) -> None:
    page = tab.open("/topics/create")
    page.fill("#field-topic", "once")
    page.click("text=Show what changes")
    page.click("text=Do it")
    tab.until("topic once was created")
    calls = len(admin.calls)
    with suppress(
        playwright_error()
    ):  # the preview is not stored: the browser would have to request it again
        page.go_back()
    other = tab.page.context.new_page()
    other.goto(f"{tab.origin}/topics")
    other.get_by_text("once").wait_for(timeout=PATIENCE_S * 1000)
    assert admin.calls[calls:] == []


def test_favourites_are_found_again(admin: FakeAdmin, tab: Tab) -> None:
    admin.topics[HOSTILE] = topic(HOSTILE, partition())
    for name in ("payments", HOSTILE):
        page = tab.open("/topics/topic?name=" + quote(name, safe=""))
        page.click("text=make it a favourite")
    page = tab.open("/topics?q=none")
    assert page.locator("nav.favourites a").all_inner_texts() == ["\u2605 payments", f"\u2605 {HOSTILE}"]
    page.click("nav.favourites a")
    page.wait_for_url("**/topics/topic?name=payments")
    page.click("text=a favourite")
    assert tab.open("/topics").locator("nav.favourites a").count() == 1
    assert tab.faults == []


def test_two_tabs_live(admin: FakeAdmin, context: BrowserContext, console: ServedConsole) -> None:
    tabs = [Tab(context, console) for _ in range(2)]
    for tab in tabs:
        tab.page.goto(f"{console.origin}/topics")
    admin.topics["invoices"] = topic("invoices", partition())
    for tab in tabs:
        tab.until("invoices")
        assert tab.faults == []


def test_a_console_that_ends_is_told(console: ServedConsole, tab: Tab) -> None:
    tab.open("/overview")
    tab.until("live")
    console.stop()
    tab.until("not up to date")


def test_a_browser_that_is_let_in_no_longer_is_told(console: ServedConsole, tab: Tab) -> None:
    tab.open("/overview")
    tab.until("live")
    tab.page.context.clear_cookies()
    console.end_news()
    tab.until("session has ended; reload the page")


def test_without_javascript_everything_can_be_read(chromium: Browser, console: ServedConsole) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(console.entry)
    assert page.locator("#live_quorum tbody tr").count() == 2
    page.goto(f"{console.origin}/topics")
    page.fill("#q", "pay")
    page.click('button:has-text("Search")')
    assert page.locator("#live_topics tbody tr").count() == 1
    page.click("text=payments")
    assert page.locator("#live_partitions tbody tr").count() == 1
    context.close()


def test_without_javascript_settings_are_changed_in_rows(
    chromium: Browser, admin: FakeAdmin, console: ServedConsole
) -> None:
    admin.settings["orders"] = {"segment.ms": "5"}
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(console.entry)
    page.goto(f"{console.origin}/topics/alter?name=orders")
    page.get_by_label("segment.ms").fill("")
    page.get_by_label("retention.ms").fill("1000")
    page.click("text=Show what changes")
    page.click("text=Do it")
    page.get_by_text("changed for orders: segment.ms, retention.ms").wait_for()
    assert admin.settings["orders"] == {"retention.ms": "1000"}
    context.close()


def shown_records(page: Page, *values: bytes, **query: str) -> None:
    """Show records with these values, and a key and headers, in place of the page's table."""
    records = [record(value, b"a key", [("trace", b"4711")], offset=at) for at, value in enumerate(values)]
    page.evaluate("(html) => { live_messages.outerHTML = html }", table_of(*records, **query))


def test_a_screen_has_the_lines_of_many_records(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 1440, "height": 900})
    page = tab.open("/messages")
    shown_records(page, *[b'{"flight": "LH1", "text": "%s"}' % (b"word " * 200)] * 20)
    ends = page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map((row) => row.getBoundingClientRect().bottom)"
    )
    assert len([end for end in ends if end <= 900]) >= 15


@pytest.mark.parametrize("width", [360, 390])
def test_a_value_is_seen_on_a_phone(tab: Tab, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 844})
    page = tab.open("/messages")
    shown_records(page, b"the beginning of the value " * 30, b"x" * 5_000)
    assert page.get_by_text("the beginning of the value").first.is_visible()
    rights = page.evaluate(
        "[...live_messages.querySelectorAll('td, th, code')].map((box) => box.getBoundingClientRect().right)"
    )
    assert max(rights) <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []


def test_long_settings_leave_room_for_their_values(admin: FakeAdmin, tab: Tab) -> None:
    admin.settings["1"] = {
        "listener.name.controller.ssl.principal.mapping.rules": "RULE:^CN=a long value,OU=B$/n/"
    }
    tab.page.set_viewport_size({"width": 1440, "height": 900})
    page = tab.open("/brokers/broker?id=1&all=yes")
    table = page.get_by_role("group", name="table of settings")
    assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth")


@pytest.mark.parametrize("width", [360, 1280])
def test_letters_fit_a_screen_and_open_by_keyboard(tab: Tab, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 844})
    page = tab.open("/letters")
    letters = [letter(ValueError("no name " * 60), number=number) for number in range(3)]
    main = re.search("<main.*</main>", page_of(*letters, may_change=True), re.DOTALL)
    assert main is not None
    page.evaluate("(html) => { document.querySelector('main').outerHTML = html }", main[0])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    assert not page.get_by_text("v0", exact=True).is_visible()
    page.locator("summary").nth(1).focus()
    page.keyboard.press("Enter")
    page.get_by_text("v0", exact=True).wait_for()
    assert violations(page) == []


def test_a_record_opens_by_keyboard(tab: Tab) -> None:
    page = tab.open("/messages")
    shown_records(page, b'{"n": 1}')
    assert not page.get_by_text("4711").is_visible()
    tab.tab_to('{ "n": 1 }')
    page.keyboard.press("Enter")
    page.get_by_text("4711").wait_for()
    assert violations(page) == []


@pytest.mark.parametrize("address", ["/messages", "/topics", "/audits", "/access", "/transactions/hanging"])
def test_a_label_stands_beside_its_field(tab: Tab, address: str) -> None:
    page = tab.open(address)
    for width in (1280, 390, 360):
        show_on(page, "light", width)
        pairs = page.evaluate(
            """[...document.querySelectorAll('.search > span, .search > label[for]')].map((one) => {
                const label = one.closest('span')?.querySelector('label') ?? one;
                const [words, field] = [label, label.control].map((side) => side.getBoundingClientRect());
                const middle = (field.top + field.bottom) / 2;
                const between = field.left - words.right;
                const isBeside = 0 <= between && between < 120;
                return [label.textContent, words.top < middle && middle < words.bottom && isBeside];
            })"""
        )
        assert len(pairs) >= 1
        assert [text for text, is_beside in pairs if not is_beside] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_finds_what_is_wrong(tab: Tab) -> None:
    page = tab.open("/topics")
    page.evaluate("document.querySelector('label').remove(); document.body.style.color = '#eee'")
    assert {name for name, _ in violations(page)} >= {"label", "color-contrast"}


def show_on(page: Page, scheme: Any, width: int) -> None:
    """Show a page in a colour scheme, on a screen of this width."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """Return the violations that axe finds: missing names, roles, headings, contrast."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing")
    found = axe.Axe().run(page).response["violations"]
    return [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in found]
