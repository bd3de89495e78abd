"""Mutants of a broker's state besides the records: producers, clean stops, groups, visible and dropped records, and the
quorum's knowledge that the broker is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ottla.dataplane.coordinated_log.replicated_log import ReplicatedLog
from ottla.dataplane.fetching.reading import FetchReader, Outcome
from ottla.dataplane.groups import shard
from ottla.dataplane.groups.coordinator import GroupCoordinator
from ottla.dataplane.log import old_segments
from ottla.dataplane.log.checkpoints import CLEAN_SHUTDOWN
from ottla.dataplane.log.open_log import AppendResult
from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.log.producers import producer_loading
from ottla.dataplane.log.producers.producer_state import ProducerStates
from ottla.dataplane.log.retention import segments_to_drop
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.storage import directory
from ottla.metadata_quorum import liveness
from ottla.protocol.errors import ErrorCode
from tests.simulation.cluster.planting import mutant


@mutant(
    "followers-forget-producers",
    "a follower does not note the producers of what it copies",
    history="KIP-98: state of idempotent producers that only the leader has; scenarios 5 and 27",
    needs="Idempotent producers with retries; the answer to a produce request lost (leader killed, paused or its "
    "connections cut between append and answer) and another leader elected, all within the producer's timeout.",
)
def followers_forget_producers() -> Iterator[None]:
    """A appends m, all have it, A dies before it answers. B leads; the producer sends m again. B does not know the
    sequence and appends m once more: consumers read it twice."""
    append = PartitionLog.append_as_follower

    def without_producers(
        self: PartitionLog, batches: memoryview, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        known, self.producers = self.producers, ProducerStates()
        try:
            return append(self, batches, now_ms, leader_epoch)
        finally:
            self.producers = known

    with patch.object(PartitionLog, "append_as_follower", without_producers):
        yield


@mutant(
    "truncation-keeps-producers",
    "a truncation leaves the producers' windows as they were",
    history="producer state that is ahead of its log (KIP-98, truncation); scenarios 1 and 5",
    needs="Idempotent producers with retries; a leader with records that no other member has (cut off from its "
    "followers), deposed, healed, and made leader again within the producer's delivery timeout (some seconds): "
    "two elections, the second back to the first leader.",
)
def truncation_keeps_producers() -> Iterator[None]:
    """A appends m and is cut off from its followers. B leads; A comes back and cuts m off, but remembers its sequence.
    A leads again. The producer, whose answer never came, sends m once more: A takes it for a duplicate and
    acknowledges it. m is nowhere.

    Where others wrote at m's offset meanwhile, the offset in the answer is that of another record.
    """

    def forgets_nothing(self: ProducerStates, offset: int) -> bool:
        return True

    with patch.object(ProducerStates, "forget_from", forgets_nothing):
        yield


@mutant(
    "recovery-forgets-producers",
    "opening a log takes the producers of the last snapshot and does not walk what came after",
    history="KIP-98, recovery; scenario 5",
    needs="Idempotent producers with retries; a broker that is killed and restarted, then elected while a producer "
    "waits for an answer: all brokers killed at once, or RF 1 killed between append and answer.",
)
def recovery_forgets_producers() -> Iterator[None]:
    """m is appended everywhere; all brokers die before the answer.

    They restart and read their logs, but none knows m's producer. It sends m again, which is appended a second time.
    """

    def nothing(_segments: object, _offset: int, _left_out: object) -> Iterator[object]:
        return iter(())

    with patch.object(producer_loading, "_batches_from", nothing):
        yield


@mutant(
    "crash-passes-for-clean-stop",
    "the marker of a clean stop stays, so that later starts check and cut nothing",
    history="KAFKA-10471: a crash that passes for a clean stop",
    needs="A clean stop, a restart, then power loss with unflushed records of which later pages survived and earlier "
    "did not (writes reordered or torn on disk); restart. flush.messages=1 does not hide it for the unflushed tail.",
)
def crash_passes_for_clean_stop() -> Iterator[None]:
    """A was stopped cleanly once and started again. Its power fails: of the last batches some pages are on the disk
    and some are holes. It restarts and accepts its log unchecked. It leads, or is read as the closest replica:
    consumers get batches that do not check, or that are zeros; followers cannot copy them and the partition stands
    still.
    """

    def left(path: Path) -> int | None:
        return -1 if (path / CLEAN_SHUTDOWN).exists() else None

    with patch.object(directory, "take_clean_shutdown", left):
        yield


@mutant(
    "uncommitted-records-shown",
    "a leader answers consumers up to its log end",
    history="scenarios 3 and 14: retraction; the high watermark exists against it (KIP-207 for ListOffsets)",
    needs="Consumers at the end of the log; a leader cut off from its followers with a producer and a consumer on its "
    "side (or killed with records that no follower has), then another leader writing at the same offsets.",
)
def uncommitted_records_shown() -> Iterator[None]:
    """A is cut off from B and C and appends m with acks=1. A consumer on A's side reads m at offset 7. B leads and
    has n at 7: two consumers have read different records at one offset, and m is gone."""
    read_from = FetchReader._read_from

    class ToTheEnd:
        """A replica whose high watermark is its log end."""

        def __init__(self, replica: Partition) -> None:
            self.replica = replica

        def __getattr__(self, name: str) -> Any:
            return getattr(self.replica, name)

        @property
        def high_watermark(self) -> int:
            replica = self.replica
            return replica.high_watermark if replica.leader is None else replica.log.log_end_offset

    def to_the_end(self: FetchReader, fetch: Any, wanted: Any, replica: Partition, found: Any) -> Outcome:
        outcome = read_from(self, fetch, wanted, ToTheEnd(replica), found)  # type: ignore[arg-type]
        outcome.replica = replica
        return outcome

    with patch.object(FetchReader, "_read_from", to_the_end):
        yield


@mutant(
    "zombie-coordinator",
    "a broker that no longer leads an offsets partition goes on coordinating its groups",
    history="group metadata that is not unloaded; scenarios 36 to 38",
    needs="Groups that commit and fetch offsets; leadership of their __consumer_offsets partition moved away and the "
    "old leader alive, with clients that still talk to it (slow to look for the coordinator again); then moved "
    "back, or members restarted so that they fetch their offsets from it.",
)
def zombie_coordinator() -> Iterator[None]:
    """A coordinates group g. The partition moves to B; members that find B commit 100 there. A member that still knows
    A joins there, is made leader of another group of the same name, and fetches offset 50: it reads records again and
    owns partitions that a member at B owns too.
    """
    elected = GroupCoordinator.elected

    def stays(self: GroupCoordinator, partition: int) -> None:
        return

    def unless_here(self: GroupCoordinator, partition: int, offsets_log: Any) -> None:
        if partition not in self._shards:
            elected(self, partition, offsets_log)

    with (
        patch.object(GroupCoordinator, "resigned", stays),
        patch.object(GroupCoordinator, "elected", unless_here),
    ):
        yield


@mutant(
    "commits-of-anybody",
    "an offset commit is stored whatever member and generation it names",
    history="scenario 37, zombie commit; generations in the group protocol, and member epochs in KIP-848, are against "
    "it",
    needs="A consumer paused past its session timeout (or cut off from the coordinator) whose commit is on its way or "
    "is sent when it wakes; another member that has taken its partitions and committed more.",
)
def commits_of_anybody() -> Iterator[None]:
    """Member 1 has read up to 50 and is paused. Member 2 takes over, reads and commits 100. Member 1 wakes and commits
    50, and is answered that it is stored. The next member begins at 50: the group's offset went back."""

    def unchecked(*_who: object, **_how: object) -> ErrorCode:
        return ErrorCode.NONE

    with patch.object(shard, "check_commit", unchecked):
        yield


