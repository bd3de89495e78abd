"""Random commands: invariants hold, two replicas agree, and a snapshot loses nothing."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata_quorum.state.machine import ControllerMachine, new_machine
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.quorum_session import CommandStatus

IDS = st.integers(1, 4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["start", "crash", "unfence", "fence", "stop", "create", "shrink", "snapshot", "junk"]
        ),
        IDS,
        st.integers(1, 4),
        st.binary(max_size=30),
    ),
    max_size=60,
)


def command_of(machine: ControllerMachine, step: tuple[str, int, int, bytes], turn: int) -> bytes:
    kind, broker_id, number, junk = step
    broker = machine.image.brokers.get(broker_id)
    epoch = broker.broker_epoch if broker else -1
    command: q.Command
    if kind == "junk":
        return junk
    if kind in ("start", "crash"):
        previous = epoch if kind == "start" else -1
        incarnation = turn.to_bytes(16, "big")
        command = q.RegisterBroker(
            broker_id=broker_id, incarnation=incarnation, previous_broker_epoch=previous
        )
    elif kind == "unfence":
        command = q.UnfenceBroker(broker_id=broker_id, broker_epoch=epoch)
    elif kind == "fence":
        command = q.FenceBroker(broker_id=broker_id, broker_epoch=epoch)
    elif kind == "stop":
        command = q.BeginControlledShutdown(broker_id=broker_id, broker_epoch=epoch)
    elif kind == "create":
        config = q.NewTopicConfig(name="min.insync.replicas", value=str(broker_id))
        topic = q.NewTopic(name=f"t{number}", num_partitions=2, replication_factor=number, configs=[config])
        command = q.CreateTopics(topics=[topic], seed=turn)
    else:
        changes = [
            q.AlterPartitionChange(
                topic_id=topic.id,
                partition=index,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                new_isr=[q.IsrMember(broker_id=member) for member in state.replicas[:number]],
            )
            for topic in machine.image.topics.values()
            for index, state in topic.partitions.items()
        ]
        command = q.AlterPartition(broker_id=broker_id, broker_epoch=epoch, partitions=changes)
    return q.encode_command(None, command)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_invariants_agreement_and_snapshots(steps: list[tuple[str, int, int, bytes]]) -> None:
    one, other = new_machine(), new_machine()
    for turn, step in enumerate(steps):
        if step[0] == "snapshot":
            restored = new_machine()
            restored.restore(list(other.snapshot()))
            other = restored
            continue
        before = {t.id: dict(t.partitions) for t in one.image.topics.values()}
        encoded = command_of(one, step, turn)
        applied = one.apply(turn, 1, encoded)
        assert other.apply(turn, 1, encoded) == applied
        assert list(other.image.records()) == list(one.image.records())
        one.image.check()
        for topic in one.image.topics.values():
            for index, new in topic.partitions.items():
                old = before.get(topic.id, {}).get(index)
                if old is None or new == old:
                    continue
                assert new.partition_epoch == old.partition_epoch + 1
                assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader)
                if new.leader not in (-1, old.leader) and not new.unclean:
                    assert new.leader in old.isr + old.elr
                assert new.isr or new.elr or new.last_known_elr
                assert replace(new, replicas=old.replicas) == new


def test_a_session_applies_each_command_once() -> None:
    machine = new_machine()
    register = q.RegisterBroker(broker_id=1, incarnation=b"i" * 16)
    first = machine.apply(1, 1, q.encode_command(None, register))
    assert machine.apply(2, 1, q.encode_command(None, register)).result == first.result
    epoch = machine.image.brokers[1].broker_epoch
    ask = q.AllocateProducerIds(broker_id=1, broker_epoch=epoch)
    once = machine.apply(3, 1, q.encode_command((1, epoch, 1), ask))
    again = machine.apply(4, 1, q.encode_command((1, epoch, 1), ask))
    assert (again.result, again.metadata_offset, again.records) == (once.result, once.metadata_offset, ())
    ahead = machine.apply(5, 1, q.encode_command((1, epoch, 3), ask))
    assert ahead.status is CommandStatus.OUT_OF_ORDER
    stale = machine.apply(6, 1, q.encode_command((1, epoch + 1, 2), ask))
    assert stale.status is CommandStatus.STALE_SESSION
    assert machine.image.next_producer_id == 1000
