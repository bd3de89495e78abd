"""`ottla cluster`: what is broken stands first, and partitions in need are summed up by topic."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ottla.cli.commands.cluster import show
from ottla.cli.commands.cluster.report import headline, imbalance_text, needy_topics, report_of
from ottla.cli.commands.cluster.survey import Survey, assess, survey
from ottla.cli.main import main
from ottla.client.admin import Admin, ClusterDescription, ConfigEntry, FencedBroker, QuorumDescription
from ottla.client.admin.partition_states import Adding
from ottla.client.connections.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError

FENCED_MS = 1_700_000_000_000
LATER_S = FENCED_MS / 1000 + 252
QUORUM = QuorumDescription(101, 7, {101: ("h", 9200)})


def address(broker_id: int) -> BrokerAddress:
    return BrokerAddress(broker_id, "h", 9091 + broker_id)


def topic(name: str, *partitions: tuple[int, tuple[int, ...]]) -> TopicInfo:
    """Return a topic with replicas on brokers 1 and 2; each partition is given by leader and ISR."""
    infos = {
        index: PartitionInfo(index, leader, 0, (1, 2), isr) for index, (leader, isr) in enumerate(partitions)
    }
    return TopicInfo(name, bytes(16), name.startswith("__"), partitions=infos)


def survey_of(
    *topics: TopicInfo, live: tuple[int, ...], fenced: tuple[int, ...] = (), adding: Adding | None = None
) -> Survey:
    cluster = ClusterDescription(
        "c",
        1,
        tuple(map(address, live)),
        tuple(FencedBroker(address(broker), FENCED_MS) for broker in fenced),
    )
    health = assess(topics, live, fenced, {}, 101, adding or {})
    health.fenced_since_ms.update(dict.fromkeys(fenced, FENCED_MS))
    return Survey(cluster, list(topics), QUORUM, adding or {}, health)


WHOLE, HALF, LOST = (1, (1, 2)), (1, (1,)), (-1, (2,))


def test_a_healthy_cluster_is_said_in_a_word() -> None:
    found = survey_of(topic("orders", WHOLE), live=(1, 2))
    assert str(headline(found, LATER_S)) == "healthy"
    assert needy_topics(found) == []
    report = report_of(found)
    assert [broker["state"] for broker in report["brokers"]] == ["healthy", "healthy"]
    assert (report["healthy"], report["under_replicated"]) == (True, [])


def test_a_hint_says_that_leaders_are_unbalanced() -> None:
    other = (2, (1, 2))
    found = survey_of(topic("orders", other, other, WHOLE), live=(1, 2))
    assert imbalance_text(found) == (
        "2 of 3 partitions are not led by the preferred replica: 'ottla cluster elect' lets it lead"
    )
    few = survey_of(topic("orders", other, *[WHOLE] * 9), live=(1, 2))
    assert imbalance_text(few) == ""
    cannot_lead = survey_of(topic("orders", (2, (2,)), LOST), live=(2,))
    assert imbalance_text(cannot_lead) == "", "no preferred replica is in sync"


def test_dead_brokers_stand_first_with_the_time_of_their_fence() -> None:
    found = survey_of(topic("orders", HALF, LOST), live=(1, 3), fenced=(2,))
    brokers = report_of(found)["brokers"]
    assert [(broker["id"], broker["state"], broker["fenced_since_ms"]) for broker in brokers] == [
        (2, "fenced", FENCED_MS),
        (1, "healthy", None),
        (3, "healthy", None),
    ]
    assert brokers[0]["address"] == "h:9093"
    assert str(headline(found, LATER_S)) == (
        "NOT healthy: broker 2 fenced since 2023-11-14T22:13:20Z, 4m12s ago; 1 partition offline; "
        "1 partition under-replicated"
    )


def test_a_broker_that_is_not_registered_is_offline() -> None:
    found = survey_of(topic("orders", HALF), live=(1,))
    assert [(broker["id"], broker["state"]) for broker in report_of(found)["brokers"]] == [
        (2, "offline"),
        (1, "healthy"),
    ]
    assert "broker 2 offline" in str(headline(found, LATER_S))


def test_many_brokers_are_counted() -> None:
    found = survey_of(topic("orders", WHOLE), live=(1, 2), fenced=(3, 4, 5, 6))
    assert str(headline(found, LATER_S)).endswith("; 1 more broker fenced")


def test_own_topics_stand_before_internal_topics_and_offline_partitions_first() -> None:
    found = survey_of(
        topic("__consumer_offsets", LOST, LOST),
        topic("a", HALF, WHOLE),
        topic("b", LOST, HALF),
        topic("c", WHOLE),
        live=(1,),
        fenced=(2,),
    )
    assert [(needy.topic, needy.offline, needy.under_replicated) for needy in needy_topics(found)] == [
        ("b", 1, 2),
        ("a", 0, 1),
        ("__consumer_offsets", 2, 2),
    ]
    assert [row["topic"] for row in report_of(found)["under_replicated"]] == [
        "a", "b", "b", "__consumer_offsets", "__consumer_offsets",
    ]  # fmt: skip


def test_replicas_that_a_reassignment_adds_are_not_missed() -> None:
    found = survey_of(topic("a", HALF), live=(1, 2), adding={TopicPartition("a", 0): (2,)})
    (needy,) = needy_topics(found)
    assert (needy.is_healthy, needy.reassigning) == (True, 1)
    assert str(headline(found, LATER_S)) == "healthy"


@pytest.mark.parametrize(("words", "rows"), [((), 10), (("--all",), 14)])
def test_ten_topics_are_shown_or_all(
    words: tuple[str, ...], rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask(connection: Any) -> Survey:
        return survey_of(*(topic(f"t{number:02}", HALF) for number in range(14)), live=(1,), fenced=(2,))

    monkeypatch.setattr(show, "_ask", ask)
    assert main(["cluster", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("t") for line in lines) == rows
    assert ("and 4 more topics: --all shows all" in lines) is (rows == 10)
    dead = next(number for number, line in enumerate(lines) if line.startswith("2\tfenced\t"))
    assert dead < 24


class DegradedCluster:
    """The admin client of a cluster without broker 2, which answers about settings once all topics are asked for."""

    def __init__(self, *topics: TopicInfo, refused: set[str]) -> None:
        self.topics = topics
        self.refused = refused
        self.asked = 0
        self.all_asked = asyncio.Event()

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 1, (address(1),), ())

    async def describe_topics(self) -> list[TopicInfo]:
        return list(self.topics)

    async def describe_quorum(self, *, broker_id: int, timeout_ms: float) -> QuorumDescription:
        return QUORUM

    async def list_partition_reassignments(self) -> dict[object, object]:
        return {}

    async def describe_configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        self.asked += 1
        if self.asked == len(self.topics):
            self.all_asked.set()
        await self.all_asked.wait()
        if name in self.refused:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no DESCRIBE_CONFIGS on {name}")
        return [ConfigEntry("min.insync.replicas", "2", "topic", False, False, False)]


async def test_settings_are_asked_at_once_and_refusals_hide_nothing() -> None:
    asked = DegradedCluster(*(topic(name, HALF) for name in ("a", "b", "c")), refused={"b"})
    async with asyncio.timeout(10):
        health = (await survey(cast("Admin", asked))).health
    assert (health.under_replicated, health.below_min_isr) == (["a-0", "b-0", "c-0"], ["a-0", "c-0"])
    assert health.brokers_down == [2]
