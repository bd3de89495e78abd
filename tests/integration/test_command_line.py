"""The command line against the shared cluster, as people use it: each step a process, its exit code, its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.cli.main import main
from tests.cli.people import Person
from tests.cluster import wait_until
from tests.commands import run_ottla

pytestmark = pytest.mark.cluster

Run = Callable[..., Any]


@pytest.fixture
def ottla(bootstrap: str) -> Run:
    """Run a command; its output (parsed if -o json stands last), after its exit code was as expected."""

    def run(*words: str, code: int = 0, data: str = "") -> Any:
        done = run_ottla(*words, given=data, environ={**os.environ, "OTTLA_BOOTSTRAP": bootstrap})
        assert done.returncode == code, (words, done.stdout, done.stderr)
        if code:
            assert done.stderr.count("\n") <= 1, done.stderr
            return done.stderr
        return json.loads(done.stdout) if words[-1] == "json" else done.stdout

    return run


@pytest.fixture
def name(ottla: Run) -> str:
    """Return a topic of three partitions on one broker each, with 10 records in partition 0 and 20 in partition 1."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    # Its records are old: retention would take them whenever it comes by.
    ottla("topic", "create", name, "-p", "3", "-r", "1", "--config", "retention.ms=-1")
    for partition, count in ((0, 10), (1, 20)):
        lines = "".join(f"{partition} {1_700_000_000_000 + i} k{i}=v{i}\n" for i in range(count))
        ottla("produce", name, "-f", "%p %T %k=%s", data=lines)
    return name


def offsets(rows: list[dict[str, Any]], field: str) -> list[int]:
    return [row[field] for row in rows]


def test_topics(ottla: Run, name: str) -> None:
    (described,) = ottla("topic", "describe", name, "-o", "json")
    assert offsets(described["partitions"], "high_watermark") == [10, 20, 0]
    assert described["partitions"][1]["size_bytes"] > 0
    assert {partition["state"] for partition in described["partitions"]} == {"healthy"}
    ottla("topic", "alter", name, "--set", "retention.ms=86400000", "--set", "min.insync.replicas=1")
    # Another broker may be asked, which hears of it a moment later.
    wait_until(lambda: "retention.ms\t86400000\ttopic" in ottla("topic", "describe", name), "the new setting")
    ottla("topic", "alter", "-r", f"{name[:-1]}.", "--unset", "min.insync.replicas")

    def settings() -> list[tuple[str, str]]:
        rows = ottla("config", "get", "topic", name, "-o", "json")
        return [(row["key"], row["value"]) for row in rows if row["source"] == "topic"]

    wait_until(lambda: settings() == [("retention.ms", "86400000")], "one setting of the topic's own")
    assert "3 partitions" not in ottla("topic", "add-partitions", name, "--to", "4")
    wait_until(
        lambda: [row["partitions"] for row in ottla("topic", "list", name, "-o", "json")] == [4], "partitions"
    )


def test_trimming(ottla: Run, name: str) -> None:
    dry = ottla("topic", "trim", name, "--timestamp", "1700000000005", "--dry-run", "-o", "json")
    assert offsets(dry, "new_start") == [5, 5, 0]
    assert "10" in ottla("topic", "trim", f"{name}:0", "--offset", "11", code=1)
    assert "10" in ottla("topic", "trim", f"{name}:1=7", f"{name}:0=11", code=1)
    ottla("topic", "trim", f"{name}:1=7", f"{name}:0,2=0")
    ottla("topic", "trim", f"{name}:0", "--offset", "end")
    (described,) = ottla("topic", "describe", name, "-o", "json")
    assert offsets(described["partitions"], "log_start_offset") == [10, 7, 0]
    assert len(ottla("consume", name, "-e").splitlines()) == 13


