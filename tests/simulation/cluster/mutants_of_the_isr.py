"""Mutants of the ISR and the high watermark: records that are acknowledged too early."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.roles.in_sync import Committed, PendingExpand, PendingShrink
from ottla.dataplane.replication.roles.leader import FollowerProgress, LeaderState
from ottla.metadata_quorum.state import election, partitions
from ottla.metadata_quorum.state.election import Electorate
from ottla.metadata_quorum.state.workspace import Workspace
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.messages.partition_commands import IsrMember
from tests.simulation.cluster.planting import mutant


@mutant(
    "joins-before-epoch-start",
    "a follower joins the ISR at the high watermark, though the leader's epoch begins behind that",
    history="KAFKA-7128 (fixed in 2.1)",
    needs="RF 3, min.insync.replicas 2 (which holds a lone new leader's high watermark back); one follower out of the "
    "ISR (paused past replica.lag.time.max.ms), slow link from the second to it; kill the leader under load, "
    "then the new leader within the time that the third needs to catch up.",
)
def joins_before_the_epochs_start() -> Iterator[None]:
    """ISR {A, B}, C lags at offset 1. 1-3 are acknowledged by A and B; B has heard of high watermark 1. A dies: B leads
    from offset 4 in an ISR {B} that is too small to move the high watermark. C fetches at 1, which is the high
    watermark: ISR {B, C}.

    B dies before C has fetched 1-3. C leads, and they are gone.
    """

    def at_high_watermark(self: LeaderState, follower: FollowerProgress) -> bool:
        return (
            follower.broker_id not in self.in_sync.maximal
            and follower.log_end_offset >= self.high_watermark
            and self._eligible(follower)
        )

    with patch.object(LeaderState, "may_join", at_high_watermark):
        yield


@mutant(
    "pending-member-not-waited-for",
    "the high watermark goes by the committed ISR while a member is proposed",
    history="KIP-497, the maximal ISR (AsyncIsr.tla)",
    needs="RF 3, min.insync.replicas 1 or 2; answers and the feed from the quorum to the leader delayed or cut one way "
    "(its heartbeats still arrive, or it is fenced) while a follower rejoins; that follower paused or cut off "
    "from the leader right after; then the leader and the other member killed.",
)
def pending_member_not_waited_for() -> Iterator[None]:
    """A leads with ISR {A, B}; C has caught up and A proposes it. The quorum commits {A, B, C}; the answer is slow.
    C is cut off from A. A acknowledges m with B alone.

    A and B die, or C is elected as the preferred leader: it is a member as far as the quorum knows. m is lost.

    Waiting for a follower that is caught up but no member yet (`_about_to_join`) would hide this for
    replica.lag.time.max.ms, so the mutant does not wait for the proposed one there either. `LeaderState.check` sees
    the maximal ISR as it is, and objects as soon as the high watermark has passed a member of it.
    """
    advance = LeaderState.advance
    about_to_join = LeaderState._about_to_join
    proposed: list[int] = []

    def committed_only(self: LeaderState, now_ms: int) -> bool:
        in_sync = self.in_sync
        if not isinstance(in_sync, PendingExpand):
            return advance(self, now_ms)
        self.in_sync = Committed(in_sync.committed)
        proposed.append(in_sync.joining)
        try:
            return advance(self, now_ms)
        finally:
            proposed.clear()
            self.in_sync = in_sync

    def unless_proposed(self: LeaderState, follower: FollowerProgress, now_ms: int) -> bool:
        return follower.broker_id not in proposed and about_to_join(self, follower, now_ms)

    with (
        patch.object(LeaderState, "advance", committed_only),
        patch.object(LeaderState, "_about_to_join", unless_proposed),
    ):
        yield


@mutant(
    "leaving-member-not-waited-for",
    "the high watermark goes by a smaller ISR before the quorum has committed that",
    history="KIP-497, the other half: a leader that believes in its own shrink (KAFKA-8836)",
    needs="RF 3, min.insync.replicas 1 or 2, replica.lag.time.max.ms below the session timeout (or the leader cut off "
    "from followers only); a leader cut off from followers and quorum, with a producer on its side.",
)
def leaving_member_not_waited_for() -> Iterator[None]:
    """A leads {A, B, C} and is cut off from all nodes but a producer. After replica.lag.time.max.ms it proposes {A} and
    acknowledges m alone; the proposal never arrives.

    B is elected. After heal A cuts m off.
    """

    def without_leaving(self: PendingShrink) -> frozenset[int]:
        return self.committed - self.leaving

    with patch.object(PendingShrink, "maximal", property(without_leaving)):
        yield


@mutant(
    "stale-broker-epoch-joins",
    "neither leader nor quorum looks at the broker epoch of a proposed member",
    history="KIP-903 (Kafka before 3.5), KAFKA-14139; scenario 20",
    needs="RF 3, min.insync.replicas 1 or 2, default flushing; a follower that rejoins the ISR loses power and is back "
    "and unfenced while the leader's AlterPartition is on its way (link to the quorum slow by about the time of "
    "a restart, or the quorum changes its leader: the same proposal is sent again); then the leader killed. A "
    "kill of the follower, or flush.messages=1, shows nothing: it must lose what it has acknowledged.",
)
def stale_broker_epoch_joins() -> Iterator[None]:
    """B, outside the ISR, has caught up; A proposes {A, B}; that is slow. B loses power, and its unflushed records;
    it restarts, registers, is unfenced. The partition's state has not changed. The proposal arrives and is committed.

    A dies before B has copied its lost records again. B leads; acknowledged records are gone.
    """

    def quorum_does_not_look(work: Workspace, state: PartitionState, member: IsrMember) -> bool:
        broker = work.image.brokers.get(member.broker_id)
        return broker is not None and broker.usable and member.broker_id not in state.offline_replicas

    def leader_does_not_look(self: LeaderState, follower: FollowerProgress) -> bool:
        broker = self.brokers.get(follower.broker_id)
        return broker is not None and not broker.fenced and not broker.shutting_down

    with (
        patch.object(partitions, "_eligible", quorum_does_not_look),
        patch.object(LeaderState, "_eligible", leader_does_not_look),
    ):
        yield


@mutant(
    "commits-below-min-isr",
    "min.insync.replicas is looked at when a record is appended, not when it is committed",
    history="KIP-966 (Kafka before 4.0): the last replica standing; scenario 21",
    needs="RF 3, min.insync.replicas 2; ISR shrinks to the leader with acks=all in flight or acks=1 load (both "
    "followers paused, cut off or killed); then a kill of the leader, whose stop counts as unclean whether it "
    "lost anything or not, and one of the others back before it; consumers at the end.",
)
def commits_below_min_isr() -> Iterator[None]:
    """m is appended at A while the ISR is {A, B, C}, on its way. B and C die or lag; the ISR becomes {A}, the high
    watermark passes m, the producer is answered that it is committed, and consumers read it.

    A dies. It stopped uncleanly, so B, in the ELR, leads when it is back: m is lost.
    """
    advance = LeaderState.advance

    def any_size(self: LeaderState, now_ms: int) -> bool:
        kept, self.min_in_sync = self.min_in_sync, 0
        try:
            return advance(self, now_ms)
        finally:
            self.min_in_sync = kept

    with patch.object(LeaderState, "advance", any_size):
        yield


@mutant(
    "unclean-stop-passes-for-clean",
    "a broker that crashed keeps its place in ISR and ELR when it registers again",
    history="KIP-966, unclean shutdown detection; scenario 21",
    needs="RF 3, min.insync.replicas 2, default flushing; the ISR shrunk to the leader, then power loss of that leader "
    "with unflushed records, restart. A kill shows nothing, nor does flush.messages=1: the records must go.",
)
def unclean_stop_passes_for_clean() -> Iterator[None]:
    """m is acknowledged by A and B. B is fenced: ISR {A}, ELR {B}. A loses power and with it m, restarts, and is
    still the only ISR member: it leads. B comes back and cuts off m, which only it has.

    Also with several at once: all three lose power, the ISR stays as it was, and whoever is first leads.
    """
    with patch.object(election, "after_unclean_stop", election.without):
        yield


@mutant(
    "unclean-election",
    "a replica outside ISR and ELR leads where nobody else can",
    history="unclean.leader.election.enable=true, the default before Kafka 0.11 (KIP-106)",
    needs="RF 3; one follower out of the ISR (paused), then the others killed before it is back.",
)
def unclean_election() -> Iterator[None]:
    """ISR {A, B}, C lags. m is acknowledged by A and B. Both die; C is elected without m, and A and B cut it off."""
    electorate = Workspace.electorate

    def allowing(self: Workspace, topic_id: bytes) -> Electorate:
        found = electorate(self, topic_id)
        return Electorate(found.usable, found.min_isr, unclean_allowed=True)

    with patch.object(Workspace, "electorate", allowing):
        yield


@mutant(
    "acknowledged-before-flushed",
    "with flush.messages=1 records count as acknowledged when they are appended",
    history="scenario 22; the mistake of every store that acknowledges from a queue",
    needs="A topic with flush.messages=1; power loss of every replica within a moment (or RF 1 and of one) while "
    "records are being acknowledged; a slow disk widens the window.",
)
def acknowledged_before_flushed() -> Iterator[None]:
    """A topic has flush.messages=1. m is appended by all replicas and acknowledged; their flushes are in progress. The
    power of all of them fails. They restart, none has m."""
    appended = LeaderState.appended

    def at_once(self: Partition) -> int:
        return self.log.log_end_offset

    def all_of_it(self: LeaderState, log_end_offset: int, _durable_offset: int, now_ms: int) -> bool:
        return appended(self, log_end_offset, log_end_offset, now_ms)

    with (
        patch.object(Partition, "acknowledged_offset", property(at_once)),
        patch.object(LeaderState, "appended", all_of_it),
    ):
        yield


ALL = (
    joins_before_the_epochs_start,
    pending_member_not_waited_for,
    leaving_member_not_waited_for,
    stale_broker_epoch_joins,
    commits_below_min_isr,
    unclean_stop_passes_for_clean,
    unclean_election,
    acknowledged_before_flushed,
)
