"""Kafka's own command-line tools, each with every option that has an effect on a cluster."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import java
from tests.cluster import RunningCluster, running_cluster
from tests.integration.history import SMALL_CLUSTER
from tests.programs.tool_scenes import NOT_A_CLUSTER, NOT_SUPPORTED, SUPPORTED, TRANSACTIONS, Step, Tool

pytestmark = [pytest.mark.java, java.needs_java, pytest.mark.timeout(600)]
TIMEOUT_S = 120
RECORDS = 10
"""Number of records in each of two partitions."""
_OPTION = re.compile(r"^ {0,2}(?:\* )?(?:-\w,? (?:\S+ )?)?(--[a-z][a-zA-Z.-]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run one cluster for all tools."""
    with running_cluster(tmp_path_factory.mktemp("tools"), quorum=1, settings=SMALL_CLUSTER) as running:
        yield running


@pytest.fixture
def names(cluster: RunningCluster, tmp_path: Path) -> dict[str, str]:
    """Return the names of a topic with records, a group with offsets in it, objects to create, and files."""
    topic, group = f"t{uuid.uuid4().hex[:10]}", f"g{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(2 * RECORDS):
        producer.produce(topic, f"value {number}", f"key {number}", number // RECORDS)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(topic, partition, 2) for partition in range(2)], asynchronous=False
    )
    consumer.close()
    (described,) = admin.describe_topics(TopicCollection([topic])).values()
    replicas = [replica.id for replica in described.result(30).partitions[0].replicas]
    return {
        "at": f"--bootstrap-server {cluster.bootstrap}",
        "topic": topic,
        "topic_id": str(described.result(30).topic_id).translate(str.maketrans("+/", "-_")).rstrip("="),
        "group": group,
        "member": f"member-of-{group}",
        "transaction": f"transaction-{group}",
        "begun": str(RECORDS),
        "new": f"n{uuid.uuid4().hex[:10]}",
    } | files(tmp_path, topic, replicas)


def files(folder: Path, topic: str, replicas: list[int]) -> dict[str, str]:
    """Write the tools' input files."""
    first = {"topic": topic, "partition": 0}
    contents = {
        "config": "client.id=tools\n",
        "settings": "cleanup.policy=compact,delete\n",
        "reader": "parse.key=false\n",
        "formatter": "print.offset=true\n",
        "node": "node.id=105\n",
        "offsets": f"{topic},0,4\n{topic},1,4\n",
        "lines": "one|two|three",
        "cut": json.dumps({"partitions": [first | {"offset": 5}], "version": 1}),
        "topics": json.dumps({"topics": [{"topic": topic}], "version": 1}),
        "partitions": json.dumps({"partitions": [{"topic": topic, "partition": 1}]}),
        "moves": json.dumps({"partitions": [first | {"replicas": replicas[::-1]}], "version": 1}),
    }
    for name, text in contents.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in contents}


@pytest.fixture
def member(cluster: RunningCluster, names: Mapping[str, str]) -> Iterator[None]:
    """Run the only member of a group that reads the topic."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": names["member"], "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([names["topic"]])
    assert len(consumer.consume(2 * RECORDS, 60)) == 2 * RECORDS
    yield
    consumer.close()


@pytest.fixture
def transaction(cluster: RunningCluster, names: Mapping[str, str], request: pytest.FixtureRequest) -> None:
    """Open a transaction with a record in partition 1, for the tool about transactions."""
    if request.node.callspec.params["tool"] is TRANSACTIONS:
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": names["transaction"]}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(names["topic"], "open", partition=1)
        assert producer.flush(30) == 0


@pytest.mark.usefixtures("member", "transaction")
@pytest.mark.parametrize("tool", SUPPORTED, ids=lambda tool: tool.name)
def test_every_option(tool: Tool, tools: java.Tools, names: dict[str, str]) -> None:
    problems = [
        problem for step in tool.steps for problem in [found_wrong(tool, step, tools, names)] if problem
    ]
    assert problems == [], "\n\n".join(problems)
    words = " ".join(step.line for step in tool.steps).replace("{at}", "--bootstrap-server").split()
    used = {word.partition("=")[0] for word in words}
    assert options(tool) - used - set(tool.left_out) - set(NOT_A_CLUSTER) == set()


@pytest.mark.parametrize("tool", NOT_SUPPORTED, ids=lambda tool: tool.name)
def test_what_there_is_not_is_refused(tool: Tool, tools: java.Tools, names: dict[str, str]) -> None:
    problems = [found_wrong(tool, step, tools, names) for step in tool.steps]
    assert problems == [""] * len(tool.steps), "\n\n".join(problems)


def found_wrong(tool: Tool, step: Step, tools: java.Tools, names: Mapping[str, str]) -> str:
    """Return the fault of a tool's step; empty if there is none."""
    arguments = shlex.split(step.line.format_map(names))
    status, said = (
        run_alone(tool, arguments, step.given) if tool.alone else tools.ended(tool.main_class, *arguments)
    )
    wanted = all(
        (
            status == step.status,
            re.search(filled(step.says, names), said, re.DOTALL),
            not step.lacks or not re.search(filled(step.lacks, names), said),
        )
    )
    return "" if wanted else f"{tool.name} {step.line} ended with {status}, wanted {step}:\n{said[-3000:]}"


def filled(pattern: str, names: Mapping[str, str]) -> str:
    """Replace the names in braces; other braces stay."""
    for name, value in names.items():
        pattern = pattern.replace(f"{{{name}}}", re.escape(value))
    return pattern


def run_alone(tool: Tool, arguments: list[str], given: str = "") -> tuple[int, str]:
    """Return the exit status and output of a tool in a separate JVM."""
    done = subprocess.run(
        java.command(tool.main_class, *arguments),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout


def options(tool: Tool) -> set[str]:
    """Return all options in the tool's help, and in that of its commands."""
    return {
        option
        for command in ((), *((command,) for command in tool.commands))
        for option in _OPTION.findall(run_alone(tool, [*command, "--help"])[1])
    }
