"""Fetching from one broker of a source, for the partitions that it leads at the source and this broker leads here. One
request is under way at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_table import NO_EPOCH, FaultKind, Mirror, MirrorFault, is_offsets_copy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchResponse, PartitionData
from ...protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ...protocol.messages.mirror_commands import MirrorPartitionReport
from ...protocol.messages.mirror_records import SourceEpoch
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ...protocol.wire.schema import ZERO_UUID
from ..replication.throttle import Throttle
from ..runtime.clocks import monotonic_ms
from .copies import Copy, SourceLeadership
from .fetch_outcome import Begin, agrees_to, arrived, asked_next, epoch_end, kept, out_of_range
from .fetch_request import READ_UNCOMMITTED, fetch_request
from .source import SourceCluster

logger = logging.getLogger(__name__)

LANES = ("mirror", "mirror, too")
"""Names of the two connections to the source. A broker that waits for records answers nothing else on that connection,
so after a fetch is given up the next request uses the other connection."""
WAIT_MAX_MS = 500
SHORT_WAIT_MS = 50
RETRY_S = 0.1
BY_NAME_ONLY = 12
"""Last version of Fetch that identifies topics by name."""

_LOOK_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors after which the source's metadata are fetched again."""

Report = Callable[[Sequence[MirrorPartitionReport]], Awaitable[None]]
AskCuts = Callable[[int, Sequence[Copy]], Awaitable[None]]
_Asked = dict[tuple[str, int], tuple[Copy, SourceLeadership, int, MirrorFault | None]]
"""Epochs to ask about, by source topic and partition: the copy, its leadership at the source, the epoch, and the fault
found by the previous answer."""


