"""Promises to consumers: offsets rise, no record is skipped, and no record is retracted without notice."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ..operations import Poll, Position, Reason
from .base import Invariant
from .facts import Facts, Place, named, polled

TOLD_BY_BROKERS = (Reason.RESET, Reason.TRUNCATION)
"""Reasons that no user gave."""


class PollsOutOfOrder(Invariant):
    """A consumer gets rising offsets from its start position, and between two jumps that its user is notified of.

    If a client requested deletion of the consumer's next records, its position may have been out of range, and the
    consumer restarted at the log start. The new position may be lower if the new leader did not know of the deletion.
    """

    scenarios = (7,)

    def violations(self, facts: Facts) -> Iterator[str]:
        for (_, place), events in facts.sessions.items():
            position, deleted_before = 0, facts.deleted_before.get(place, 0)
            for event in events:
                if isinstance(event, Position):
                    position = event.offset or 0
                    continue
                if event.offset < position and position >= deleted_before:
                    yield f"{polled(event)}; it was at offset {position}"
                position = event.offset + 1


class SkippedRecord(Invariant):
    """A consumer gets every record between its start and its position: skipped offsets hold no record.

    A broker's OFFSET_OUT_OF_RANGE is no excuse while the log still has the skipped records, unless a client requested
    their deletion. The final read shows which records exist; without a final read the acknowledgements do. For
    read-committed consumers the final read of such a consumer decides.
    """

    scenarios = (7, 14, 17)

    def violations(self, facts: Facts) -> Iterator[str]:
        known: dict[tuple[Place, bool], list[int]] = {}
        for (session, place), events in facts.sessions.items():
            committed = session in facts.committed_sessions
            if committed and place not in facts.committed_final:
                continue
            here = (place, committed)
            position: int | None = None
            for event in events:
                offset = event.offset
                if position is not None and offset is not None and offset > position:
                    by_user = isinstance(event, Position) and (
                        event.reason not in TOLD_BY_BROKERS or place not in facts.final
                    )
                    if not by_user:
                        if here not in known:
                            known[here] = self._offsets(facts, place, committed)
                        kept_from = max(position, facts.deleted_before.get(place, 0))
                        first, behind = bisect_left(known[here], kept_from), bisect_left(known[here], offset)
                        missed = [
                            skipped
                            for skipped in known[here][first:behind]
                            if not facts.losses.excuse(place, skipped, event.at_s)
                        ]
                        if missed:
                            yield (
                                f"{session} went on from offset {position} of {named(place)} to {offset} at "
                                f"{event.at_s:.6f} without {len(missed)} records, the first at {missed[0]}"
                            )
                position = offset if isinstance(event, Position) else event.offset + 1

    def _offsets(self, facts: Facts, place: Place, committed: bool) -> list[int]:
        if committed:
            return sorted(facts.committed_final[place])
        if place in facts.final:
            return sorted(facts.final_values[place])
        return facts.acknowledged_offsets.get(place, [])


class Retraction(Invariant):
    """A record that a consumer got stays in the log, and a reported high watermark is kept.

    No client acts on a record that is retracted later, unless a loss is declared. (Compaction may remove records.)
    """

    scenarios = (14, 15, 16, 21)

    def violations(self, facts: Facts) -> Iterator[str]:
        last = {place: max(values, default=-1) for place, values in facts.final_values.items()}
        for poll in facts.history.polls:
            place = (poll.topic, poll.partition)
            read = facts.final.get(place)
            if read is None or poll.offset < read.log_start:
                continue
            later = read.at_s > 0 and poll.at_s > read.at_s and poll.offset > last[place]
            found = facts.final_values[place].get(poll.offset)
            if (
                found != poll.value
                and not (found is None and facts.was_taken(poll))
                and not later
                and not facts.losses.excuse(place, poll.offset, poll.at_s)
            ):
                yield f"{polled(poll)}; the final read does not show it there"
        yield from self._high_watermarks(facts)
        yield from self._sent_back(facts)

    def _high_watermarks(self, facts: Facts) -> Iterator[str]:
        for watermark in facts.history.watermarks:
            place = (watermark.topic, watermark.partition)
            read = facts.final.get(place)
            if read is None or read.end is None or watermark.high_watermark <= read.end:
                continue
            later = read.at_s > 0 and watermark.at_s > read.at_s
            if not later and not facts.losses.excuse(place, watermark.high_watermark - 1, watermark.at_s):
                yield f"{watermark}; the log ends at offset {read.end}"

    def _sent_back(self, facts: Facts) -> Iterator[str]:
        for (_, place), events in facts.sessions.items():
            before: Poll | None = None
            for event in events:
                if isinstance(event, Poll):
                    before = event
                elif (
                    before is not None
                    and event.offset is not None
                    and event.offset <= before.offset
                    and event.reason in TOLD_BY_BROKERS
                    and not facts.losses.excuse(place, before.offset, before.at_s)
                ):
                    yield f"{polled(before)}; then it was sent back to {event.offset} ({event.reason})"


class TruncationNotReported(Invariant):
    """A consumer whose records were taken by a declared loss is notified before it gets their
    replacements (KIP-320).
    """

    scenarios = (17,)

    def violations(self, facts: Facts) -> Iterator[str]:
        if not facts.history.lossy:
            return
        for (_, place), events in facts.sessions.items():
            read = facts.final.get(place)
            if read is None or not facts.losses.touch(place):
                continue
            final = facts.final_values[place]
            gone: Poll | None = None
            for event in events:
                if isinstance(event, Position):
                    gone = None
                elif final.get(event.offset) == event.value:
                    if gone is not None and 0 <= gone.leader_epoch == event.leader_epoch:
                        continue  # A record of the same log was lost, too, sent once more and appended there again.
                    if gone is not None:
                        yield f"{polled(gone)}, which is gone; then, told nothing, {polled(event)}"
                    gone = None
                elif event.offset >= read.log_start and facts.losses.excuse(place, event.offset, event.at_s):
                    gone = event
