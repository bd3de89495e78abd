"""Mutants of followers, truncation and fencing: causes of diverging logs."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from ottla.dataplane.log.leader_epochs import UNDEFINED_EPOCH
from ottla.dataplane.replication.fetch_values import FetchPosition, PartitionKey
from ottla.dataplane.replication.follower import fetching
from ottla.dataplane.replication.follower.fetching import LeaderSession
from ottla.dataplane.replication.leader import follower_session
from ottla.dataplane.replication.replica import following
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.roles.follower import EpochEnd
from ottla.dataplane.replication.roles.leader import LeaderState
from ottla.protocol.cluster.cluster_image import PartitionState
from tests.simulation.cluster.planting import mutant


@mutant(
    "truncate-to-high-watermark",
    "a follower cuts its log at its own high watermark, and no epoch is compared",
    history="KIP-101, KAFKA-1211, first scenario (Kafka before 0.11)",
    needs="RF 3, acks=all; two changes of leader within one fetch of a follower (slow links between brokers, or "
    "two kills, or preferred elections under load). No power loss needed.",
)
def truncate_to_high_watermark() -> Iterator[None]:
    """A leads, B and C follow. m is on all three and acknowledged; C has not heard yet that the high watermark
    passed m.

    A dies. B leads; C cuts m off as it becomes its follower. B dies before C has fetched m again. C is in the ISR,
    leads, and m, acknowledged, is gone. Where B comes back it holds m at an offset at which C has another record.
    """
    become_follower = Partition.become_follower

    def cut_first(self: Partition, state: PartitionState) -> bool:
        is_new = become_follower(self, state)
        if is_new and state.leader >= 0:
            self.following._truncated_to(max(self.high_watermark, self.log.log_start_offset))
        return is_new

    def without_epoch(
        key: PartitionKey,
        leader_epoch: int,
        offset: int,
        _last_fetched_epoch: int,
        start: int,
        max_bytes: int,
    ) -> FetchPosition:
        return FetchPosition(key, leader_epoch, offset, UNDEFINED_EPOCH, start, max_bytes)

    with (
        patch.object(Partition, "become_follower", cut_first),
        patch.object(fetching, "FetchPosition", without_epoch),
    ):
        yield


@mutant(
    "fast-double-failover",
    "a follower cuts at the end offset it is told, without looking at which epoch ends there",
    history="KIP-279, KAFKA-6361 (Kafka before 2.0)",
    needs="RF 3, min.insync.replicas 1 (or acks=1 load beside acks=all); a member of the ISR cut off from the others "
    "while it leads, so that it has records of its own; two elections meanwhile, the new ones taking records "
    "at the same offsets; heal. Short leaderships with a preferred leader that is not furthest along help.",
)
def fast_double_failover() -> Iterator[None]:
    """Epoch 1: A, B, C agree up to offset 10. Epoch 2: B leads, A copies 10-14 of it, C is slow. Epoch 3: C is
    elected and appends 10-16 by itself, A has not fetched. Epoch 4: A leads.

    C asks where its epoch 3 ends. A knows of 1 and 2 and says: 2 ends at 15. C cuts at 15 and keeps its own 10-14,
    which are not those of A. Consumers that read C, or any after C leads, see other records at offsets that were
    acknowledged.
    """

    def compares_ends_only(_last_fetched_epoch: int, fetch_offset: int, ours: EpochEnd) -> bool:
        return ours.end_offset < fetch_offset

    def at_leaders_end(leader: EpochEnd, _ours: EpochEnd, log_end_offset: int) -> int:
        return min(leader.end_offset, log_end_offset)

    with (
        patch.object(follower_session, "diverges", compares_ends_only),
        patch.object(following, "truncation_offset", at_leaders_end),
    ):
        yield


@mutant(
    "late-answer-taken",
    "a follower takes answers to requests that it sent in an older leader epoch",
    history="KIP-320, second part; rule 2 (fenced truncation) of Kip320.tla",
    needs="The same broker leads again within the delay of one answer: slow link from leader to follower, leadership "
    "moved away and back (preferred elections), or a new epoch of the same leader (a replica is removed by a "
    "reassignment); acks=1 load, so that the old leadership has records that did not survive.",
)
def late_answer_taken() -> Iterator[None]:
    """A leads in epoch 1 and answers B's fetch with r at offset 5; the answer is slow. C leads in epoch 2 and takes s
    at 5; A follows, cuts r off, copies s. A leads again in epoch 3. Now the answer arrives: B's log ends at 5, r fits.

    B acknowledges offset 6 and holds r where A and C hold s.
    """

    def not_fenced(self: LeaderSession, key: PartitionKey) -> None:
        return

    with patch.object(LeaderSession, "_fence", not_fenced):
        yield


@mutant(
    "stale-leader-epoch-served",
    "fetches that name another leader epoch are served, and count as acknowledgements",
    history="KIP-320 (Kafka before 2.1)",
    needs="Metadata that reaches brokers at different times (slow or cut feed to one broker) around changes of leader; "
    "acks=all load. Seen at once by a check that every fetch with another epoch is answered with an error.",
)
def stale_leader_epoch_served() -> Iterator[None]:
    """A leads in epoch 1, then again in 3. B, whose feed is slow, still fetches in epoch 1 from behind records that
    it will cut when it hears of epoch 2. A, in epoch 3, counts that as an acknowledgement of its own records there.

    A answers the producer; B cuts; A dies; B leads without the record. Consumers: a zombie leader goes on answering
    clients that know a newer epoch, and is outdated.
    """

    def unchecked(self: Partition, current_leader_epoch: int) -> None:
        return

    with patch.object(Partition, "check_epoch", unchecked):
        yield


@mutant(
    "new-leader-shows-log-end",
    "a new leader takes its log end for the high watermark",
    history="KAFKA-2334: the high watermark over a change of leader; scenarios 1 and 14",
    needs="RF 3, min.insync.replicas 2; a leader killed while its followers are unequally far (slow link to one), the "
    "next one killed before the third has caught up; idempotent producers that retry, consumers at the end.",
)
def new_leader_shows_its_log_end() -> Iterator[None]:
    """A has sent r to B and not to C, both in the ISR, and dies. B leads and counts r as committed: consumers read it,
    and the producer, who sends it again, is answered with the offset of a duplicate.

    B dies, C leads without r: an acknowledged record is lost, and consumers have seen a record that does not exist.
    """
    start = LeaderState.__init__

    def commits_all(self: LeaderState, **given: object) -> None:
        start(self, **{**given, "high_watermark": given["log_end_offset"]})  # type: ignore[arg-type]

    with patch.object(LeaderState, "__init__", commits_all):
        yield


ALL = (
    truncate_to_high_watermark,
    fast_double_failover,
    late_answer_taken,
    stale_leader_epoch_served,
    new_leader_shows_its_log_end,
)
