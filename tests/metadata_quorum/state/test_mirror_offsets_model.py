"""Copied offsets of groups under random commands, late reports and lost replicas.

No group gets offsets before each partition of the copy has reported all its offsets, or an operator has given it up,
and no partition with a leader is given up. A source without offsets has no copy of them. A cut that does not count them
brings none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.protocol.cluster.mirror_offsets import MirrorOffsetsDue
from ottla.protocol.cluster.mirror_table import MirrorPhase, offsets_copy
from ottla.protocol.cluster.transaction_table import Place
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.mirror_commands import ReportOffsetsTaken, TakenOffsets, TellMirrorOffsets
from ottla.protocol.messages.mirror_records import MirroredOffset
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult
from ottla.protocol.wire.schema import ZERO_UUID

from .harness import topic
from .mirrored import Mirrors, at_source

OWN = "__consumer_offsets"
PARTS = (0, 1)
"""Partitions of each copy, and of the local offsets."""
ALL = set(PARTS)
NAMES = st.sampled_from(["m", "n"])
INDEXES = st.sampled_from(PARTS)
BROKERS = st.sampled_from([1, 2, 3])
OFFSETS = st.lists(st.tuples(st.sampled_from(["g1", "g2"]), INDEXES, st.integers(-1, 9)), max_size=3)


@dataclass
class Due:
    """The state of a mirror that is promoted at a cut."""

    told: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    by_group: dict[str, dict[Place, tuple[int, str]]] = field(default_factory=dict)


class OffsetsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Mirrors()
        self.cluster.create(topic(OWN, partitions=len(PARTS), factor=3))
        self.phases: dict[str, MirrorPhase] = {}
        self.copies: set[str] = set()
        """Mirrors with a copy of the offsets."""
        self.due: dict[str, Due] = {}
        self.to_tell: dict[str, set[int]] = {}
        """Partitions of a due mirror's copy that must report."""
        self.leaders: dict[str, set[tuple[int, int, int]]] = {}
        """All past leaders by topic: index, broker, leader epoch."""
        self.create("m", has_copy=True)

    # The life of a mirror

    @rule(name=NAMES, has_copy=st.sampled_from([True, True, False]))
    def create(self, name: str, has_copy: bool) -> None:
        if name in self.phases:
            return
        for broker in (1, 2, 3):
            self.cluster.unfence(broker)
        assert not self.cluster.create_mirror(name, groups="g.*").error_code
        self.phases[name] = MirrorPhase.ACTIVE
        if has_copy:
            copy = at_source(offsets_copy(name), len(PARTS), 3, source_id=b"o" * 16)
            assert not self.cluster.follow_all([copy], name).topics[0].error_code
            self.copies.add(name)

    @rule(
        name=NAMES,
        at_cut=st.sampled_from([True, True, False]),
        has_offsets=st.sampled_from([True, True, False]),
    )
    def promote(self, name: str, at_cut: bool, has_offsets: bool) -> None:
        if self.phases.get(name) is not MirrorPhase.ACTIVE:
            return
        if not at_cut:
            assert not self.cluster.alter(MirrorPhase.PROMOTED, name).error_code
            self.copies.discard(name)
        else:
            self.cluster.announce(5, name, has_offsets=has_offsets)
            newest = self.cluster.cuts(name).rounds[-1]
            for index in PARTS if name in self.copies else ():
                if self.cluster.partition(offsets_copy(name), index).leader >= 0:
                    self.cluster.reach(newest.number, 7, offsets_copy(name), index)
            number = self.cluster.whole(name)
            at = next(
                (
                    mirror_round
                    for mirror_round in self.cluster.cuts(name).rounds
                    if mirror_round.number == number
                ),
                None,
            )
            assert bool(self.cluster.promote_at_cut(name).error_code) == (at is None)
            if at is None:
                return
            if at.has_offsets:
                self.due[name] = Due()
                self.to_tell[name] = ALL if name in self.copies else set()
            else:
                self.copies.discard(name)
        self.phases[name] = MirrorPhase.PROMOTED

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        error = self.cluster.delete_mirror(name).error_code
        assert bool(error) == (name not in self.phases or name in self.due)
        if not error:
            self.copies.discard(name)
            del self.phases[name]

    @rule(name=NAMES)
    def delete_copy(self, name: str) -> None:
        """Try to delete a copy, which is refused while the copy is needed."""
        result = self.cluster.do(DeleteTopics(names=[offsets_copy(name)]), DeleteTopicsResult).topics[0]
        is_there = name in self.copies
        assert result.error_code == (
            ErrorCode.POLICY_VIOLATION if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    # Brokers

    @rule(broker=BROKERS, comes=st.booleans())
    def broker_goes_or_comes(self, broker: int, comes: bool) -> None:
        if comes:
            self.cluster.unfence(broker)
        else:
            self.cluster.fence(broker)

    @rule()
    def all_brokers_go(self) -> None:
        for broker in (1, 2, 3):
            self.cluster.fence(broker)

    def drawn_leader(self, data: st.DataObject, name: str, index: int) -> tuple[int, int]:
        """Draw a current or former leader: broker and leader epoch."""
        now = self.cluster.partition(name, index)
        if now.leader >= 0 and data.draw(st.integers(0, 3)):
            return now.leader, now.leader_epoch
        led = sorted(leadership[1:] for leadership in self.leaders.get(name, ()) if leadership[0] == index)
        return data.draw(st.sampled_from(led or [(1, 0)]))

    # Reports of copies, and offsets of groups

    @precondition(lambda self: self.due.keys() & self.copies)
    @rule(data=st.data(), index=INDEXES, offsets=OFFSETS, is_last=st.booleans())
    def tell(
        self, data: st.DataObject, index: int, offsets: list[tuple[str, int, int]], is_last: bool
    ) -> None:
        name = data.draw(st.sampled_from(sorted(self.due.keys() & self.copies)))
        copy = self.cluster.machine.image.topics[offsets_copy(name)]
        broker, epoch = self.drawn_leader(data, copy.name, index)
        mirrored = [
            MirroredOffset(group=group, topic_id=copy.id, partition=place, offset=offset)
            for group, place, offset in offsets
        ]
        command = TellMirrorOffsets(
            broker_id=broker,
            topic_id=copy.id,
            partition=index,
            leader_epoch=epoch,
            offsets=mirrored,
            is_last=is_last,
        )
        state, due = self.cluster.partition(copy.name, index), self.due[name]
        assert not self.cluster.do(command, PlainResult).error_code
        if (state.leader, state.leader_epoch) != (broker, epoch) or index in due.told:
            return
        for group, place, offset in offsets:
            if offset >= 0:
                due.by_group.setdefault(group, {})[copy.id, place] = (offset, "")
        if is_last:
            due.told.add(index)

    @precondition(lambda self: self.due)
    @rule(data=st.data(), indexes=st.sets(INDEXES, min_size=1))
    def take(self, data: st.DataObject, indexes: set[int]) -> None:
        """Report as leaders of local offsets that groups have theirs, also repeatedly or too late."""
        name = data.draw(st.sampled_from(sorted(self.due)))
        broker, epoch = self.drawn_leader(data, OWN, min(indexes))
        command = ReportOffsetsTaken(
            broker_id=broker,
            mirror=name,
            topic_id=self.cluster.topic_id(OWN),
            partitions=[TakenOffsets(partition=index, leader_epoch=epoch) for index in sorted(indexes)],
        )
        due = self.due[name]
        if due.told == self.to_tell[name]:
            states = {index: self.cluster.partition(OWN, index) for index in indexes}
            due.taken |= {
                index
                for index, state in states.items()
                if (state.leader, state.leader_epoch) == (broker, epoch)
            }
        assert not self.cluster.do(command, PlainResult).error_code
        if due.taken == ALL:
            del self.due[name]
            self.copies.discard(name)

    @rule(name=NAMES, named=st.sampled_from(["", "", "m", "n"]))
    def accept(self, name: str, named: str) -> None:
        """Accept the loss of offsets that no replica can report; `named`: of that mirror's copy alone."""
        due, topics = self.due.get(name), [offsets_copy(named)] if named else []
        lost = {
            index
            for index in PARTS
            if due is not None
            and index in self.to_tell[name] - due.told
            and self.cluster.partition(offsets_copy(name), index).leader < 0
        }
        is_active = self.phases.get(name) is MirrorPhase.ACTIVE
        error = self.cluster.accept(*topics, mirror=name).error_code
        is_named = not named or (named == name and name in self.copies)
        assert bool(error) != ((is_active or bool(lost)) and is_named)
        if due is not None and not error:
            due.told |= lost
            due.given_up |= lost

    # Invariants

    @rule()
    def restart_from_a_snapshot(self) -> None:
        restored = self.cluster.restored()
        assert list(restored.image.records()) == list(self.cluster.machine.image.records())
        assert restored.image.mirror_offsets == self.cluster.machine.image.mirror_offsets
        self.cluster.machine.adopt(restored)

    @invariant()
    def agrees(self) -> None:
        image = self.cluster.machine.image
        self.cluster.machine.check()
        assert image.topics.keys() == {OWN, *map(offsets_copy, self.copies)}
        assert image.mirror_offsets.due == {
            name: MirrorOffsetsDue(
                image.topics[offsets_copy(name)].id if name in self.copies else ZERO_UUID, **vars(due)
            )
            for name, due in self.due.items()
        }
        assert not any(due.taken and due.told != self.to_tell[name] for name, due in self.due.items())
        for name, known in image.topics.items():
            led = self.leaders.setdefault(name, set())
            led |= {
                (index, state.leader, state.leader_epoch)
                for index, state in known.partitions.items()
                if state.leader >= 0
            }

    def teardown(self) -> None:
        """Check that an operator and the remaining brokers can finish in any state."""
        for broker in (1, 2, 3):
            self.cluster.unfence(broker)
        for name in sorted(self.due):
            copy = self.cluster.machine.image.topics.get(offsets_copy(name))
            fields: dict[str, Any] = {"topic_id": copy.id if copy is not None else ZERO_UUID, "is_last": True}
            for index in sorted(self.to_tell[name]):
                state = self.cluster.partition(offsets_copy(name), index)
                leads = {"broker_id": state.leader, "leader_epoch": state.leader_epoch}
                self.cluster.do(TellMirrorOffsets(partition=index, **leads, **fields), PlainResult)
            self.cluster.accept(mirror=name)
            for index in PARTS:
                state = self.cluster.partition(OWN, index)
                taken = TakenOffsets(partition=index, leader_epoch=state.leader_epoch)
                own = {"mirror": name, "topic_id": self.cluster.topic_id(OWN), "partitions": [taken]}
                self.cluster.do(ReportOffsetsTaken(broker_id=state.leader, **own), PlainResult)
            assert not self.cluster.delete_mirror(name).error_code


TestOffsets = OffsetsModel.TestCase
TestOffsets.settings = settings(max_examples=60, stateful_step_count=40)
