"""Live data: samples, feeds that all readers share, and streams that drop readers which do not read."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.client.admin import Admin, ClusterDescription, FencedBroker
from ottla.client.connections.metadata import TopicInfo
from ottla.client.failures import NoBrokerReachable
from ottla.client.records import TopicPartition
from ottla.console.bounds import POINTS_MAX, STREAMS_MAX
from ottla.console.live.broker_absences import absences
from ottla.console.live.counters import Key, TopicTraffic
from ottla.console.live.events import events_between
from ottla.console.live.feeds import FeedReader, Feeds, TooManyStreams
from ottla.console.live.node_readings import (
    CommitReading,
    NodeReading,
    commits_between,
    held_records,
    node_reading,
)
from ottla.console.live.sampler import COMMIT_MS, IDLE_S, OFFLINE, Sampler, pause_s
from ottla.console.live.snapshots import ClusterSnapshot, take_snapshot
from ottla.console.live.streams import EventStream
from ottla.console.rendering import HERE, Templates
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import Browser, FakeAdmin, fenced, partition, snapshot_of, topic

PATIENCE_S = 60.0


class Cluster:
    """A cluster that answers samplers, and counts their requests."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.asked = 0
        self.counter = 0.0
        self.failure: Exception | None = None
        self.told: Mapping[str, NodeReading] = {}
        self.away: tuple[int, ...] = ()

    async def ask(self, at_s: float) -> ClusterSnapshot:
        self.asked += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return without_brokers(*self.away, at_s=at_s)

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        return {("a", TopicTraffic.RECORDS_IN, "t"): self.counter}

    async def nodes(self) -> Mapping[str, NodeReading]:
        return self.told

    async def held(self, group_id: str) -> None:
        return None

    def sampler(self) -> Sampler:
        return Sampler(self.ask, self, now=lambda: self.now_s)


async def test_all_who_ask_at_a_time_get_one_snapshot() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    found = await asyncio.gather(*(sampler.snapshot() for _ in range(20)))
    assert cluster.asked == 1
    assert len({id(snapshot) for snapshot in found}) == 1
    cluster.now_s += 1
    await sampler.snapshot()
    assert cluster.asked == 1
    cluster.now_s += 5
    await sampler.snapshot()
    assert cluster.asked == 2