class SourceFetcher:
    """A task that copies from one broker of the source until it is closed. One writer of its copies: the event loop."""

    def __init__(
        self,
        broker_id: int,
        mirror: Mirror,
        source: SourceCluster,
        image: Callable[[], ClusterImage],
        copies: Callable[[int], Iterable[Copy]],
        report: Report,
        throttle: Throttle,
        count: Callable[[int], None],
        look_again: Callable[[], None],
        ask_cuts: AskCuts,
    ) -> None:
        """`copies` returns the copies whose source a broker leads. `count` is called with the number of bytes copied.
        `look_again` requests new metadata of the source. `ask_cuts` asks the broker for the cut offsets of copies,
        between two fetches.

        `throttle` is shared by all fetchers of the mirror on this broker.
        """
        self._broker_id = broker_id
        self._mirror = mirror
        self._source = source
        self._image = image
        self._copies = copies
        self._report = report
        self._throttle = throttle
        self._count = count
        self._look_again = look_again
        self._ask_cuts = ask_cuts
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._asked_for: Sequence[Copy] = ()
        self._asking: asyncio.Task[FetchResponse] | None = None
        """The fetch that is under way, for the copies in `_asked_for`."""
        self._lane = LANES[0]
        self._task = self._loop.create_task(self._run(), name=f"mirror {mirror.name} from {broker_id}")

    def wake(self) -> None:
        """Check for copies to fetch. A fetch that is under way is given up if a due copy is missing from it, since the
        source may wait long before it answers."""
        self._news.set()
        if self._asking is not None and any(
            copy not in self._asked_for and copy.is_due(self._image(), self._loop.time())
            for copy in self._copies(self._broker_id)
        ):
            asking, self._asking = self._asking, None
            self._lane = LANES[self._lane == LANES[0]]
            asking.cancel()

    def close(self) -> None:
        """Stop fetching."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            due = [
                copy
                for copy in self._copies(self._broker_id)
                if copy.is_due(self._image(), self._loop.time())
            ]
            try:
                if due and (wait_s := self._throttle.wait_s()):
                    await asyncio.sleep(wait_s)
                    continue
                if due and (ready := await self._ready(due)):
                    await self._fetch(ready)
                    await self._ask_cuts(self._broker_id, ready)
                    continue
            except KafkaError as error:
                for copy in due:
                    copy.retry_at(self._loop.time() + RETRY_S, error.message)
                self._look_again()
            except Exception:
                # A bug of this program must not stop the broker: only the copies stop.
                logger.exception(
                    "mirror %s: fetching from broker %d failed", self._mirror.name, self._broker_id
                )
                for copy in due:
                    copy.retry_at(self._loop.time() + 10 * RETRY_S, "a fault of this broker: see its log")
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the metadata or copies change, or until a postponed copy may be tried again."""
        later = any(copy.not_before_s > self._loop.time() for copy in self._copies(self._broker_id))
        try:
            async with asyncio.timeout(RETRY_S if later else None):
                await self._news.wait()
        except TimeoutError:
            return

    # ------------------------------------------------------------ before the first fetch of a leadership

    async def _ready(self, due: list[Copy]) -> list[Copy]:
        """Return the due copies whose log is known to equal the source's, as far as the log goes. Empty copies are
        begun first, and copies in a new leader epoch of the source are checked first.
        """
        image = self._image()
        due = [copy for copy in due if not self._is_deposed(copy, image)]
        begins = [copy for copy in due if self._begins_elsewhere(copy, image)]
        if begins:
            await self._begin(begins)
        checked = [copy for copy in due if copy not in begins]
        doubtful = [copy for copy in checked if copy.checked_epoch != copy.source_epoch]
        if doubtful:
            await self._check(doubtful)
        return [copy for copy in checked if copy.is_due(self._image(), self._loop.time())]

    def _is_deposed(self, copy: Copy, image: ClusterImage) -> bool:
        """Return whether the source broker is a deposed leader: records of a later leader were copied already.

        The deposed leader does not know yet that it was replaced, so its answers prove nothing. Without topic ids a
        lower epoch may also mean another topic of the same name, whose epochs begin again. Then the logs are compared.
        """
        latest = copy.state(image).source_epoch_below(copy.log_end)
        has_id = copy.source_topic_id != ZERO_UUID
        is_deposed = has_id and NO_EPOCH < copy.source_epoch < latest
        if is_deposed:
            copy.retry_at(self._loop.time() + RETRY_S, "the source tells of a leader that was replaced")
            self._look_again()
        return is_deposed

    def _begins_elsewhere(self, copy: Copy, image: ClusterImage) -> bool:
        state = copy.state(image)
        return (
            self._mirror.start != EARLIEST
            and not is_offsets_copy(copy.partition.topic)
            and not state.lineage
            and state.resumption is None
            and copy.log_end == 0
        )

    async def _begin(self, copies: list[Copy]) -> None:
        """Let empty copies begin at the source's offset for the mirror's start time, or at the end of the source's
        log.
        """
        reports = []
        for copy, offset in await self._offsets(copies, self._mirror.start):
            if offset < 0:
                offset = await self._offset(copy, LATEST)
            if offset > 0:
                reports.append(_report_of(copy, begins_at=offset))
            elif offset == 0:
                reports.append(_report_of(copy, epochs=((max(copy.source_epoch, 0), 0),)))
        if reports:
            await self._report(reports)

    async def _check(self, copies: list[Copy]) -> None:
        """Ask the source where the last leader epochs of these copies end in its log (KIP-101, KIP-320). Report copies
        that diverge to the quorum as faults.
        """
        image = self._image()
        asked: _Asked = {}
        faults = []
        for copy in copies:
            state = copy.state(image)
            epoch = state.source_epoch_below(copy.log_end)
            fault = kept(state, copy.log_end)
            if fault is not None:
                faults.append(_report_of(copy, fault=fault))
            elif epoch == NO_EPOCH:
                copy.checked_epoch = copy.source_epoch
            else:
                asked[copy.source_key] = copy, copy.source_leadership, epoch, None
        faults += await self._epoch_ends(asked)
        if faults:
            await self._report(faults)

    async def _epoch_ends(self, asked: _Asked) -> list[MirrorPartitionReport]:
        """Ask the source for the end offsets of leader epochs of copies, and return the faults that follow."""
        faults: list[MirrorPartitionReport] = []
        again: _Asked = {}
        if not asked:
            return faults
        by_topic: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for (topic, index), (_, led, epoch, _) in asked.items():
            by_topic[topic].append(
                OffsetForLeaderPartition(partition=index, current_leader_epoch=led.epoch, leader_epoch=epoch)
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[OffsetForLeaderTopic(topic=topic, partitions=parts) for topic, parts in by_topic.items()],
        )
        answer = await self._source.ask(self._broker_id, request, lane=self._lane)
        for ends in answer.topics:
            for part in ends.partitions:
                if (ends.topic, part.partition) not in asked:
                    continue
                copy, led, epoch, before = asked[ends.topic, part.partition]
                if not self._still_leads(copy, led):
                    continue
                if part.error_code:
                    self._failed(copy, ErrorCode.of(part.error_code))
                    continue
                state = copy.state(self._image())
                fault = epoch_end(state, copy.log_end, epoch, part.leader_epoch, part.end_offset) or before
                older = asked_next(state, epoch, part.leader_epoch)
                if fault is not None and older is not None:
                    again[copy.source_key] = copy, led, older, fault
                    continue
                has_others = fault is not None and await self._has_others(copy, led, fault.first, fault.end)
                if fault is not None and has_others:
                    faults.append(_report_of(copy, fault=fault))
                elif has_others is not None:
                    copy.checked_epoch = led.epoch
        return [*faults, *await self._epoch_ends(again)]

    async def _has_others(self, copy: Copy, led: SourceLeadership, first: int, end: int) -> bool | None:
        """Return whether the source has different records than the copy at these offsets, or ends within them; None if
        that cannot be decided yet.

        The source's leader may not know an epoch although no record is lost: compaction removed all records of the
        epoch before the replica was created.
        """
        while first < end and copy.is_due(self._image(), self._loop.time()):
            reached = await self._agrees_to(copy, first, end)
            if not self._still_leads(copy, led):
                return None
            if reached is None:
                return True
            if reached == first and copy.not_before_s <= self._loop.time():
                copy.retry_at(self._loop.time() + RETRY_S, "the source has not told yet what it has")
            first = reached
        return False if first >= end else None

    async def _agrees_to(self, copy: Copy, first: int, end: int) -> int | None:
        """Compare the next batches of the source with the copy by `fetch_outcome.agrees_to`. Returns `first` if the
        source sent nothing."""
        answer = await self._ask_for([(copy, first)], 0)
        for part in (part for topic in answer.responses for part in topic.partitions):
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                start = await self._offset(copy, EARLIEST)
                return start if start > first else None if start >= 0 else first
            if part.error_code:
                self._failed(copy, ErrorCode.of(part.error_code))
            elif part.records:
                return agrees_to(copy.state(self._image()), first, end, memoryview(part.records))
            elif 0 <= await self._offset(copy, LATEST) < end:
                return None
        return first

    # ------------------------------------------------------------ fetching

    async def _fetch(self, copies: list[Copy]) -> None:
        by_name = {copy.source_key: copy for copy in copies}
        by_id = {(copy.source_topic_id, copy.partition.index): copy for copy in copies}
        leaderships = {copy.key: copy.source_leadership for copy in copies}
        # A source fills its answer in the order of the request. The longest waiting copy comes first, so each copy gets
        # its turn.
        wanted = [(copy, copy.log_end) for copy in sorted(copies, key=lambda waiting: waiting.fetched_s)]
        answer = await self._answered(
            copies, self._loop.create_task(self._ask_for(wanted, self._wait_ms(copies)))
        )
        for topic in answer.responses:
            for part in topic.partitions:
                copy = by_name.get((topic.topic, part.partition_index)) or by_id.get(
                    (topic.topic_id, part.partition_index)
                )
                if copy is not None:
                    await self._take(copy, part, leaderships[copy.key])

    async def _answered(self, copies: Sequence[Copy], asking: asyncio.Task[FetchResponse]) -> FetchResponse:
        """Return the source's answer; an empty one if the fetch was given up."""
        self._asked_for, self._asking = copies, asking
        try:
            return await asking
        except asyncio.CancelledError:
            if self._task.cancelling():
                raise
            return FetchResponse(responses=[])
        finally:
            self._asking = None

    async def _ask_for(self, wanted: Sequence[tuple[Copy, int]], wait_ms: int) -> FetchResponse:
        """Return the source's answer to a Fetch request for records of these copies from these offsets on. Raises
        KafkaError.
        """
        # Another fetcher may have used up the allowance. Then one batch exceeds it, and the throttle waits longer
        # afterwards.
        request = fetch_request(wanted, max(1, self._throttle.allowance()), wait_ms)
        has_ids = all(copy.source_topic_id != ZERO_UUID for copy, _ in wanted)
        answer = await self._source.ask(
            self._broker_id,
            request,
            lane=self._lane,
            at_most=None if has_ids else BY_NAME_ONLY,
        )
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code))
        self._throttle.spend(
            sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)
        )
        return answer

    def _wait_ms(self, copies: list[Copy]) -> int:
        """Return how long the source may wait for records.

        The wait is short while the source's end is unknown for one of the copies. It is short, too, if another copy is
        to be tried again soon, since that copy would wait as well.
        """
        is_known = all(copy.source_high_watermark >= 0 for copy in copies)
        others = any(copy.not_before_s > self._loop.time() for copy in self._copies(self._broker_id))
        return WAIT_MAX_MS if is_known and not others else SHORT_WAIT_MS

    def _still_leads(self, copy: Copy, led: SourceLeadership) -> bool:
        """Return whether an answer of this broker still counts. Once the metadata show another leader, that leader
        determines where the logs agree, and it may not have the records of a late answer."""
        return copy.source_leader == self._broker_id and copy.source_leadership == led

    async def _take(self, copy: Copy, part: PartitionData, led: SourceLeadership) -> None:
        if not self._still_leads(copy, led):
            return
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(copy)
        elif part.error_code:
            self._failed(copy, ErrorCode.of(part.error_code))
        else:
            copy.trouble = ""
            copy.fetched_in(led.epoch)
            copy.source_high_watermark = part.high_watermark
            if part.records:
                copy.fetched_s = self._loop.time()
                await self._append(copy, memoryview(part.records), led)
            if copy.is_led and self._still_leads(copy, led):
                self._follow_start(copy, part.log_start_offset)
                if copy.log_end >= part.high_watermark:
                    copy.level_at_ms = monotonic_ms()

    async def _append(self, copy: Copy, received: memoryview, led: SourceLeadership) -> None:
        """Append the whole batches that the source sent to the copy's log. The quorum records new leader epochs of the
        source before records of these epochs are appended.
        """
        state = copy.state(self._image())
        try:
            news = arrived(state, received)
            if news.epochs:
                await self._report([_report_of(copy, epochs=news.epochs)])
            is_due = copy.is_due(self._image(), self._loop.time()) and self._still_leads(copy, led)
            if not news.size or not is_due:
                return
            before = copy.log_end
            # The fetched buffer is shared with other partitions of the answer, and the append modifies its bytes.
            copy.partition.append_copied(memoryview(bytearray(received[: news.size])))
            copy.bytes_per_record = news.size / max(1, copy.log_end - before)
            self._count(news.size)
        except KafkaError as error:
            if error.code in (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_RECORD):
                fault = MirrorFault(
                    FaultKind.UNREADABLE, copy.log_end, copy.source_high_watermark, error.message
                )
                await self._report([_report_of(copy, fault=fault)])
            else:
                logger.warning("mirror %s: %r takes nothing: %s", self._mirror.name, copy.partition, error)
                copy.retry_at(self._loop.time() + RETRY_S, error.message)

    def _follow_start(self, copy: Copy, source_start: int) -> None:
        """Delete the copy's records below the source's log start offset."""
        partition = copy.partition
        start = min(source_start, partition.high_watermark)
        if start > partition.log.log_start_offset:
            partition.log.advance_log_start_offset(start)
            partition.log_start_moved()

    async def _out_of_range(self, copy: Copy) -> None:
        start, end = await self._offset(copy, EARLIEST), await self._offset(copy, LATEST)
        if start < 0 or end < 0 or not copy.is_led:
            return
        found = out_of_range(
            copy.state(self._image()), copy.partition.log.log_start_offset, copy.log_end, start, end
        )
        if isinstance(found, Begin):
            await self._report([_report_of(copy, begins_at=found.offset)])
        elif found is not None:
            await self._report([_report_of(copy, fault=found)])

    async def _offset(self, copy: Copy, timestamp: int) -> int:
        ((_, offset),) = await self._offsets([copy], timestamp)
        return offset

    async def _offsets(self, copies: list[Copy], timestamp: int) -> list[tuple[Copy, int]]:
        """Return the source's offsets for a timestamp (ListOffsets), for each copy. The offset is -1 for a copy without
        a valid answer.
        """
        asked = {copy.source_key: (copy, copy.source_leadership) for copy in copies}
        by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for (topic, index), (_, led) in asked.items():
            by_topic[topic].append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=led.epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
        )
        answer = await self._source.ask(self._broker_id, request, lane=self._lane)
        found = {
            (topic.name, part.partition_index): (ErrorCode.of(part.error_code), part.offset)
            for topic in answer.topics
            for part in topic.partitions
        }
        offsets = []
        for key, (copy, led) in asked.items():
            error, offset = found.get(key, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
            if not self._still_leads(copy, led):
                offset = -1
            elif error is not ErrorCode.NONE:
                self._failed(copy, error)
                offset = -1
            offsets.append((copy, offset))
        return offsets

    def _failed(self, copy: Copy, error: ErrorCode) -> None:
        copy.retry_at(self._loop.time() + RETRY_S, f"the source answers {error.name}")
        if error in _LOOK_AGAIN:
            self._look_again()


def _report_of(
    copy: Copy,
    *,
    epochs: Iterable[tuple[int, int]] = (),
    begins_at: int = -1,
    fault: MirrorFault | None = None,
) -> MirrorPartitionReport:
    report = MirrorPartitionReport(
        topic_id=copy.partition.topic_id,
        partition=copy.partition.index,
        leader_epoch=copy.leader_epoch,
        epochs=[SourceEpoch(epoch=epoch, start_offset=start) for epoch, start in epochs],
        begins_at=begins_at,
    )
    if fault is not None:
        logger.error("%r is copied no further: %s", copy.partition, fault.reason)
        report.fault, report.fault_reason = fault.kind, fault.reason
        report.fault_first, report.fault_end = fault.first, fault.end
    return report
