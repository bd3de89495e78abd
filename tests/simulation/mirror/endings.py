"""Checks of a mirror after everything is healed, and after its promotion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import NO_EPOCH, MirrorPartition
from ottla.protocol.records.record import decode_records
from tests.histories.invariants import Facts, InvariantBroken, ReplicaDivergence
from tests.histories.operations import History, Outcome, Send
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.invariants import dump_replicas
from tests.simulation.mirror.ledger import Place, SourceLedger, batches_of


def leaders_of(cluster: SimulatedCluster, image: ClusterImage) -> Iterator[tuple[Node, Partition]]:
    """Yield the partitions whose leader agrees with the quorum's decision."""
    for node in cluster.brokers.values():
        for partition in node.led():
            topic = image.topics_by_id.get(partition.topic_id)
            if topic is not None and topic.partitions[partition.index].leader_epoch == partition.leader_epoch:
                yield node, partition


def unsettled(
    starts: Mapping[str, int],
    source: SimulatedCluster,
    target: SimulatedCluster,
    topics: Iterable[str],
    *,
    faults_allowed: bool,
) -> list[str]:
    """Yield the copies that neither match their source nor are stopped by a fault, with the reason.

    `starts`: the highest log start of each partition, by its name.
    """
    there, here = source.newest_image(), target.newest_image()
    if there is None or here is None:
        return ["there is no quorum"]
    originals = {(partition.topic, partition.index): partition for _, partition in leaders_of(source, there)}
    copies = {(partition.topic, partition.index): partition for _, partition in leaders_of(target, here)}
    found = []
    for name in topics:
        topic = there.topics.get(name)
        for index in range(len(topic.partitions)) if topic is not None else ():
            original, copy = originals.get((name, index)), copies.get((name, index))
            if original is None or copy is None:
                found.append(f"{name}-{index}: led {original} there, {copy} here")
                continue
            state = here.mirrors.partition(copy.topic_id, index) or MirrorPartition()
            if state.fault is not None and faults_allowed:
                continue
            trouble = _differs(original, copy, starts.get(f"{name}-{index}", 0))
            if not trouble and state.fault is not None:
                trouble = f"fault {state.fault}"
            if trouble:
                found.append(f"{name}-{index}: {trouble}")
    return found


def _differs(original: Partition, copy: Partition, highest_start: int) -> str:
    """Return the difference. The copy keeps a log start that a broker of the source reported and lost when it died."""
    ends = [(partition.log.log_end_offset, partition.high_watermark) for partition in (original, copy)]
    if ends[0] != ends[1] or len(set(ends[0])) != 1:
        return f"ends and high watermarks are {ends[0]} there, {ends[1]} here"
    starts = [partition.log.log_start_offset for partition in (original, copy)]
    if starts[0] != starts[1] and not starts[0] < starts[1] <= highest_start:
        return f"begins at {starts[0]} there, at {starts[1]} here"
    stable = [
        partition.log.transactions.last_stable_offset(partition.high_watermark)
        for partition in (original, copy)
    ]
    if stable[0] != stable[1]:
        return f"is stable up to {stable[0]} there, to {stable[1]} here"
    return ""


def check_compacted(source: SimulatedCluster, target: SimulatedCluster, topic: str) -> None:
    """Check that the last record of each key is equal, whatever each cluster has compacted.

    Transactional records, which have unique keys, count by their markers. Raises InvariantBroken.
    """
    latest = []
    for cluster in (source, target):
        image = cluster.newest_image()
        assert image is not None
        log = next(partition.log for _, partition in leaders_of(cluster, image) if partition.topic == topic)
        last: dict[bytes | None, tuple[int, bytes | None]] = {}
        for header, batch in batches_of(log, log.log_start_offset, log.log_end_offset):
            if not header.is_control and not header.is_transactional:
                last |= {record.key: (record.offset, record.value) for record in decode_records(batch)}
        latest.append(last)
    if latest[0] != latest[1]:
        raise InvariantBroken("the last of each key is copied", f"{latest[0]} there, {latest[1]} here")


