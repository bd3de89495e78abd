"""Forms for settings: a row for each key with its type, unit, default and meaning, or lines."""

from __future__ import annotations

import json
import logging

import pytest

from ottla.client.admin import BROKER_RESOURCE, ConfigEntry
from ottla.console.area import BadQuestion, FieldRow
from ottla.console.config_words import facts_of, in_unit, unit_of
from ottla.console.key_values import edited_rows
from ottla.console.setting_forms import SET, created_settings, setting_rows_of
from ottla.console.settings import TOPIC, known_key_of, setting_differences
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.settings.config_keys import NODE_KEYS, TOPIC_KEYS
from tests.console.brokers_with_folders import FoldersAdmin
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, hidden_fields, partition, seen, topic

OF_ORDERS = "/topics/alter?name=orders"


@pytest.fixture
def admin() -> FakeAdmin:
    admin = FakeAdmin(topic("orders", partition()))
    admin.settings["orders"] = {"retention.ms": "86400000", "segment.ms": "5"}
    return admin


@pytest.fixture
def browser(admin: FakeAdmin) -> Browser:
    return Browser(admin, may_change=True).enter()


# ------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("retention.ms", "whole number of ms, -1 or more"),
        ("segment.index.bytes", "whole number of bytes, 4 to 2,147,483,647"),
        ("min.cleanable.dirty.ratio", "number, 0 to 1"),
        ("cleanup.policy", "any of delete, compact"),
        ("message.timestamp.type", "one of CreateTime, LogAppendTime"),
        ("preallocate", "true or false"),
        ("leader.replication.throttled.replicas", "partition:broker, with commas between, or *"),
        ("leader.replication.throttled.rate", "whole number of bytes/s, 0 or more"),
        ("max.connections.per.ip.overrides", "text"),
    ],
)
def test_a_key_is_described(name: str, facts: str) -> None:
    assert facts_of(TOPIC_KEYS.get(name) or NODE_KEYS[name]) == facts


def test_every_key_that_a_form_may_show_is_described() -> None:
    for key in (*TOPIC_KEYS.values(), *NODE_KEYS.values()):
        assert facts_of(key), key.name
        assert key.doc, key.name


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "604800000 (7 d)"),
        ("retention.ms", "5400000", "5400000 (90 min)"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "1073741824", "1073741824 (1.0 GiB)"),
        ("leader.replication.throttled.rate", "50000000", "50000000 (47.7 MiB/s)"),
        ("flush.ms", "9223372036854775807", "9223372036854775807 (no limit)"),
        ("max.connections", "17", "17"),
        ("cordoned.log.dirs", "", "empty"),
        ("retention.ms", "9" * 5000, "9" * 5000),
        ("any.ms", "\u0663\u0663\u0663\u0663\u0663", "\u0663\u0663\u0663\u0663\u0663"),
    ],
)
def test_a_value_is_shown_with_its_meaning(name: str, value: str, words: str) -> None:
    assert in_unit(name, value) == words


def test_units_stand_in_names() -> None:
    assert unit_of("log.retention.hours") == "hours"
    assert unit_of("log.cleaner.io.max.bytes.per.second") == "bytes/s"
    assert unit_of("cleanup.policy") == ""


# ------------------------------------------------------------ rows


def entry(name: str, value: str | None, source: str = "default", **given: object) -> ConfigEntry:
    is_sensitive, read_only = bool(given.get("is_sensitive")), bool(given.get("read_only"))
    synonyms = given.get("synonyms", ())
    assert isinstance(synonyms, tuple)
    return ConfigEntry(name, value, source, source == "default", is_sensitive, read_only, synonyms)


def rows_of(*entries: ConfigEntry, own: dict[str, str] | None = None) -> dict[str, FieldRow]:
    rows = setting_rows_of(entries, own or {}, known_key_of(TOPIC), {TOPIC})
    assert [row.field.label for row in rows] == sorted(row.field.label for row in rows)
    return {row.field.label: row for row in rows}


def test_a_row_says_what_holds_if_it_is_empty() -> None:
    chain = (("retention.ms", "1000", "topic"), ("log.retention.ms", "2000", "all brokers"))
    rows = rows_of(
        entry("retention.ms", "1000", "topic", synonyms=chain),
        entry("segment.ms", "70000", "topic", synonyms=(("segment.ms", "70000", "topic"),)),
        entry("min.insync.replicas", "2", "all brokers"),
        entry("unknown.to.us", "x", "broker file"),
        entry("never.set", None),
        own={"retention.ms": "1000", "segment.ms": "70000"},
    )
    assert rows["retention.ms"].otherwise == "2000 (2 s), all brokers"
    assert rows["segment.ms"].otherwise == "604800000 (7 d), default"
    assert rows["min.insync.replicas"].otherwise == "2, all brokers"
    assert rows["min.insync.replicas"].field.placeholder == "2"
    assert (rows["unknown.to.us"].facts, rows["unknown.to.us"].otherwise) == ("", "x, broker file")
    assert rows["never.set"].otherwise == "not set"


