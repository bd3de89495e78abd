"""The fetched records that the program does not have yet, taken in turn from one partition after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from ...protocol.errors import KafkaError
from ..failures import SerializationFailed
from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from .assigned import AssignedPartition, KeptRecords
from .fetcher import Fetcher
from .handed_out import HandedOut
from .large_messages.assembly import Assembly
from .large_messages.places import given_before, place
from .large_messages.referenced import ReferencedValues
from .record_iterator import RecordIterator
from .turns import Turns


class Inbox:
    """A store of fetched records that the program does not have yet: the buffers of a fetcher's partitions, and records
    that were taken together but are handed out one by one."""

    def __init__(
        self,
        fetcher: Fetcher,
        assembly: Assembly | None,
        deserialize: Callable[[ConsumerRecord], ConsumerRecord] | None = None,
        referenced: ReferencedValues | None = None,
    ) -> None:
        """Create an inbox for a fetcher's partitions.

        Without an `assembly` the segments of large messages are handed out as they are, and so are references without
        `referenced`. `deserialize` raises SerializationFailed.
        """
        self._fetcher = fetcher
        self._assembly = assembly
        self._deserialize = deserialize
        self._referenced = referenced
        self._turns = Turns()
        self._place = 0
        """The index, in the ring of `Turns`, of the partition from which a read takes."""
        self.unread = RecordIterator()
        self.handed_out: HandedOut | None = None
        """The counter of records given to the program; None without an audit."""

    def reassigned(self) -> None:
        """Drop the state of partitions that the fetcher no longer has, and add new partitions to the order of
        reading."""
        self._turns.keep(self._fetcher.assigned)
        self.settle()
        if self.handed_out is not None:
            self.handed_out.keep(self._fetcher.assigned)
        self.unread.keep(self._fetcher.assigned)
        if self._assembly is not None:
            self._assembly.keep(self._fetcher.assigned)
        if self._referenced is not None:
            self._referenced.keep(self._fetcher.assigned)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out no more records of these partitions, which are about to be given up.

        Their positions then follow the last records handed out.
        """
        for partition in partitions:
            state = self._fetcher.assigned[partition]
            state.held = True
        first_unread = self._drop(partitions)
        for partition, offset in first_unread.items():
            self._fetcher.assigned[partition].position = offset

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """Reset positions to the first unread record of each partition, so that unread records are taken again."""
        if len(self.unread):
            for partition, offset in self._drop(partitions).items():
                self._go_back(self._fetcher.assigned[partition], offset)
        for partition in partitions:
            state = self._fetcher.assigned[partition]
            if state.kept is not None:
                self._go_back(state, state.kept.given[0].offset)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop unread records of partitions whose positions have changed."""
        self._drop(partitions)

    def settle(self) -> None:
        """Report to the audit that all taken records, except the unread ones, were handed out to the program."""
        if self.handed_out is not None:
            self.handed_out.settle(self.unread.positions())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to hand out, for all partitions with a known position."""
        known = {
            partition: max(state.position, state.give_from)
            for partition, state in self._fetcher.assigned.items()
            if state.position is not None
        }
        return known | self.unread.positions()

    def committable(self, partition: TopicPartition, offset: int) -> OffsetAndMetadata:
        """Return the value to commit so that a reader who resumes there gets all records from `offset` on, and none
        before.
        """
        state = self._fetcher.assigned.get(partition)
        if self._assembly is None or state is None:
            return OffsetAndMetadata(offset)
        self._notice_move(self._assembly, state)
        read_to = state.read_to or 0
        return place(self._assembly.start_of(partition, offset, read_to, state.give_from), offset)

    def resume(self, state: AssignedPartition, found: OffsetAndMetadata) -> None:
        """Continue reading a partition at the committed value `found`, which `committable` has returned."""
        if self._assembly is None:
            state.seek(found.offset)
        else:
            self._assembly.resumed(state.partition, found.offset, given_before(found))
            state.seek(found.offset, given_before(found))

    def take(self, partitions: set[TopicPartition], limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` buffered records, of these partitions or of all, in fair turns of the partitions.

        Raises KafkaError where nothing can be taken before a record that is damaged or cannot be deserialised; the
        position stays there.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.settle()
        if len(self.unread):  # unread records precede the buffered records of their partition
            taken = self.unread.take_some(lambda partition: self._wanted(partition, partitions), limit)
            limit -= sum(map(len, taken.values()))
        if self._referenced is not None:
            self._referenced.begin_read(
                lambda partition: self._wanted(partition, partitions),
                lambda partition: self._fetcher.assigned[partition].has_records,
            )
        for state in self.in_turn(partitions) if limit > 0 else ():
            partition = state.partition
            if self._waits_for_value(state):
                continue
            try:
                start = state.position
                read, records, has_headers = self._take_from(state, limit)
                if self._referenced is not None and has_headers:
                    records = self._with_values(state, read, records, self._referenced)
                if self._deserialize is not None:
                    records = self._deserialized(state, records, self._deserialize)
                if self.handed_out is not None and start is not None and (end := state.position) is not None:
                    # The audit counts the records in the log, not reassembled messages.
                    self.handed_out.taken(
                        partition, start, end, [record for record in read if record.offset < end]
                    )
            except KafkaError:
                if not taken:
                    raise
                break  # The records taken so far come first. The next read raises if the place fails again.
            if records:
                taken.setdefault(partition, []).extend(records)
                limit -= len(records)
                if limit <= 0:
                    self.enough(state)
                    break
        return taken

    def in_turn(self, partitions: set[TopicPartition]) -> Iterator[AssignedPartition]:
        """Yield the partitions with buffered records, of these or of all, in fair turns of the partitions.

        A caller that has enough before the end calls `enough`.
        """
        assigned, ring = self._fetcher.assigned, self._turns.ring

        def ready_from(begin: int) -> Iterator[int]:
            for number in chain(range(begin, len(ring)), range(begin)):
                if assigned[ring[number]].has_records and self._wanted(ring[number], partitions):
                    yield number

        for number in self._turns.take(ready_from):
            self._place = number
            yield assigned[ring[number]]

    def enough(self, state: AssignedPartition) -> None:
        """End a read at `state`, which `in_turn` yielded last; if records remain, the next read begins with it."""
        self._turns.ended_at(self._place, has_more=state.has_records)

    def _wanted(self, partition: TopicPartition, partitions: set[TopicPartition]) -> bool:
        state = self._fetcher.assigned[partition]
        return not (state.paused or state.held) and (not partitions or partition in partitions)

    def refused(self, state: AssignedPartition) -> None:
        """Fetch the partition again from its damaged first chunk on.

        The chunk is not skipped, as the next leader may have an intact copy.
        """
        self._go_back(state, state.buffer[0].next_offset)

    def emptied(self, state: AssignedPartition) -> None:
        """Remove the partition's first fetched chunk, of which all records were taken."""
        state.buffer.pop(0)
        self._fetcher.changed()

    def _drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.settle()
        if self.handed_out is not None:
            self.handed_out.drop(partitions)
        return self.unread.drop(partitions)

    def _take_from(
        self, state: AssignedPartition, limit: int
    ) -> tuple[list[ConsumerRecord], list[ConsumerRecord], bool]:
        """Return the records read from a partition's buffers, and the records to hand out for them, at most `limit`,
        with large messages assembled. Also return whether some of them may have headers."""
        records: list[ConsumerRecord] = []
        has_headers = False
        assembly = self._assembly
        if assembly is not None:
            self._notice_move(assembly, state)
            if assembly.crowded(state.partition):
                assembly.forget(state.partition, self.positions()[state.partition])
        read: list[ConsumerRecord] = []
        if (kept := state.kept) is not None:
            read, records, has_headers = [*kept.read], kept.given[:limit], True
            state.kept, state.position = None, kept.end
            if len(kept.given) > limit:
                _keep(state, read, kept.given[limit:])
        while state.buffer and len(records) < limit:
            chunk = state.buffer[0]
            wanted = limit - len(records)
            try:
                some = chunk.take(wanted)
            except KafkaError:
                if records:
                    break
                self.refused(state)
                raise
            state.position = chunk.next_offset
            read += some
            if assembly is None:
                records += some
            else:
                given, damage = assembly.take_in(state.partition, some, state.give_from)
                records += given
                has_headers |= given is not some  # An assembly returns records without headers as they came.
                if damage is not None:
                    self._go_back(state, damage.offset)
                    if not records:
                        raise damage.unreadable(state.partition)
                    break
            if len(some) < wanted and chunk.damage is None:
                self.emptied(state)
        return read, records, has_headers

    def _waits_for_value(self, state: AssignedPartition) -> bool:
        """Return whether the value of the partition's next record is on the way."""
        if self._referenced is None or state.position is None:
            return False
        return self._referenced.waits(state.partition, max(state.position, state.give_from))

    def _with_values(
        self,
        state: AssignedPartition,
        read: list[ConsumerRecord],
        records: list[ConsumerRecord],
        referenced: ReferencedValues,
    ) -> list[ConsumerRecord]:
        """Return the records before the first whose value is not here yet; raise its failure if it is the first. The
        others are kept for the next reads."""
        found = referenced.resolve(state.partition, records)
        if found.stop is not None:
            if state.moved:  # Damage after the records has changed the position.
                self._go_back(state, found.stop)
            else:
                after = () if state.kept is None else state.kept.given
                _keep(state, read, [*records[len(found.records) :], *after])
        if found.failure is not None:
            raise found.failure
        return found.records

    def _go_back(self, state: AssignedPartition, offset: int) -> None:
        """Read the partition again from `offset` on, and from an earlier place if a large message needs it."""
        state.position = offset if state.position is None else max(state.position, offset)
        self.resume(state, self.committable(state.partition, max(offset, state.give_from)))
        self._fetcher.changed()

    def _notice_move(self, assembly: Assembly, state: AssignedPartition) -> None:
        if state.moved:
            assembly.interrupted(state.partition)
            state.moved = False

    def _deserialized(
        self,
        state: AssignedPartition,
        records: list[ConsumerRecord],
        deserialize: Callable[[ConsumerRecord], ConsumerRecord],
    ) -> list[ConsumerRecord]:
        """Return the records before the first that fails; raise its failure if it is the first."""
        done: list[ConsumerRecord] = []
        for record in records:
            try:
                done.append(deserialize(record))
            except SerializationFailed:
                self._go_back(state, record.offset)  # Not skipped: the program must decide.
                if done:
                    break
                raise
        return done


def _keep(state: AssignedPartition, read: list[ConsumerRecord], given: list[ConsumerRecord]) -> None:
    """Keep the last records that were taken from a partition's buffer for later reads, `given` to hand them out."""
    end = state.read_to
    assert end is not None, "its records were read"
    stop = given[0].offset
    state.kept = KeptRecords([record for record in read if record.offset >= stop], given, end)
    state.position = stop
