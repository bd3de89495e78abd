"""What was fetched and not yet given to the program: taken in turns, a partition after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from ...protocol.errors import KafkaError
from ..auditing.handed_out import HandedOut
from ..failures import SerializationFailed
from ..large_messages.assembly import Assembly
from ..large_messages.places import given_before, place
from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from .assigned import AssignedPartition
from .fetcher import Fetcher
from .record_iterator import RecordIterator
from .turns import Turns


class Inbox:
    """The buffers of a fetcher's partitions, and records that were taken together but are given one by one."""

    def __init__(
        self,
        fetcher: Fetcher,
        assembly: Assembly | None,
        deserialize: Callable[[ConsumerRecord], ConsumerRecord] | None = None,
    ) -> None:
        """Without an `assembly` the segments of large messages are given as they are. `deserialize` raises
        SerializationFailed."""
        self._fetcher = fetcher
        self._assembly = assembly
        self._deserialize = deserialize
        self._turns = Turns()
        self._place = 0
        """The place in the ring of the partition that a read takes from."""
        self.unread = RecordIterator()
        self.handed_out: HandedOut | None = None
        """Who counts what the program is given, if somebody does."""

    def reassigned(self) -> None:
        """The fetcher has other partitions now."""
        self._turns.keep(self._fetcher.assigned)
        self.settle()
        if self.handed_out is not None:
            self.handed_out.keep(self._fetcher.assigned)
        self.unread.keep(self._fetcher.assigned)
        if self._assembly is not None:
            self._assembly.keep(self._fetcher.assigned)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Give no more of these, which are about to go: their positions are behind what was given."""
        for one in partitions:
            state = self._fetcher.assigned[one]
            state.held = True
        first_unread = self._drop(partitions)
        for one, offset in first_unread.items():
            self._fetcher.assigned[one].position = offset

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """What was taken of these to be given one by one, and was not, is to be taken again."""
        if len(self.unread):
            for one, offset in self._drop(partitions).items():
                self._go_back(self._fetcher.assigned[one], offset)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Their positions have changed."""
        self._drop(partitions)

    def settle(self) -> None:
        """Whatever was taken and is not unread has been handed out."""
        if self.handed_out is not None:
            self.handed_out.settle(self.unread.positions())

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record to give, of all partitions of which it is known."""
        known = {
            one: max(state.position, state.give_from)
            for one, state in self._fetcher.assigned.items()
            if state.position is not None
        }
        return known | self.unread.positions()

    def committable(self, partition: TopicPartition, offset: int) -> OffsetAndMetadata:
        """What to keep so that whoever goes on there is given everything from `offset` on, and nothing before."""
        state = self._fetcher.assigned.get(partition)
        if self._assembly is None or state is None:
            return OffsetAndMetadata(offset)
        self._notice_move(self._assembly, state)
        read_to = 0 if state.position is None else state.position
        return place(self._assembly.start_of(partition, offset, read_to, state.give_from), offset)

    def resume(self, state: AssignedPartition, found: OffsetAndMetadata) -> None:
        """Go on at a place that was `committable`."""
        if self._assembly is None:
            state.seek(found.offset)
        else:
            self._assembly.resumed(state.partition, found.offset, given_before(found))
            state.seek(found.offset, given_before(found))

    def take(self, partitions: set[TopicPartition], limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return up to `limit` buffered records, of these partitions or of all, in the order of `Turns`.

        Raises KafkaError where nothing can be taken before a record that is damaged or cannot be deserialised; the
        position stays there."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.settle()
        if len(self.unread):  # of the same partitions these come before what is buffered
            taken = self.unread.take_some(lambda one: self._wanted(one, partitions), limit)
            limit -= sum(map(len, taken.values()))
        for state in self.in_turn(partitions) if limit > 0 else ():
            partition = state.partition
            try:
                start = state.position
                read, records = self._take_from(state, limit)
                if self._deserialize is not None:
                    records = self._deserialized(state, records, self._deserialize)
                if self.handed_out is not None and start is not None and (end := state.position) is not None:
                    # What stands in the log is counted, not what it is put together to.
                    self.handed_out.taken(partition, start, end, [one for one in read if one.offset < end])
            except KafkaError:
                if not taken:
                    raise
                break  # What others had comes first: that place is fetched again, and told of if it still fails.
            if records:
                taken.setdefault(partition, []).extend(records)
                limit -= len(records)
                if limit <= 0:
                    self.enough(state)
                    break
        return taken

    def in_turn(self, partitions: set[TopicPartition]) -> Iterator[AssignedPartition]:
        """Yield those of these partitions, or of all, that have something to give, in the order of `Turns`. The caller
        that has enough before the end calls `enough`."""
        assigned, ring = self._fetcher.assigned, self._turns.ring

        def ready_from(begin: int) -> Iterator[int]:
            for number in chain(range(begin, len(ring)), range(begin)):
                if assigned[ring[number]].buffer and self._wanted(ring[number], partitions):
                    yield number

        for number in self._turns.take(ready_from):
            self._place = number
            yield assigned[ring[number]]

    def enough(self, state: AssignedPartition) -> None:
        """End a read at `state`, which `in_turn` brought last: if it was cut short, the next read begins with it."""
        self._turns.ended_at(self._place, has_more=bool(state.buffer))

    def _wanted(self, partition: TopicPartition, partitions: set[TopicPartition]) -> bool:
        state = self._fetcher.assigned[partition]
        return not (state.paused or state.held) and (not partitions or partition in partitions)

    def refused(self, state: AssignedPartition) -> None:
        """Its first chunk is damaged: it is fetched again from there, and not passed over, as the next leader may have
        it whole."""
        self._go_back(state, state.buffer[0].next_offset)

    def emptied(self, state: AssignedPartition) -> None:
        """All of its first chunk was taken."""
        state.buffer.pop(0)
        self._fetcher.changed()

    def _drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.settle()
        if self.handed_out is not None:
            self.handed_out.drop(partitions)
        return self.unread.drop(partitions)

    def _take_from(
        self, state: AssignedPartition, limit: int
    ) -> tuple[list[ConsumerRecord], list[ConsumerRecord]]:
        """What was read, and what there is to give of it."""
        records: list[ConsumerRecord] = []
        assembly = self._assembly
        if assembly is not None:
            self._notice_move(assembly, state)
            if assembly.crowded(state.partition):
                assembly.forget(state.partition, self.positions()[state.partition])
        read: list[ConsumerRecord] = []
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
                if damage is not None:
                    self._go_back(state, damage.offset)
                    if not records:
                        raise damage.unreadable(state.partition)
                    break
            if len(some) < wanted and chunk.damage is None:
                self.emptied(state)
        return read, records

    def _go_back(self, state: AssignedPartition, offset: int) -> None:
        """Read again what was read from `offset` on, and before that what is needed for it."""
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
        """Those before the first that fails, or its failure if that is the first."""
        done: list[ConsumerRecord] = []
        for record in records:
            try:
                done.append(deserialize(record))
            except SerializationFailed:
                self._go_back(state, record.offset)  # Not passed over: the program has to say what to do.
                if done:
                    break
                raise
        return done