def test_a_key_of_one_listener_is_described() -> None:
    name = "listener.name.external.max.connections"
    (row,) = setting_rows_of([entry(name, "5", "broker")], {}, known_key_of("broker"), set())
    assert row.facts.startswith("whole number")


def test_a_setting_of_all_brokers_hides_a_value_that_their_files_have() -> None:
    everywhere = entry(
        "num.io.threads", "16", "all brokers", synonyms=(("num.io.threads", "16", "all brokers"),)
    )
    (line,) = setting_differences([everywhere], {"num.io.threads": None}, "all brokers")
    assert line.after == "the inherited or default value"


def test_values_of_a_fixed_set_are_chosen() -> None:
    rows = rows_of(
        entry("compression.type", "producer"),
        entry("preallocate", "false"),
        entry("cleanup.policy", "delete"),
    )
    kinds = {name: (row.field.kind, tuple(row.field.choices)) for name, row in rows.items()}
    allowed = ("", "uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
    assert kinds["compression.type"] == ("choice", allowed)
    assert kinds["preallocate"] == ("choice", ("", "true", "false"))
    assert kinds["cleanup.policy"] == ("text", ())
    assert rows["cleanup.policy"].field.suggestions == ("delete", "compact", "delete,compact")


def test_a_value_that_is_not_among_the_choices_is_kept() -> None:
    row = rows_of(entry("compression.type", "brotli", "topic"), own={"compression.type": "brotli"})
    assert (row["compression.type"].field.kind, row["compression.type"].field.value) == ("text", "brotli")


def test_secrets_and_fixed_settings_have_no_row() -> None:
    secret = entry("ssl.keystore.password", None, is_sensitive=True)
    assert rows_of(secret, entry("log.dirs", "/data", "broker file", read_only=True)) == {}


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        ({"set a": "1", "set b": "2"}, {}),
        ({"set a": " 3 ", "set b": ""}, {"a": "3", "b": None}),
        ({"set c": "9", "set d": ""}, {"c": "9"}),
        ({"set-shown": '{"a": "1"}', "set a": "1", "set b": ""}, {}),
        ({"set-shown": '{"a": "1", "c": "7"}', "set c": ""}, {"c": None}),
        ({"set-shown": '{"a": ""}', "set a": ""}, {}),
    ],
)
def test_only_edited_rows_are_changed(form: dict[str, str], changes: dict[str, str | None]) -> None:
    assert edited_rows(form, SET, {"a": "1", "b": "2"}) == changes


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "null", "[" * 100_000])
def test_a_hidden_field_that_somebody_altered_is_refused(text: str) -> None:
    with pytest.raises(BadQuestion, match="is not the text"):
        edited_rows({"set-shown": text, "set a": "1"}, SET, {})


def test_a_new_topic_has_the_rows_that_were_filled() -> None:
    assert created_settings({"set a": "1", "set b": "", "topic": "t"}) == {"a": "1"}
    assert created_settings({"settings": "a=1\nb=", "set c": "3"}) == {"a": "1", "b": ""}
    with pytest.raises(BadQuestion, match="is a secret"):
        created_settings({"set ssl.keystore.password": "x"})


# ------------------------------------------------------------ forms


def test_a_topic_is_altered_by_rows(admin: FakeAdmin, browser: Browser) -> None:
    page = browser.read(OF_ORDERS)
    assert "Set here setting value if empty meaning retention.ms whole number of ms, -1 or more" in seen(page)
    assert 'name="set retention.ms" value="86400000"' in page
    assert "86400000 (1 d)" in seen(page)
    assert "Time records are kept; -1: for ever." in seen(page)
    fields = hidden_fields(page)
    assert json.loads(fields["set-shown"]) == {"retention.ms": "86400000", "segment.ms": "5"}
    fields |= {"set retention.ms": "", "set segment.ms": "6"}
    preview = seen(browser.send(OF_ORDERS, **fields, step="preview"))
    assert "retention.ms 86400000 (topic) 604800000 (default) segment.ms 5 (topic) 6 (topic)" in preview
    assert "ottla topic alter orders --unset retention.ms --set segment.ms=6" in preview
    browser.change(OF_ORDERS, **fields)
    assert admin.settings["orders"] == {"segment.ms": "6"}


