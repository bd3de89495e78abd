"""The rate of transactions that the metadata quorum itself can carry: its part only, without records.

    python -m benchmarks.quorum_transactions [--seconds N] [--partitions N] [--record FILE]

Three quorum nodes are processes. Three brokers' sessions in this process have partitions and no logs. Each transaction
adds its partitions, is committed, and has its markers reported as soon as the decision is known. The readings are the
transactions that end per second by their number at a time, and the CPU for each of the quorum's leader and of all its
nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.dataplane.quorum import QuorumSession, QuorumSessionConfig
from ottla.dataplane.transactions.completion_waits import CompletionWaits
from ottla.protocol.cluster.transaction_table import Place, by_topic
from ottla.protocol.messages.metadata_records import BrokerListener
from ottla.protocol.messages.topic_commands import (
    CreateTopics,
    CreateTopicsResult,
    NewTopic,
    PartitionAssignment,
)
from ottla.protocol.messages.transaction_commands import (
    AddToTransaction,
    ClientOrigin,
    EndTransaction,
    InitTransactionalId,
    ReportMarkers,
    WrittenMarker,
    WrittenMarkers,
)
from ottla.protocol.session.handshake import LinkSecurity
from ottla.protocol.session.node_secrets import read_secrets

from .clusters import Cluster, ottla_cluster
from .compare import cpu_seconds
from .rounds import record

BROKERS = (11, 12, 13)
AT_A_TIME = (1, 8, 64, 512)


@dataclass(frozen=True, slots=True)
class Reading:
    """The readings for a number of transactions at a time."""

    at_a_time: int
    per_second: float
    leader_cpu_ms: float
    """CPU of the busiest node for one transaction."""
    quorum_cpu_ms: float


class Broker:
    """A session with the quorum that reports the marker as written for every partition it leads."""

    def __init__(self, broker_id: int, config: QuorumSessionConfig) -> None:
        self.broker_id = broker_id
        self.session = QuorumSession(
            config,
            on_delta=lambda image, delta: self.changed(delta.transactions),
            on_settled=lambda name, number: self.completion_waits.settled(name, number),
        )
        self.completion_waits = CompletionWaits(lambda: self.session.image)
        self._reports: set[asyncio.Task[Any]] = set()

    def changed(self, names: Iterable[str]) -> None:
        """Report markers if some of these transactions were decided."""
        known = self.session.image.transactions.by_id
        topics = self.session.image.topics_by_id
        written = [
            WrittenMarkers(
                topic_id=place[0],
                partition=place[1],
                leader_epoch=topics[place[0]].partitions[place[1]].leader_epoch,
                writers=[WrittenMarker(producer_id=writer.producer_id, number=known[name].number)],
            )
            for name in names
            if name in known and known[name].phase.is_decided
            for writer, place in known[name].outstanding
            if topics[place[0]].partitions[place[1]].leader == self.broker_id
        ]
        if written:
            command = ReportMarkers(
                broker_id=self.broker_id, broker_epoch=self.session.broker_epoch, partitions=written
            )
            task = asyncio.create_task(self.session.submit(command))
            self._reports.add(task)
            task.add_done_callback(self._reports.discard)
        self.completion_waits.image_changed(names, leaders_changed=False)

    async def reported(self) -> None:
        """Wait until the quorum has recorded all reports."""
        await asyncio.gather(*self._reports)


async def transact(broker: Broker, places: list[Place], count: list[int], until: float) -> None:
    """Run a client's transactions in sequence."""
    name, connection = secrets.token_hex(8), secrets.randbits(40)
    origin = ClientOrigin(
        broker_id=broker.broker_id,
        broker_epoch=broker.session.broker_epoch,
        connection=connection,
        birth=broker.session.image.offset,
        now_ms=1,
    )
    begun = await broker.session.submit(
        InitTransactionalId(transactional_id=name, timeout_ms=60_000, origin=origin)
    )
    who = {"transactional_id": name, "producer_id": begun.producer_id, "origin": origin}
    topics = by_topic(places)
    while time.monotonic() < until:
        await broker.session.submit(
            AddToTransaction(**who, producer_epoch=begun.producer_epoch, topics=topics)  # type: ignore[arg-type]
        )
        ended = await broker.session.submit(
            EndTransaction(**who, producer_epoch=begun.producer_epoch, commits=True)  # type: ignore[arg-type]
        )
        await broker.completion_waits.over(name, ended.number, 10)
        count[0] += 1


async def measure(cluster: Cluster, folder: Path, partitions: int, seconds: float) -> list[Reading]:
    """Measure a running quorum."""
    brokers = [Broker(broker, config(cluster, folder, broker)) for broker in BROKERS]
    for broker in brokers:
        broker.session.ask_to_unfence()
        await broker.session.start()
    for broker in brokers:
        await broker.session.unfenced()
    made = await brokers[0].session.submit(
        CreateTopics(
            topics=[
                NewTopic(
                    name="t",
                    assignments=[
                        PartitionAssignment(partition=index, replicas=[BROKERS[index % 3]])
                        for index in range(12)
                    ],
                )
            ],
            seed=secrets.randbits(60),
        )
    )
    assert isinstance(made, CreateTopicsResult)
    topic_id = made.topics[0].topic_id
    readings = []
    for at_a_time in AT_A_TIME:
        before = [cpu_seconds([node]) for node in cluster.quorum]
        count, start = [0], time.monotonic()
        await asyncio.gather(
            *(
                transact(
                    brokers[number % 3],
                    [(topic_id, (number + more) % 12) for more in range(partitions)],
                    count,
                    start + seconds,
                )
                for number in range(at_a_time)
            )
        )
        took = time.monotonic() - start
        spent = [cpu_seconds([node]) - was for node, was in zip(cluster.quorum, before, strict=True)]
        readings.append(
            Reading(at_a_time, count[0] / took, max(spent) / count[0] * 1e3, sum(spent) / count[0] * 1e3)
        )
    for broker in brokers:
        await broker.reported()
    for broker in brokers:
        await broker.session.stop()
    return readings


def config(cluster: Cluster, folder: Path, broker_id: int) -> QuorumSessionConfig:
    """Return the session settings of a simulated broker."""
    return QuorumSessionConfig(
        broker_id=broker_id,
        cluster_id=json.loads((folder / "layout.json").read_text())["cluster_id"],
        security=LinkSecurity(read_secrets("cluster.secret.file", str(folder / "cluster.secret"))),
        voters={node.id: ("127.0.0.1", node.port) for node in cluster.quorum},
        incarnation=os.urandom(16),
        listeners=(BrokerListener(name="PLAINTEXT", host="127.0.0.1", port=1),),
        log_dirs=(os.urandom(16),),
        heartbeat_host="127.0.0.1",
    )


def main() -> int:
    """Run the benchmark; see the module's documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--partitions", type=int, default=1, help="of each transaction, at most 12")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with ottla_cluster(data, brokers=1) as cluster:
            readings = uvloop.run(measure(cluster, data, arguments.partitions, arguments.seconds))
    table = Table("at a time", "transactions/s", "CPU of the leader, ms", "CPU of the quorum, ms")
    for reading in readings:
        table.add_row(
            f"{reading.at_a_time}",
            f"{reading.per_second:,.0f}",
            f"{reading.leader_cpu_ms:.2f}",
            f"{reading.quorum_cpu_ms:.2f}",
        )
    Console().print(table)
    if arguments.record:
        results = [
            [reading.at_a_time, reading.per_second, reading.leader_cpu_ms, reading.quorum_cpu_ms]
            for reading in readings
        ]
        record(arguments.record, partitions=arguments.partitions, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
