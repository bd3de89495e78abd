"""Faulty ways to mirror, planted one at a time, which the simulation of two clusters has to find.

Each patches the one function that prevents the fault. Several are the behaviour of other mirrors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from unittest.mock import patch

from ottla.dataplane.assembly import upkeep
from ottla.dataplane.log import copies as log_copies
from ottla.dataplane.log import placement
from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.log.producers.producer_state import ProducerStates
from ottla.dataplane.mirroring import common_point, topic_list
from ottla.dataplane.mirroring.copies import Copy, SourceLeadership
from ottla.dataplane.mirroring.fetch_outcome import arrived
from ottla.dataplane.mirroring.fetching import SourceFetcher, _report_of
from ottla.dataplane.mirroring.mirror_link import MirrorLink
from ottla.dataplane.mirroring.mirrors import Mirrors
from ottla.dataplane.mirroring.offset_commits import OwnGroups
from ottla.dataplane.mirroring.offset_takeover import OffsetTakeover
from ottla.dataplane.mirroring.rounds import CutRounds
from ottla.dataplane.replication.replica.partition import Partition
from ottla.dataplane.replication.replicas import cut_searches
from ottla.metadata_quorum.state import controller, mirrors
from ottla.metadata_quorum.state.workspace import Workspace
from ottla.protocol.cluster.cluster_image import PartitionState, TopicState
from ottla.protocol.cluster.mirror_cuts import CutsOfMirror, MirrorRound
from ottla.protocol.cluster.mirror_table import (
    FaultKind,
    Mirror,
    MirrorFault,
    MirrorPartition,
    ResumptionKind,
)
from ottla.protocol.cluster.transaction_table import Place
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.list_offsets import EARLIEST
from ottla.protocol.messages.mirror_commands import ReachedCut, ReportMirrorCuts, ReportMirrorPartitions
from ottla.protocol.messages.mirror_records import MirrorTopicRecord
from ottla.protocol.records.record_batch import parse_header, patch_offset_and_epoch, walk_batches
from tests.simulation.cluster.planting import Mutant, mutant

_OWN = "our contract: docs/MIRRORS.md"


@mutant(
    "lineage-after-records",
    "the quorum hears of a new epoch of the source when its records are here already",
    history=_OWN,
    needs="a new leader at the source; the leader of the copy dies before it has reported",
    where="mirror",
)
def lineage_after_records() -> Iterator[None]:
    """The source's epoch 4 begins at offset 100, and the copy has it up to 120. Its leader dies before it has
    reported epoch 4. The next leader takes all 120 records for epoch 3, and asks the source for the end of epoch 3:
    100. The copy stops with a loss that has not happened; or, once the source has lost epoch 4 in an unclean
    election, it notices nothing.
    """

    async def append(self: SourceFetcher, copy: Copy, received: memoryview, _led: SourceLeadership) -> None:
        news = arrived(copy.state(self._image()), received)
        if news.size and copy.is_due(self._image(), self._loop.time()):
            copy.partition.append_copied(memoryview(bytearray(received[: news.size])))
        if news.epochs:
            await self._report([_report_of(copy, epochs=news.epochs)])

    with patch.object(SourceFetcher, "_append", append):
        yield


@mutant(
    "new-source-leader-unchecked",
    "after a change of leader at the source nobody asks whether its log still has what was copied",
    history="KIP-320 for a mirror; KIP-1279 (dev@ msg158057) has it as an open point",
    needs="an unclean election at the source, and new records at the same offsets",
    where="mirror",
)
def new_source_leader_unchecked() -> Iterator[None]:
    """Offsets 10 to 19 were copied.

    The source elects a replica that has 10 records, and it takes 15 other ones. The copy goes on at offset 20: it holds
    ten records that no longer exist, and lacks ten that do.
    """

    async def check(_self: SourceFetcher, copies: list[Copy]) -> None:
        for copy in copies:
            copy.checked_epoch = copy.source_epoch

    with patch.object(SourceFetcher, "_check", check):
        yield


@mutant(
    "gap-passed-over",
    "where the source has dropped what comes next, the copy goes on behind it by itself",
    history="MirrorMaker 2 does so (kafka#22248, kafka#23091)",
    needs="a copy that is behind while the source deletes records",
    where="mirror",
)
def gap_passed_over() -> Iterator[None]:
    """The mirror was paused for a day. The source has dropped the offsets 50 to 79 meanwhile. The copy goes on at 80,
    and everything looks well: thirty records are missing without notice.
    """

    async def pass_over(self: SourceFetcher, copy: Copy) -> None:
        start = await self._offset(copy, EARLIEST)
        if copy.is_led and start > copy.log_end:
            copy.partition.log.truncation.leave_out_to(start)
            copy.partition._appended(copy.partition.leading())

    with patch.object(SourceFetcher, "_out_of_range", pass_over):
        yield


@mutant(
    "source-epoch-kept",
    "records keep the leader epoch that they had at the source",
    history="KIP-1279 keeps it, and has to raise epochs here therefore",
    needs="followers, who compare epochs; changes of leader on both sides",
    where="mirror",
)
def source_epoch_kept() -> Iterator[None]:
    """The source is in leader epoch 7, the target in epoch 2. Records of epoch 7 lie in a log whose leader has epoch 2.
    Its followers take that for damage. A leader of epoch 3 has an older epoch than its own records.
    """
    place = placement.place_copied

    def place_as_it_is(batches: memoryview, name: str, end: int, epoch: int) -> placement.PlacedBatches:
        epochs = [header.partition_leader_epoch for _, header in walk_batches(batches)]
        placed = place(batches, name, end, epoch)
        kept = []
        for batch, epoch_there in zip(placed.batches, epochs, strict=True):
            patch_offset_and_epoch(batches, batch.position, batch.base_offset, epoch_there)
            kept.append(batch._replace(header=parse_header(batches, batch.position)))
        return placed._replace(batches=kept)

    with patch.object(log_copies, "place_copied", place_as_it_is):
        yield


@mutant(
    "commit-index-kept",
    "markers keep the place that they had among the source's decisions",
    history=_OWN,
    needs="a transaction at the source",
    where="mirror",
)
def commit_index_kept() -> Iterator[None]:
    """The source has decided 5,000 transactions, this cluster 20. A marker that was copied says 4,800. A reader of
    this cluster at a cut gets no record after that marker until 4,800 transactions are decided here.
    """

    def leave(_batches: object, _position: int, _header: object) -> None:
        return

    with patch.object(placement, "without_commit_index", leave):
        yield


@mutant(
    "promoted-with-open-transactions",
    "what the source's transactions have left open stays open after the promotion",
    history="Cluster Linking leaves it so: operators hunt hanging transactions by hand",
    needs="a promotion while a transaction of the source is open",
    where="mirror",
)
def promoted_with_open_transactions() -> Iterator[None]:
    """A producer of the source had sent, and not committed, when the site was lost. The copy is promoted. No producer
    can end that transaction here, so readers of committed records stand still for ever in front of it.
    """

    def forget_only(self: Mirrors, partition: Partition) -> None:
        copy = self._quorum.image.mirrors.partition(partition.topic_id, partition.index)
        if copy is not None and copy.promoted_epoch >= 0:
            partition.log.producers.forget_copied(partition.log.leader_epochs.start_of(copy.promoted_epoch))

    with patch.object(Mirrors, "elected", forget_only):
        yield


@mutant(
    "source-producers-kept",
    "producers of the source are still known after the promotion",
    history=_OWN,
    needs="a producer here that has the id of one there, as the first ids of all clusters are the same",
    where="mirror",
)
def source_producers_kept() -> Iterator[None]:
    """Producer 1000 of the source wrote sequences 0 to 7. Another one, which this cluster has named 1000, too, sends
    its sequence 0 after the promotion: the broker takes the batch for a repetition, drops it, and acknowledges it.
    """

    def keep(_self: ProducerStates, _below: int) -> None:
        return

    with patch.object(ProducerStates, "forget_copied", keep):
        yield


@mutant(
    "offset-ahead-of-copy",
    "the offset of a group is committed here before the copy reaches it",
    history="MirrorMaker 2 translates offsets that it has not copied (kafka#13178: negative lag)",
    needs="a copy that is behind its source, such as over a slow link",
    where="mirror",
)
def offset_ahead_of_copy() -> Iterator[None]:
    """The group has read up to 100 at the source, the copy has 60. The site is lost, the copy promoted, and producers
    write the offsets 60 to 110 here. The consumer moves, and goes on at 100: it never sees forty of them.
    """

    def any_offset(_self: OwnGroups, _key: object, _offset: int) -> bool:
        return True

    with patch.object(OwnGroups, "_reaches", any_offset):
        yield


@mutant(
    "promoted-in-part",
    "a promotion begins an epoch of its own only in the first of the mirror's topics",
    history="mirrors that promote topic by topic",
    needs="a promotion",
    where="mirror",
)
def promoted_in_part() -> Iterator[None]:
    """The copies of two topics are promoted, but only one of them learns that.

    In the other one nothing separates copied records from local ones: open transactions stay open, and the source's
    producers stay known.
    """
    topics: Callable[[Workspace, str], Iterator[TopicState]] = mirrors._topics
    begin = mirrors._begin_epochs_of_our_own

    def first(work: Workspace, mirror: Mirror, cut_at: Mapping[Place, int]) -> None:
        def some(work: Workspace, name: str) -> Iterator[TopicState]:
            return iter(list(topics(work, name))[:1])

        with patch.object(mirrors, "_topics", some):
            begin(work, mirror, cut_at)

    with patch.object(mirrors, "_begin_epochs_of_our_own", first):
        yield


@mutant(
    "late-answer-after-promotion",
    "an answer of the source that arrives after the promotion is appended",
    history="KIP-320, second part, for a mirror",
    needs="a promotion while a fetch is under way",
    where="mirror",
)
def late_answer_after_promotion() -> Iterator[None]:
    """The copy ends at 50, and its leader waits for an answer of the source. The promotion is decided. A producer is
    acknowledged at offset 50. The answer arrives with the source's offsets from 51 on, and is appended behind it.
    """

    def is_due(self: Copy, _image: object, now_s: float) -> bool:
        return self.partition.leader is not None and self.source_leader >= 0 and now_s >= self.not_before_s

    async def close(self: MirrorLink) -> None:
        await self._source.close()

    with patch.object(Copy, "is_due", is_due), patch.object(MirrorLink, "close", close):
        yield


@mutant(
    "made-anew-mixed-in",
    "a topic that was made anew at the source is copied on under the same name",
    history="MirrorMaker 2 does so (kafka#22248)",
    needs="a topic of the source that is deleted and made anew",
    where="mirror",
)
def made_anew_mixed_in() -> Iterator[None]:
    """A topic with 1,000 records was copied, and is deleted at the source. Another one of its name has 1,200. The copy
    goes on at offset 1,000: it is half of one topic and a bit of another.
    """

    def any_topic(_self: MirrorLink, _copy: Copy, _topic_id: bytes) -> bool:
        return True

    def adopt(work: Workspace, topic: TopicState) -> None:
        known = work.image.mirrors.topics[topic.id]
        work.emit(
            MirrorTopicRecord(topic_id=topic.id, mirror=known.mirror, source_topic_id=known.source_topic_id)
        )

    def never_known(_topic: TopicState, _copy: object) -> bool:
        return True

    with (
        patch.object(MirrorLink, "_is_source_of", any_topic),
        patch.object(mirrors, "_found_made_anew", adopt),
        patch.object(topic_list, "_is_known_anew", never_known),
    ):
        yield


@mutant(
    "diverged-kept",
    "who accepts that the source has lost records goes on behind them, and keeps them",
    history="a mirror that repairs a divergence by going on at the end of its copy",
    needs="an unclean election at the source, and somebody who accepts it",
    where="mirror",
)
def diverged_kept() -> Iterator[None]:
    """The source has lost the offsets 10 to 19 that were copied, and has others there. An operator accepts that. The
    copy keeps its own ten, and goes on behind them.
    """
    go_on = mirrors._pass_over

    def behind(
        work: Workspace,
        topic_id: bytes,
        index: int,
        state: PartitionState,
        copy: MirrorPartition,
        fault: MirrorFault,
    ) -> None:
        if fault.kind is FaultKind.DIVERGED:
            fault = MirrorFault(FaultKind.GAP, fault.first, fault.end, fault.reason)
        go_on(work, topic_id, index, state, copy, fault)

    with patch.object(mirrors, "_pass_over", behind):
        yield


@mutant(
    "log-start-not-followed",
    "what the source deletes stays here",
    history="KIP-1279 names it: a copy that deletes by its own clock only",
    needs="records deleted at the source",
    where="mirror",
)
def log_start_not_followed() -> Iterator[None]:
    """A user's records are deleted at the source, as the law demands. They are still read from the copy."""

    def stay(_self: SourceFetcher, _copy: Copy, _source_start: int) -> None:
        return

    with patch.object(SourceFetcher, "_follow_start", stay):
        yield