async def test_one_who_leaves_does_not_take_the_answer_from_others() -> None:
    sampler = Cluster().sampler()
    leaving, staying = (asyncio.create_task(sampler.snapshot()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).topics


async def test_samples_make_rates_and_a_bounded_history() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    for _ in range(POINTS_MAX + 10):
        await sampler.snapshot()
        await sampler.sample()
        cluster.now_s += 2
        cluster.counter += 20
    series = sampler.series(TopicTraffic.RECORDS_IN)
    assert len(series.points) == POINTS_MAX
    assert series.last == 10
    assert sampler.rates.totals == {TopicTraffic.RECORDS_IN: 10}


async def test_counters_are_read_once_a_minute_while_nobody_looks() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    for _ in range(9):
        await sampler.sample()
        cluster.now_s += 15
        cluster.counter += 30
    assert [value for _, value in sampler.series(TopicTraffic.RECORDS_IN).points] == [2, 2]
    assert len(sampler.series(OFFLINE).points) == 9
    assert [value for _, value in sampler.topic_series("t", TopicTraffic.RECORDS_IN).points] == [2, 2]


async def test_a_sampler_that_rests_leaves_a_gap() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    sampler.start(samples_unwatched=False)
    async with asyncio.timeout(PATIENCE_S):
        await sampler.snapshot()
        while not sampler.series(OFFLINE).points:
            await asyncio.sleep(0.01)
        cluster.now_s += 100  # The browser has left.
        while (points := sampler.series(OFFLINE).points)[-1][1] is not None:
            await asyncio.sleep(0.01)
    await sampler.stop()
    assert [value for _, value in points][:1] == [0]


def test_large_clusters_are_asked_less_often_while_nobody_looks() -> None:
    assert pause_s(IDLE_S, 0.01) == IDLE_S
    assert pause_s(IDLE_S, 0.3) == 60


async def test_what_the_quorum_commits_is_counted_while_somebody_looks() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    await sampler.snapshot()
    assert sampler.commits(600) is None
    for within_5, total_ms in ((10, 20.0), (12, 26.0), (1, 9.0)):  # at last the node has restarted
        bounds = {1.0: 0.0, 5.0: float(within_5), inf: float(within_5)}
        cluster.told = {"quorum:1": NodeReading(commits=CommitReading(total_ms, bounds))}
        cluster.now_s += 2
        await sampler.snapshot()
        await sampler.sample()
    assert [value for _, value in sampler.series(COMMIT_MS).points] == [3, 9]
    commits = sampler.commits(600)
    assert commits is not None
    assert (commits.count, commits.mean_ms, commits.bound_of(0.99)) == (3, 5, 5)


def test_what_an_endpoint_tells_of_its_node() -> None:
    found = node_reading(
        'ottla_tls_certificate_expiry_seconds{listener="SASL_SSL",broker="2"} 86400\n'
        'ottla_tls_certificate_expiry_seconds{listener="A"} wrong\n'
        'ottla_quorum_tls_certificate_expiry_seconds{listener="quorum"} -5\n'
        'ottla_quorum_commit_milliseconds_bucket{le="0.5"} 3\n'
        'ottla_quorum_commit_milliseconds_bucket{le="+Inf"} 4\n'
        "ottla_quorum_commit_milliseconds_sum 8.5\nottla_quorum_commit_milliseconds_count 4\n"
    )
    assert [(certificate.listener, certificate.left_s) for certificate in found.certificates] == [
        ("SASL_SSL (broker 2)", 86400),
        ("the quorum's quorum", -5),
    ]
    assert found.commits == CommitReading(8.5, {0.5: 3, inf: 4})
    assert found.commits.bound_of(0.99) == inf
    assert node_reading("ottla_broker_metadata_offset 5\n") == NodeReading()


def test_an_endpoint_reports_the_held_records_of_a_share_group() -> None:
    exposition = (
        "# TYPE ottla_share_partition_acquired_records gauge\n"
        'ottla_share_partition_acquired_records{group="tasks",topic="orders",partition="0"} 17\n'
        'ottla_share_partition_acquired_records{group="tasks",topic="orders",partition="x"} 1\n'
        'ottla_share_partition_acquired_records{group="tasks",topic="orders",partition="2"} many\n'
        'ottla_share_partition_acquired_records{group="other",topic="orders",partition="1"} 3\n'
        'ottla_share_partition_acquired_records{group="a\\"b\\\\c\\nd",topic="t",partition="1"} 4\n'
    )
    assert held_records("tasks", exposition) == {TopicPartition("orders", 0): 17}
    assert held_records('a"b\\c\nd', exposition) == {TopicPartition("t", 1): 4}
    assert held_records("nobody", exposition) == {}


def test_a_quorum_that_committed_nothing_has_no_latency() -> None:
    assert CommitReading().mean_ms is None
    assert CommitReading().bound_of(0.99) is None
    new = {"a": NodeReading(commits=CommitReading(5, {inf: 1}))}
    assert commits_between({}, new) == CommitReading()
    assert commits_between({}, {"a": NodeReading()}) is None


async def test_a_cluster_that_does_not_answer_leaves_a_gap() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    await sampler.snapshot()
    for failure in (None, NoBrokerReachable("away"), None):
        cluster.failure = failure
        cluster.now_s += 10
        await sampler.sample()
    assert [value for _, value in sampler.series(OFFLINE).points] == [0, None, 0]


def without_brokers(*ids: int, fenced_ids: Sequence[int] = (), at_s: float) -> ClusterSnapshot:
    brokers = [broker for broker in snapshot_of().cluster.brokers if broker.id not in ids]
    description = ClusterDescription("cluster-1", 2, tuple(brokers), fenced(*fenced_ids))
    return snapshot_of(topic("t", partition()), at_s=at_s, cluster=description)


def test_absent_brokers_have_the_time_of_their_departure() -> None:
    whole, without = without_brokers(at_s=10), without_brokers(3, fenced_ids=(3, 9), at_s=20)
    assert without.absent == {3: "fenced", 9: "fenced"}
    assert absences({}, whole, without) == {3: 20}  # the departure of broker 9 was not seen
    down = without_brokers(2, 3, fenced_ids=(9,), at_s=30)
    assert down.absent == {2: "down", 3: "down", 9: "fenced"}
    assert absences({3: 20}, without, down) == {2: 30, 3: 20}
    assert absences({2: 30, 3: 20}, down, without_brokers(3, at_s=40)) == {3: 20}
    assert absences({3: 20}, down, replace(without_brokers(3, at_s=40), topics=())) == {}


def test_the_cluster_says_since_when_a_broker_is_fenced() -> None:
    """Also if it was fenced before the console started."""
    whole = snapshot_of(at_s=10)
    away, *live = whole.cluster.brokers
    fenced = (FencedBroker(away, 1_500),)
    after = snapshot_of(at_s=20, cluster=ClusterDescription("cluster-1", 2, tuple(live), fenced))
    assert absences({}, None, after) == absences({}, whole, after) == {away.id: 1.5}
    assert [event.at_s for event in events_between(whole, after)] == [1.5]


async def test_the_sampler_remembers_departures() -> None:
    cluster = Cluster()
    sampler = cluster.sampler()
    await sampler.snapshot()
    cluster.away = (3,)
    cluster.now_s += 10
    await sampler.snapshot()
    assert sampler.absent_since == {3: 1010}


async def test_a_topic_without_a_leader_yet_does_not_hide_the_others() -> None:
    admin = FakeAdmin(topic("orders", partition()))
    refusals = [KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "not yet")]
    describe = admin.describe_topics

    async def describe_topics() -> list[TopicInfo]:
        if refusals:
            raise refusals.pop()
        return await describe()

    admin.describe_topics = describe_topics  # type: ignore[assignment]
    assert len((await take_snapshot(cast(Admin, admin), 1.0)).topics) == 1
    refusals.append(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "never"))
    with pytest.raises(KafkaError, match="never"):
        await take_snapshot(cast(Admin, admin), 1.0)


