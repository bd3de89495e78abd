"""Invariants inside the cluster, one class each, checked at every step. `tests.histories` judges the clients' view.

`observe` is called after each turn of a process's event loop; each invariant checks only what that turn may have
changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Protocol

from ottla.dataplane.broker import Broker
from ottla.dataplane.log.partition_log import PartitionLog
from ottla.metadata_quorum.node import QuorumNode
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.messages.metadata_records import Record, encode_record
from ottla.protocol.messages.transaction_records import TransactionalRecord
from ottla.protocol.records.record import ControlType, read_control_record
from ottla.protocol.records.record_batch import BatchHeader, walk_batches
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import Dump, History
from tests.histories.transactions import Marker
from tests.simulation.cluster.cluster import Node, SimulatedCluster

TURNS_BETWEEN_CHECKS = 50


class Invariant(Protocol):
    """A promise that is checked during a run."""

    def observe(self, node: Node) -> None:
        """Check after a turn of a process of this node. Raises InvariantBroken."""


class StateHoldsTogether:
    """An invariant: no part of a broker or quorum node contradicts itself, according to its own `check()` method.

    The methods are called now and then, between two events of the process, since an event may be handled in several
    steps.
    """

    def __init__(self) -> None:
        self._turns = 0

    def observe(self, node: Node) -> None:
        self._turns += 1
        if self._turns < TURNS_BETWEEN_CHECKS or not _between_events(node):
            return
        self._turns = 0
        self.check(node)

    def check(self, node: Node) -> None:
        """Check the node's process between two of its events."""
        try:
            if node.quorum_node is not None:
                _check_quorum_node(node.quorum_node)
            elif node.broker is not None:
                _check_broker(node.broker)
        except AssertionError as error:
            raise InvariantBroken("state holds together", f"{node.name}: {error}") from error


def _between_events(node: Node) -> bool:
    loop = None if node.process is None else node.process.loop
    return loop is not None and loop._selector.waits  # type: ignore[attr-defined]


def _check_quorum_node(quorum_node: QuorumNode) -> None:
    if quorum_node.controller is not None:
        quorum_node.controller.check()
    if quorum_node.raft._core is not None:
        quorum_node.raft._core.check()


def _check_broker(broker: Broker) -> None:
    """Check a broker, once its parts exist."""
    parts = broker.parts
    if parts is None:
        return
    parts.session.image.check()
    parts.replicas.check()
    for partition in parts.replicas:
        partition.log.check()
    for shard in parts.groups.shards():
        shard.check()


class OneLeaderPerEpoch:
    """An invariant: at most one broker leads a partition in a leader epoch, so the epoch holds only that broker's
    records.
    """

    def __init__(self) -> None:
        self._leaders: dict[tuple[bytes, int, int], str] = {}

    def observe(self, node: Node) -> None:
        for partition in node.moved():
            if partition.leader is None:
                continue
            epoch = partition.leader_epoch
            key = (partition.topic_id, partition.index, epoch)
            leader = self._leaders.setdefault(key, node.name)
            if leader != node.name:
                raise InvariantBroken(
                    "one leader per epoch",
                    f"{leader} and {node.name} both lead {partition!r} in epoch {epoch}",
                )


class OneQuorumLeaderPerTerm:
    """An invariant: at most one quorum node leads in a Raft term."""

    def __init__(self) -> None:
        self._leaders: dict[int, str] = {}

    def observe(self, node: Node) -> None:
        quorum_node = node.quorum_node
        if quorum_node is None or not quorum_node.is_leader:
            return
        leader = self._leaders.setdefault(quorum_node.raft.term, node.name)
        if leader != node.name:
            raise InvariantBroken(
                "one quorum leader per term",
                f"{leader} and {node.name} both lead term {quorum_node.raft.term}",
            )


def all_invariants() -> list[Invariant]:
    """Return new invariants for one run."""
    return [StateHoldsTogether(), OneLeaderPerEpoch(), OneQuorumLeaderPerTerm()]


# ------------------------------------------------------------ at the end


def check_images(cluster: SimulatedCluster) -> None:
    """Check that all nodes hold the same metadata at the end. Raises InvariantBroken.

    Transactions are exempt: brokers know only transactions of their partitions, which are all over.
    """
    contents: dict[str, bytes] = {}
    transactions: dict[str, bytes] = {}
    for node in cluster.nodes:
        image = node.image()
        if image is None:
            continue
        common = (each for each in image.records() if not isinstance(each, TransactionalRecord))
        contents[node.name] = b"%d at %d" % (_digest(common), image.offset)
        if node.quorum_node is not None:
            transactions[node.name] = b"%d of transactions" % _digest(image.transactions.records())
        else:
            _check_nothing_open(node, image)
    for images in (contents, transactions):
        if len(set(images.values())) > 1:
            raise InvariantBroken("same metadata everywhere", str(images))


def _digest(records: Iterable[Record]) -> int:
    return zlib.crc32(b"".join(sorted(map(encode_record, records))))


def _check_nothing_open(node: Node, image: ClusterImage) -> None:
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            here = image.transactions.at((topic.id, index))
            if here and node.id in state.replicas:
                raise InvariantBroken(
                    "same metadata everywhere",
                    f"{node.name} takes {list(here.values())} of {topic.name}-{index} for open",
                )


def dump_replicas(cluster: SimulatedCluster, history: History, now: float) -> None:
    """Add every replica's batches to the history, for comparison."""
    for number, node in cluster.brokers.items():
        for partition in node.replicas():
            log = partition.log
            entries, markers = _contents(log)
            history.add(
                Dump(
                    number,
                    partition.topic,
                    partition.index,
                    log.log_start_offset,
                    partition.high_watermark,
                    entries,
                    now,
                    markers,
                )
            )


def _contents(log: PartitionLog) -> tuple[list[tuple[int, int, int]], list[Marker]]:
    """Return (base offset, leader epoch, CRC) of every batch, and the contents of markers."""
    offset = log.log_start_offset
    entries: list[tuple[int, int, int]] = []
    markers: list[Marker] = []
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        data = memoryview(found.read())
        found.release()
        if not data:
            break
        for position, header in walk_batches(data):
            entries.append((header.base_offset, header.partition_leader_epoch, header.crc))
            if header.is_control:
                markers.append(_marker(header, data[position : position + header.size]))
            offset = header.last_offset + 1
    return entries, markers


def _marker(header: BatchHeader, batch: memoryview) -> Marker:
    control = read_control_record(batch)
    assert control is not None, header
    commits = control.type is ControlType.COMMIT
    return Marker(
        header.base_offset,
        header.producer_id,
        header.producer_epoch,
        commits,
        control.number,
        control.commit_index,
    )