@mutant(
    "cut-ignored",
    "a promotion at a cut leaves the copies as they are",
    history="every mirror that knows partitions only",
    needs="a promotion at a cut while transactions over several partitions go on",
    where="mirror",
)
def cut_ignored() -> Iterator[None]:
    """A transfer has taken from one account and given to another, in two partitions.

    The copy of one has its commit, the other has not. The promotion aborts it there: money has come from nowhere.
    """

    def nowhere(log: PartitionLog, _offset: int, _batches_max: int) -> tuple[None, int]:
        return None, log.log_end_offset

    with patch.object(cut_searches, "look_for_marker", nowhere):
        yield


@mutant(
    "cut-reached-too-early",
    "a copy tells that it has reached a cut once it knows where that lies",
    history=_OWN,
    needs="a copy that is behind its source; an answer that was cut off is enough",
    where="mirror",
)
def cut_reached_too_early() -> Iterator[None]:
    """The source cuts a partition at 100, and its copy has 80.

    The copy reports that it has reached the cut. The promotion ends the other copies at the cut, and this one lacks the
    ends of transactions that are complete there.
    """

    async def told(self: CutRounds, copies: Iterable[Copy]) -> None:
        for copy in copies:
            for number, cut in list(copy.cuts.items()):
                if cut.is_certain and copy.is_led:
                    state = (copy.partition.topic_id, copy.partition.index, copy.leader_epoch)
                    reached = ReachedCut(
                        topic_id=state[0],
                        partition=state[1],
                        leader_epoch=state[2],
                        number=number,
                        offset=cut.offset,
                    )
                    del copy.cuts[number]
                    await self._quorum.submit(
                        ReportMirrorCuts(broker_id=self._broker_id, partitions=[reached])
                    )

    with patch.object(CutRounds, "tell", told):
        yield