@mutant(
    "commits-before-replicated",
    "an offset commit is answered and shown when it is appended",
    history="offsets.commit.required.acks below -1 (Kafka before 4.0); scenario 36",
    needs="Groups that commit; the leader of their __consumer_offsets partition killed or cut off from its followers "
    "right after a commit, and another leader elected.",
)
def commits_before_replicated() -> Iterator[None]:
    """A coordinates, appends the commit of 100 and answers. A dies before any follower has copied it. B leads, loads
    50, and hands that out: an offset went back after an acknowledged commit.
    """
    append = ReplicatedLog.append

    def answer_at_once(self: ReplicatedLog, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        refused: list[ErrorCode] = []
        append(self, batch, lambda error: refused.append(error) if error is not ErrorCode.NONE else None)
        done(refused[0] if refused else ErrorCode.NONE)

    with patch.object(ReplicatedLog, "append", answer_at_once):
        yield


@mutant(
    "retention-above-high-watermark",
    "retention drops segments that are not committed to their end",
    history="the high watermark as a limit, which Kafka's retention has, too; scenario 28",
    needs="A topic with a small retention and small segments; a leader cut off from its followers for longer than "
    "that, or a clock that jumps while a follower lags.",
)
def retention_above_high_watermark() -> Iterator[None]:
    """A appends m and is waiting for its followers. A's clock jumps ahead: the segment of m is older than is kept,
    and goes. The followers find nothing between their log end and A's log start: m is gone before any client read it,
    though it is acknowledged once they have restarted their logs.
    """

    def to_the_end(segments: Any, config: Any, **limits: Any) -> int:
        return segments_to_drop(segments, config, **(limits | {"upper_bound": limits["log_end_offset"]}))

    with patch.object(old_segments, "segments_to_drop", to_the_end):
        yield


@mutant(
    "deaf-broker-stays",
    "the quorum's leader does not look at which of its answers a broker has heard",
    history="sessions that live by one direction: a node whose network lost the other one is never replaced "
    "(Cloudflare, 2020-11-02, with etcd)",
    needs="A cut of one direction, from the quorum's nodes to a broker, for longer than its session.",
)
def deaf_broker_stays() -> Iterator[None]:
    """No message of the quorum reaches A, whose heartbeats arrive: A stays the leader of its partitions. It
    hears no change of ISR committed and of no election, and acknowledges nothing while a follower lags, for as long as
    the cut lasts."""

    def loop_alone(_session: object, heartbeat: liveness.Heartbeat, now: float) -> float:
        return now - heartbeat.loop_age_s

    with patch.object(liveness, "_counts_from", loop_alone):
        yield


ALL = (
    followers_forget_producers,
    truncation_keeps_producers,
    recovery_forgets_producers,
    crash_passes_for_clean_stop,
    uncommitted_records_shown,
    zombie_coordinator,
    commits_of_anybody,
    commits_before_replicated,
    retention_above_high_watermark,
    deaf_broker_stays,
)
