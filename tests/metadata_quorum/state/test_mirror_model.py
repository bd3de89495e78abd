"""Mirrors under random commands, late reports and changes of leader, compared with a model of each copy, across
snapshots.

No copy goes on past an unaccepted loss, and a promotion at a cut takes the newest cut that all copies have reported.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.protocol.cluster.mirror_cuts import ROUNDS_MAX
from ottla.protocol.cluster.mirror_table import NO_EPOCH, FaultKind, MirrorPhase, ResumptionKind
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.config_commands import ResourceType
from ottla.protocol.messages.topic_commands import DeleteTopics, DeleteTopicsResult
from ottla.protocol.wire.schema import ZERO_UUID

from .harness import topic as new_topic
from .mirrored import LINEAGE, THERE, Mirrors, at_source, epochs, failback_of

ACTIVE, PROMOTED = MirrorPhase.ACTIVE, MirrorPhase.PROMOTED
EXACT = ResumptionKind.EXACT
GAP, DIVERGED, MADE_ANEW = FaultKind.GAP, FaultKind.DIVERGED, FaultKind.MADE_ANEW
GOING = st.sampled_from([1, 2])
"""Brokers that may go; broker 3 always stays for the copies."""
MIRROR_NAMES = st.sampled_from(["m", "n"])
TOPIC_NAMES = st.sampled_from(["a", "b"])
OFFSETS = st.integers(0, 60)


@dataclass
class Part:
    """The model of one partition."""

    lineage: list[tuple[int, int]] = field(default_factory=list)
    fault: tuple[FaultKind, int, int] | None = None
    resumed: tuple[int, int, ResumptionKind] | None = None
    promoted_epoch: int = NO_EPOCH
    reached: dict[int, int] = field(default_factory=dict)
    """Reached offsets by round."""


@dataclass
class Rounds:
    """The rounds of one mirror."""

    next_number: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    promoted_at: int | None = None


@dataclass
class Copied:
    """The model of one topic.

    `mirror` is empty once the mirror is deleted; a topic without a source never was a copy.
    """

    mirror: str
    source_id: bytes | None
    parts: list[Part]
    retention: str | None


class MirrorModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Mirrors()
        self.phases: dict[str, MirrorPhase] = {}
        self.topics: dict[str, Copied] = {}
        self.rounds: dict[str, Rounds] = {}
        self.next_commit_index = 0
        #: reports of leaders that may still arrive: topic, partition, leader, leader epoch
        self.leaders: set[tuple[str, int, int, int]] = set()
        self.create("m")
        self.follow("m", "a", 2, b"1" * 16, None)
        self.announce("m", 5, 0)
        self.announce("m", 6, 0)

    def epoch(self, name: str, index: int) -> int:
        return self.cluster.partition(name, index).leader_epoch

    def of(self, mirror: str) -> list[str]:
        return [name for name, topic in sorted(self.topics.items()) if topic.mirror == mirror]

    # The life of a mirror

    @rule(name=MIRROR_NAMES)
    def create_mirror(self, name: str) -> None:
        self.create(name)

    def create(self, name: str) -> None:
        error = self.cluster.create_mirror(name).error_code
        assert error == (ErrorCode.DUPLICATE_RESOURCE if name in self.phases else 0)
        self.phases.setdefault(name, ACTIVE)

    @rule(name=MIRROR_NAMES, phase=st.sampled_from([ACTIVE, ACTIVE, MirrorPhase.PAUSED, PROMOTED]))
    def alter(self, name: str, phase: MirrorPhase) -> None:
        before = {
            (topic, index): self.epoch(topic, index)
            for topic, copied in self.topics.items()
            for index in range(len(copied.parts))
        }
        error = self.cluster.alter(phase, name).error_code
        known = self.phases.get(name)
        assert bool(error) == (known is None or (known is PROMOTED and phase is not PROMOTED))
        if error:
            return
        self.phases[name] = phase
        for (topic, index), epoch in before.items():
            begins = phase is PROMOTED and known is not PROMOTED and self.topics[topic].mirror == name
            assert self.epoch(topic, index) == epoch + begins
            if begins:
                self.topics[topic].parts[index].promoted_epoch = epoch + 1

    @rule(name=MIRROR_NAMES)
    def delete(self, name: str) -> None:
        error = self.cluster.delete_mirror(name).error_code
        is_left = self.phases.get(name) is PROMOTED or (name in self.phases and not self.of(name))
        assert bool(error) != is_left
        if is_left:
            for topic in self.of(name):
                self.topics[topic].mirror = ""
                for part in self.topics[topic].parts:
                    part.reached.clear()
            del self.phases[name]
            self.rounds.pop(name, None)

    # Topics

    @rule(name=TOPIC_NAMES, partitions=st.integers(1, 2))
    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic without a mirror."""
        if name not in self.topics:
            self.cluster.create(new_topic(name, partitions, 2))
            self.topics[name] = Copied("", None, [Part() for _ in range(partitions)], None)

    @rule(
        mirror=MIRROR_NAMES,
        names=st.sets(TOPIC_NAMES, min_size=1),
        common=OFFSETS,
        discards=st.booleans(),
        moves=st.booleans(),
    )
    def fail_back(self, mirror: str, names: set[str], common: int, discards: bool, moves: bool) -> None:
        """Fail topics back; leaders may have changed since the logs were compared."""
        if not names <= self.topics.keys():
            return
        command = failback_of(self.cluster, sorted(names), common, mirror, discards=discards)
        before = {
            name: [self.epoch(name, index) for index in range(len(self.topics[name].parts))] for name in names
        }
        if moves:
            self.cluster.fence(1)
        is_new = all(
            self.epoch(name, index) == epoch for name in names for index, epoch in enumerate(before[name])
        )
        is_free = all(self.phases.get(self.topics[name].mirror, PROMOTED) is PROMOTED for name in names)
        error = self.cluster.do(command, PlainResult).error_code
        assert bool(error) != (mirror not in self.phases and is_new and is_free)
        if error:
            return
        self.phases[mirror] = ACTIVE
        kind = ResumptionKind.CUT if discards else ResumptionKind.KEPT
        for name in names:
            known = self.topics[name]
            known.mirror, known.source_id = mirror, THERE
            lineage = [pair for pair in LINEAGE if pair[1] < common]
            known.parts = [Part(list(lineage), None, (epoch + 1, common, kind)) for epoch in before[name]]

    @rule(
        mirror=MIRROR_NAMES,
        name=TOPIC_NAMES,
        partitions=st.integers(1, 3),
        source_id=st.sampled_from([b"1" * 16, b"1" * 16, b"2" * 16, ZERO_UUID]),
        retention=st.sampled_from([None, "5000", "6000", "no number"]),
    )
    def follow_topic(self, **drawn: Any) -> None:
        self.follow(**drawn)

    def follow(
        self, mirror: str, name: str, partitions: int, source_id: bytes, retention: str | None
    ) -> None:
        configs = {} if retention is None else {"retention_ms": retention}
        wanted = at_source(name, partitions, 2, bytes(name, "ascii") + source_id[1:], **configs)
        if source_id == ZERO_UUID:
            wanted.source_topic_id = ZERO_UUID
        result = self.cluster.follow_all([wanted], mirror)
        if self.phases.get(mirror) is not ACTIVE:
            assert result.error_code
            return
        error = result.topics[0].error_code
        topic = self.topics.get(name)
        if topic is None:
            assert bool(error) == (retention == "no number")
            if not error:
                parts = [self.new_part(mirror) for _ in range(partitions)]
                self.topics[name] = Copied(mirror, wanted.source_topic_id, parts, retention)
            return
        assert error == (0 if topic.mirror == mirror else ErrorCode.TOPIC_ALREADY_EXISTS)
        if not error:
            self.followed(topic, wanted.source_topic_id, partitions, retention)

    def followed(self, topic: Copied, source_id: bytes, partitions: int, retention: str | None) -> None:
        if source_id != ZERO_UUID:
            if topic.source_id not in (ZERO_UUID, source_id):
                for part in topic.parts:
                    part.fault = (MADE_ANEW, 0, -1)
                return
            topic.source_id = source_id
        topic.parts += [self.new_part(topic.mirror) for _ in range(partitions - len(topic.parts))]
        if retention != "no number":
            topic.retention = retention

    def new_part(self, mirror: str) -> Part:
        """Return a new partition, which lies after all known cuts."""
        return Part(reached=dict.fromkeys(self.rounds_of(mirror).cuts, 0))

    @rule(name=TOPIC_NAMES)
    def delete_topic(self, name: str) -> None:
        if name in self.topics:
            topic = self.topics[name]
            result = self.cluster.do(DeleteTopics(names=[name]), DeleteTopicsResult).topics[0]
            is_copy = self.phases.get(topic.mirror, PROMOTED) is not PROMOTED
            assert result.error_code == (ErrorCode.POLICY_VIOLATION if is_copy else 0)
            if not is_copy:
                del self.topics[name]

    # Leaders

    @rule(broker=GOING, comes=st.booleans())
    def broker_goes_or_comes(self, broker: int, comes: bool) -> None:
        if comes:
            self.cluster.unfence(broker)
        else:
            self.cluster.fence(broker)

    def drawn_leader(self, data: st.DataObject) -> tuple[str, int, int, int]:
        """Draw a current or former leader."""
        now = {
            (name, index, state.leader, state.leader_epoch)
            for name in self.topics
            for index, state in self.cluster.machine.image.topics[name].partitions.items()
        }
        some = data.draw(st.sampled_from([self.leaders & now, self.leaders - now, self.leaders]))
        return data.draw(st.sampled_from(sorted(some or self.leaders)))

    @rule(
        data=st.data(), what=st.sampled_from(["epochs", "begins", GAP, DIVERGED]), first=OFFSETS, more=OFFSETS
    )
    def report(self, data: st.DataObject, what: str | FaultKind, first: int, more: int) -> None:
        """Report as a current leader, or as a leader at the time of the finding."""
        if not self.leaders:
            return
        name, index, broker, epoch = self.drawn_leader(data)
        if name not in self.topics or index >= len(self.topics[name].parts):
            return
        topic, now = self.topics[name], self.cluster.partition(name, index)
        pairs = data.draw(st.lists(st.tuples(st.integers(0, 9), OFFSETS), min_size=1, max_size=3))
        fields = {"broker": broker, "leader_epoch": epoch}
        match what:
            case "epochs":
                self.cluster.report(name, index, **fields, epochs=epochs(*pairs))
            case "begins":
                self.cluster.report(name, index, **fields, begins_at=first)
            case _:
                self.cluster.report(
                    name, index, **fields, fault=what, fault_first=first, fault_end=first + more
                )
        counts = (now.leader, now.leader_epoch) == (broker, epoch)
        part = topic.parts[index]
        if not counts or self.phases.get(topic.mirror) is not ACTIVE:
            return
        if what == "epochs":
            for pair in pairs:
                if not part.lineage or (pair[0] > part.lineage[-1][0] and pair[1] >= part.lineage[-1][1]):
                    part.lineage.append(pair)
        elif what == "begins":
            if not part.lineage:
                part.resumed, part.reached = (epoch + 1, first, EXACT), {}
        elif part.fault is None:
            part.fault = (FaultKind(what), first, first + more)

    @rule(mirror=MIRROR_NAMES, only=st.none() | TOPIC_NAMES)
    def accept(self, mirror: str, only: str | None) -> None:
        names = [] if only is None else [only]
        ours = self.of(mirror)
        before = {
            (name, index): self.epoch(name, index)
            for name in ours
            for index in range(len(self.topics[name].parts))
        }
        error = self.cluster.accept(*names, mirror=mirror).error_code
        is_possible = self.phases.get(mirror, PROMOTED) is not PROMOTED and set(names) <= set(ours)
        assert bool(error) != is_possible
        if error:
            return
        for name, index in before:
            if name in (names or ours):
                self.accepted(self.topics[name], index, before[name, index])

    def accepted(self, topic: Copied, index: int, epoch: int) -> None:
        part = topic.parts[index]
        if part.fault is None:
            return
        kind, first, end = part.fault
        part.fault, part.resumed, part.reached = None, (epoch + 1, end, EXACT), {}
        if kind is DIVERGED:
            part.lineage = [pair for pair in part.lineage if pair[1] < first]
            part.resumed = (epoch + 1, first, EXACT)
        elif kind is MADE_ANEW:
            topic.source_id, part.lineage, part.resumed = ZERO_UUID, [], (epoch + 1, 0, EXACT)

    # Cuts

    def rounds_of(self, mirror: str) -> Rounds:
        return self.rounds.get(mirror, Rounds())

    def parts_of(self, mirror: str) -> list[Part]:
        return [part for name in self.of(mirror) for part in self.topics[name].parts]

    def newest_whole(self, mirror: str) -> int | None:
        parts = self.parts_of(mirror)
        whole = [
            number for number in self.rounds_of(mirror).cuts if all(number in part.reached for part in parts)
        ]
        return max(whole, default=None)

    @rule(mirror=MIRROR_NAMES, cut=st.integers(-1, 99), others=st.sampled_from([0, 0, 0, 1]))
    def announce_round(self, mirror: str, cut: int, others: int) -> None:
        self.announce(mirror, cut, others)

    def announce(self, mirror: str, cut: int, others: int) -> None:
        copies = len(self.parts_of(mirror))
        error = self.cluster.announce(cut, mirror, copies + others).error_code
        assert bool(error) == (self.phases.get(mirror) is not ACTIVE)
        if error or others or len(self.rounds_of(mirror).cuts) == ROUNDS_MAX:
            return
        if cut < max(self.rounds_of(mirror).cuts.values(), default=cut):
            return  # A leader of the source's quorum that has just been elected.
        rounds = self.rounds.setdefault(mirror, Rounds())
        rounds.cuts[rounds.next_number] = cut
        rounds.next_number += 1

    @rule(data=st.data(), offset=OFFSETS)
    def reach(self, data: st.DataObject, offset: int) -> None:
        """Report a reached round as a current leader, or as a leader at the time."""
        if not self.leaders:
            return
        name, index, broker, epoch = self.drawn_leader(data)
        if name in self.topics and index < len(self.topics[name].parts):
            rounds = self.rounds_of(self.topics[name].mirror)
            number = data.draw(st.sampled_from([*rounds.cuts, rounds.next_number]))
            self.reached(name, index, broker, epoch, number, offset)

    @rule(mirror=MIRROR_NAMES, back=st.integers(0, 3), offset=OFFSETS, late=st.sampled_from([0, 0, 1]))
    def all_leaders_reach(self, mirror: str, back: int, offset: int, late: int) -> None:
        """Report a new round, or one of the last, as all leaders.

        `late` ones report in the epoch in which they led before.
        """
        if not back:
            self.announce(mirror, offset, 0)
            back = 1
        number = self.rounds_of(mirror).next_number - back
        for name in self.of(mirror):
            for index in range(len(self.topics[name].parts)):
                now = self.cluster.partition(name, index)
                if now.leader >= 0 and number >= 0:
                    epoch = now.leader_epoch - late
                    self.reached(name, index, now.leader, epoch, number, offset + index)

    @rule(mirror=MIRROR_NAMES, kind=st.sampled_from([GAP, DIVERGED]), first=OFFSETS, more=OFFSETS)
    def all_leaders_stop_and_go_on(self, mirror: str, kind: FaultKind, first: int, more: int) -> None:
        if self.phases.get(mirror) is not ACTIVE:
            return
        for name in self.of(mirror):
            for index, part in enumerate(self.topics[name].parts):
                if self.cluster.partition(name, index).leader >= 0 and part.fault is None:
                    part.fault = (kind, first, first + more)
                    self.cluster.report(name, index, fault=kind, fault_first=first, fault_end=first + more)
        self.accept(mirror, None)

    def reached(self, name: str, index: int, broker: int, epoch: int, number: int, offset: int) -> None:
        topic, now = self.topics[name], self.cluster.partition(name, index)
        rounds = self.rounds_of(topic.mirror)
        self.cluster.reach(number, offset, name, index, broker=broker, leader_epoch=epoch)
        part = topic.parts[index]
        counts = (now.leader, now.leader_epoch) == (broker, epoch) and part.fault is None
        if not counts or self.phases.get(topic.mirror) is not ACTIVE or number not in rounds.cuts:
            return
        if number in part.reached:
            return
        part.reached[number] = offset
        whole = self.newest_whole(topic.mirror)
        for number in [number for number in rounds.cuts if whole is not None and number < whole]:
            del rounds.cuts[number]
            for other_part in self.parts_of(topic.mirror):
                other_part.reached.pop(number, None)

    @rule(mirror=MIRROR_NAMES)
    def promote_at_cut(self, mirror: str) -> None:
        phase, rounds, whole = self.phases.get(mirror), self.rounds_of(mirror), self.newest_whole(mirror)
        result = self.cluster.promote_at_cut(mirror)
        if phase is PROMOTED:
            assert bool(result.error_code) == (rounds.promoted_at is None)
            return
        assert bool(result.error_code) == (phase is None or whole is None)
        if whole is None or result.error_code:
            return
        assert (result.number, result.cut) == (whole, rounds.cuts[whole])
        self.phases[mirror], rounds.promoted_at = PROMOTED, whole
        self.next_commit_index = max(self.next_commit_index, result.cut + 1)
        for name in self.of(mirror):
            for index, part in enumerate(self.topics[name].parts):
                part.promoted_epoch = self.epoch(name, index)
                part.resumed = (part.promoted_epoch, part.reached[whole], EXACT)

    def teardown(self) -> None:
        """Check that a promotion goes by the newest round that all have reached, although some copies are ahead."""
        for mirror in sorted(self.phases):
            self.all_leaders_reach(mirror, 0, 30, 0)
            self.announce(mirror, 99, 0)
            number = self.rounds_of(mirror).next_number - 1
            for name in self.of(mirror)[:1]:
                now = self.cluster.partition(name, 0)
                if now.leader >= 0:
                    self.reached(name, 0, now.leader, now.leader_epoch, number, 60)
            self.promote_at_cut(mirror)
        self.agrees()

    # Invariants

    @rule()
    def restart_from_a_snapshot(self) -> None:
        before = list(self.cluster.machine.image.records())
        restored = self.cluster.restored()
        assert list(restored.image.records()) == before
        assert restored.image.mirrors == self.cluster.machine.image.mirrors
        assert restored.image.mirror_cuts == self.cluster.machine.image.mirror_cuts
        self.cluster.machine.adopt(restored)

    @invariant()
    def agrees(self) -> None:
        image = self.cluster.machine.image
        self.cluster.machine.check()
        assert {name: mirror.phase for name, mirror in image.mirrors.by_name.items()} == self.phases
        assert image.topics.keys() == self.topics.keys()
        assert image.transactions.next_commit_index == self.next_commit_index
        for mirror in self.phases:
            cuts, known_rounds = self.cluster.cuts(mirror), self.rounds_of(mirror)
            assert {
                mirror_round.number: mirror_round.cut for mirror_round in cuts.rounds
            } == known_rounds.cuts
            assert self.cluster.whole(mirror) == self.newest_whole(mirror)
        for name, topic in self.topics.items():
            state = image.topics[name]
            known = image.mirrors.topics.get(state.id)
            if topic.source_id is None:
                assert known is None
            else:
                assert known is not None
                assert (known.mirror, known.source_topic_id) == (topic.mirror, topic.source_id)
            assert self.cluster.is_copy(name) == (self.phases.get(topic.mirror, PROMOTED) is not PROMOTED)
            config = image.configs.get((ResourceType.TOPIC, name), {})
            assert config.get("retention.ms") == topic.retention
            assert sorted(state.partitions) == list(range(len(topic.parts)))
            for index, part in enumerate(topic.parts):
                self.agrees_about(name, index, part)

    def agrees_about(self, name: str, index: int, part: Part) -> None:
        copy, state = self.cluster.copy(name, index), self.cluster.partition(name, index)
        fault = None if copy.fault is None else (copy.fault.kind, copy.fault.first, copy.fault.end)
        resumed = None if copy.resumption is None else astuple(copy.resumption)
        known = (list(copy.lineage), fault, resumed, copy.promoted_epoch)
        assert known == (part.lineage, part.fault, part.resumed, part.promoted_epoch)
        reached = self.cluster.cuts(self.topics[name].mirror).reached
        assert dict(reached.get((self.cluster.topic_id(name), index), ())) == part.reached
        assert max(copy.promoted_epoch, resumed[0] if resumed else NO_EPOCH) <= state.leader_epoch
        if state.leader >= 0:
            self.leaders.add((name, index, state.leader, state.leader_epoch))


TestMirrors = MirrorModel.TestCase
TestMirrors.settings = settings(max_examples=80, stateful_step_count=40)