def test_records_in_and_out(ottla: Run, name: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(b"a\nb")
    ottla(
        "produce",
        name,
        "-p",
        "2",
        "-H",
        "origin=shell",
        "-H",
        "origin=again",
        "-k",
        "key",
        "--whole-files",
        str(picture),
    )
    ottla("produce", name, "-p", "2", "-K", ":", "-Z", data="gone:\n")
    assert (
        ottla("consume", name, "-p", "2", "-e", "-Z", "-f", "%o %k=%s %S %h;")
        == "0 key=a\nb 3 origin=shell,origin=again;1 gone=NULL -1 ;"
    )
    assert ottla("consume", name, "-p", "0", "-o", "-2", "-e", "-K", "=") == "k8=v8\nk9=v9\n"
    assert ottla("consume", name, "-p", "1", "-o", "@1700000000018", "-e") == "v18\nv19\n"
    assert ottla("consume", "-r", f"{name}", "-c", "1", "-p", "1") == "v0\n"
    record = json.loads(ottla("consume", name, "-p", "1", "-c", "1", "--output", "json", "-e"))
    assert (record["key"], record["timestamp_ms"]) == ("k0", 1_700_000_000_000)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("topic delete cli-no-such", "there is no topic 'cli-no-such'"),
        ("topic trim cli-no-such --offset 1", "there is no topic 'cli-no-such'"),
        ("group delete cli-no-such", "there is no group 'cli-no-such'"),
        ("group delete cli-no-such --topic cli-t", "there is no group 'cli-no-such'"),
        ("txn delete cli-no-such", "there is no transactional id 'cli-no-such'"),
        ("txn abort cli-no-such", "there is no transactional id 'cli-no-such'"),
        ("mirror delete cli-no-such", "there is no mirror 'cli-no-such'"),
        ("mirror promote cli-no-such", "there is no mirror 'cli-no-such'"),
        ("user delete cli-no-such", "there is no user 'cli-no-such'"),
        ("cluster elect --unclean --topic cli-no-such", "there is no topic 'cli-no-such'"),
        ("cluster decommission 77", "there is no broker 77"),
    ],
)
def test_nobody_is_asked_about_a_name_that_does_not_exist(
    words: str,
    refusal: str,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", bootstrap)
    monkeypatch.setattr("sys.stdin", Person("y\n"))
    assert main(words.split()) == 1
    error = capsys.readouterr().err
    assert "[y/N]" not in error
    assert refusal in error


def test_a_group_is_described_moved_and_deleted(ottla: Run, name: str, tmp_path: Path) -> None:
    group = f"g-{name}"
    ottla("consume", name, "-g", group, "-e")
    (described,) = ottla("group", "describe", group, "-o", "json")
    assert (described["state"], described["total_lag"], described["members"]) == ("Empty", 0, [])

    def sought(*words: str) -> dict[int, int]:
        rows = ottla("group", "seek", group, *words, "-o", "json")
        return {row["partition"]: row["current_offset"] for row in rows}

    assert sought("--to", "start", "--dry-run") | {2: 0} == {0: 0, 1: 0, 2: 0}
    assert sought("--to", "-3", "--topic", f"{name}:0,1") == {0: 7, 1: 17}
    assert sought("--to", "+1", "--topic", f"{name}:0") == {0: 8}
    assert sought("--to", "99", "--topic", f"{name}:0") == {0: 10}
    assert sought("--to", "@1700000000004", "--topic", f"{name}:0,1") == {0: 4, 1: 4}
    (described,) = ottla("group", "describe", "-r", f"g-{name}", "-o", "json")
    assert (described["total_lag"], described["lag_by_topic"]) == (22, {name: 22})
    assert f"{name}\t0\t4\t10\t6\t-\t-\t-" in ottla("group", "describe", group)
    assert f"{name}\t" in ottla("group", "describe", group, "--lag-per-topic")
    (listed,) = ottla("group", "list", "-r", "g-cli-.*", "--state", "empty", "--min-lag", "22", "-o", "json")
    assert (listed["group"], listed["lag"]) == (group, 22)
    with_offsets = ("--topic", f"{name}:0=5", "--topic", f"{name}:1=6")
    assert sought(*with_offsets) == {0: 5, 1: 6}
    saved = tmp_path / "offsets"
    saved.write_text(f"{name} 0 2\n{name},1,3\n")
    assert sought("--to-file", str(saved)) == {0: 2, 1: 3}
    other = f"h-{name}"
    rows = ottla("group", "seek", other, "--to-group", group, "--topic", name, "-o", "json")
    assert [row["current_offset"] for row in rows if row["partition"] < 2] == [2, 3]
    ottla("group", "delete", other, "--topic", f"{name}:0")
    (described,) = ottla("group", "describe", other, "-o", "json")
    assert 0 not in [row["partition"] for row in described["partitions"]]
    ottla("group", "seek", other, "--to", "start", "--topic", name)
    of_two = ("group", "delete", other, "--topic", f"{name}:0", "--topic", f"{name}:1")
    assert "keeps no offsets of nowhere" in ottla(*of_two, "--topic", "nowhere", code=1)
    ottla(*of_two)
    (described,) = ottla("group", "describe", other, "-o", "json")
    assert [row["partition"] for row in described["partitions"]] == [2]
    ottla("group", "delete", group, other)
    assert "GROUP_ID_NOT_FOUND" in ottla("group", "describe", group, code=1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_stays_where_it_is(ottla: Run, name: str, bootstrap: str, protocol: str) -> None:
    group = f"g-{protocol}-{name}"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "member-of-test",
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([name])
        wait_until(lambda: consumer.poll(0.1), "a record")
        (described,) = ottla("group", "describe", group, "-o", "json")
        assert described["type"] == protocol
        (member,) = described["members"]
        assert member["client_id"] == "member-of-test"
        assert sorted(partition for _, partition in member["partitions"]) == [0, 1, 2]
        assert "member-of-test" in ottla("group", "describe", group)
        assert "with 1 member: stop them first" in ottla("group", "seek", group, "--to", "end", code=1)
        assert "NON_EMPTY_GROUP" in ottla("group", "delete", group, code=1)
        consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
        kept = ottla("group", "delete", group, "--topic", f"{name}:0", code=1)
        assert f"group {group!r}, {name}-0: The group still consumes" in kept
    finally:
        consumer.close()
    ottla("group", "seek", group, "--to", "end", "--topic", name)
    ottla("group", "delete", group)


def test_settings_and_quotas(ottla: Run, name: str) -> None:
    ottla("config", "set", "topic", name, "segment.bytes=1048576")
    (entry,) = ottla("config", "get", "topic", name, "segment.bytes", "-o", "json")
    assert (entry["value"], entry["source"], entry["synonyms"][0]["source"]) == ("1048576", "topic", "topic")
    assert "INVALID_CONFIG" in ottla("config", "set", "topic", name, "segment.bytes=big", code=1)
    assert "did you mean 'segment.bytes'?" in ottla("config", "get", "topic", name, "segment.byte", code=1)
    ottla("config", "set", "broker", "1", "log.retention.ms=86400000", "--dry-run")
    assert "num.partitions" in ottla("config", "get", "broker", "1", "--all")
    assert ["topic", name] in [[row["type"], row["name"]] for row in ottla("config", "list", "-o", "json")]
    client = f"client-{name}"
    ottla("quota", "set", "--client-id", client, "producer_byte_rate=1000000")
    assert ottla("quota", "list", "--client-id", client, "-o", "json") == [
        {"entity": {"client-id": client}, "quotas": {"producer_byte_rate": 1_000_000.0}}
    ]
    ottla("quota", "unset", "--client-id", client, "producer_byte_rate")
    assert ottla("quota", "list", "--client-id", client, "-o", "json") == []


def test_the_cluster(ottla: Run, name: str, tmp_path: Path) -> None:
    health = ottla("cluster", "health", "--exit-when-healthy", "--timeout", "20", "-o", "json")
    assert health["healthy"]
    ids = [broker["id"] for broker in ottla("cluster", "-o", "json")["brokers"]]
    (described,) = ottla("topic", "describe", name, "-o", "json")
    (home,) = described["partitions"][0]["replicas"]
    away = next(broker for broker in ids if broker != home)
    ottla("cluster", "reassign", "--topic", f"{name}:0", "--replicas", str(away), "--throttle", "10MB")
    plan = tmp_path / "plan.json"
    entry = {"topic": name, "partition": 0, "replicas": [home, away]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    assert "1 move done" in ottla("cluster", "reassign", str(plan))
    assert ottla("cluster", "reassign", "--list") == "TOPIC\tPARTITION\tREPLICAS\tADDING\tREMOVING\n"
    (described,) = ottla("topic", "describe", name, "-o", "json")
    assert described["partitions"][0]["replicas"] == [home, away]
    assert not [key for key, config in described["configs"].items() if "throttled" in key and config["value"]]
    wait_until(lambda: ottla("cluster", "elect", "--topic", f"{name}:0") and True, "an election")
    (described,) = ottla("topic", "describe", name, "-o", "json")
    assert described["partitions"][0]["leader"] == home
    assert {folder["broker"] for folder in ottla("cluster", "disks", "-o", "json")} == set(ids)
    assert "partitions" in ottla("cluster", "rebalance", "--dry-run", "-o", "json")
    assert len(ottla("bench", "-n", "500", "--latency-records", "20", "-p", "2", "-o", "json")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("topic", "describe", "nowher"), "there is no topic 'nowher'"),
        (("topic", "create", "a/b"), "INVALID_TOPIC_EXCEPTION"),
        (("topic", "create", "ok-name", "-r", "99"), "INVALID_REPLICATION_FACTOR"),
        (("topic", "delete", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topic", "delete", "-r", "nowhere.*", "--yes"), "no topic matches nowhere"),
        (("topic", "trim", "nowhere", "--offset", "1"), "there is no topic 'nowhere'"),
        (("group", "seek", "nobody-here", "--to", "end"), "keeps no offsets: name topics with --topic"),
        (("group", "delete", "nobody-here"), "GROUP_ID_NOT_FOUND"),
        (("config", "get", "topic", "nowhere"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("config", "get", "broker", "99"), "broker 99"),
        (("quota", "set", "--user", "u", "no_such_rate=1"), "INVALID_REQUEST"),
        (("cluster", "decommission", "99"), "there is no broker 99; there are 1,2"),
        (("consume", "nowhere", "-e"), "there is no topic 'nowhere'"),
        (("produce", "a/b"), "a/b"),
    ],
)
def test_what_cannot_be_is_one_line(ottla: Run, words: tuple[str, ...], message: str) -> None:
    assert message in ottla(*words, code=1, data="x\n")


def test_names_that_are_nearly_right(ottla: Run, name: str) -> None:
    near, group = name[:-1], f"g-{name}"
    ottla("consume", name, "-g", group, "-c", "1")
    for words, meant in (
        (("topic", "delete", near, "--yes"), name),
        (("topic", "alter", near, "--set", "retention.ms=3600000"), name),
        (("topic", "add-partitions", near, "--to", "9"), name),
        (("topic", "alter", name, "--unset", "retention.mss"), "retention.ms"),
        (("config", "get", "topic", near), name),
        (("config", "set", "topic", near, "retention.ms=3600000"), name),
        (("config", "unset", "topic", name, "retention.mss"), "retention.ms"),
        (("group", "describe", group[:-1]), group),
        (("group", "delete", group[:-1]), group),
        (("group", "seek", group[:-1], "--to", "end"), group),
        (("quota", "set", "--user", "u", "producer_byte_rat=1"), "producer_byte_rate"),
        (("quota", "unset", "--user", "u", "producer_byte_rat"), "producer_byte_rate"),
    ):
        assert f"did you mean {meant!r}?" in ottla(*words, code=1)


def test_units_of_settings(ottla: Run, name: str) -> None:
    ottla("topic", "alter", name, "--set", "retention.ms=7d", "--set", "retention.bytes=50MB")
    (described,) = ottla("topic", "describe", name, "-o", "json")
    values = {key: entry["value"] for key, entry in described["configs"].items()}
    assert (values["retention.ms"], values["retention.bytes"]) == ("604800000", "50000000")
    assert "retention.ms takes milliseconds, such as 7d or 604800000, not '5MB'" in ottla(
        "config", "set", "topic", name, "retention.ms=5MB", code=2
    )


def test_nothing_is_said_in_words(ottla: Run, bootstrap: str) -> None:
    for words, sentence in (
        ("group list --state Dead", "There are no such groups."),
        ("txn list --producer-id 987654321", "There are no such transactional ids."),
        ("txn find-hanging", "There are no hanging transactions."),
        ("quota list --user nobody", "There are no such quotas."),
        ("mirror list", "There are no mirrors."),
        ("cluster reassign --list", "No partition is being reassigned."),
    ):
        done = run_ottla(*words.split(), environ={**os.environ, "OTTLA_BOOTSTRAP": bootstrap})
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, f"{sentence}\n", 1)
        assert ottla(*words.split(), "-o", "json") == []


def test_moves_that_make_no_sense(ottla: Run, name: str) -> None:
    for replicas, message in (
        ("1,99", "there is no broker 99; there are 1,2"),
        ("1,1", "names a broker twice"),
    ):
        code = 2 if "twice" in message else 1
        words = ("cluster", "reassign", "--topic", f"{name}:0", "--replicas", replicas)
        assert message in ottla(*words, code=code)
    assert "has partitions 0 to 2, not 7" in ottla(
        "cluster", "reassign", "--topic", f"{name}:7", "--replicas", "1", code=1
    )


def test_pipes_and_interrupts(ottla: Run, name: str, bootstrap: str) -> None:
    line = f'"{sys.executable}" -m ottla consume {name} -p 1 -e -b {bootstrap} | head -n 1'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("v0\n", "")
    command = [sys.executable, "-m", "ottla", "consume", name, "-p", "1", "-b", bootstrap]
    # Background processes of a shell ignore interrupts, and pass that on: here interrupts must arrive.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v0\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, b"")