def test_rows_that_others_have_set_since_the_form_was_shown_stay(admin: FakeAdmin, browser: Browser) -> None:
    fields = hidden_fields(browser.read(OF_ORDERS)) | {"set segment.ms": "6", "set min.insync.replicas": ""}
    admin.settings["orders"] |= {"min.insync.replicas": "2", "retention.ms": "5"}
    browser.change(OF_ORDERS, **fields)
    assert admin.settings["orders"] == {"min.insync.replicas": "2", "retention.ms": "5", "segment.ms": "6"}


def test_a_refused_value_stays_in_its_row(browser: Browser) -> None:
    fields = hidden_fields(browser.read(OF_ORDERS)) | {"set segment.ms": "7", "set no.such.setting": "1"}
    page = browser.send(OF_ORDERS, 502, **fields, step="preview")
    assert "there is no setting 'no.such.setting'" in seen(page)
    assert 'name="set segment.ms" value="7"' in page
    assert json.loads(hidden_fields(page)["set-shown"])["segment.ms"] == "5"


def test_rows_and_lines_lead_to_each_other(browser: Browser) -> None:
    assert 'href="/topics/alter?name=orders&amp;as=lines"' in browser.read(OF_ORDERS)
    lines = browser.read(f"{OF_ORDERS}&as=lines")
    assert "retention.ms=86400000\nsegment.ms=5</textarea>" in lines
    assert f'href="{OF_ORDERS}"' in lines


def test_all_brokers_have_the_rows_of_a_broker() -> None:
    class Telling(FoldersAdmin):
        async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
            assert kind == BROKER_RESOURCE
            if not name:
                return [entry("num.io.threads", "4", "all brokers")]
            chain = (
                ("num.io.threads", "9", "broker"),
                ("num.io.threads", "4", "all brokers"),
                ("num.io.threads", "8", "broker file"),
            )
            return [
                entry("num.io.threads", "9", "broker", synonyms=chain),
                entry("log.cleaner.backoff.ms", "15000"),
                entry("log.dirs", "/data", "broker file", read_only=True),
            ]

    page = seen(Browser(Telling(), may_change=True).enter().read("/brokers/alter?id=all"))
    assert "Set here setting value if empty meaning num.io.threads" in page
    assert "8, broker file" in page
    assert "log.cleaner.backoff.ms whole number of ms, 0 or more 15000 (15 s), default" in page
    assert "log.dirs" not in page


def test_a_new_topic_shows_the_values_that_brokers_give() -> None:
    class Telling(FakeAdmin):
        async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
            if self.failure is not None:
                raise self.failure
            own = (("log.retention.hours", "1", "broker file"), ("log.retention.hours", "168", "default"))
            return [entry("log.retention.hours", "1", "broker file", synonyms=own)]

    admin = Telling()
    browser = Browser(admin, may_change=True).enter()
    assert "3600000 (1 h), default" in seen(browser.read("/topics/create"))
    admin.failure = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")
    assert "604800000 (7 d), default" in seen(browser.read("/topics/create"))
    preview = seen(
        browser.send("/topics/create", topic="new", **{"set retention.ms": "5", "set flush.ms": ""})
    )
    assert "ottla topic create new --config retention.ms=5 " in preview


def test_the_log_has_the_filled_rows_and_no_secret(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    fields = hidden_fields(browser.read(OF_ORDERS)) | {"set segment.ms": "6", "set flush.ms": ""}
    with caplog.at_level(logging.INFO, "ottla.console"):
        browser.change(OF_ORDERS, **fields)
        secret = {"set ssl.keystore.password": "guessme"}
        browser.send(OF_ORDERS, 400, **secret, step="apply")
    done, refused = (json.loads(record.message)["what"] for record in caplog.records)
    assert done["set segment.ms"] == "6"
    assert "set flush.ms" not in done
    assert refused["set ssl.keystore.password"] == "[hidden]"
    assert "guessme" not in caplog.text


def test_values_of_strangers_are_text(admin: FakeAdmin, browser: Browser) -> None:
    admin.settings["orders"] = {HOSTILE: HOSTILE, "retention.ms": HOSTILE}
    for address in (OF_ORDERS, f"{OF_ORDERS}&as=lines"):
        page = browser.read(address)
        assert "<script>alert" not in page
        assert "<img" not in page
