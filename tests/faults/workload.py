"""Clients at work while processes break: producers, readers and group members, each recording its observations.

    with Faults(cluster, ("orders",)) as faults, Workload(cluster.bootstrap, "orders") as workload:
        workload.wait_acknowledged(300)
        faults.kill(faults.leader("orders", 0))
        faults.heal()
    workload.check(faults)

Values are unique: `<producer>:<number>`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from ottla.protocol.records.record_batch import walk_batches
from tests.cluster import RunningCluster, wait_until
from tests.faults.actors import SETTLE_S, Actor, Member, Reader, Sender
from tests.faults.faults import HEAL_S, TALLY, Faults
from tests.faults.repeated_records import evidence
from tests.histories.invariants import HistoryBroken, check_all
from tests.histories.operations import Dump, FinalRead, Healed, History, Outcome
from tests.integration.history import make_topic as make_any_topic
from tests.integration.history import read_all, segment_files

SESSIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Settings of brokers under which a dead group member is removed soon."""


@dataclass
class Workload:
    """Producers, readers and groups on one topic, until the block ends."""

    bootstrap: str
    topic: str
    partitions: int = 3
    senders: int = 2
    lax_senders: int = 0
    """Number of senders with acks=1, whose records may be lost."""
    per_second: int = 150
    """Records per second of each sender."""
    protocols: tuple[str, ...] = ("classic", "consumer")
    """Group protocols; each gets a group of two members."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that override or extend those of the producers."""
    others: list[Actor] = field(default_factory=list)
    """Other actors on the topic, started and stopped with the rest."""
    history: History = field(default_factory=History)
    """Operations and observations of all clients, complete when the block has ended."""

    def __post_init__(self) -> None:
        bootstrap, topic, partitions = self.bootstrap, self.topic, self.partitions
        self.strict = [
            Sender(bootstrap, topic, f"p{n}", partitions, self.per_second, self.settings)
            for n in range(self.senders)
        ]
        self.lax = [
            Sender(bootstrap, topic, f"lax{n}", partitions, self.per_second, self.settings, strict=False)
            for n in range(self.lax_senders)
        ]
        self.reader = Reader(bootstrap, topic, "reader", partitions)
        self.members = [
            Member(bootstrap, topic, f"{protocol}-{topic}", f"{protocol}-{n}", protocol)
            for protocol in self.protocols
            for n in range(2)
        ]

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return sum(sender.acknowledged for sender in (*self.strict, *self.lax))

    @property
    def actors(self) -> list[Actor]:
        """All actors."""
        return [*self.strict, *self.lax, self.reader, *self.members, *self.others]

    def __enter__(self) -> Self:
        for actor in self.actors:
            actor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._settle()
        except BaseException:
            self._abandon()
            raise
        if error is not None:
            self._abandon()
            return
        for actor in self.actors:
            actor.tell_to_stop()
        for actor in self.actors:
            actor.join()
        self.history = History.merged([*(actor.history for actor in self.actors), self.history])

    def wait_acknowledged(self, more: int, timeout_s: float = SETTLE_S) -> None:
        """Return once every strict sender has `more` further acknowledgements."""
        goals = [sender.acknowledged + more for sender in self.strict]

        def reached() -> bool:
            self._raise_crash()
            return all(sender.acknowledged >= goal for sender, goal in zip(self.strict, goals, strict=True))

        wait_until(reached, f"{more} acknowledgements of each sender", timeout_s)

    def wait_read(self, more: int, timeout_s: float = SETTLE_S) -> None:
        """Return once every group has read `more` further records."""
        before = self._read_by_group()

        def reached() -> bool:
            self._raise_crash()
            return all(read >= before[group] + more for group, read in self._read_by_group().items())

        wait_until(reached, f"{more} records read by each group", timeout_s)

    def check(self, faults: Faults | None = None, cluster: RunningCluster | None = None) -> None:
        """Fail unless every send succeeded and all observations agree.

        With `faults`, they must also agree with the replicas, and service must resume in time after all processes were
        well again. With `faults` or `cluster`, a failure shows the batches of records that are in a log twice.
        """
        if faults is not None:
            cluster = faults.cluster
            for read in list(self.history.final_reads):
                for found in dump(faults.cluster, self.topic, read.partition, read.end or 0):
                    self.history.add(found)
            self.history.add(Healed(faults.healed_s, HEAL_S + SETTLE_S))
        failed = [send for send in self.history.sends if send.outcome is not Outcome.OK]
        assert not failed, f"{len(failed)} sends failed: {failed[:3]}"
        TALLY["acknowledged"] += len(self.history.sends)
        TALLY["read"] += len(self.history.polls)
        TALLY["commits"] += len(self.history.commits)
        TALLY["histories"] += 1
        try:
            check_all(self.history)
        except HistoryBroken as broken:
            if cluster is not None:
                broken.add_note(evidence(cluster, self.history.final_reads))
            raise

    def _settle(self) -> None:
        """Wait until every send has an outcome and every consumer reaches the end; fail otherwise."""
        deadline = time.monotonic() + SETTLE_S
        for sender in (*self.strict, *self.lax):
            sender.join()
        records: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(self.partitions)}
        for place, value in sorted(read_all(self.bootstrap, self.topic, SETTLE_S)):
            records[place.partition].append((place.offset, value))
        ends = {partition: found[-1][0] + 1 for partition, found in records.items() if found}
        for partition, found in records.items():
            now = time.monotonic()
            self.history.add(FinalRead(self.topic, partition, found, end=ends.get(partition, 0), at_s=now))

        def reached() -> bool:
            self._raise_crash()
            return self.reader.next_offsets == ends and all(
                self._committed_by(group) == ends for group in self._read_by_group()
            )

        wait_until(
            reached,
            f"everyone at {ends}: {self.reader.next_offsets}, {[(m.name, m.committed) for m in self.members]}",
            max(1.0, deadline - time.monotonic()),
        )

    def _abandon(self) -> None:
        for actor in self.actors:
            actor.abandoned = True
            actor.tell_to_stop()

    def _read_by_group(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for member in self.members:
            counts[member.group] = counts.get(member.group, 0) + member.polled
        return counts

    def _committed_by(self, group: str) -> dict[int, int]:
        """Return the last committed offset of each partition, by any member of the group."""
        found: dict[int, tuple[float, int]] = {}
        for member in self.members:
            if member.group == group:
                for partition, commit in list(member.committed.items()):
                    found[partition] = max(found.get(partition, commit), commit)
        return {partition: offset for partition, (_, offset) in found.items()}

    def _raise_crash(self) -> None:
        for actor in self.actors:
            actor.raise_crash()


def dump(cluster: RunningCluster, topic: str, partition: int, high_watermark: int) -> list[Dump]:
    """Return the batches in the files of all replicas. No client may write meanwhile."""
    found = []
    for broker_id in cluster.partitions(topic)[partition].replicas:
        entries = []
        for segment in segment_files(cluster, broker_id, topic, partition):
            for _, header in walk_batches(segment.read_bytes()):
                entries.append((header.base_offset, header.partition_leader_epoch, header.crc))
        found.append(Dump(broker_id, topic, partition, 0, high_watermark, entries, time.monotonic()))
    return found


def make_topic(bootstrap: str, name: str, partitions: int = 3) -> None:
    """Make a topic with three replicas and min.insync.replicas=2."""
    make_any_topic(bootstrap, name, partitions, min_insync_replicas=2)
