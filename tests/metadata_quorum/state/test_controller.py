"""Random histories of commands, with checks after each.

The checks cover the image's invariants, and rising epochs. A clean election takes only replicas with every acknowledged
record, whichever followers lag. A comparison of the last known members loses no record that one of them has. Commands
take effect exactly once despite repeated, missing and outdated ones. Replicas, restored snapshots and followers of the
records agree.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata_quorum.state.controller import DECODED_MAX, Applied, Controller
from ottla.metadata_quorum.state.election import Electorate, LeavingBroker
from ottla.metadata_quorum.state.workspace import Workspace
from ottla.protocol.cluster.cluster_image import ClusterImage, PartitionState
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.cluster.partition_change import PartitionChange
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.broker_commands import (
    AllocateProducerIds,
    AllocateProducerIdsResult,
    BeginControlledShutdown,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.protocol.messages.command import Command
from ottla.protocol.messages.config_commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from ottla.protocol.messages.metadata_records import decode_record, encode_record
from ottla.protocol.messages.partition_commands import (
    AlterPartition,
    AlterPartitionChange,
    ElectLastKnown,
    ElectLeaders,
    IsrMember,
    ReplicaLogEnd,
)
from ottla.protocol.messages.quorum_session import CommandStatus
from ottla.protocol.messages.topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    NewTopicConfig,
)

from .harness import ControllerWithBrokers

BROKERS = (1, 2, 3, 4)
KINDS = (
    *("start", "crash", "unfence", "unfence", "unfence", "fence", "stop", "unregister"),
    *("create", "create", "delete", "grow", "config", "config", "config"),
    *("shrink", "expand", "expand", "write", "write", "elect", "compare", "compare"),
    *("ids", "repeat", "gap", "stale", "snapshot", "junk"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(BROKERS), st.integers(1, 4), st.binary(max_size=12)),
    max_size=40,
)

Key = tuple[bytes, int]


@contextmanager
def decided_one_by_one() -> Iterator[None]:
    """Disable the grouping of equal partitions and topics."""

    def after(self: LeavingBroker, state: PartitionState, *known: Any) -> PartitionState:
        return self._leave(state, self._broker_id, *known)

    def electorate(work: Workspace, topic_id: bytes) -> Electorate:
        name = work.image.topics_by_id[topic_id].name
        return Electorate(
            frozenset(broker.broker_id for broker in work.image.brokers.values() if broker.usable),
            int(work.topic_config(name, "min.insync.replicas")),
            work.topic_config(name, "unclean.leader.election.enable") == "true",
        )

    with patch.object(LeavingBroker, "after", after), patch.object(Workspace, "electorate", electorate):
        yield


class History:
    """Two machines with the same commands, a follower of their records, and the answers of clients."""

    def __init__(self) -> None:
        self.machine, self.other = Controller(), Controller()
        self.followed = ClusterImage()
        self.turn = 0
        self.submitted: dict[tuple[int, int], list[tuple[bytes, Applied]]] = {}
        self.blocks: list[int] = []
        #: the replicas of each partition that hold every record acknowledged to a client with acks=all
        self.complete: dict[Key, set[int]] = {}
        #: likewise, counting those that stopped uncleanly and lost nothing
        self.survived: dict[Key, set[int]] = {}
        self.operator_elects = False
        self.compared = 0
        self.broker_epochs: dict[int, int] = {}

    @property
    def image(self) -> ClusterImage:
        return self.machine.image

    def epoch(self, broker_id: int) -> int:
        broker = self.image.brokers.get(broker_id)
        return broker.broker_epoch if broker else -1

    def partitions(self) -> dict[Key, PartitionState]:
        return {
            (topic.id, index): state
            for topic in self.image.topics.values()
            for index, state in topic.partitions.items()
        }

    def apply(self, encoded: bytes) -> Applied:
        """Apply one command to both machines, with every check."""
        self.turn += 1
        before, old_brokers = self.partitions(), dict(self.image.brokers)
        applied = self.machine.apply(self.turn, 1, encoded)
        with decided_one_by_one():
            assert self.other.apply(self.turn, 1, encoded) == applied
        self.machine.check()
        assert applied.metadata_offset <= self.image.offset
        delta, untouched = ImageDelta(), self.followed.offset
        for (_, change), (_, record) in zip(applied.changes, applied.records, strict=True):
            encoded_record = encode_record(record)
            assert decode_record(encoded_record) == record
            assert not isinstance(change, PartitionChange) or change.encoded() == encoded_record
            self.followed.apply(decode_record(encoded_record))
            delta.note(record)
        assert self.followed.offset == self.image.offset == untouched + len(applied.changes)
        assert list(self.followed.records()) == list(self.image.records())
        after = self.partitions()
        changed = {key for key in after if before.get(key) != after[key]}
        assert changed <= delta.partitions
        assert {*old_brokers} ^ {*self.image.brokers} <= delta.brokers
        for key in changed & before.keys():
            self.check_change(key, before[key], after[key])
        for key in changed - before.keys():
            self.complete[key] = set(after[key].replicas)
            self.survived[key] = set(after[key].replicas)
        self.check_brokers()
        return applied

    def check_change(self, key: Key, old: PartitionState, new: PartitionState) -> None:
        assert new.replicas == old.replicas
        assert new.partition_epoch > old.partition_epoch
        assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader) or (
            new.leader_epoch > old.leader_epoch and new.partition_epoch > old.partition_epoch + 1
        )
        assert new.isr or new.elr or new.last_known_elr
        if new.leader < 0 or new.leader_epoch == old.leader_epoch:
            return
        if new.unclean:
            compared = len(old.last_known_elr) > 1 and not self.is_unclean_allowed(key[0])
            if compared and self.survived[key].intersection(old.last_known_elr):
                assert new.leader in self.survived[key], (old, new, self.survived[key])
                self.compared += 1
            self.complete[key] = {new.leader}
            self.survived[key] = {new.leader}
        else:
            assert new.leader in self.complete[key], (old, new, self.complete[key])

    def check_brokers(self) -> None:
        for broker_id, broker in self.image.brokers.items():
            assert broker.broker_epoch >= self.broker_epochs.get(broker_id, 0)
            self.broker_epochs[broker_id] = broker.broker_epoch

    def own(self, command: Command[Any]) -> Applied:
        return self.apply(q.encode_command(None, command))

    def submit(self, broker_id: int, command: Command[Any]) -> Applied | None:
        """Return the result of the broker's next command; None if it has no session."""
        session = (broker_id, self.epoch(broker_id))
        if session[1] < 0:
            return None
        done = self.submitted.setdefault(session, [])
        encoded = q.encode_command((*session, len(done) + 1), command)
        applied = self.apply(encoded)
        assert applied.status is CommandStatus.APPLIED
        done.append((encoded, applied))
        return applied

    def step(self, kind: str, broker_id: int, number: int, junk: bytes) -> None:
        getattr(self, f"step_{kind}")(broker_id, number, junk)

    # ---------------------------------------------------------------- brokers come and go

    def step_start(self, broker_id: int, number: int, junk: bytes, *, clean: bool = True) -> None:
        incarnation = self.turn.to_bytes(16, "big")
        if not clean:
            self.lose(broker_id, everything=number % 2 == 0)
        command = RegisterBroker(
            broker_id=broker_id,
            incarnation=incarnation,
            previous_broker_epoch=self.epoch(broker_id) if clean else -1,
        )
        self.own(command)
        assert self.image.brokers[broker_id].fenced
        assert self.own(command).records == ()

    def lose(self, broker_id: int, *, everything: bool) -> None:
        """Note that the broker may have lost acknowledged records; a sole survivor still counts as complete."""
        for holders in [*self.complete.values(), *(self.survived.values() if everything else [])]:
            holders.discard(broker_id)

    def step_crash(self, broker_id: int, number: int, junk: bytes) -> None:
        self.step_start(broker_id, number, junk, clean=False)

    def step_unfence(self, broker_id: int, number: int, junk: bytes) -> None:
        self.own(UnfenceBroker(broker_id=broker_id, broker_epoch=self.epoch(broker_id)))

    def told(self, number: int) -> list[ReplicaLogEnd]:
        return [
            ReplicaLogEnd(
                topic_id=topic_id,
                partition=index,
                broker_id=broker_id,
                leader_epoch=state.leader_epoch,
                log_end_offset=broker_id * number % 5,
            )
            for (topic_id, index), state in self.partitions().items()
            for broker_id in state.replicas
        ]

    def step_fence(self, broker_id: int, number: int, junk: bytes) -> None:
        epoch = self.epoch(broker_id)
        self.own(FenceBroker(broker_id=broker_id, broker_epoch=epoch, progress=self.told(number)))
        for state in self.partitions().values():
            assert state.leader != broker_id

    def step_stop(self, broker_id: int, number: int, junk: bytes) -> None:
        epoch = self.epoch(broker_id)
        self.own(BeginControlledShutdown(broker_id=broker_id, broker_epoch=epoch, progress=self.told(number)))
        for state in self.partitions().values():
            assert state.leader != broker_id

    def step_unregister(self, broker_id: int, number: int, junk: bytes) -> None:
        self.own(UnregisterBroker(broker_id=broker_id))
        assert broker_id not in self.image.brokers

    # ---------------------------------------------------------------- topics and settings

    def step_create(self, broker_id: int, number: int, junk: bytes) -> None:
        configs = [NewTopicConfig(name="min.insync.replicas", value=str(number))]
        topic = NewTopic(
            name=f"t{broker_id}", num_partitions=2, replication_factor=max(number, 2), configs=configs
        )
        self.submit(broker_id, CreateTopics(topics=[topic], seed=self.turn))

    def step_delete(self, broker_id: int, number: int, junk: bytes) -> None:
        self.submit(broker_id, DeleteTopics(names=[f"t{number}"]))
        for key in self.complete.keys() - self.partitions().keys():
            del self.complete[key], self.survived[key]

    def step_grow(self, broker_id: int, number: int, junk: bytes) -> None:
        wanted = MorePartitions(name=f"t{number}", count=3)
        self.submit(broker_id, CreatePartitions(topics=[wanted], seed=self.turn))

    def step_config(self, broker_id: int, number: int, junk: bytes) -> None:
        key = "unclean.leader.election.enable" if number == 4 else "min.insync.replicas"
        value = ("true" if len(junk) % 2 else "false") if number == 4 else str(1 + len(junk) % 3)
        operation = ConfigOperation.DELETE if len(junk) % 5 == 4 else ConfigOperation.SET
        resources = [
            ConfigResource(resource_type=kind, resource_name=name, changes=[change])
            for kind, name in ((2, f"t{number}"), (4, ""))
            for change in [ConfigChange(name=key, operation=operation, value=value)]
        ]
        self.submit(broker_id, AlterConfigs(resources=resources[:1] if len(junk) % 4 else resources[1:]))

    # ---------------------------------------------------------------- replication

    def min_isr(self, topic_id: bytes) -> int:
        return int(self.config(topic_id, "min.insync.replicas", "1"))

    def is_unclean_allowed(self, topic_id: bytes) -> bool:
        allowed = self.config(topic_id, "unclean.leader.election.enable", "false") == "true"
        return allowed or self.operator_elects

    def config(self, topic_id: bytes, key: str, default: str) -> str:
        name = self.image.topics_by_id[topic_id].name
        cluster = self.image.configs.get((4, ""), {}).get(key, default)
        return self.image.configs.get((2, name), {}).get(key, cluster)

    def step_write(self, broker_id: int, number: int, junk: bytes) -> None:
        """Acknowledge in every partition of this leader that may, with all replicas outside the ISR lagging."""
        for key, state in self.partitions().items():
            if state.leader == broker_id and len(state.isr) >= self.min_isr(key[0]):
                assert not state.elr
                assert not state.last_known_elr
                self.complete[key] = set(state.isr)
                self.survived[key] = set(state.isr)

    def step_shrink(self, broker_id: int, number: int, junk: bytes, *, expand: bool = False) -> None:
        changes = []
        for (topic_id, index), state in self.partitions().items():
            if state.leader != broker_id:
                continue
            members = {*(state.replicas if expand else state.isr)} - ({number} - {broker_id})
            changes.append(
                AlterPartitionChange(
                    topic_id=topic_id,
                    partition=index,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch,
                    new_isr=[IsrMember(broker_id=member) for member in sorted(members)],
                )
            )
        epoch = self.epoch(broker_id)
        self.submit(broker_id, AlterPartition(broker_id=broker_id, broker_epoch=epoch, partitions=changes))
        for key, state in self.partitions().items():
            if state.leader == broker_id:
                self.complete[key] |= set(state.isr)
                self.survived[key] |= set(state.isr)

    def step_expand(self, broker_id: int, number: int, junk: bytes) -> None:
        """Expand the ISR by members that have caught up with their leader."""
        self.step_shrink(broker_id, number, junk, expand=True)

    def step_elect(self, broker_id: int, number: int, junk: bytes) -> None:
        self.operator_elects = True
        self.own(ElectLeaders(election_type=number % 2, progress=self.told(number)))
        self.operator_elects = False

    def step_compare(self, broker_id: int, number: int, junk: bytes) -> None:
        """Compare log ends of the reporting brokers; replicas with every acknowledged record are
        ahead of the others.
        """
        ends = [
            ReplicaLogEnd(
                topic_id=key[0],
                partition=key[1],
                broker_id=replica,
                leader_epoch=1,
                log_end_offset=10 if replica in self.survived[key] else replica * number % 5,
                broker_epoch=self.epoch(replica),
            )
            for key, state in self.partitions().items()
            for replica in state.replicas
            if replica * number % 7 != len(junk) and replica in self.image.brokers
        ]
        self.own(ElectLastKnown(progress=ends))

    # ---------------------------------------------------------------- sessions

    def step_ids(self, broker_id: int, number: int, junk: bytes) -> None:
        ask = AllocateProducerIds(broker_id=broker_id, broker_epoch=self.epoch(broker_id))
        applied = self.submit(broker_id, ask)
        if applied is not None:
            block = q.decode_result(ask, applied.result)
            assert isinstance(block, AllocateProducerIdsResult)
            self.blocks.append(block.first)
            assert self.blocks == [1000 * n for n in range(len(self.blocks))]

    def step_repeat(self, broker_id: int, number: int, junk: bytes) -> None:
        for encoded, first in self.submitted.get((broker_id, self.epoch(broker_id)), [])[-number:]:
            again = self.apply(encoded)
            assert (again.status, again.result) == (CommandStatus.APPLIED, first.result)
            assert (again.metadata_offset, again.records) == (first.metadata_offset, ())

    def step_gap(self, broker_id: int, number: int, junk: bytes) -> None:
        session = (broker_id, self.epoch(broker_id))
        sequence = len(self.submitted.get(session, [])) + 1 + number
        applied = self.apply(q.encode_command((*session, sequence), UnregisterBroker(broker_id=broker_id)))
        expected = CommandStatus.OUT_OF_ORDER if session[1] >= 0 else CommandStatus.STALE_SESSION
        assert (applied.status, applied.records) == (expected, ())

    def step_stale(self, broker_id: int, number: int, junk: bytes) -> None:
        """Apply commands of replaced sessions, which a slow network may deliver late."""
        for (owner, epoch), commands in self.submitted.items():
            if epoch != self.epoch(owner) and commands:
                applied = self.apply(commands[-1][0])
                assert (applied.status, applied.records) == (CommandStatus.STALE_SESSION, ())

    def step_snapshot(self, broker_id: int, number: int, junk: bytes) -> None:
        restored = Controller()
        restored.restore(list(self.other.snapshot()))
        assert list(restored.snapshot()) == list(self.machine.snapshot())
        assert restored.image.offset == self.image.offset
        delta = ImageDelta.between(restored.image, self.image)
        assert delta == ImageDelta()
        self.other = restored

    def step_junk(self, broker_id: int, number: int, junk: bytes) -> None:
        applied = self.apply(bytes([number]) + junk)
        assert applied.status in (CommandStatus.INVALID, CommandStatus.STALE_SESSION, CommandStatus.APPLIED)


