"""The order that the simulated Java producer leaves to the cluster."""

from __future__ import annotations

from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode
from tests.histories.operations import ALL_IN_SYNC, Send
from tests.simulation.cluster.java_sequences import Batch, JavaSequences

PLACE = TopicPartition("t", 0)
FORMER, LEADER = 1, 2


def _sequences(count: int) -> JavaSequences:
    sequences = JavaSequences([PLACE])
    for number in range(count):
        send = Send("p", "p", *PLACE, b"v%d" % number, ALL_IN_SYNC, True, number, number)
        sequences.partitions[PLACE].queue.append(Batch([send], number, 0))
    return sequences


def _sent(sequences: JavaSequences, broker: int) -> Batch:
    batch = sequences.next_batch(PLACE)
    assert batch is not None
    sequences.sent(PLACE, batch, broker)
    return batch


def _keep_order(*batches: Batch) -> list[bool]:
    return [send.keeps_order for batch in batches for send in batch.sends]


def test_first_batches_under_way_to_a_former_leader_may_be_overtaken() -> None:
    sequences = _sequences(4)
    first, second = _sent(sequences, FORMER), _sent(sequences, FORMER)
    third = _sent(sequences, LEADER)
    assert _keep_order(first, second, third) == [False, False, True]
    assert _keep_order(_sent(sequences, LEADER), third) == [True, True]


def test_batches_to_one_broker_keep_their_order() -> None:
    sequences = _sequences(3)
    assert _keep_order(*(_sent(sequences, LEADER) for _ in range(3))) == [True] * 3


def test_a_batch_that_is_sent_again_first_keeps_its_order() -> None:
    sequences = _sequences(2)
    first = _sent(sequences, FORMER)
    assert first.number is not None
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert sequences.is_tried_again(PLACE, first, first.number, code, expired=False)
    assert _sent(sequences, LEADER) is first
    assert _keep_order(first, _sent(sequences, LEADER)) == [True, True]


def test_batches_after_an_acknowledged_batch_keep_their_order() -> None:
    """The new leader has that batch, so it refuses a gap."""
    sequences = _sequences(3)
    sequences.acknowledged(PLACE, _sent(sequences, FORMER))
    second = _sent(sequences, FORMER)
    assert _keep_order(second, _sent(sequences, LEADER)) == [True, True]