def check_promoted(target: SimulatedCluster, sends: list[Send], ledger: SourceLedger) -> None:
    """Check that after the copied records there are only local records, with all acknowledged ones, and ends of
    transactions that were open.

    No transaction stays open, and no producer of the source is known. Raises InvariantBroken.
    """
    image = target.newest_image()
    assert image is not None
    acknowledged = {
        (made.topic, made.partition, made.offset): made for made in sends if made.outcome is Outcome.OK
    }
    sent = {made.value for made in sends}
    for node, partition in leaders_of(target, image):
        copy = image.mirrors.partition(partition.topic_id, partition.index)
        if copy is None:
            continue
        if copy.promoted_epoch == NO_EPOCH:
            raise InvariantBroken("a mirror is promoted as a whole", f"{partition!r} is not: {copy}")
        _check_open(node, partition)
        first = partition.log.leader_epochs.start_of(copy.promoted_epoch)
        ours: set[int] = set()
        for header, batch in batches_of(partition.log, first, partition.log.log_end_offset):
            ours.add(header.producer_id)
            if header.is_control:
                continue
            for record in decode_records(batch):
                if record.value not in sent:
                    raise InvariantBroken(
                        "nothing is copied after the promotion",
                        f"{node.name}: {partition!r} has {record} behind {first}",
                    )
                send = acknowledged.pop((partition.topic, partition.index, record.offset), None)
                if send is not None and send.value != record.value:
                    raise InvariantBroken(
                        "what is acknowledged is there", f"{node.name}: {record} in the place of {send}"
                    )
        _check_forgotten(node, partition, first, ours)
    lost = [left for left in acknowledged.values() if left.topic not in ledger.compacted]
    if lost:
        raise InvariantBroken("what is acknowledged is there", f"acknowledged and not there: {lost[:3]}")


def check_keys_kept(target: SimulatedCluster, had: Mapping[Place, Mapping[int, bytes | None]]) -> int:
    """Check that each key of a promoted copy has the copy's last record below the cut, unless a newer one was produced
    locally.

    Return the number of keys that the copy had on both sides of the cut. Raises InvariantBroken.
    """
    renewed = 0
    image = target.newest_image()
    assert image is not None
    for node, partition in leaders_of(target, image):
        copy = image.mirrors.partition(partition.topic_id, partition.index)
        known = had.get((partition.topic_id, partition.index))
        if copy is None or known is None or copy.promoted_epoch == NO_EPOCH:
            continue
        log = partition.log
        end = log.leader_epochs.start_of(copy.promoted_epoch)
        last = {key: offset for offset, key in sorted(known.items()) if log.log_start_offset <= offset < end}
        renewed += len(last.keys() & {key for offset, key in known.items() if offset >= end})
        here = {
            record.offset: record.key
            for header, batch in batches_of(log, log.log_start_offset, log.log_end_offset)
            if not header.is_control and not header.is_transactional
            for record in decode_records(batch)
        }
        newer = {key for offset, key in here.items() if offset >= end}
        gone = {key: offset for key, offset in last.items() if key not in newer and offset not in here}
        if gone:
            raise InvariantBroken(
                "compaction waits at the cut",
                f"{node.name}: {partition!r} was promoted at {end}, and lacks the last records of {gone}",
            )
    return renewed


def _check_open(node: Node, partition: Partition) -> None:
    watermark = partition.high_watermark
    stable = partition.log.transactions.last_stable_offset(watermark)
    if stable != watermark or partition.log.log_end_offset != watermark:
        raise InvariantBroken(
            "nothing is left open",
            f"{node.name}: {partition!r} is stable up to {stable}, high watermark {watermark}, ends at "
            f"{partition.log.log_end_offset}, open {dict(partition.log.transactions.open)}",
        )


def _check_forgotten(node: Node, partition: Partition, first: int, ours: set[int]) -> None:
    """Check that every known producer has written after the promotion, even if only a marker."""
    for entry in partition.log.producers.entries():
        if entry.producer_id not in ours:
            raise InvariantBroken(
                "producers of the source are forgotten",
                f"{node.name}: {partition!r} knows producer {entry.producer_id}, which has written nothing since "
                f"offset {first}",
            )
        if entry.batches and entry.batches[0].last_offset < first:
            raise InvariantBroken(
                "producers of the source are forgotten",
                f"{node.name}: {partition!r} takes the batch at {entry.batches[0].first_offset} for one of producer "
                f"{entry.producer_id} here, and the copy ended at {first}",
            )


def check_replicas(cluster: SimulatedCluster, now: float, compacted: Iterable[str]) -> None:
    """Check that all replicas have equal bytes. Raises InvariantBroken."""
    everything = History()
    dump_replicas(cluster, everything, now)
    everything.dumps[:] = [dump for dump in everything.dumps if dump.topic not in compacted]
    for broken in ReplicaDivergence().violations(Facts(everything)):
        raise InvariantBroken("replicas agree", broken)
