"""Topics in the console: the list, one topic, and each change with its preview."""

from __future__ import annotations

import json
import logging

import pytest

from ottla.client.admin import ConfigEntry, OngoingReassignment
from ottla.client.admin.partition_states import topic_states
from ottla.client.admin.records import TO_THE_END
from ottla.client.records import TopicPartition
from ottla.console.area import BadQuestion
from ottla.console.key_values import altered
from ottla.console.live.counters import Rates, TopicTraffic
from ottla.console.live.shared_readings import TopicSize
from ottla.console.pages.topics.changes import trim_plan
from ottla.console.pages.topics.listing import matching, replication_of, topic_row
from ottla.console.settings import setting_differences, setting_rows, settings_of
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, partition, seen, topic


@pytest.fixture
def admin() -> FakeAdmin:
    names = ("orders", "orders-archive", "payments")
    return FakeAdmin(
        *(topic(name, partition(0), partition(1)) for name in names),
        topic("__consumer_offsets", partition(), is_internal=True),
    )


@pytest.fixture
def browser(admin: FakeAdmin) -> Browser:
    return Browser(admin, may_change=True).enter()


# ------------------------------------------------------------ the list


def test_a_search_finds_names_with_all_its_words(admin: FakeAdmin) -> None:
    topics = [*admin.topics.values()]

    def found(search: str, *, shows_internal: bool = False) -> list[str]:
        return [found.name for found in matching(topics, search, shows_internal=shows_internal)]

    assert found("") == ["orders", "orders-archive", "payments"]
    assert found("ARCH ord") == ["orders-archive"]
    assert found("none") == []
    assert found("offsets", shows_internal=True) == ["__consumer_offsets"]


def test_a_row_says_what_is_wrong() -> None:
    ill = topic("orders", partition(0), partition(1, leader=-1, isr=()), partition(2, isr=(1,)))
    states = topic_states(ill, {})
    row = topic_row(ill, states, TopicSize(15, 2), Rates())
    assert (row.states.text, row.states.is_healthy) == ("1 offline, 2 under-replicated", False)
    assert (row.size, row.replicas, row.records_in) == (15, "3", None)
    assert row.is_size_part
    rates = Rates({}, {TopicTraffic.RECORDS_IN: {"other": 1.0}})
    assert topic_row(ill, states, None, rates).records_in == 0
    assert topic_row(ill, states, None, rates).size is None
    assert not topic_row(ill, states, None, rates).is_size_part
    assert replication_of(topic("empty")) == ""


def test_the_list_has_pages(admin: FakeAdmin, browser: Browser) -> None:
    admin.topics |= {f"t{number:04}": topic(f"t{number:04}", partition()) for number in range(1000)}
    first = browser.read("/topics?q=t0")
    assert "page 1 of 20, 1,000 rows" in seen(first)
    assert first.count("<tr>") == 51
    assert 'href="/topics?q=t0&amp;page=2"' in first
    assert "t0999" in browser.read("/topics?q=t0&page=999")  # the last one
    assert "whole number" in browser.read("/topics?page=x", 400)


# ------------------------------------------------------------ one topic


def test_a_topic_shows_its_partitions_and_settings(admin: FakeAdmin, browser: Browser) -> None:
    admin.ends[TopicPartition("orders", 1)] = 12_345
    admin.starts[TopicPartition("orders", 1)] = 345
    admin.settings["orders"] = {"retention.ms": "1000"}
    page = seen(browser.read("/topics/topic?name=orders"))
    assert "345 12,345 12,000 2.0 KiB newest" in page
    assert "retention.ms 1000 topic default: 604800000" in page
    assert "(secret)" in page
    assert "payments" not in page


@pytest.mark.parametrize("is_reassigned", [False, True])
def test_replicas_that_a_reassignment_adds_are_not_missing(
    admin: FakeAdmin, browser: Browser, is_reassigned: bool
) -> None:
    admin.topics["orders"] = topic("orders", partition(0, isr=(1, 2)))
    if is_reassigned:
        admin.reassigning[TopicPartition("orders", 0)] = OngoingReassignment((1, 2, 3), (3,), ())
    state = "healthy 1 reassigning" if is_reassigned else "1 under-replicated"
    assert f"orders {state}" in seen(browser.read("/topics"))
    page = seen(browser.read("/topics/topic?name=orders"))
    assert "without 3" in page if not is_reassigned else "without" not in page