# ------------------------------------------------------------ feeds


class Producer:
    """A producer of fragments that a test changes."""

    def __init__(self) -> None:
        self.fragments = {"live_a": "1", "live_b": "1"}
        self.failure: Exception | None = None
        self.made = 0

    async def __call__(self) -> Mapping[str, str]:
        self.made += 1
        if self.failure is not None:
            raise self.failure
        return dict(self.fragments)


@pytest.fixture
async def feeds() -> AsyncIterator[Feeds]:
    found = Feeds()
    yield found
    found.end()


async def news(reader: FeedReader) -> tuple[dict[str, str], str | None]:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.news()


async def test_a_reader_gets_everything_and_then_what_changed(feeds: Feeds) -> None:
    producer = Producer()
    reader = feeds.open("/a", producer, 0.001)
    assert await news(reader) == ({"live_a": "1", "live_b": "1"}, None)
    producer.fragments["live_b"] = "2"
    assert await news(reader) == ({"live_b": "2"}, None)
    late = feeds.open("/a", producer, 0.001)
    assert await news(late) == ({"live_a": "1", "live_b": "2"}, None)


async def test_a_reader_that_slept_gets_the_newest_alone(feeds: Feeds) -> None:
    producer = Producer()
    slow, quick = feeds.open("/a", producer, 0.001), feeds.open("/a", producer, 0.001)
    await news(slow)
    await news(quick)
    for number in range(2, 50):
        producer.fragments["live_a"] = str(number)
        assert await news(quick) == ({"live_a": str(number)}, None)
    assert await news(slow) == ({"live_a": "49"}, None)


async def test_trouble_is_told_once_and_so_is_its_end(feeds: Feeds) -> None:
    producer = Producer()
    reader = feeds.open("/a", producer, 0.001)
    await news(reader)
    producer.failure = NoBrokerReachable("no broker answers")
    assert await news(reader) == ({}, "no broker answers")
    producer.failure = None
    assert await news(reader) == ({}, "")
    producer.failure = ZeroDivisionError("a fault")
    _, trouble = await news(reader)
    assert trouble is not None
    assert "log" in trouble


async def test_a_feed_without_readers_ends(feeds: Feeds) -> None:
    producer = Producer()
    readers = [feeds.open("/a", producer, 0.001) for _ in range(2)]
    for reader in readers:
        await news(reader)
        reader.close()
    assert feeds.readers == 0
    made = producer.made
    for _ in range(20):
        await asyncio.sleep(0.002)
    assert producer.made == made