@mutant(
    "round-of-some-copies",
    "a promotion takes the newest cut that any copy has reached",
    history=_OWN,
    needs="a promotion at a cut while some copies are behind others",
    where="mirror",
)
def round_of_some_copies() -> Iterator[None]:
    """One copy has reached cut 500, the others 498.

    The promotion goes by 500: transactions decided between the two are there in one partition, and missing in the
    others.
    """

    def newest(self: CutsOfMirror, _copies: object) -> MirrorRound | None:
        reached = {number for pairs in self.reached.values() for number, _ in pairs}
        return next(
            (mirror_round for mirror_round in reversed(self.rounds) if mirror_round.number in reached), None
        )

    with patch.object(CutsOfMirror, "newest_whole", newest):
        yield


@mutant(
    "offsets-stay-ahead",
    "after a promotion at a cut groups keep the offsets that have followed",
    history=_OWN,
    needs="a group that has committed behind the cut, and whose offset has followed",
    where="mirror",
)
def offsets_stay_ahead() -> Iterator[None]:
    """The cut ends a copy at offset 46, and the group's offset 75 has followed. After the promotion others write 29
    records. The group reads on behind them.
    """

    async def change(*_: object) -> None:
        return

    with patch.object(OffsetTakeover, "_change", change):
        yield


