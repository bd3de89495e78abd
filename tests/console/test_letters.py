"""Letters in the console: the table, the counts of the errors, and the form that sends letters back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from urllib.parse import unquote_plus

import pytest

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.dead_letters.found import FoundLetter
from ottla.client.dead_letters.reading import up_to
from ottla.client.producer import Producer
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.client.worker.letters import letter_headers
from ottla.console.area import BadQuestion, NotThere, Outdated, Visit
from ottla.console.live.counter_sources import EndOffsets
from ottla.console.live.sampler import Sampler
from ottla.console.live.shared_readings import SharedReadings
from ottla.console.live.snapshots import take_snapshot
from ottla.console.pages.letters.page import LettersPage, error_rows, letter_row, show
from ottla.console.pages.letters.replaying import plan_replay, selection_of
from ottla.console.pages.messages.page import message_row
from ottla.console.pages.messages.question import question_of
from ottla.console.rendering import Templates
from ottla.testing import LocalCluster
from tests.console.fakes import HOSTILE, Browser, FakeAdmin, partition, seen, topic
from tests.console.record_tables import table_of, visit_of


def letter(
    error: BaseException | None = None, *, number: int = 1, origin: str = "orders", timestamp_ms: int = 1_000
) -> ConsumerRecord:
    given_up = ConsumerRecord(origin, 0, 100 + number, 0, b"k%d" % number, b"v%d" % number)
    headers = letter_headers(given_up, "billing", error or TimeoutError("slow"), 3)
    return ConsumerRecord("orders.dlq", 0, number, timestamp_ms, given_up.key, given_up.value, tuple(headers))


def page_of(*records: ConsumerRecord, may_change: bool = False, **query: str) -> str:
    """Return the page of these letters, as a search with this query shows them."""
    visit = visit_of(may_change, topic="orders.dlq", **query)
    question = question_of(visit)
    found = [FoundLetter.of(record) for record in records]
    model = LettersPage(
        topics=(),
        question=question,
        rows=[letter_row(letter, message_row(letter.record, "auto", "")) for letter in found],
        errors=error_rows(records, question),
        counted=len(records),
        scanned=len(records),
        replay_address="/letters/replay?topic=orders.dlq",
    )
    context = {
        "visit": visit,
        "model": model,
        "title": "Letters",
        "cluster": "c",
        "areas": (),
        "area": None,
        "events": "",
        "user": "",
        "notice": "",
        "form_value": "",
    }
    return Templates().page("letters.html", context)


# ------------------------------------------------------------ the table


def test_a_letter_is_a_line_that_opens() -> None:
    text = page_of(letter(ValueError("no\nname")), letter(number=2, timestamp_ms=9_000))
    assert "ValueError 1 1970-01-01 00:00:01" in seen(text)
    assert (
        "orders:0:101 billing 3 ValueError no name text no name key 2 B, text k1 value 2 B, text v1"
        in seen(text)
    )
    assert 'href="/messages?topic=orders&amp;partition=0&amp;from=offset&amp;at=101&amp;count=1"' in text
    assert "send back" not in text
    assert "/letters/replay?topic=orders.dlq&amp;at=0%3A1" in page_of(letter(), may_change=True)


def test_a_record_that_tells_nothing_is_shown() -> None:
    text = seen(page_of(ConsumerRecord("orders.dlq", 0, 1, 1_000, None, b"v")))
    assert text.count("not told") == 3


def test_hostile_letters_are_harmless() -> None:
    hostile = letter(ValueError(HOSTILE), origin=HOSTILE)
    text = page_of(hostile, may_change=True)
    assert "<script>alert" not in text
    assert "<img" not in text


def test_a_long_reason_is_cut_and_the_page_says_so() -> None:
    record = ConsumerRecord("orders.dlq", 0, 1, 1_000, None, b"", (("ottla.error.text", b"x " * 200_000),))
    text = page_of(record)
    assert "The rest of the text is not shown." in text
    assert len(text) < 30_000


def test_the_link_of_an_error_finds_exactly_its_letters() -> None:
    odd = type("O'dd.Err", (Exception,), {})
    records = [letter(odd("x")), letter(ValueError("y"))]
    visit = visit_of(topic="orders.dlq")
    address = error_rows(records, question_of(visit))[0].address
    (error,) = [row for row in error_rows(records, question_of(visit)) if "dd" in row.error_type]
    assert address
    header = dict(part.split("=", 1) for part in error.address.partition("?")[2].split("&"))["header"]
    (test,) = question_of(visit_of(topic="orders.dlq", header=unquote_plus(header))).tests
    assert [test(record, None) for record in records] == [True, False]


def test_messages_and_topics_lead_to_letters() -> None:
    admin = FakeAdmin(topic("orders", partition()), topic("orders.dlq", partition()))
    browser = Browser(admin).enter()
    assert 'href="/letters?topic=orders.dlq"' in browser.read("/topics/topic?name=orders.dlq")
    assert "/letters?topic=" not in browser.read("/topics/topic?name=orders")
    page = browser.read("/letters")
    assert 'href="/letters?topic=orders.dlq"' in page
    assert "topic=orders&" not in page
    assert "no topic has a usual name" in seen(Browser(FakeAdmin()).enter().read("/letters")).lower()
    assert "dead letters" not in table_of(letter())


# ------------------------------------------------------------ the form


def test_the_fields_choose_as_the_command_line_does() -> None:
    form = {"topic": "orders.dlq", "at": "0:1-2 1:5", "header": "ottla.error.type=Time", "to": "-x"}
    selection = selection_of(visit_of(True, {**form, "from_start": "yes"}))
    assert selection.words == [
        "--at", "0:1-2", "--at", "1:5", "--header", "ottla.error.type=Time", "--to=-x", "--from-start",
    ]  # fmt: skip
    assert selection.request.partitions == [0, 1]
    chosen = [letter(), letter(number=3), letter(ValueError("y"), number=2)]
    assert [selection.request.chooses(record) for record in chosen] == [True, False, False]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"at": "17"}, "a place is PARTITION:OFFSET"),
        ({"at": "0:1", "partition": "0"}, "leave the partition empty"),
        ({"partition": "x"}, "'partition' is a whole number"),
        ({"header": "=x"}, "the filter 'header'"),
    ],
)
def test_a_wrong_field_is_named(form: dict[str, str], reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason):
        selection_of(visit_of(True, {"topic": "orders.dlq", **form}))


def test_a_console_that_only_reads_has_no_form() -> None:
    admin = FakeAdmin(topic("orders.dlq", partition()))
    Browser(admin).enter().read("/letters/replay?topic=orders.dlq", 403)
    form = Browser(admin, may_change=True).enter().read("/letters/replay?topic=orders.dlq&at=0%3A1")
    assert 'value="0:1"' in form


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
        path="/letters",
        query=query,
        form=form or {},
    )


async def values(cluster: LocalCluster, topic: str) -> Counter[bytes]:
    """Return the committed values of a topic with one partition."""
    place = TopicPartition(topic, 0)
    async with (
        Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as reader,
        asyncio.timeout(60),
    ):
        ends = await reader.end_offsets([place])
        read = [records async for records in up_to(reader, {place: 0}, ends)]
    return Counter(record.value for records in read for record in records)


@pytest.mark.cluster
async def test_letters_of_a_cluster_are_shown_and_sent_back(cluster: LocalCluster, admin: Admin) -> None:
    await admin.create_topics([NewTopic("orders", 1, 1), NewTopic("orders.dlq", 1, 1)])
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(6):
            record = letter(ValueError("bad") if number % 2 else None, number=number)
            await producer.send_and_wait("orders.dlq", record.value, record.key, headers=record.headers)
    model = (await show(at(cluster, admin, topic="orders.dlq", header="ottla.error.type=Value"))).model
    assert isinstance(model, LettersPage)
    assert [row.record.offset for row in model.rows] == [5, 3, 1]
    assert [(error.error_type, error.letters) for error in model.errors] == [("ValueError", 3)]
    assert model.command == "ottla dlq ls orders.dlq --header ottla.error.type=Value"

    form = {"topic": "orders.dlq", "header": "ottla.error.type=Value"}
    change = await plan_replay(at(cluster, admin, form))
    assert change.title == "Send 3 letters of orders.dlq back"
    assert [(line.what, line.after) for line in change.differences] == [
        ("letters", "header: ottla.error.type=Value"),
        ("records sent to orders", "3"),
        ("progress is kept by", "group ottla-dlq-replay-orders.dlq"),
    ]
    assert change.command == "ottla dlq replay orders.dlq --header ottla.error.type=Value --yes"
    stale = await plan_replay(at(cluster, admin, {"topic": "orders.dlq"}))
    done = await change.carry_out(at(cluster, admin, form))
    assert done.notice == "3 letters sent back"
    assert await values(cluster, "orders") == Counter([b"v1", b"v3", b"v5"])
    with pytest.raises(Outdated, match="showed 6 letters, and there are 3 now"):
        await stale.carry_out(at(cluster, admin))
    with pytest.raises(BadQuestion, match="no letter is chosen that was not sent back before"):
        await plan_replay(at(cluster, admin, form))
    rest = await plan_replay(at(cluster, admin, {"topic": "orders.dlq"}))
    await rest.carry_out(at(cluster, admin))
    assert await values(cluster, "orders") == Counter(b"v%d" % number for number in range(6))

    with pytest.raises(BadQuestion, match="there is no topic 'none'"):
        await plan_replay(at(cluster, admin, {"topic": "orders.dlq", "to": "none", "from_start": "yes"}))
    with pytest.raises(NotThere):
        await plan_replay(at(cluster, admin, {"topic": "none"}))
