"""Replicas of one partition on several brokers in one process, with real partitions and logs.

Every fetch, answer and metadata change is delivered by hand, the clock is set by hand, and there are no sockets.
"""

from __future__ import annotations

import itertools
import random
import shutil
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.replication.fetch_values import (
    FollowerFetch,
    PartitionKey,
    SessionAnswer,
)
from ottla.dataplane.replication.follower.fetching import FetchLimits, LeaderSession
from ottla.dataplane.replication.leader.follower_sessions import FollowerSessions
from ottla.dataplane.replication.leader.isr_updates import IsrCommitted, Outcome, settle
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replica.settings import ReplicationSettings
from ottla.dataplane.replication.roles.in_sync import Proposal
from ottla.dataplane.replication.roles.leader import Refusal
from ottla.dataplane.runtime.change_set import ChangeSet
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.log.batches import make_batch, value_of

TOPIC_ID = bytes(range(16))
KEY = (TOPIC_ID, 0)
LAG_MS = 1000
NEWEST = sys.maxsize
"""Number of a connection that none follows."""


def batch(
    value: bytes, *, producer: tuple[int, int, int] = (-1, -1, -1), count: int = 1, attributes: int = 0
) -> bytearray:
    """Make a record batch, whose last record has that value."""
    return make_batch(count, value, timestamp=1, attributes=attributes, producer=producer)


@dataclass
class BrokerState:
    broker_epoch: int
    fenced: bool = False
    shutting_down: bool = False