@mutant(
    "former-leaders-report",
    "what a former leader of a copy tells is taken",
    history="KIP-903, for a mirror",
    needs="a leader of a copy that sleeps, and tells what it has found when another one has copied on",
    where="mirror",
)
def former_leaders_report() -> Iterator[None]:
    """The leader of a copy that ends at 50 finds that the source begins at 80, and sleeps before it reports that.
    Another one leads, which had copied up to 90 while that was possible. Now the report comes: the copy stops, and an
    operator that accepts it has the offsets 80 to 89 cut off.
    """
    report = mirrors.report

    def of_anybody(work: Workspace, command: ReportMirrorPartitions) -> PlainResult:
        for partition_report in command.partitions:
            topic = work.image.topics_by_id.get(partition_report.topic_id)
            state = None if topic is None else topic.partitions.get(partition_report.partition)
            if state is not None:
                partition_report.leader_epoch, command.broker_id = state.leader_epoch, state.leader
                report(work, ReportMirrorPartitions(broker_id=state.leader, partitions=[partition_report]))
        return PlainResult()

    with patch.dict(controller._COMMANDS, {ReportMirrorPartitions: of_anybody}):
        yield


@mutant(
    "copy-takes-records",
    "producers may write to a copy",
    history="IdentityReplicationPolicy of MirrorMaker 2 leaves the target open",
    needs="somebody who writes to the wrong cluster",
    where="mirror",
)
def copy_takes_records() -> Iterator[None]:
    """A client has the wrong address, and writes one record to the copy. From then on all offsets differ."""

    def anything(_self: Partition) -> None:
        return

    with patch.object(Partition, "check_is_no_copy", anything):
        yield