def test_what_is_not_there_is_said(browser: Browser) -> None:
    assert "there is no topic 'none'" in seen(browser.read("/topics/topic?name=none", 404))
    assert "'name' is missing" in seen(browser.read("/topics/topic", 400))
    assert "no page /topics/none" in seen(browser.read("/topics/none", 404))


def test_defaults_are_shown_on_demand_and_secrets_never() -> None:
    entries = [
        ConfigEntry("b", "1", "default", True, False, False),
        ConfigEntry(
            "a", "s3cret", "topic", False, True, False, (("a", "s3cret", "topic"), ("a", "old", "broker"))
        ),
    ]
    assert [row.name for row in setting_rows(entries, shows_all=False)] == ["a"]
    rows = setting_rows(entries, shows_all=True)
    assert [row.name for row in rows] == ["a", "b"]
    assert "s3cret" not in repr(rows)
    assert "old" not in repr(rows)


def test_names_of_strangers_are_text(admin: FakeAdmin, browser: Browser) -> None:
    admin.topics[HOSTILE] = topic(HOSTILE, partition())
    admin.settings[HOSTILE] = {HOSTILE: HOSTILE}
    for address in ("/topics", "/overview", "/topics/topic", "/topics/alter", "/topics/delete"):
        page = browser.client.get(
            address, params={"name": HOSTILE, "q": HOSTILE if address == "/topics" else ""}
        )
        assert "<script>" not in page.text
        assert "<img" not in page.text
    assert "<script>" not in browser.send("/topics/create", 200, topic=HOSTILE + "2", settings=f"k={HOSTILE}")
    assert "<script>" not in browser.read("/topics/topic?name=" + "%3Cscript%3E", 404)


def test_characters_without_a_shape_are_seen(admin: FakeAdmin, browser: Browser) -> None:
    admin.topics["evil"] = topic("a\u202eb\x07", partition())
    assert "a\\u202eb\\x07" in browser.read("/topics")


# ------------------------------------------------------------ changes


def test_a_topic_is_created_after_a_preview(
    admin: FakeAdmin, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"topic": "new", "partitions": "6", "replicas": "", "settings": "retention.ms=1000\n"}
    preview = seen(browser.send("/topics/create", step="preview", **fields))
    assert "ottla topic create new -p 6 --config retention.ms=1000" in preview
    assert admin.changes() == []
    with caplog.at_level(logging.INFO, "ottla.console"):
        address = browser.change("/topics/create", **fields)
    assert admin.changes() == ["create"]
    assert "topic new was created" in seen(browser.read(address))
    (line,) = [json.loads(record.message) for record in caplog.records]
    assert line["action"] == "/topics/create"
    assert line["who"] == "testclient"
    assert line["what"]["topic"] == "new"
    assert line["result"] == "topic new was created"


def test_a_change_that_is_refused_is_logged_and_shows_the_form_again(
    admin: FakeAdmin, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    page = browser.send("/topics/create", 502, step="preview", topic="orders", settings="a=b")
    assert "there is a topic 'orders' already (TOPIC_ALREADY_EXISTS)" in seen(page)
    assert "a=b</textarea>" in page
    with caplog.at_level(logging.INFO, "ottla.console"):
        preview = browser.send("/topics/create", topic="new")
        admin.topics["new"] = topic("new", partition())
        browser.do_it("/topics/create", preview, 502)
    assert "already" in json.loads(caplog.records[0].message)["result"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": " "}, "'topic' is missing"),
        ({"topic": "t", "partitions": "0"}, "'partitions' is 1 to 100000, not 0"),
        ({"topic": "t", "replicas": "x"}, "'replicas' is a whole number, not 'x'"),
        ({"topic": "t", "settings": "retention.ms"}, "a setting is key=value, not 'retention.ms'"),
        ({"topic": "t", "settings": "a=1\na=2"}, "a is given twice"),
    ],
)
def test_a_form_that_is_wrong_says_where(browser: Browser, fields: dict[str, str], reason: str) -> None:
    assert reason in seen(browser.send("/topics/create", 400, step="preview", **fields))


