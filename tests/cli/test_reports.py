"""Conclusions of commands from answers: lag, health, plans, percentiles, quotas. No cluster."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import pytest

from ottla.cli.commands import quota
from ottla.cli.commands.bench.measurements import PhaseResult, percentile
from ottla.cli.commands.cluster.moves import Move, as_plan, parse_plan
from ottla.cli.commands.cluster.reassign import check_brokers
from ottla.cli.commands.cluster.survey import assess
from ottla.cli.commands.group.delete import named
from ottla.cli.commands.group.seek import parse_offsets, parse_target
from ottla.cli.commands.group.share_settings import as_json, chosen
from ottla.cli.commands.group.show import wanted
from ottla.cli.commands.quota import entity_of, numbers_of
from ottla.cli.commands.txn import age
from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.main import main
from ottla.cli.terminal.confirmation import confirm
from ottla.cli.terminal.output import bytes_text
from ottla.client.admin import (
    ConfigEntry,
    GroupDescription,
    GroupListing,
    GroupMember,
    TransactionDescription,
)
from ottla.client.admin.group_lag import put_together
from ottla.client.admin.group_seek import Target, within
from ottla.client.connections.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_lag() -> None:
    member = GroupMember("m", None, "c", "/127.0.0.1", (A0, B0), -1)
    where = BrokerAddress(1, "h", 9092)
    group = GroupDescription("g", "Stable", "classic", "consumer", "range", where, (member,))
    down = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
    report = put_together(group, {A0: 5, A1: 7}, {A0: 9, A1: down, B0: 3})
    assert [
        (partition.partition, partition.current, partition.end, partition.lag, partition.member)
        for partition in report.partitions
    ] == [
        (A0, 5, 9, 4, member),
        (A1, 7, None, None, None),
        (B0, None, 3, None, member),
    ]
    assert report.total_lag == 4
    assert report.lag_by_topic() == {"a": (2, 4), "b": (1, None)}
    before_the_first_commit = put_together(group, {}, {A0: 9, B0: 3})
    assert before_the_first_commit.total_lag is None
    assert put_together(replace(group, members=()), {}, {}).total_lag == 0


def test_each_topic_that_is_named_counts() -> None:
    """Only the last of `--topic a:0 --topic a:1` used to count."""
    assert named(["a:0", "a:1,3-4", "b"]) == {"a": [0, 1, 3, 4], "b": None}
    assert named(["a:0", "a"]) == named(["a", "a:0"]) == {"a": None}


def test_filters_of_groups() -> None:
    group = GroupListing("g", "consumer", "Stable", "classic", 1)
    for state, kind, protocol, expected in (
        ([], [], None, True),
        (["stable", "empty"], ["Classic"], "consumer", True),
        (["empty"], [], None, False),
        ([], ["consumer"], None, False),
        ([], [], "connect", False),
    ):
        arguments = argparse.Namespace(state=state, type=kind, protocol=protocol)
        assert wanted(group, arguments) is expected


def test_the_settings_of_a_share_group_that_are_shown() -> None:
    def entry(name: str, value: str, *, is_default: bool = True) -> ConfigEntry:
        return ConfigEntry(name, value, "DEFAULT_CONFIG", is_default, is_sensitive=False, read_only=False)

    entries = [
        entry("consumer.session.timeout.ms", "50000", is_default=False),
        entry("errors.deadletterqueue.topic.name", ""),
        entry("share.isolation.level", "read_committed", is_default=False),
        entry("share.record.lock.duration.ms", "30000"),
        entry("share.renew.acknowledge.enable", "true"),
        entry("ottla.share.ordering", "key", is_default=False),
    ]
    assert [shown.name for shown in chosen(entries)] == [
        "ottla.share.ordering",
        "share.record.lock.duration.ms",
        "errors.deadletterqueue.topic.name",
        "share.isolation.level",
    ]
    denied = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "denied")
    assert as_json(denied) == {
        "settings": None,
        "settings_error": "denied (GROUP_AUTHORIZATION_FAILED)",
    }


def test_where_to_seek() -> None:
    words = ("start", "end", "17", "+5", "-5", "@9", "@1s")
    assert [parse_target(word, 1500) for word in words] == [
        Target("start"), Target("end"), Target("offset", 17), Target("shift", 5), Target("shift", -5),
        Target("timestamp", 9), Target("timestamp", 500),
    ]  # fmt: skip
    for wrong in ("", "+", "x", "--5", "1.5", "@x"):
        with pytest.raises(UsageError):
            parse_target(wrong, 0)
    assert within({A0: 1, A1: 50, B0: 99}, {A0: 5, A1: 0, B0: 0}, {A0: 9, A1: 60, B0: 70}) == {
        A0: 5,
        A1: 50,
        B0: 70,
    }


def test_offsets_from_a_file() -> None:
    assert parse_offsets(["# saved", "a 0 5", "", "b,0,7"], "f") == {A0: 5, B0: 7}
    with pytest.raises(CommandFailed, match="f, line 2: expected TOPIC PARTITION OFFSET, found 'a 0'"):
        parse_offsets(["a 0 5", "a 0"], "f")
    with pytest.raises(CommandFailed, match="f holds no offsets"):
        parse_offsets([], "f")


def topic(name: str, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicInfo:
    infos = {
        i: PartitionInfo(i, leader, 0, replicas, isr) for i, (leader, replicas, isr) in enumerate(partitions)
    }
    return TopicInfo(name, bytes(16), False, partitions=infos)


def test_health() -> None:
    good = assess([topic("a", (1, (1, 2), (2, 1)))], [1, 2], [], {}, 101, {})
    assert good.healthy
    assert not assess([], [1], [], {}, None, {}).healthy
    assert not replace(good, quorum_problem="the metadata quorum has lost metadata").healthy
    assert not replace(good, quorum_abstaining=[103]).healthy
    assert not replace(good, quorum_silent=[103]).healthy
    assert not assess([], [1], [2], {}, 101, {}).healthy
    topics = [
        topic("a", (1, (1, 2), (1,)), (-1, (2,), (2,)), (1, (1, 3), (1, 3))),
        topic("b", (3, (3, 1), (3,))),
    ]
    bad = assess(topics, [1], [3], {"a": 2, "b": 1}, 101, {})
    assert not bad.healthy
    assert (bad.brokers_down, bad.brokers_fenced, bad.offline) == ([2], [3], ["a-1"])
    assert (bad.below_min_isr, bad.under_replicated) == (["a-0"], ["a-0", "b-0"])


def test_min_isr_above_the_replicas_is_no_alarm() -> None:
    assert assess([topic("a", (1, (1,), (1,)))], [1], [], {"a": 2}, 101, {}).healthy


def test_replicas_that_come_are_not_missed() -> None:
    moving = [topic("a", (1, (3, 1), (1,)))]
    assert assess(moving, [1, 3], [], {"a": 2}, 101, {("a", 0): (3,)}).healthy
    assert assess(moving, [1, 3], [], {"a": 2}, 101, {}).below_min_isr == ["a-0"]


def test_plans_are_kafkas_json() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    )
    assert parse_plan(text, "f") == {A0: [3, 1]}
    written = as_plan({A0: Move((1, 2), (3, 1), 7)})
    assert parse_plan(json.dumps(written), "f") == {A0: [3, 1]}


def test_brokers_of_a_plan_exist() -> None:
    check_brokers({A0: [1, 2], A1: [2]}, {1, 2, 3})
    with pytest.raises(CommandFailed, match="a-1: there is no broker 9; there are 1,2,3"):
        check_brokers({A0: [1, 2], A1: [2, 9]}, {1, 2, 3})


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"partitions": 3}', '{"partitions": []}', '{"partitions": [{"topic": "a"}]}',
        '{"partitions": [{"topic": "a", "partition": "0", "replicas": [1]}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [true]}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": 1}]}',
        json.dumps({"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}] * 2}),
    ],
)  # fmt: skip
def test_plans_that_are_none(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"^f"):
        parse_plan(text, "f")


def test_percentiles_by_nearest_rank() -> None:
    values = [float(number) for number in range(1, 1001)]
    assert [percentile(values, share) for share in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 1000]
    assert percentile([7.0], 0.5) == 7
    result = PhaseResult("produce", 1000, 1000, 2.0, values)
    assert result.row() == ("produce", 1000, "2.00", "500", "0.50", "500.00", "990.00", "999.00", "1000.00")
    assert result.as_json()["p99_ms"] == 990
    assert PhaseResult("consume", 1, 1, 1.0, ()).as_json()["p99_ms"] is None


def test_entities_of_quotas() -> None:
    fields = {"user": None, "client_id": "c", "ip": None}
    defaults = {"default_user": True, "default_client_id": False, "default_ip": False}
    assert entity_of(argparse.Namespace(**fields, **defaults)) == {"user": None, "client-id": "c"}
    assert numbers_of(["a=1", "b=0.5"]) == {"a": 1.0, "b": 0.5}
    assert numbers_of(["producer_byte_rate=10MB"]) == {"producer_byte_rate": 10_000_000}


LIMITS = {"a": 10737418240.0, "b": 1234567890123.0, "c": 12345678.5, "d": 1e-7, "e": 1e22, "f": 0.25}
SHOWN = ["10737418240", "1234567890123", "12345678.5", "0.0000001", "10000000000000000000000", "0.25"]


def test_quotas_are_shown_with_all_their_digits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def describe(arguments: argparse.Namespace) -> Any:
        return [({"user": "u"}, LIMITS)]

    async def alter(arguments: argparse.Namespace, changes: Any) -> None:
        assert changes == LIMITS

    monkeypatch.setattr(quota, "_describe", describe)
    monkeypatch.setattr(quota, "_alter", alter)
    given = [f"{key}={text}" for key, text in zip(LIMITS, SHOWN, strict=True)]
    for words, place in ((["list"], 4), (["set", "--user", "u", *given], 1)):
        assert main(["quota", *words]) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
        assert [row[place] for row in rows] == SHOWN
    assert main(["quota", "list", "-o", "json"]) == 0
    text = capsys.readouterr().out
    assert '"a": 10737418240,' in text
    assert '"e": 10000000000000000000000,' in text
    assert json.loads(text)[0]["quotas"] == LIMITS
    for text in ("inf", "nan", "1e400", "0", "-0.5"):
        with pytest.raises(UsageError, match="quota set takes numbers above 0"):
            numbers_of([f"a={text}"])


def test_scripts_are_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    confirm("Delete?", yes=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("yes\n", True), ("\n", False), ("", False)])
def test_people_are_asked(answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr("sys.stdin", Terminal())
    confirm("Delete?", yes=True)
    if goes_on:
        confirm("Delete?", yes=False)
    else:
        with pytest.raises(CommandFailed, match="nothing was done"):
            confirm("Delete?", yes=False)


def test_sizes_as_people_read_them() -> None:
    assert [bytes_text(number) for number in (0, 999, 1000, 1_500_000, 10**15)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "1000.0 TB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "started_ms", "text"),
    [
        ("Ongoing", 10_000_000, "0s"),
        ("Ongoing", 9_940_000, "1m0s"),
        ("PrepareCommit", 9_996_600, "3s"),
        ("Ongoing", 10_000_000 - 7_262_000, "2h1m2s"),
        ("Ongoing", 10_200_000, "0s"),
        ("CompleteCommit", 40_000, "-"),
        ("Empty", -1, "-"),
    ],
)
def test_how_long_a_transaction_has_been_open(state: str, started_ms: int, text: str) -> None:
    transaction = TransactionDescription("x", state, 1, 0, 60_000, started_ms, (), -1, 1)
    assert age(transaction, 10_000_000) == text
