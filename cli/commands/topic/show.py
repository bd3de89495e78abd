"""`ottla topic list` and `ottla topic describe`: print topics."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from ....client.admin import TOPIC_RESOURCE, Admin, ConfigEntry
from ....client.admin.partition_states import Adding, states_of
from ....client.admin.records import EARLIEST, LATEST, Found
from ....client.connections.metadata import PartitionInfo, TopicInfo
from ....client.records import TopicPartition
from ....protocol.errors import KafkaError
from ...arguments.selection import select
from ...connection.precedence import connection_of
from ...run_client import run_client
from ...terminal.output import bytes_text, none_of, numbers, print_json, print_table, separate
from ...terminal.shades import state
from ...terminal.text import counted, note, say

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A description of a topic.

    Offsets and sizes of partitions whose leaders did not answer are missing.
    """

    topic: TopicInfo
    starts: Found
    ends: Found
    sizes: dict[TopicPartition, int]
    configs: list[ConfigEntry]
    adding: Adding

    def start(self, index: int) -> int:
        return _known(self.starts.get(TopicPartition(self.topic.name, index)))

    def end(self, index: int) -> int:
        return _known(self.ends.get(TopicPartition(self.topic.name, index)))

    def size(self, index: int) -> int:
        return self.sizes.get(TopicPartition(self.topic.name, index), UNKNOWN)

    def state_of(self, partition: PartitionInfo) -> str:
        """Return the worst state of a partition in a word or two."""
        is_preferred = partition.leader == partition.replicas[0]
        states = states_of(self.topic.name, partition, self.adding)
        return next(iter(states), "healthy" if is_preferred else "not preferred")


def list_topics(arguments: argparse.Namespace) -> None:
    """Print the names of topics, with their numbers of partitions and replicas."""
    topics = run_client(_topics(arguments))
    if not arguments.names and not arguments.internal:
        topics = [topic for topic in topics if not topic.is_internal]
    rows = [(topic.name, len(topic.partitions), replication_factor(topic)) for topic in topics]
    if arguments.output == "json":
        print_json(
            [{"topic": name, "partitions": count, "replication_factor": rf} for name, count, rf in rows]
        )
    else:
        print_table(
            ("TOPIC", "PARTITIONS", "REPLICAS"),
            rows,
            empty=none_of("topics"),
            wide=arguments.output == "wide",
        )


def describe(arguments: argparse.Namespace) -> None:
    """Print the partitions and settings of topics."""
    reports = run_client(_reports(arguments))
    if arguments.output == "json":
        print_json([_as_json(report) for report in reports])
        return
    if not reports:
        note(none_of("topics"))
    for number, report in enumerate(reports):
        if number:
            say()
        _print(report, arguments)


def replication_factor(topic: TopicInfo) -> int:
    """Return the largest number of replicas of any partition of the topic."""
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


async def _topics(arguments: argparse.Namespace) -> list[TopicInfo]:
    async with Admin(**connection_of(arguments)) as admin:
        topics = {topic.name: topic for topic in await admin.describe_topics()}
    return [topics[name] for name in select(topics, arguments.names, "topic", regex=arguments.regex)]


async def _reports(arguments: argparse.Namespace) -> list[TopicReport]:
    async with Admin(**connection_of(arguments)) as admin:
        known = {topic.name: topic for topic in await admin.describe_topics()}
        topics = [known[name] for name in select(known, arguments.names, "topic", regex=arguments.regex)]
        partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        sizes = await admin.partition_sizes(partitions)
        adding = await _adding(admin)
        return [
            TopicReport(
                topic,
                starts,
                ends,
                sizes,
                [] if arguments.no_configs else await admin.describe_configs(TOPIC_RESOURCE, topic.name),
                adding,
            )
            for topic in topics
        ]


async def _adding(admin: Admin) -> Adding:
    """Return the replicas that reassignments add; none if the cluster does not list its reassignments to this user."""
    try:
        return {name: move.adding for name, move in (await admin.list_partition_reassignments()).items()}
    except KafkaError:  # The right to describe a topic is enough to see its partitions.
        return {}


def _known(answer: int | KafkaError | None) -> int:
    return answer if isinstance(answer, int) else UNKNOWN


def _shown(number: int) -> object:
    return number if number >= 0 else "-"


def _print(report: TopicReport, arguments: argparse.Namespace) -> None:
    topic, is_wide = report.topic, arguments.output == "wide"
    sizes = [report.size(index) for index in topic.partitions]
    total = sum(max(0, size) for size in sizes)
    of_size = f", {bytes_text(total)}{'+' if UNKNOWN in sizes else ''}" if report.sizes else ""
    replicas = f"{counted(replication_factor(topic), 'replica')} each"
    say(f"{topic.name}: {counted(len(topic.partitions), 'partition')}, {replicas}{of_size}")
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "LOG-START", "HIGH-WATERMARK", "SIZE", "STATE"),
        [
            (
                partition.index,
                partition.leader if partition.leader >= 0 else "none",
                partition.leader_epoch,
                numbers(partition.replicas),
                numbers(partition.isr),
                _shown(report.start(partition.index)),
                _shown(report.end(partition.index)),
                bytes_text(report.size(partition.index)) if report.size(partition.index) >= 0 else "-",
                state(report.state_of(partition)),
            )
            for partition in topic.partitions.values()
        ],
        spare=("EPOCH", "LOG-START", "SIZE", "HIGH-WATERMARK"),
        wide=is_wide,
    )
    shown = [
        (entry.name, entry.value if entry.value is not None else "", entry.source)
        for entry in report.configs
        if entry.source == "topic" or arguments.all_configs
    ]
    if shown:
        separate()
        print_table(("CONFIG", "VALUE", "SOURCE"), shown, wide=is_wide)


def _as_json(report: TopicReport) -> dict[str, Any]:
    return {
        "topic": report.topic.name,
        "id": report.topic.id.hex(),
        "internal": report.topic.is_internal,
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline": partition.offline,
                "log_start_offset": report.start(partition.index),
                "high_watermark": report.end(partition.index),
                "size_bytes": report.size(partition.index),
                "state": report.state_of(partition),
            }
            for partition in report.topic.partitions.values()
        ],
        "configs": {entry.name: {"value": entry.value, "source": entry.source} for entry in report.configs},
    }
