"""Unclean elections: a topic that allows them in some runs, what each may lose, and that no other topic has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replicas.replicas import Replicas
from ottla.metadata_quorum.state.election import Progress
from ottla.metadata_quorum.state.workspace import Workspace
from ottla.protocol.cluster.cluster_image import NO_LEADER, PartitionState
from ottla.protocol.cluster.transaction_table import TransactionMetadata
from ottla.protocol.errors import ErrorCode
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import History, Lossy
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.exact_reader import TIMEOUT_MS
from tests.simulation.cluster.workload import Workload

TOPIC = "bold"
"""Its records may be lost where nobody in sync can lead; the first by name, which faults befall most."""
SHARE = 0.1
CONFIGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
LATE_S = TIMEOUT_MS / 1000 + 0.05
"""So much later its reader may be given an answer of a leader that was deposed."""


def is_bold(seed: int) -> bool:
    """Whether the run of a seed has such a topic."""
    return Random(f"unclean {seed}").random() < SHARE


def add_topic(workload: Workload) -> None:
    """To those that clients use."""
    workload.topics[TOPIC] = 1
    workload.configs[TOPIC] = CONFIGS
    workload.lossy.add(TOPIC)


class UncleanElections:
    """Watches the quorum elect. Only who has all that was acknowledged leads: a member of the ISR, of the ELR, the only
    one of the last known ELR, or whoever is furthest along of all in there. In the topic that allows others each such
    election is declared a loss, of no more than it may have taken: what all logs have in common at that moment stays,
    and so does what is sent after the last leader of before has given up. What is open in the new leader's log, and
    the quorum knows nothing of, may have been committed, and is not any more.
    """

    def __init__(self, cluster: SimulatedCluster, history: History, *, last_known_lose: bool) -> None:
        """`last_known_lose`: members of the last known ELR may have lost what nobody else has."""
        self._cluster = cluster
        self._machine = cluster.machine
        self._history = history
        self._last_known_lose = last_known_lose
        #: the latest of each host that was not deleted, also while it is down or has not read its logs yet
        self._replicas: dict[tuple[str, bytes, int], Partition] = {}
        self._seen: set[tuple[bytes, int, int]] = set()
        #: elections since which a leader of before may still be at work: the loss, topic id and index
        self._pending: list[tuple[Lossy, bytes, int]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """What every quorum node decides meanwhile."""
        set_partition: Callable[..., PartitionState] = Workspace.set_partition

        def watched(
            work: Workspace, topic_id: bytes, index: int, state: PartitionState, *progress: Progress
        ) -> PartitionState:
            before = work.image.topics_by_id[topic_id].partitions.get(index)
            owed = dict(work.image.transactions.at((topic_id, index)))
            after = set_partition(work, topic_id, index, state, *progress)
            if before is not None and after.leader != NO_LEADER and after.leader != before.leader:
                topic = work.image.topics_by_id[topic_id].name
                self._elected(topic, topic_id, index, before, after, owed)
            return after

        begin = Partition.__init__

        def begun(partition: Partition, topic: str, *rest: Any) -> None:
            begin(partition, topic, *rest)
            if topic == TOPIC and self._machine.running is not None:
                host = self._machine.running.process.host.name
                self._replicas[host, partition.topic_id, partition.index] = partition

        remove: Callable[..., None] = Replicas._remove

        def removed(replicas: Replicas, partition: Partition, told: ErrorCode) -> None:
            remove(replicas, partition, told)
            for key, latest in list(self._replicas.items()):
                if latest is partition:
                    del self._replicas[key]

        with (
            patch.object(Workspace, "set_partition", watched),
            patch.object(Partition, "__init__", begun),
            patch.object(Replicas, "_remove", removed),
        ):
            yield

    def observe(self, node: Node) -> None:
        """An invariant that sees when leaders of before have given up."""
        for entry in self._pending[:]:
            loss, topic_id, index = entry
            assert loss.leader_epoch is not None
            if not any(
                partition.topic_id == topic_id
                and partition.index == index
                and partition.leader_epoch < loss.leader_epoch
                for partition in self._leading()
            ):
                loss.until_s = self._machine.now + LATE_S
                self._pending.remove(entry)

    def _leading(self) -> Iterator[Partition]:
        for node in self._cluster.brokers.values():
            if node.process is not None and node.process.alive:
                yield from node.led()

    def _elected(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        before: PartitionState,
        after: PartitionState,
        owed: Mapping[int, TransactionMetadata],
    ) -> None:
        """Each election is judged once, when the first quorum node applies it. `owed`: what it knows to lack markers
        there, by producer id."""
        key = (topic_id, index, after.leader_epoch)
        if key in self._seen:
            return
        self._seen.add(key)
        where = f"{topic}-{index}: {before} became {after}"
        if not after.unclean:
            return
        last_known = before.last_known_elr
        if topic != TOPIC:
            if nothing_allows(before, after):
                self._fail(where)
        elif last_known != (after.leader,) or self._last_known_lose:
            self._declare(topic, topic_id, index, after, owed)

    def _fail(self, what: str) -> None:
        self._machine.failures.append(InvariantBroken("unclean elections only where they are allowed", what))

    def _declare(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        after: PartitionState,
        owed: Mapping[int, TransactionMetadata],
    ) -> None:
        now = self._machine.now
        logs = self._logs(topic_id, index, after)
        common = common_end(list(logs.values())) if after.leader in logs else 0
        loss = Lossy("unclean election", now, None, topic, index, common, after.leader_epoch)
        if after.leader in logs:
            place = (topic_id, index)
            loss.undecided = [
                (producer_id, first)
                for producer_id, first in logs[after.leader].transactions.open.items()
                if producer_id not in owed
                or not owed[producer_id].phase.commits
                or place in owed[producer_id].aborted
            ]
        self._machine.trace.note(
            now, "-", f"unclean election: {topic}-{index} from {common} on, {after.leader_epoch}"
        )
        self._history.add(loss)
        self._pending.append((loss, topic_id, index))

    def _logs(self, topic_id: bytes, index: int, after: PartitionState) -> dict[int, PartitionLog]:
        """Of all replicas, as they are, or as they were when their brokers died. Who has not begun yet, or gave its
        replica up, has nothing to be lost."""
        logs: dict[int, PartitionLog] = {}
        for number in after.replicas:
            partition = self._replicas.get((self._cluster.brokers[number].host.name, topic_id, index))
            if partition is not None:
                logs[number] = partition.log
        return logs


def nothing_allows(before: PartitionState, after: PartitionState) -> bool:
    """Whether somebody leads uncleanly though nothing says that he has all that was acknowledged. Of several last
    known members, and who is further along than they are, the quorum's own tests tell."""
    claims, last_known = (*before.isr, *before.elr), before.last_known_elr
    return after.leader not in claims and (
        not last_known or (len(last_known) == 1 and last_known != (after.leader,))
    )


def common_end(logs: list[PartitionLog]) -> int:
    """Up to where all logs hold the same records: those of the same leader epochs."""
    start = max(log.log_start_offset for log in logs)
    end = min(log.log_end_offset for log in logs)
    starts = {offset for log in logs for _, offset in log.leader_epochs.entries if start < offset < end}
    for offset in sorted({start, *starts}):
        if offset < end and len({log.leader_epochs.epoch_at(offset) for log in logs}) > 1:
            return offset
    return end