async def test_only_so_many_readers(feeds: Feeds) -> None:
    readers = [feeds.open(f"/{number}", Producer(), 60) for number in range(STREAMS_MAX)]
    with pytest.raises(TooManyStreams):
        feeds.open("/one", Producer(), 60)
    readers[0].close()
    feeds.open("/one", Producer(), 60)


# ------------------------------------------------------------ streams


class Connection:
    """A browser at the other end of a stream. While it `reads`, no sent data has to wait."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    async def serve(self, stream: EventStream) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await stream({"type": "http"}, self.receive, self.send)

    async def until(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.text:
                await asyncio.sleep(0.001)


async def test_a_stream_brings_fragments_until_the_browser_leaves(feeds: Feeds) -> None:
    producer, connection = Producer(), Connection()
    producer.fragments = {"live_a": "<p id='live_a'>one\n\ntwo</p>"}
    stream = EventStream(feeds.open("/a", producer, 0.001), asyncio.Event())
    serving = asyncio.create_task(connection.serve(stream))
    await connection.until("two")
    event, data, empty, *_ = connection.text.split("\n")
    assert event == "event: fragment"
    assert json.loads(data.removeprefix("data: "))["html"] == "<p id='live_a'>one\n\ntwo</p>"
    assert empty == ""
    connection.gone.set()
    await serving
    assert feeds.readers == 0


async def test_a_browser_that_does_not_read_is_dropped(feeds: Feeds) -> None:
    producer, connection = Producer(), Connection()
    stream = EventStream(feeds.open("/a", producer, 0.001), asyncio.Event(), send_s=0.05)
    serving = asyncio.create_task(connection.serve(stream))
    await connection.until("live_b")
    connection.reads.clear()
    producer.fragments["live_a"] = "2"
    await serving
    assert feeds.readers == 0
    assert not any(
        message.get("more_body") is False for message in connection.sent
    )  # so its connection is closed


async def test_streams_end_with_the_console(feeds: Feeds) -> None:
    stopping, connection = asyncio.Event(), Connection()
    stream = EventStream(feeds.open("/a", Producer(), 0.001), stopping)
    serving = asyncio.create_task(connection.serve(stream))
    await connection.until("live_b")
    stopping.set()
    await serving
    assert connection.sent[-1]["more_body"] is False


def test_a_fragment_knows_what_stands_outside_of_its_block(tmp_path: Path) -> None:
    shutil.copy(HERE / "templates" / "parts.html", tmp_path)
    (tmp_path / "base.html").write_text("<h1>{{ model.title }}</h1>{% block content %}{% endblock %}")
    (tmp_path / "page.html").write_text(
        '{% extends "base.html" %}{% set name = model.name %}{% macro loud(text) %}{{ text | upper }}!{% endmacro %}'
        '{% block content %}{% block live_a %}<p id="live_a">{{ loud(name) }}</p>{% endblock %}{% endblock %}'
    )
    templates, context = Templates(tmp_path), {"model": {"title": "a page", "name": "<b>"}}
    assert templates.fragments("page.html", context) == {"live_a": '<p id="live_a">&lt;B&gt;!</p>'}
    assert templates.fragments("page.html", context)["live_a"] in templates.page("page.html", context)


@pytest.mark.parametrize("address", ["/overview", "/topics", "/topics/topic?name=orders"])
def test_every_fragment_is_an_element_of_the_same_id(address: str) -> None:
    page = Browser(FakeAdmin(topic("orders", partition()))).enter().read(address)
    names = re.findall(r'id="(live_\w+)"', page)
    assert names
    assert len(names) == len(set(names))
    assert f'data-events="/events{address}"' in page


@pytest.mark.parametrize("template", sorted(path.name for path in (HERE / "templates").glob("*.html")))
def test_a_block_that_is_live_holds_one_element_of_its_name(template: str) -> None:
    text = (HERE / "templates" / template).read_text()
    for name, body in re.findall(r"{% block (live_\w+) %}\s*(.*?){% endblock %}", text, re.DOTALL):
        first = re.match(r"<(\w+)[^>]*>", body)
        assert first is not None
        assert f'id="{name}"' in first[0]
        assert body.rstrip().endswith(f"</{first[1]}>")