def started() -> History:
    history = History()
    for broker_id in BROKERS[:3]:
        history.step_start(broker_id, 1, b"")
        history.step_unfence(broker_id, 1, b"")
    return history


@settings(max_examples=100)
@given(STEPS)
def test_short_histories(steps: list[tuple[str, int, int, bytes]]) -> None:
    history = started()
    for step in steps:
        history.step(*step)
    history.step_snapshot(1, 1, b"")


@pytest.mark.parametrize("seed", range(30))
def test_long_histories(seed: int) -> None:
    rng = random.Random(seed)
    history = started()
    for _ in range(400):
        kind, broker_id = rng.choice(KINDS), rng.choice(BROKERS)
        history.step(kind, broker_id, rng.randint(1, 4), rng.randbytes(rng.randrange(12)))


CRASHES = ("crash", "fence", "unfence", "unfence", "unfence", "compare", "compare", "write", "expand")


@pytest.mark.parametrize("seed", range(10))
def test_long_histories_of_crashes(seed: int) -> None:
    """Brokers stop uncleanly one after the other, with and without losses, and come back."""
    rng = random.Random(seed)
    history = started()
    history.step_create(3, 3, b"")
    history.step_config(1, 3, b"2")
    assert {history.min_isr(topic_id) for topic_id, _ in history.partitions()} == {2}
    for _ in range(1500):
        history.step(
            rng.choice(CRASHES), rng.choice(BROKERS[:3]), rng.randint(1, 4), rng.randbytes(rng.randrange(7))
        )
    assert history.compared > 0


def test_a_command_is_applied_in_its_decoded_form() -> None:
    cluster = ControllerWithBrokers(1)
    command = q.encode_command(None, FenceBroker(broker_id=1, broker_epoch=cluster.epoch(1)))
    other = FenceBroker(broker_id=9, broker_epoch=0)
    cluster.machine.keep_decoded(command, (None, other))
    cluster.machine.apply(1, 1, command)
    assert not cluster.machine.image.brokers[1].fenced, "the one that was decoded is another"
    cluster.machine.apply(2, 1, command)
    assert cluster.machine.image.brokers[1].fenced, "it is taken once"


def test_decoded_commands_that_are_never_applied_are_dropped() -> None:
    cluster = ControllerWithBrokers(1)
    fence = FenceBroker(broker_id=1, broker_epoch=cluster.epoch(1))
    for number in range(DECODED_MAX + 1):
        cluster.machine.keep_decoded(b"%d" % number, (None, fence))
    assert cluster.machine.apply(1, 1, b"0").status is CommandStatus.INVALID
    assert not cluster.machine.image.brokers[1].fenced
