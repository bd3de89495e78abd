"""Unclean elections: a topic, in some runs, that allows them, their permitted losses, and a check that other topics
have none.
"""

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
"""Topic that may lose records if no in-sync replica can lead; the first by name, which most faults hit."""
SHARE = 0.1
CONFIGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
LATE_S = TIMEOUT_MS / 1000 + 0.05
"""Seconds after an election until which a consumer may still get an answer of the deposed leader."""


def is_bold(seed: int) -> bool:
    """Return whether the run of a seed has such a topic."""
    return Random(f"unclean {seed}").random() < SHARE


def add_topic(workload: Workload) -> None:
    """Add the topic to the workload."""
    workload.topics[TOPIC] = 1
    workload.configs[TOPIC] = CONFIGS
    workload.lossy.add(TOPIC)


class UncleanElections:
    """An observer of the quorum's elections. Only a replica with all acknowledged records may lead: a member of the ISR
    or the ELR, the only member of the last known ELR, or the most complete of its members.

    In the topic that permits unclean elections, each is declared as a loss of the records that it may have taken. The
    common prefix of all logs stays, and so do records sent after the last former leader has given up. Transactions that
    are open in the new leader's log and unknown to the quorum may have been committed, and are not any more.
    """

    def __init__(self, cluster: SimulatedCluster, history: History, *, last_known_lose: bool) -> None:
        """`last_known_lose`: members of the last known ELR may have lost records that no other replica has."""
        self._cluster = cluster
        self._machine = cluster.machine
        self._history = history
        self._last_known_lose = last_known_lose
        #: the latest of each host that was not deleted, also while it is down or has not read its logs yet; with the
        #: host's boot id at its beginning
        self._replicas: dict[tuple[str, bytes, int], tuple[Partition, str]] = {}
        self._seen: set[tuple[bytes, int, int]] = set()
        #: elections since which a leader of before may still be at work: the loss, topic id and index
        self._pending: list[tuple[Lossy, bytes, int]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe the decisions of all quorum nodes within the block."""
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
                host = self._machine.running.process.host
                self._replicas[host.name, partition.topic_id, partition.index] = partition, host.boot

        remove: Callable[..., None] = Replicas._remove

        def removed(replicas: Replicas, partition: Partition, code: ErrorCode) -> None:
            remove(replicas, partition, code)
            for key, (latest, _) in list(self._replicas.items()):
                if latest is partition:
                    del self._replicas[key]

        with (
            patch.object(Workspace, "set_partition", watched),
            patch.object(Partition, "__init__", begun),
            patch.object(Replicas, "_remove", removed),
        ):
            yield

    def observe(self, node: Node) -> None:
        """Notice the moments at which former leaders give up."""
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
        """Judge each election once, when the first quorum node applies it.

        `owed`: transactions whose markers are missing there, by producer id.
        """
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
        common = 0
        if after.leader in logs:
            common = min([common_end(list(logs.values())), *self._durable_ends(topic_id, index, after)])
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
        """Return the logs of all replicas, current or as of their brokers' death.

        Replicas that have not begun, or were given up, have nothing to lose.
        """
        logs: dict[int, PartitionLog] = {}
        for number in after.replicas:
            latest = self._replicas.get((self._cluster.brokers[number].host.name, topic_id, index))
            if latest is not None:
                logs[number] = latest[0].log
        return logs

    def _durable_ends(self, topic_id: bytes, index: int, after: PartitionState) -> Iterator[int]:
        """Yield the flushed ends of replicas whose hosts have lost power since, and which have not read their logs
        again: nobody knows how much more is left."""
        for number in after.replicas:
            host = self._cluster.brokers[number].host
            latest = self._replicas.get((host.name, topic_id, index))
            if latest is not None and not (host.powered and host.boot == latest[1]):
                yield latest[0].log.recovery_point


def nothing_allows(before: PartitionState, after: PartitionState) -> bool:
    """Return whether a leader was elected uncleanly, and not from the ISR, the ELR or the last known ELR.

    The quorum's own tests check the choice among several last known members, and which of them is the most complete.
    """
    claims, last_known = (*before.isr, *before.elr), before.last_known_elr
    return after.leader not in claims and (
        not last_known or (len(last_known) == 1 and last_known != (after.leader,))
    )


def common_end(logs: list[PartitionLog]) -> int:
    """Return the offset up to which all logs hold the same records, by their leader epochs."""
    start = max(log.log_start_offset for log in logs)
    end = min(log.log_end_offset for log in logs)
    starts = {offset for log in logs for _, offset in log.leader_epochs.entries if start < offset < end}
    for offset in sorted({start, *starts}):
        if offset < end and len({log.leader_epochs.epoch_at(offset) for log in logs}) > 1:
            return offset
    return end