def test_settings_are_edited_as_text(admin: FakeAdmin, browser: Browser) -> None:
    admin.settings["orders"] = {"retention.ms": "1000", "segment.ms": "5"}
    address = "/topics/alter?name=orders"
    assert "retention.ms=1000\nsegment.ms=5</textarea>" in browser.read(f"{address}&as=lines")
    preview = seen(browser.send(address, step="preview", settings="segment.ms=6\r\n"))
    assert "ottla topic alter orders --set segment.ms=6 --unset retention.ms" in preview
    assert "retention.ms 1000 (topic) 604800000 (default)" in preview
    browser.change(address, settings="segment.ms=6\r\n")
    assert admin.settings["orders"] == {"segment.ms": "6"}
    assert "nothing to change" in seen(browser.send(address, 400, step="preview", settings="segment.ms=6"))
    refused = browser.send(address, 502, step="preview", settings="no.such.setting=1")
    assert "INVALID_CONFIG" in refused


def test_what_is_altered() -> None:
    assert altered({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == {
        "b": "4",
        "d": "5",
        "c": None,
    }
    assert altered({}, {}) == {}
    assert settings_of("a = 1\n\n b=x=y \n") == {"a": "1", "b": "x=y"}
    (unknown,) = setting_differences([], {"a": "1"}, "topic")
    assert (unknown.before, unknown.after) == (None, "1 (topic)")


def test_partitions_are_added(admin: FakeAdmin, browser: Browser) -> None:
    address = "/topics/partitions?name=orders"
    preview = seen(browser.send(address, step="preview", total="4"))
    assert "ottla topic add-partitions orders --to 4" in preview
    assert "cannot be undone" in preview
    browser.change(address, total="4")
    assert admin.calls[-1] == ("partitions", ("orders", 4, False))


def test_records_are_trimmed_up_to_the_end_that_was_seen(admin: FakeAdmin, browser: Browser) -> None:
    admin.ends |= {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 10}
    address = "/topics/trim?name=orders"
    preview = browser.send(address, step="preview", offset="end")
    assert "start of partition 0 0 100: up to 100 records are deleted" in seen(preview)
    assert "start of partition 1 0 10: up to 10 records are deleted" in seen(preview)
    assert "ottla topic trim orders:0=100 orders:1=10" in seen(preview)
    assert admin.changes() == []
    admin.ends[TopicPartition("orders", 0)] = 150
    browser.do_it(address, preview)
    assert admin.calls[-1] == ("trim", {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 10})
    browser.change(address, offset="120", partition="0")
    assert admin.calls[-1] == ("trim", {TopicPartition("orders", 0): 120})
    assert "no partition has records" in seen(browser.send(address, 400, step="preview", offset="0"))
    assert "'partition' is 0 to 1" in seen(browser.send(address, 400, offset="5", partition="2"))


def test_a_trim_beyond_the_end_of_a_partition_is_refused(admin: FakeAdmin, browser: Browser) -> None:
    admin.ends |= {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 10}
    page = seen(browser.send("/topics/trim?name=orders", 400, offset="50"))
    assert "orders-1 ends at 10: nothing lies below offset 50 there yet" in page
    assert admin.calls == []


def test_a_partition_that_does_not_tell_its_offsets_is_not_trimmed() -> None:
    name = TopicPartition("orders", 0)
    with pytest.raises(BadQuestion, match="partition 0"):
        trim_plan([name], {name: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no")}, {name: 5}, TO_THE_END)
    assert trim_plan([name], {name: 5}, {name: 5}, TO_THE_END) == ({}, [])


def test_a_topic_is_deleted_by_its_name(admin: FakeAdmin, browser: Browser) -> None:
    address = "/topics/delete?name=orders"
    assert "not 'order'" in seen(browser.send(address, 400, step="apply", again="order"))
    preview = browser.send(address, step="preview", again="orders")
    assert "ottla topic delete orders" in seen(preview)
    assert 'name="again" value="orders"' in preview
    assert "orders" in admin.topics
    where = browser.change(address, again="orders")
    assert "orders" not in admin.topics
    assert "topic orders was deleted" in seen(browser.read(where))
    assert "there is no topic" in seen(browser.send(address, 404, step="apply", again="orders"))


def test_back_from_the_preview_the_form_is_as_it_was(browser: Browser) -> None:
    page = browser.send("/topics/create", step="again", topic="new", partitions="7", settings="a=b")
    assert 'value="new"' in page
    assert 'value="7"' in page
    assert "a=b</textarea>" in page
