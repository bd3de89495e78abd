"""Messages in the console: the request, record filters, the display of bytes, and sending."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consuming.outcomes import TransactionOutcome
from ottla.client.producer import Producer
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.console.area import BadQuestion, Download, NotThere, Rendered, Visit
from ottla.console.bounds import PAYLOAD_BYTES_MAX
from ottla.console.live.counter_sources import EndOffsets
from ottla.console.live.sampler import Sampler
from ottla.console.live.shared_readings import SharedReadings
from ottla.console.live.snapshots import take_snapshot
from ottla.console.pages.messages import page, sending
from ottla.console.pages.messages.filters import SEARCHED_BYTES_MAX, filters_of
from ottla.console.pages.messages.page import MessagesPage, mark_of, message_row
from ottla.console.pages.messages.payloads import HEX_BYTES_MAX, PREVIEW_CHARACTERS_MAX, payload
from ottla.console.pages.messages.question import begin_at, question_of, time_ms
from ottla.console.schemas.decoding import Decoder
from ottla.console.schemas.registry import JSON, NoSchema, RegisteredSchema
from ottla.testing import LocalCluster
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, hidden_fields, partition, seen, topic
from tests.console.record_tables import record, table_of, visit_of

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


# ------------------------------------------------------------ bytes


@pytest.mark.parametrize(
    ("data", "wanted", "kind", "text"),
    [
        (None, "auto", "null", None),
        (b"", "auto", "text", ""),
        (b'{"a":[1,"\xc3\xa4"]}', "auto", "json", '{\n  "a": [\n    1,\n    "\u00e4"\n  ]\n}'),
        (b"{broken", "auto", "text", "{broken"),
        (b"12", "auto", "text", "12"),
        (b'{"a":1}', "text", "text", '{"a":1}'),
        (b"\x00\x01", "auto", "hex", "00 01"),
        (b"\xff", "text", "text", "\\xff"),
        (b"text", "hex", "hex", "74 65 78 74"),
        (b"[" * 60_000, "auto", "text", "[" * 60_000),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, wanted: str, kind: str, text: str) -> None:
    shown = payload(data, wanted)
    assert (shown.kind, shown.text, shown.hidden) == (kind, text, 0)


@given(st.binary(max_size=200), st.sampled_from(["auto", "text", "json", "hex"]))
def test_any_bytes_can_be_shown(data: bytes, wanted: str) -> None:
    assert payload(data, wanted).text is not None


def test_of_much_the_beginning_is_shown() -> None:
    much = payload(("\u00e4" * PAYLOAD_BYTES_MAX).encode())
    assert (much.kind, much.size, much.hidden) == ("text", 2 * PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX)
    cut = payload(b"x" + ("\u00e4" * PAYLOAD_BYTES_MAX).encode())  # within a character
    assert cut.kind == "text"
    binary = payload(b"\0" * PAYLOAD_BYTES_MAX)
    assert binary.hidden == PAYLOAD_BYTES_MAX - HEX_BYTES_MAX
    with pytest.raises(BadQuestion, match="'as' is one of"):
        payload(b"", "avro")


def test_a_row_has_the_beginning_of_the_text_in_one_line() -> None:
    assert payload(b'{"a": [1, {"b": "x  y"}]}').preview == '{ "a": [ 1, { "b": "x  y" } ] }'
    assert payload(b"one\n\n  two\tthree \n").preview == "one two\tthree"
    assert payload(None).preview is None
    assert payload(b"").preview == ""
    for much in (b"x" * 5_000, b" " * 5_000 + b"x", b"x y " * 100):
        preview = payload(much).preview
        assert preview is not None
        assert preview.endswith("\u2026")
        assert len(preview) <= PREVIEW_CHARACTERS_MAX + 1
    assert (payload(None).described, payload(b"{}").described) == ("", "2 B, json")


def test_a_time_that_no_calendar_has_is_a_dash() -> None:
    for stamp in (-1, 2**63 - 1, -(2**63)):
        row = message_row(ConsumerRecord("t", 0, 1, stamp, None, b"v"), "auto", "")
        assert row.written_s is None


# ------------------------------------------------------------ filters


def test_a_record_passes_all_filters() -> None:
    """tests/client/test_record_filters.py has the filters themselves."""
    texts = {"key": "^k", "value": "o{2}", "json": "$.n >= 1", "header": "trace = ^47"}
    fits = record(b'{"a": "foo", "n": 1}', b"key", [("trace", b"4711")])
    tests = filters_of(texts)
    assert len(tests) == 4
    assert all(test(fits, None) for test in tests)
    assert not any(test(record(None), None) for test in tests)
    assert filters_of(dict.fromkeys(texts, "")) == []


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("value", "(", r"the filter 'value': '\(' is no regular expression as RE2 has them: missing \)"),
        ("key", "(?=x)", "the filter 'key': .* is no regular expression"),
        ("json", "items", r"the filter 'json': a JSON path begins with \$"),
        ("header", "=x", "the filter 'header': a filter of headers is NAME or NAME=PATTERN"),
    ],
)
def test_a_filter_that_is_wrong_is_named(name: str, text: str, reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason):
        filters_of({name: text})


def test_of_a_large_value_the_beginning_is_searched() -> None:
    large = record(b'"' + b"x" * SEARCHED_BYTES_MAX + b'y"')
    for texts, passes in (({"value": "x"}, True), ({"value": "y"}, False), ({"json": "$"}, False)):
        (test,) = filters_of(texts)
        assert test(large, None) == passes


# ------------------------------------------------------------ requests


def test_where_each_partition_begins() -> None:
    starts, ends = {ONE: 10, TWO: 0}, {ONE: 100, TWO: 3}

    def begins(by_time: dict[TopicPartition, int] | None = None, **query: str) -> dict[TopicPartition, int]:
        return begin_at(question_of(visit_of(topic="t", **query)), starts, ends, by_time or {})

    assert begins(count="5") == {ONE: 95, TWO: 0}
    assert begins(from_="start") == {ONE: 10, TWO: 0}
    assert begins(from_="offset", at="50") == {ONE: 50}
    assert begins(from_="offset", at="3") == {ONE: 10}
    assert begins({ONE: 42, TWO: -1}, from_="time", at="2026-01-31T12:00:00Z") == {ONE: 42}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({}, "'topic' is missing"),
        ({"topic": "t", "from_": "here"}, "'from' is one of"),
        ({"topic": "t", "from_": "offset", "at": "x"}, "'at' is a whole number"),
        ({"topic": "t", "from_": "time", "at": "noon"}, "a time is"),
        ({"topic": "t", "count": "51"}, "'count' is 1 to 50"),
        ({"topic": "t", "partition": "-1"}, "'partition' is 0 to"),
        ({"topic": "t", "as_": "avro"}, "'as' is one of"),
        ({"topic": "t", "open": "yes"}, "'open' is all or missing"),
    ],
)
def test_an_address_that_is_wrong_says_what_is_allowed(query: dict[str, str], reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason):
        question_of(visit_of(**query))


def test_an_address_asks_the_same_again() -> None:
    query = {
        "topic": "a b",
        "partition": "3",
        "from_": "offset",
        "at": "7",
        "value": "x&y",
        "committed": "yes",
    }
    question = question_of(visit_of(**query))
    assert question.address() == (
        "/messages?topic=a+b&partition=3&from=offset&at=7&count=20&as=auto&committed=yes&value=x%26y"
    )
    command = "ottla consume 'a b' --offset=7 -e -p 3 -c 20 --committed --grep 'x&y'"
    assert question.command() == command
    assert question_of(visit_of(topic="t")).command() == "ottla consume t --offset=-20 -e"
    filters = {"key": "-k", "value": "(?i)a b", "json": "$.n >= 1", "header": "trace = ^47"}
    found = question_of(visit_of(topic="t", **filters))
    assert found.command() == (
        "ottla consume t --offset=-20 -e --key=-k --grep '(?i)a b' --where '$.n >= 1' --header 'trace = ^47'"
    )
    assert "--where" not in found.command(decodes_values=True)
    assert time_ms("1970-01-01T00:00:01") == 1000
    assert time_ms("1769860800000") == 1769860800000
    assert time_ms("1969-12-31T23:59:59.999Z") == 0, "-1 is the end of a log"
    for wrong in ("noon", "12345678", str(2**63), "9" * 5000):
        with pytest.raises(BadQuestion, match="a time is"):
            time_ms(wrong)


def test_what_became_of_a_record() -> None:
    given_record = record(b"v")
    assert mark_of(given_record, ()) == ""
    before, behind = TransactionOutcome(0, 7, "aborted", 1), TransactionOutcome(8, 9, "aborted", 1)
    assert mark_of(given_record, [before, behind]) == ""
    assert (
        mark_of(given_record, [before, TransactionOutcome(7, 8, "committed", 1234), behind]) == "commit 1,234"
    )
    assert mark_of(given_record, [TransactionOutcome(5, 8, "committed", -1)]) == ""
    assert mark_of(given_record, [TransactionOutcome(5, 8, "aborted", 4)]) == "aborted"
    assert mark_of(given_record, [TransactionOutcome(7, 9, "open", -1)]) == "not decided"


def test_without_a_topic_the_page_lists_topics_to_choose() -> None:
    browser = Browser(FakeAdmin(topic("orders", partition()))).enter()
    page = browser.read("/messages")
    assert '<option value="orders">' in page
    assert "Choose a topic" in seen(page)
    assert 'href="/messages?topic=orders&amp;from=start"' in page
    assert 'href="/messages/live?topic=orders"' in page
    assert "there is no topic 'other'" in seen(browser.read("/messages?topic=other", 404))


def test_a_cluster_without_topics_says_how_to_create_one() -> None:
    page = Browser(FakeAdmin()).enter().read("/messages")
    assert "The cluster has no topics. Create a topic: ottla topic create NAME" in seen(page)
    page = Browser(FakeAdmin(), may_change=True).enter().read("/messages")
    assert '<a href="/topics/create">' in page


# ------------------------------------------------------------ the table


def test_a_record_is_a_line_that_opens() -> None:
    given = record(b'{"n": 1}', b"k", [("trace", b"4711"), ("empty", None)])
    table = table_of(given)
    assert seen(table).startswith(
        "1 shown of 1 records read. Times are in UTC. Open all partition offset written (UTC)"
    )
    row = '0 7 1970-01-01 00:00:01 k { "n": 1 } key 1 B, text k value 8 B, json { "n": 1 } '
    assert f"{row}header trace 4711 header empty null 2" in seen(table)
    assert '<details id="record-0-7"><summary>' in table
    assert "&amp;open=all" in table
    opened = table_of(given, open="all")
    assert '<details id="record-0-7" open><summary>' in opened
    assert "Close all" in seen(opened)
    assert "&amp;open=all" not in opened


def test_bytes_that_the_page_does_not_show_can_be_downloaded() -> None:
    for value in (b"\0\1", b"x" * (PAYLOAD_BYTES_MAX + 1)):
        assert 'offset=7&amp;part=value" download>Download</a>' in table_of(record(value))
    assert "Download" not in table_of(record(b"text", None))


def test_a_record_is_text_wherever_it_is_shown() -> None:
    hostile = HOSTILE.encode()
    table = table_of(record(hostile, hostile, [(HOSTILE, hostile)]))
    assert "<script>" not in table
    assert "<img" not in table


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"value": "x"}, "None of the 0 records passes the filters. Search without filters"),
        ({"from_": "offset", "at": "7"}, "There is no record at or after offset 7. Show the newest records"),
        ({}, "The topic has no records. Send a record: ottla produce t"),
        (
            {"partition": "3", "committed": "yes"},
            "Partition 3 has no committed records. Send a record: ottla",
        ),
    ],
)
def test_a_search_that_finds_nothing_says_how_to_go_on(query: dict[str, str], says: str) -> None:
    assert says in seen(table_of(**query))


def test_an_empty_topic_links_to_the_form_for_a_record() -> None:
    link = 'href="/messages/send?topic=t"'
    assert link not in table_of()
    assert link in table_of(may_change=True)
    assert link not in table_of(may_change=True, value="x")


# ------------------------------------------------------------ sending


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"key_as": "hex"}, "'key_as' is one of"),
        ({"value_as": "base64", "value": "!"}, "the value is no base64"),
        ({"value_as": "nothing", "value": "x"}, "is set to nothing"),
    ],
)
def test_bytes_that_cannot_be_sent(form: dict[str, str], reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason):
        for name in ("key", "value"):
            sending.bytes_of(visit_of(form=form), name)


def test_bytes_and_headers_of_a_form() -> None:
    form = {"value_as": "base64", "value": "AP8=", "key_as": "nothing"}
    assert sending.bytes_of(visit_of(form=form), "value") == b"\x00\xff"
    assert sending.bytes_of(visit_of(form=form), "key") is None
    assert sending.headers_of("a=1\n\nb==\na=") == [("a", b"1"), ("b", b"="), ("a", b"")]
    with pytest.raises(BadQuestion, match="a header is"):
        sending.headers_of("nothing")


# ------------------------------------------------------------ a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as running:
        yield running


@pytest.fixture
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as running:
        yield running


def at(cluster: LocalCluster, admin: Admin, form: dict[str, str] | None = None, **query: str) -> Visit:
    sampler = Sampler(lambda at_s: take_snapshot(admin, at_s), EndOffsets(admin))
    return Visit(
        admin=admin,
        sampler=sampler,
        readings=SharedReadings(admin, sampler),
        connection={"bootstrap_servers": cluster.bootstrap_servers},
        may_change=True,
        path="/messages",
        query={name.rstrip("_"): value for name, value in query.items()},
        form=form or {},
    )


async def shown(visit: Visit) -> MessagesPage:
    rendered = await page.show(visit)
    assert isinstance(rendered, Rendered)
    assert isinstance(rendered.model, MessagesPage)
    return rendered.model


@pytest.mark.cluster
async def test_records_of_a_cluster(cluster: LocalCluster, admin: Admin) -> None:
    await admin.create_topics([NewTopic("kinds", 1, 1), NewTopic("spread", 3, 1)])
    options = {"bootstrap_servers": cluster.bootstrap_servers}
    large = b"x" * 3_000_000
    async with Producer(**options, transactional_id="kinds", max_request_size=5_000_000) as producer:
        async with producer.transaction():
            await producer.send("kinds", b'{"n": 1}', key=b"\xff")
        with pytest.raises(RuntimeError):
            async with producer.transaction():
                await producer.send("kinds", b"never")
                await producer.flush()
                raise RuntimeError
        await admin.alter_configs(2, "kinds", {"max.message.bytes": "4000000"})
        async with producer.transaction():
            await producer.send("kinds", large)
        await producer.begin_transaction()
        await producer.send("kinds", b"undecided")
        await producer.flush()

        found = await shown(at(cluster, admin, topic="kinds", from_="start"))
        assert [row.value.kind for row in found.rows] == ["json", "text", "text", "text"]
        assert [row.mark for row in found.rows][1::2] == ["aborted", "not decided"]
        first, second = (int(row.mark.removeprefix("commit ")) for row in (found.rows[0], found.rows[2]))
        assert 0 <= first < second <= (await admin.find_cut([TopicPartition("kinds", 0)])).commit_index
        assert found.rows[2].value.hidden == 3_000_000 - PAYLOAD_BYTES_MAX
        committed = await shown(at(cluster, admin, topic="kinds", from_="start", committed="yes"))
        assert [(row.offset, row.mark) for row in committed.rows] == [
            (row.offset, row.mark) for row in found.rows[::2]
        ]
        newest = await shown(at(cluster, admin, topic="kinds", count="1"))
        assert [row.value.text for row in newest.rows] == ["undecided"]
        filtered = await shown(at(cluster, admin, topic="kinds", from_="start", json="$.n = 1"))
        assert [row.value.text for row in filtered.rows] == ['{\n  "n": 1\n}']
        assert filtered.scanned == 4
        assert filtered.rows[0].mark == found.rows[0].mark

        offset = str(found.rows[2].offset)
        download = await page.show_whole(at(cluster, admin, topic="kinds", partition="0", offset=offset))
        assert isinstance(download, Download)
        assert download.content == large
        with pytest.raises(NotThere, match="there is no key at offset"):
            await page.show_whole(at(cluster, admin, topic="kinds", partition="0", offset=offset, part="key"))
        await producer.abort_transaction()


class OneSchema:
    """A registry that knows schema 7, of JSON."""

    async def schema(self, schema_id: int) -> RegisteredSchema:
        if schema_id != 7:
            raise NoSchema("nobody knows it")
        return RegisteredSchema(JSON, "{}")


@pytest.mark.cluster
async def test_values_that_name_a_schema_are_decoded_and_filtered(
    cluster: LocalCluster, admin: Admin
) -> None:
    await admin.create_topics([NewTopic("described", 1, 1)])
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b'\0\0\0\0\x07{"n": 1}', b'\0\0\0\0\x08{"n": 1}', b'{"n": 1}', b'\0\0\0\0\x07{"n": 2}'):
            await producer.send_and_wait("described", value, key=b"\0\0\0\0\x07[1]")

    async def page_of(**query: str) -> MessagesPage:
        visit = at(cluster, admin, topic="described", from_="start", **query)
        return await shown(replace(visit, schemas=Decoder(OneSchema())))

    found = await page_of()
    assert [(row.value.schema, row.value.trouble) for row in found.rows] == [
        ("JSON, schema 7", ""), ("", "schema 8: nobody knows it"), ("", ""), ("JSON, schema 7", ""),
    ]  # fmt: skip
    assert [row.key.text for row in found.rows] == ["[\n  1\n]"] * 4
    filtered = await page_of(json="$.n = 1")
    assert [row.offset for row in filtered.rows] == [0, 2]
    assert (filtered.undecoded, filtered.first_undecoded) == (1, "schema 8: nobody knows it")
    assert (found.is_command_wider, filtered.is_command_wider) == (False, True)
    assert "--where" not in filtered.command
    assert {row.value.schema for row in (await page_of(as_="hex")).rows} == {""}


@pytest.mark.cluster
async def test_a_long_partition_goes_on_where_the_page_ended(cluster: LocalCluster, admin: Admin) -> None:
    await admin.create_topics([NewTopic("long", 1, 1)])
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await asyncio.gather(*[await producer.send("long", b"%d" % number) for number in range(120)])
    read: list[str | None] = []
    query: dict[str, str] = {"topic": "long", "partition": "0", "from_": "start", "count": "50"}
    while True:
        found = await shown(at(cluster, admin, **query))
        read += [row.value.text for row in found.rows]
        if not found.further:
            break
        query |= {"from_": "offset", "at": found.further.partition("at=")[2].partition("&")[0]}
    assert read == [str(number) for number in range(120)]
    assert len((await shown(at(cluster, admin, topic="long", value="^11\\d$", from_="start"))).rows) == 10
    assert (await shown(at(cluster, admin, topic="long", from_="offset", at="500"))).rows == []


@pytest.mark.cluster
async def test_a_record_is_sent_as_the_form_says(cluster: LocalCluster, admin: Admin) -> None:
    await admin.create_topics([NewTopic("sent", 2, 1)])
    form = {"topic": "sent", "partition": "1", "key": "k", "value_as": "nothing", "headers": "a=1\na=2"}
    plan = await sending.plan_sending(at(cluster, admin, form))
    assert [difference.after for difference in plan.differences] == [
        "sent", "1", "k (1 bytes)", "null", "1 (1 bytes)", "2 (1 bytes)",
    ]  # fmt: skip
    done = await plan.carry_out(at(cluster, admin, form))
    assert done.notice == "sent: sent-1, offset 0"
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("sent", 1)])
        consumer.seek(TopicPartition("sent", 1), 0)
        async with asyncio.timeout(60):
            sent = await consumer.getone()
    assert (sent.key, sent.value, list(sent.headers)) == (b"k", None, [("a", b"1"), ("a", b"2")])
    with pytest.raises(NotThere):
        await sending.plan_sending(at(cluster, admin, form | {"topic": "nowhere"}))
    with pytest.raises(BadQuestion, match="has partitions 0 to 1"):
        await sending.plan_sending(at(cluster, admin, form | {"partition": "2"}))


HIDDEN_SIGNS = '\u05e9\u05dc\u05d5\u05dd\u200f \x1b[0m\u2028 "<b>'


def test_a_preview_carries_what_was_typed_as_it_was_typed() -> None:
    browser = Browser(FakeAdmin(topic("orders", partition())), may_change=True).enter()
    typed = {"topic": "orders", "value": HIDDEN_SIGNS, "headers": f"name={HIDDEN_SIGNS}"}
    preview = browser.send("/messages/send", step="preview", **typed)
    assert hidden_fields(preview).items() >= typed.items()
    assert "\\x1b[0m" in seen(preview)  # a table shows the stored text
    again = browser.send("/messages/send", step="again", **typed)
    assert html.escape(HIDDEN_SIGNS, quote=False).replace('"', "&#34;") + "</textarea>" in again


def test_a_header_may_have_any_sign_but_a_newline() -> None:
    assert sending.headers_of("a=b\u2028c\n\nd=e") == [("a", "b\u2028c".encode()), ("d", b"e")]
