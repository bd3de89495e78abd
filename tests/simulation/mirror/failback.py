"""A failback: after a promotion the old source becomes the copy, under the same faults, while the other side writes on.

Most of its log stays in place. So it is judged twice: step by step like any copy, and at the end against the log that
it follows now.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from ottla.client.admin import Admin
from ottla.client.records import TopicPartition
from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import NO_EPOCH, MirrorFault, MirrorPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import decode_records
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import History
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.own_writer import OwnWriter
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started
from tests.simulation.mirror.clients import BOLD, COMPACTED, EXACT, PLAIN, TOPICS, write_to_copies
from tests.simulation.mirror.endings import check_replicas, leaders_of, unsettled
from tests.simulation.mirror.images import NewestImage
from tests.simulation.mirror.invariants import CopiesAreTheSource, FaultsHaveCauses
from tests.simulation.mirror.ledger import Fingerprint, Place, SourceLedger, batches_of, fingerprint

if TYPE_CHECKING:
    from tests.simulation.mirror.scenario import MirrorRun

BACK: Final = "back"
CHAOS_S: Final = (0.5, 1.0, 2.0)
HEAL_S: Final = 40.0
SHARE: Final = 0.5
"""Share of the runs that promote a mirror."""


class ReturnedCopies(CopiesAreTheSource):
    """The invariant of copies, for a log that was not a copy before; its compacted topic is judged at the end alone."""

    def look(self, node: Node, partition: Partition, image: ClusterImage) -> None:
        """Check a leader of the old source, if it still leads."""
        if partition.topic != COMPACTED:
            super().look(node, partition, image)

    def _check_shrinking(self, node: Node, partition: Partition, place: Place) -> None:
        """Skip BOLD: any replica may lead it in the old source, even as a copy, and its missing records are copied
        again.
        """
        if partition.topic != BOLD:
            super()._check_shrinking(node, partition, place)


@dataclass(slots=True)
class Outcome:
    """The answers that an operator got."""

    discards: bool = False
    is_back: bool = False
    refused: int = 0


class Failback:
    """The failback of a run, once its mirror is promoted and all is healed."""

    def __init__(self, run: MirrorRun, seed: int) -> None:
        self._run = run
        self._seed = seed
        self._chance = Random(f"failback {seed}")
        self.is_played = self._chance.random() < SHARE
        self.counts: Counter[str] = Counter()
        self.outcome = Outcome()

    def play(self) -> None:
        """Play until both sides are equal, and check them."""
        run = self._run
        run.links.restore()
        topics = sorted(_returning(run.source, run.target))
        if not topics:
            return
        with self._watched(run.source, run.target) as (ledger, copies):
            work = Workload(run.target, History(), dict(TOPICS))
            work.compacted.add(COMPACTED)
            self._employ(work, topics)
            run.torment_again(f"back {self._seed}", chaos_s := self._chance.choice(CHAOS_S))
            run.machine.run(run.machine.now + chaos_s)
            run.heal()
            for cluster in (run.source, run.target):
                run.wait(cluster.is_steady, HEAL_S, "both serve")
            run.wait(lambda: self.outcome.is_back, HEAL_S, "the failback")
            work.over = True
            run.wait(lambda: all(work.ended.values()), HEAL_S, "clients end")
            starts = run.ledger.starts | ledger.starts
            left = partial(unsettled, starts, run.target, run.source, topics, faults_allowed=False)
            if not run.machine.run(run.machine.now + HEAL_S, lambda: not left() and run.are_steady()):
                raise InvariantBroken(
                    "the old source comes back", f"after {HEAL_S} s: {left() or 'replicas are not in sync'}"
                )
            run.quietly(lambda: self._judge(topics, copies))
        self.counts |= {"failed back": 1, "failed back, discarding": int(self.outcome.discards)}
        self.counts["batches compared after a failback"] = copies.compared

    def _employ(self, work: Workload, topics: list[str]) -> None:
        run, chance = self._run, self._chance
        run.client(work, "writer again", lambda: write_to_copies(work, "writer again", lambda _send: None))
        if {EXACT, PLAIN} <= set(topics):
            places = [
                *(TopicPartition(EXACT, index) for index in range(TOPICS[EXACT])),
                TopicPartition(PLAIN, 0),
            ]
            run.client(work, "exact again", OwnWriter(work, "exact again", "writer-1", places).run)
        operator = Workload(run.source, History(), dict(TOPICS))
        self.outcome.discards = chance.random() < 0.5
        run.machine.after(
            chance.uniform(0.0, 0.5),
            lambda: run.client(
                operator,
                "returner",
                lambda: fail_back(operator, run.target.bootstrap, topics, self.outcome),
            ),
        )

    @contextmanager
    def _watched(
        self, old: SimulatedCluster, new: SimulatedCluster
    ) -> Iterator[tuple[SourceLedger, ReturnedCopies]]:
        run = self._run
        ledger = SourceLedger(new.brokers)
        ledger.compacted.add(COMPACTED)
        image, before = new.newest_image(), old.newest_image()
        assert image is not None
        assert before is not None
        for _, partition in leaders_of(new, image):
            ledger.begin_with(partition)
        newest_old, newest_new = NewestImage(old), NewestImage(new)
        causes = FaultsHaveCauses(ledger, newest_old, newest_new, ())
        for (topic_id, index), accepted in run.causes.accepted.items():
            # Records left out on the way there cannot be copied back.
            topic = image.topics_by_id.get(topic_id)
            known = None if topic is None else before.topics.get(topic.name)
            if known is not None:
                causes.accepted[known.id, index] += accepted
        copies = ReturnedCopies(old, ledger, newest_old, causes)
        run.of_source += [newest_old, copies]
        run.of_target += [newest_new, ledger]
        with ledger.watching(run.machine):
            yield ledger, copies

    def _judge(self, topics: Iterable[str], copies: ReturnedCopies) -> None:
        run = self._run
        old, new = (
            {(partition.topic, partition.index): partition for _, partition in leaders_of(cluster, image)}
            for cluster in (run.source, run.target)
            if (image := cluster.newest_image()) is not None
        )
        image = run.source.newest_image()
        assert image is not None
        for node, partition in leaders_of(run.source, image):
            copies.look(node, partition, image)
        for topic in topics:
            for index in range(TOPICS[topic]):
                ours, theirs = old[topic, index], new[topic, index]
                if topic == COMPACTED:
                    state = image.mirrors.partition(ours.topic_id, index) or MirrorPartition()
                    _check_keys(ours, theirs, state, discards=self.outcome.discards)
                else:
                    _check_alike(ours, theirs, run.causes.accepted[theirs.topic_id, index])
        for cluster in (run.source, run.target):
            check_replicas(cluster, run.machine.now, [COMPACTED])


def _returning(old: SimulatedCluster, new: SimulatedCluster) -> Iterator[str]:
    """Yield the topics that may become copies: topics whose current incarnation the other side has copied."""
    here, there = old.newest_image(), new.newest_image()
    assert here is not None
    assert there is not None
    for name in TOPICS:
        topic, copied = here.topics.get(name), there.topics.get(name)
        known = None if copied is None else there.mirrors.topics.get(copied.id)
        if (
            topic is not None
            and known is not None
            and known.source_topic_id == topic.id
            and len(known.partitions) == len(topic.partitions)
            and all(partition.promoted_epoch != NO_EPOCH for partition in known.partitions.values())
        ):
            yield name


async def fail_back(workload: Workload, source: str, topics: Iterable[str], outcome: Outcome) -> None:
    """Request the failback until it is known to be done. If records would be lost, discard them."""
    admin = await started(
        lambda: Admin(bootstrap_servers=workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
    )
    while not outcome.is_back:
        try:
            await admin.failback_mirror(
                BACK, source=source, topics="|".join(topics), groups=".*", discard=outcome.discards
            )
            outcome.is_back = True
        except KafkaError as error:
            if error.code is ErrorCode.DUPLICATE_RESOURCE:
                outcome.is_back = True  # An answer was lost.
            outcome.refused += error.code is ErrorCode.POLICY_VIOLATION
            outcome.discards |= error.code is ErrorCode.POLICY_VIOLATION
            await asyncio.sleep(0.05)
    await admin.stop()


def _check_alike(ours: Partition, theirs: Partition, left_out: Iterable[MirrorFault]) -> None:
    """Check that all batches are equal, except for leader epochs and commit indexes.

    Records whose loss was accepted on the other side may exist here. Raises InvariantBroken.
    """
    start = max(ours.log.log_start_offset, theirs.log.log_start_offset)
    here, there = (_batches(partition, start) for partition in (ours, theirs))
    here = {
        offset: found
        for offset, found in here.items()
        if offset in there or not any(fault.first <= offset < fault.end for fault in left_out)
    }
    if here != there:
        different = sorted(
            offset for offset in here.keys() | there.keys() if here.get(offset) != there.get(offset)
        )
        raise InvariantBroken(
            "both sides are alike",
            f"{ours!r} from {start}: at {different[:5]} {[here.get(offset) for offset in different[:3]]} here, "
            f"{[there.get(offset) for offset in different[:3]]} there",
        )


def _batches(partition: Partition, start: int) -> Mapping[int, Fingerprint]:
    log = partition.log
    return {
        header.base_offset: fingerprint(header, batch)
        for header, batch in batches_of(log, start, log.log_end_offset)
    }


def _check_keys(ours: Partition, theirs: Partition, state: MirrorPartition, *, discards: bool) -> None:
    """Check that the last record of each key is equal. Raises InvariantBroken.

    If records were discarded, a key may be missing whose older record was compacted away here in their favour, if it
    lies below the resumption.
    """
    here, there = (_last(partition) for partition in (ours, theirs))
    resumed = state.resumption
    for key, (offset, value) in there.items():
        is_compacted_away = discards and resumed is not None and offset < resumed.offset and key not in here
        if here.get(key) != (offset, value) and not is_compacted_away:
            raise InvariantBroken(
                "both sides are alike", f"{ours!r}: {key!r} is {here.get(key)} here, {offset, value} there"
            )


def _last(partition: Partition) -> Mapping[bytes | None, tuple[int, bytes | None]]:
    log, last = partition.log, dict[bytes | None, tuple[int, bytes | None]]()
    for header, batch in batches_of(log, log.log_start_offset, log.log_end_offset):
        if not header.is_control and not header.is_transactional:
            last |= {record.key: (record.offset, record.value) for record in decode_records(batch)}
    return last