@mutant(
    "compacted-behind-the-cut",
    "copies are compacted as any log is",
    history=_OWN,
    needs="a compacted copy that goes on for longer than a segment behind the cut at which it is promoted",
    where="mirror",
)
def compacted_behind_the_cut() -> Iterator[None]:
    """A key has records at the offsets 10 and 90. Compaction drops the first. The mirror is promoted at a cut that lies
    at 80: the key has no record at all.
    """

    def nowhere(_image: object, _partition: object) -> None:
        return None

    with patch.object(upkeep, "held_from", nowhere):
        yield


@mutant(
    "tail-kept-by-failback",
    "a failback cuts nothing off",
    history=_OWN,
    needs="records that were not copied before the promotion",
    where="mirror",
)
def tail_kept_by_failback() -> Iterator[None]:
    """The old source has 120 records, of which 100 were copied before it was lost. It comes back as the copy, and keeps
    all 120. The other side has written 50 more: the copy has its own records at the offsets 100 to 119.
    """
    goes_on_at = MirrorPartition.goes_on_at

    def stays(self: MirrorPartition, log_epoch: int, log_end: int, leader_epoch: int) -> int | None:
        is_back = self.resumption is not None and self.resumption.kind is not ResumptionKind.EXACT
        return None if is_back else goes_on_at(self, log_epoch, log_end, leader_epoch)

    with patch.object(MirrorPartition, "goes_on_at", stays):
        yield


@mutant(
    "common-offset-by-length",
    "a failback takes logs for alike up to the end of the shorter one",
    history="tools that compare log ends",
    needs="an unclean election at the source behind what was copied, before the promotion",
    where="mirror",
)
def common_offset_by_length() -> Iterator[None]:
    """The source lost the offsets 80 to 99 in an unclean election, when they were copied, and has others there. It
    comes back as the copy, and keeps those: consumers read other records than on the other side, at the same offsets.
    """

    def shorter(_epochs: object, log_end: int, _copied: object, copied_end: int) -> int:
        return min(log_end, copied_end)

    with patch.object(common_point, "common_offset", shorter):
        yield


ALL: Iterable[Mutant] = (
    lineage_after_records,
    new_source_leader_unchecked,
    gap_passed_over,
    source_epoch_kept,
    commit_index_kept,
    promoted_with_open_transactions,
    source_producers_kept,
    offset_ahead_of_copy,
    promoted_in_part,
    late_answer_after_promotion,
    made_anew_mixed_in,
    diverged_kept,
    log_start_not_followed,
    cut_ignored,
    cut_reached_too_early,
    round_of_some_copies,
    offsets_stay_ahead,
    former_leaders_report,
    copy_takes_records,
    compacted_behind_the_cut,
    tail_kept_by_failback,
    common_offset_by_length,
)
MUTANTS = {each.name: each for each in ALL}
"""Mutants by name."""
