"""Retention in some runs: a topic with short retention, clocks that jump meanwhile, and checks of
the dropped segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch
from weakref import WeakKeyDictionary

from ottla.dataplane.log.old_segments import OldSegments
from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.log.retention import Hold
from ottla.dataplane.log.segments.segment import Segment
from ottla.dataplane.log.truncation import Truncation
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import Deleted
from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.cluster.workload import Workload
from tests.simulation.machine.host import WALL_START_S
from tests.simulation.machine.machine import Machine

TOPIC = "trimmed"
SHARE = 0.1
CHECK_INTERVAL_MS = "120"
RETENTIONS = (
    {"retention.ms": "400"},
    {"retention.ms": "1500"},
    {"retention.bytes": "3000"},
    {"retention.ms": "1500", "retention.bytes": "3000"},
)
SEGMENTS_MS = ("100", "400")
JUMPS_PER_S = 2.0
JUMPS_S = (0.3, 2.0, 60.0)
CLIENT_JUMP_MAX_S = 2.0
"""Largest jump of a client's clock; records are kept until their timestamp's time has passed."""


def is_trimmed(seed: int) -> bool:
    """Return whether the run of a seed has such a topic."""
    return Random(f"retention {seed}").random() < SHARE


class Retention:
    """The retention settings of a run, its clock jumps, and a check of every dropped segment.

    Whole segments are dropped, the oldest first. None reaches above the high watermark, or into a transaction that is
    open below it. Each dropped segment is below the log start, or the rest has the configured size, or all its records
    are too old by the broker's clock, which may have jumped since it was read.
    """

    def __init__(self, cluster: SimulatedCluster, workload: Workload, seed: int) -> None:
        self._cluster = cluster
        self._machine: Machine = cluster.machine
        self._history = workload.history
        chance = self._chance = Random(f"retention settings {seed}")
        self._settings = chance.choice(RETENTIONS)
        workload.topics[TOPIC] = 1
        workload.configs[TOPIC] = {**self._settings, "segment.ms": chance.choice(SEGMENTS_MS)}
        workload.trimmed.add(TOPIC)
        for node in cluster.brokers.values():
            node.settings["log.retention.check.interval.ms"] = CHECK_INTERVAL_MS
        #: of segments, by their base offset, as they were written: what rots later says nothing of their age
        self._closed: WeakKeyDictionary[PartitionLog, dict[int, Look]] = WeakKeyDictionary()

    def empties(self) -> bool:
        """Return whether the log empties soon: retention is by time, and no record has a future timestamp.

        Markers have their broker's time, whose clock may have jumped, and their segments stay until that time has
        passed.
        """
        newest_ms = max((look.newest_ms for log in self._logs() for look in self._looks(log)), default=-1)
        now_ms = (WALL_START_S + self._machine.now) * 1000
        return "retention.ms" in self._settings and newest_ms <= now_ms + CLIENT_JUMP_MAX_S * 1000

    def jump_clocks(self, seconds: float) -> None:
        """Make clocks jump for a number of seconds; then all are right again."""
        chance, machine = self._chance, self._machine
        due_s = 0.0
        while (due_s := due_s + chance.uniform(0, 2 / JUMPS_PER_S)) < seconds:
            of_client, share = chance.random() < 0.3, chance.random()
            by_s = chance.choice((-1, 1)) * chance.choice(JUMPS_S)
            lasts_s = min(chance.uniform(0.05, 1.5), seconds - due_s)
            machine.after(
                due_s,
                lambda what=(of_client, share, by_s, lasts_s): self._jump(*what),  # type: ignore[misc]
            )

    def _jump(self, of_client: bool, share: float, by_s: float, lasts_s: float) -> None:
        brokers = [node.host for node in self._cluster.brokers.values()]
        nodes = {node.host.address for node in self._cluster.nodes}
        clients = [host for address, host in self._machine.hosts.items() if address not in nodes]
        if of_client:
            by_s = max(-CLIENT_JUMP_MAX_S, min(by_s, CLIENT_JUMP_MAX_S))
        among = clients if of_client else brokers
        host = among[int(share * len(among))]
        host.wall_error_s += by_s
        self._machine.trace.note(self._machine.now, host.name, f"clock jumps by {by_s} s for {lasts_s:.3f} s")

        def mend() -> None:
            host.wall_error_s -= by_s

        self._machine.after(lasts_s, mend)

    def agree(self) -> bool:
        """Return whether all replicas are empty and begin at the same offset, as required at the
        end if records expire.
        """
        logs = self._logs()
        starts = {log.log_start_offset for log in logs}
        return len(starts) == 1 and all(log.log_start_offset == log.log_end_offset for log in logs)

    def check_starts(self) -> None:
        """Check at the end that no follower keeps segments that its leader has dropped. Raises InvariantBroken."""
        for node in self._cluster.brokers.values():
            for partition in node.led():
                if partition.topic == TOPIC:
                    for log in self._logs():
                        if log.log_start_offset < partition.log.log_start_offset:
                            raise InvariantBroken(
                                "followers begin where their leader does, or later",
                                f"{log!r} at {log.log_start_offset}, the leader {partition.log.log_start_offset}",
                            )

    def _logs(self) -> list[PartitionLog]:
        return [
            partition.log
            for node in self._cluster.brokers.values()
            for partition in node.replicas()
            if partition.topic == TOPIC
        ]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check the drops of retention within the block."""
        retain = OldSegments.retain

        def watched(segments: OldSegments, high_watermark: int, now_ms: int, hold: Hold | None = None) -> int:
            log = segments._log
            assert isinstance(log, PartitionLog)
            if not log.directory.name.startswith(f"{TOPIC}-"):
                return retain(segments, high_watermark, now_ms, hold)
            start, looks = log.log_start_offset, self._looks(log)
            stable = log.transactions.last_stable_offset(high_watermark)
            dropped = retain(segments, high_watermark, now_ms, hold)
            if dropped:
                # Each replica for itself: another one, with another clock, may lead next and still have it.
                self._history.add(Deleted(TOPIC, 0, log.log_start_offset, self._machine.now))
                gone = [look for look in looks if look.end <= log.segment_list.first_base][:dropped]
                left = sum(look.size for look in looks)
                for look in gone:
                    left -= look.size
                    reason = self._reason(log, look, start, left, now_ms)
                    if reason is None or look.end > stable or len(gone) != dropped:
                        what = (
                            f"{look} of {log!r} went at {now_ms} ms, high watermark {high_watermark}, stable up to "
                            f"{stable}, {looks}"
                        )
                        self._machine.failures.append(InvariantBroken("retention keeps what it must", what))
            return dropped

        def forgetting(cut: Callable[[Truncation, int], None]) -> Callable[[Truncation, int], None]:
            def forgets(truncation: Truncation, offset: int) -> None:
                # The copied records may have the same length as the checked ones.
                log = truncation._log
                assert isinstance(log, PartitionLog)
                self._closed.pop(log, None)
                cut(truncation, offset)

            return forgets

        with (
            patch.object(OldSegments, "retain", watched),
            patch.object(Truncation, "truncate_to", forgetting(Truncation.truncate_to)),
            patch.object(
                Truncation, "truncate_fully_and_start_at", forgetting(Truncation.truncate_fully_and_start_at)
            ),
        ):
            yield

    def _reason(self, log: PartitionLog, look: Look, start: int, left: int, now_ms: int) -> str | None:
        config = log.config
        if look.end <= start:
            return "below the log start"
        if 0 <= config.retention_bytes <= left:
            return "too much"
        if config.retention_ms >= 0 and now_ms - look.newest_ms > config.retention_ms:
            return "too old"
        return None

    def _looks(self, log: PartitionLog) -> list[Look]:
        known = self._closed.setdefault(log, {})
        segments = log.segment_list.copy()
        looks = []
        for number, segment in enumerate(segments):
            last = number == len(segments) - 1
            end = log.log_end_offset if last else segments[number + 1].base_offset
            look = known.get(segment.base_offset)
            if look is None or (look.size, look.end) != (segment.size, end):
                look = known[segment.base_offset] = _look(segment, end)
            looks.append(look)
        return looks


@dataclass(frozen=True, slots=True)
class Look:
    """A segment's contents, read from its batches instead of its indexes."""

    base_offset: int
    end: int
    size: int
    newest_ms: int


def _look(segment: Segment, end: int) -> Look:
    stamps = [header.max_timestamp for _, header in segment.walk(0, segment.base_offset)]
    return Look(segment.base_offset, end, segment.size, max(stamps, default=-1))