@dataclass(frozen=True)
class State:
    """The quorum's state of the partition."""

    replicas: Sequence[int]
    isr: frozenset[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    offline_replicas: tuple[int, ...] = ()


class Timer:
    def __init__(self, callback: Callable[[], None], delay_s: float) -> None:
        self.callback: Callable[[], None] | None = callback
        self.delay_s = delay_s

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Scheduler:
    def __init__(self, cluster: ReplicasByHand) -> None:
        self._cluster = cluster
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(callback, delay_s))
        return self.timers[-1]

    def time(self) -> float:
        return self._cluster.now_ms / 1000

    def turn(self) -> None:
        """End the loop turn, and run all scheduled calls."""
        while self.soon:
            self.soon.pop(0)()

    def waits(self) -> list[float]:
        """Return the delays of pending timers, in seconds."""
        return [timer.delay_s for timer in self.timers if timer.callback is not None]

    def fire_timers(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.fire()


class Node:
    """A broker: its replica, its sessions, its view of the cluster."""

    def __init__(self, cluster: ReplicasByHand, broker_id: int, directory: Path) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.moved: ChangeSet[Partition] = ChangeSet()
        self._noted = self.moved.since(lambda: ())
        self._seen: tuple[Partition | None, object, bool] = (None, None, False)
        self.brokers = dict(cluster.brokers)
        self.directory = directory
        self.checkpointed_watermark = 0
        self.checkpointed_log_start = 0
        self.proposals: list[Proposal] = []
        self.flush_wanted = False
        self.flush_timers: list[int] = []
        self.retries: list[bytes] = []
        self._open(clean=True)

    def _open(self, *, clean: bool, recovery_point: int = 0) -> None:
        self.scheduler = Scheduler(self.cluster)
        self.log = PartitionLog.open(
            self.directory,
            LogConfig(segment_bytes=self.cluster.segment_bytes),
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=self.checkpointed_log_start,
            now_ms=self.cluster.now_ms,
        )
        self.partition = Partition(
            "t", TOPIC_ID, 0, self.log, self, self.cluster.settings, self.checkpointed_watermark
        )
        self.sessions = FollowerSessions(self, self.scheduler, random.Random(1))
        self.following: LeaderSession | None = None
        self.failures: list[Exception] = []

    # The surroundings that a partition and its sessions need

    def monotonic_ms(self) -> int:
        return self.cluster.now_ms

    def wall_ms(self) -> int:
        return self.cluster.now_ms

    def flush(self, partition: Partition) -> None:
        self.flush_wanted = True

    def flush_later(self, partition: Partition, delay_ms: int) -> None:
        self.flush_timers.append(delay_ms)

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        return self.partition

    def broker_epoch_of(self, broker_id: int) -> int:
        return self.brokers[broker_id].broker_epoch

    def is_to_be_made(self, key: PartitionKey) -> bool:
        return False

    def doubted(self, partition: Partition, offset: int, max_bytes: int) -> None:
        return

    def follower_advanced(self, partition: Partition, broker_id: int) -> None:
        assert partition.leader is not None
        proposal = partition.leader.propose_expand(broker_id)
        if proposal is not None:
            self.proposals.append(proposal)

    # Metadata

    def hear(self, state: State | None = None) -> None:
        """Deliver the newest state of the metadata feed, or a given older one."""
        state = state or self.cluster.state
        self.brokers.update(self.cluster.brokers)
        if state.leader == self.broker_id:
            self.following = None
            self.partition.become_leader(state)
        elif self.partition.become_follower(state) and state.leader >= 0:
            self.following = LeaderSession(
                self.broker_id, FetchLimits(), lambda key, _: self.retries.append(key), self._failed
            )
            self.following.follow(self.partition)
        self.partition.check()
        self.scheduler.turn()

    def _failed(self, partition: Partition, error: Exception) -> None:
        self.failures.append(error)

    # Producing

    def produce(self, value: bytes, *, acks: int = -1, producer=(-1, -1, -1), count: int = 1) -> Produced:
        """Append; the outcome is filled in when it is known."""
        result = self.partition.append(
            memoryview(batch(value, producer=producer, count=count)), required_acks=acks
        )
        produced = Produced(result.first_offset, result.duplicate)
        self.partition.on_high_watermark(result.last_offset + 1, produced.done)
        self.scheduler.turn()
        return produced

    # Fetching

    def ask(self) -> FollowerFetch:
        assert self.following is not None
        for key in self.retries:
            self.following.again(key)
        self.retries.clear()
        fetch = self.following.next_fetch(self.cluster.brokers[self.broker_id].broker_epoch)
        assert fetch is not None
        return fetch

    def serve(
        self, fetch: FollowerFetch, *, wait: bool = False, connection: int = NEWEST
    ) -> list[SessionAnswer]:
        """Answer a follower's fetch; with `wait` it stays parked and the list fills when it is answered."""
        answers: list[SessionAnswer] = []
        wait_s = 0.5 if wait else 0.0
        self.sessions.fetch(fetch, wait_s, lambda answer: answers.append(over_the_wire(answer)), connection)
        self.scheduler.turn()
        self.partition.check()
        return answers

    def take(self, answer: SessionAnswer) -> None:
        assert self.following is not None
        self.following.answered(answer)
        self.partition.check()

    # Faults

    def crash(self, *, keep_below: int | None = None) -> None:
        """Kill by kill -9, with `keep_below` lose all unflushed records from there on, and restart."""
        watermark = self.checkpointed_watermark
        if keep_below is not None:
            self.log.truncation.truncate_to(keep_below)
        self.log.close(clean=False)
        self.checkpointed_watermark = watermark
        self.cluster.brokers[self.broker_id] = replace(
            self.cluster.brokers[self.broker_id], broker_epoch=next(self.cluster.epochs)
        )
        self._open(clean=False)

    def leave(self) -> None:
        """Remove the replica or its disk: a later replica begins with an empty log."""
        self.partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.scheduler.turn()
        self.log.close(clean=False)
        shutil.rmtree(self.directory)
        self.checkpointed_watermark = self.checkpointed_log_start = 0
        self.proposals.clear()
        self.retries.clear()
        self._open(clean=False)

    def check_noted(self) -> None:
        """Check that every change since the last call was noted for the periodic observers."""
        taken, partition, log = self._noted.take(), self.partition, self.log
        stands = (
            log.leader_epochs.last_written(log.log_end_offset),
            (log.log_start_offset, partition.high_watermark, log.log_end_offset),
            (len(log.segments), len(log.doomed), log.start_moved),
        )
        is_settled = partition.leader is None or partition.leader.is_settled
        same, before, was_settled = self._seen
        if same is partition and partition not in taken:
            assert (stands, is_settled or not was_settled) == (before, True)
        self._seen = partition, stands, is_settled

    def records(self) -> list[bytes]:
        """Return every record batch with its offset and epoch: equal lists are byte-identical replicas."""
        found: list[bytes] = []
        offset, end = self.log.log_start_offset, self.log.log_end_offset
        while offset < end:
            piece = self.log.read(offset, 1 << 20, end, at_least_one=True)
            data = piece.read() if piece.size else b""
            piece.release()
            assert data, f"{self.log!r} has nothing at {offset}"
            while data:
                size = 12 + struct.unpack_from(">i", data, 8)[0]
                found.append(data[:size])
                offset = sum(struct.unpack_from(">q15xi", data)) + 1
                data = data[size:]
        return found

    def values(self) -> list[bytes]:
        return [value_of(record) for record in self.records()]


@dataclass
class Produced:
    offset: int
    duplicate: bool
    outcome: ErrorCode | None = None

    def done(self, outcome: ErrorCode) -> None:
        assert self.outcome is None, "answered twice"
        self.outcome = outcome


def over_the_wire(answer: SessionAnswer) -> SessionAnswer:
    """Return the answer as the follower receives it, with bytes in place of slices."""
    parts = []
    for part in answer.partitions:
        records = part.records
        if records is not None and not isinstance(records, memoryview):
            data = memoryview(bytearray(records.read()))
            records.release()
            part = replace(part, records=data)
        parts.append(part)
    return SessionAnswer(answer.session_id, parts, answer.error)


class ReplicasByHand:
    """The brokers and a quorum of five lines: a compare-and-set over the partition's state."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: Iterable[int] = (1, 2, 3),
        isr: Iterable[int] | None = None,
        min_in_sync: int = 1,
        durable: bool = False,
        segment_bytes: int = LogConfig().segment_bytes,
    ) -> None:
        ids = list(brokers)
        self.segment_bytes = segment_bytes
        self.now_ms = 10_000
        self.epochs = itertools.count(1000)
        self.settings = ReplicationSettings(min_in_sync, LAG_MS, durable)
        self.brokers = {broker_id: BrokerState(100 + broker_id) for broker_id in ids}
        self.state = State(ids, frozenset(isr or ids), -1, 0, 0)
        self.nodes = {
            broker_id: Node(self, broker_id, directory / str(broker_id) / "t-0") for broker_id in ids
        }

    def __getitem__(self, broker_id: int) -> Node:
        return self.nodes[broker_id]

    def elect(
        self, leader: int, *, isr: Iterable[int] | None = None, tell: Iterable[int] | None = None
    ) -> None:
        """Begin a new leader epoch, and deliver it to the brokers in `tell` (default: all)."""
        self.state = replace(
            self.state,
            leader=leader,
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
            isr=frozenset(isr) if isr is not None else self.state.isr,
        )
        for broker_id in self.nodes if tell is None else tell:
            self.nodes[broker_id].hear()

    def alter_partition(self, broker_id: int, proposal: Proposal) -> Outcome:
        """Apply AlterPartition like the quorum: leader epoch, partition epoch and broker epochs must match."""
        state = self.state
        if (proposal.leader_epoch, proposal.partition_epoch) != (state.leader_epoch, state.partition_epoch):
            return Refusal.STALE
        for member, epoch in proposal.isr:
            if self.brokers[member].fenced or epoch not in (-1, self.brokers[member].broker_epoch):
                return Refusal.INELIGIBLE
        isr = frozenset(member for member, _ in proposal.isr)
        self.state = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
        return IsrCommitted(self.state.partition_epoch, isr)

    def settle(self, broker_id: int, proposal: Proposal, outcome: Outcome) -> list[Proposal]:
        """Deliver the answer to the leader; return its repeated proposals."""
        again: list[Proposal] = []
        settle(self[broker_id].partition, proposal, outcome, lambda _, repeated: again.append(repeated))
        return again

    def fetch(self, follower: int, leader: int, *, rounds: int = 1) -> None:
        """Do whole rounds of fetching, each with an immediate answer."""
        for _ in range(rounds):
            for answer in self[leader].serve(self[follower].ask()):
                self[follower].take(answer)

    def sync(self, leader: int, *followers: int) -> None:
        """Do rounds until all followers have all records and know the high watermark."""
        for _ in range(4):
            for follower in followers:
                self.fetch(follower, leader)


__all__ = [
    "KEY",
    "LAG_MS",
    "KafkaError",
    "Node",
    "Produced",
    "ReplicasByHand",
    "State",
    "batch",
    "over_the_wire",
]
