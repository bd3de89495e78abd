"""Idempotent producers: the window compared with a model that keeps all accepted batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.log import ProducerStates
from ottla.dataplane.log.producers import producer_state
from ottla.dataplane.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.dataplane.log.producers.refused_batches import REFUSED_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import ControlRecord, ControlType, encode_control_batch
from ottla.protocol.records.record_batch import TRANSACTIONAL_FLAG, BatchHeader, parse_header
from tests.dataplane.log.batches import make_batch

_WRAP = 2**31


def test_producers_of_one_partition_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with the right to write may send each batch under another producer id."""
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 100)
    states = ProducerStates()
    transactional = parse_header(make_batch(1, producer=(7, 0, 0), attributes=TRANSACTIONAL_FLAG))
    states.record(transactional, 0, 0)
    for number in range(1, 1000):
        states.record(_header((1000 + number, 0, 0), 1), number, number)
        # One producer keeps writing.
        states.record(_header((8, 0, number - 1), 1), number, number)
        assert len(states) <= 100
    assert states.get(7) is not None, "its transaction is open"
    assert states.get(8) is not None
    assert states.get(1999) is not None
    assert states.get(1001) is None


def _header(producer: tuple[int, int, int], count: int) -> BatchHeader:
    return parse_header(make_batch(count, producer=producer))


def _end_transaction(states: ProducerStates, producer_id: int, epoch: int, offset: int) -> None:
    marker = ControlRecord(ControlType.COMMIT, 1, 1)
    batch = encode_control_batch(marker, timestamp_ms=0, producer_id=producer_id, producer_epoch=epoch)
    states.record_marker(parse_header(batch), marker, offset, 0)


@dataclass
class _Model:
    """Every accepted batch of every producer as (epoch, first sequence, last sequence, first offset)."""

    accepted: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)

    def judge(self, producer_id: int, epoch: int, first: int, last: int) -> int | str:
        history = self.accepted.get(producer_id, [])
        if not history:
            return "append"
        newest_epoch = history[-1][0]
        if epoch < newest_epoch:
            return "INVALID_PRODUCER_EPOCH"
        window = [batch for batch in history if batch[0] == newest_epoch][-5:]
        if epoch == newest_epoch:
            for _, known_first, known_last, offset in window:
                if (known_first, known_last) == (first, last):
                    return offset
            expected = (history[-1][2] + 1) % _WRAP
        else:
            expected = 0
        return "append" if first == expected else "OUT_OF_ORDER_SEQUENCE_NUMBER"


_attempt = st.tuples(
    st.integers(1, 2),  # producer id
    st.integers(0, 1),  # epoch above the lowest
    st.sampled_from(["next", "next", "next", "repeat", "gap", "zero"]),
    st.integers(1, 3),  # records
    st.integers(1, 7),  # how many batches back to repeat
)


@given(st.lists(_attempt, max_size=40), st.sampled_from([0, 5, _WRAP - 4]))
def test_against_the_model(attempts: list[tuple[int, int, str, int, int]], start: int) -> None:
    states, model, offset = ProducerStates(), _Model(), 0
    for producer_id, epoch, kind, count, back in attempts:
        history = model.accepted.setdefault(producer_id, [])
        first = (history[-1][2] + 1) % _WRAP if history else start
        if kind == "repeat" and len(history) >= back:
            epoch, first, last, _ = history[-back]
            count = (last - first) % _WRAP + 1
        elif kind == "gap":
            first = (first + 2) % _WRAP
        elif kind == "zero":
            first = 0
        last = (first + count - 1) % _WRAP
        verdict = model.judge(producer_id, epoch, first, last)
        header = _header((producer_id, epoch, first), count)
        if isinstance(verdict, int):
            original = states.original_of(header)
            assert original is not None
            assert original.first_offset == verdict
        elif verdict == "append":
            assert states.original_of(header) is None
            states.record(header, offset, now_ms=0)
            history.append((epoch, first, last, offset))
            offset += count
        else:
            with pytest.raises(KafkaError) as caught:
                states.original_of(header)
            assert caught.value.code is ErrorCode[verdict]


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().original_of(_header((9, 3, 77), 1)) is None


def test_batches_behind_one_that_was_refused_do_not_begin_an_unknown_producer() -> None:
    states = ProducerStates()
    states.will_come_again(_header((9, 3, 0), 18), ErrorCode.NOT_ENOUGH_REPLICAS)
    states.will_come_again(_header((9, 3, 18), 2), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError) as caught:
        states.original_of(_header((9, 3, 18), 2))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.original_of(_header((9, 4, 7), 1)) is None, "a new epoch drops refused batches"
    assert states.original_of(_header((9, 3, 0), 18)) is None
    states.record(_header((9, 3, 0), 18), 0, now_ms=0)
    assert states.original_of(_header((9, 3, 18), 2)) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_of_whom_only_a_marker_is_left_may_go_on_anywhere(*, restarted: bool) -> None:
    """A replica that restarted after deleted records has the marker that followed them (seed 8054)."""
    states = ProducerStates()
    _end_transaction(states, 9, 0, offset=12)
    if restarted:
        states = decode_snapshot(encode_snapshot(states))
    assert states.original_of(_header((9, 0, 3), 1)) is None
    assert states.original_of(_header((9, 0, 0), 1)) is None, "it may have written nothing before"
    states.record(_header((9, 0, 3), 1), 13, now_ms=0)
    with pytest.raises(KafkaError) as caught:
        states.original_of(_header((9, 0, 5), 1))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("restarted", [False, True])
def test_after_a_marker_that_raises_the_epoch_sequences_begin_at_0(*, restarted: bool) -> None:
    states = ProducerStates()
    states.record(_header((9, 0, 0), 3), 0, now_ms=0)
    _end_transaction(states, 9, 1, offset=3)
    if restarted:
        states = decode_snapshot(encode_snapshot(states))
    with pytest.raises(KafkaError) as caught:
        states.original_of(_header((9, 1, 1), 1))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.original_of(_header((9, 1, 0), 1)) is None


def _in_transaction(producer: tuple[int, int, int], count: int) -> BatchHeader:
    return parse_header(make_batch(count, producer=producer, attributes=TRANSACTIONAL_FLAG))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("next_is_open", [False, True])
def test_nothing_is_a_duplicate_of_a_batch_before_the_last_marker(
    *, restarted: bool, next_is_open: bool
) -> None:
    """A client that has aborted may give the sequence to another record, which is not in the log."""
    states = ProducerStates()
    states.record(_in_transaction((9, 0, 0), 3), 0, now_ms=0)
    states.record(_in_transaction((9, 0, 3), 1), 3, now_ms=0)
    assert states.original_of(_in_transaction((9, 0, 3), 1)) is not None, (
        "while its transaction is open it is one"
    )
    _end_transaction(states, 9, 0, offset=4)
    if next_is_open:
        states.record(_in_transaction((9, 0, 4), 2), 5, now_ms=0)
    if restarted:
        states = decode_snapshot(encode_snapshot(states))
    for first, count in ((0, 3), (3, 1)):
        with pytest.raises(KafkaError) as caught:
            states.original_of(_in_transaction((9, 0, first), count))
        assert caught.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    original = states.original_of(_in_transaction((9, 0, 4), 2))
    assert (original is None) is not next_is_open
    assert states.original_of(_in_transaction((9, 1, 0), 3)) is None, "under the next epoch it goes on"


def test_a_transaction_does_not_begin_with_sequences_of_the_one_before() -> None:
    """The client's next batch may have fewer or more records than the purged ones."""
    states = ProducerStates()
    states.record(_in_transaction((9, 0, 0), 3), 0, now_ms=0)
    _end_transaction(states, 9, 0, offset=3)
    for first, count in ((1, 1), (1, 2), (2, 5), (0, 1)):
        with pytest.raises(KafkaError) as caught:
            states.original_of(_in_transaction((9, 0, first), count))
        assert caught.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    with pytest.raises(KafkaError) as caught:
        states.original_of(_in_transaction((9, 0, 4), 1))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap is one"
    assert states.original_of(_in_transaction((9, 0, 3), 1)) is None


def test_a_batch_before_one_that_was_refused_begins_an_unknown_producer() -> None:
    """A client that changes to another leader may learn only there that an earlier batch was refused, too."""
    states = ProducerStates()
    states.will_come_again(_header((9, 3, 18), 2), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert states.original_of(_header((9, 3, 0), 18)) is None
    assert states.original_of(_header((9, 3, 2**31 - 18), 18)) is None, "sequences begin at 0 again"
    states.will_come_again(_header((9, 3, 0), 18), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError) as caught:
        states.original_of(_header((9, 3, 18), 2))
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert states.original_of(_header((9, 3, 0), 18)) is None


def test_batches_behind_one_that_was_refused_do_not_follow_a_marker_alone() -> None:
    states = ProducerStates()
    _end_transaction(states, 9, 0, offset=12)
    states.will_come_again(_header((9, 0, 3), 2), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError) as caught:
        states.original_of(_header((9, 0, 5), 1))
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert states.original_of(_header((9, 0, 3), 2)) is None
    states.record(_header((9, 0, 3), 2), 13, now_ms=0)
    assert states.original_of(_header((9, 0, 5), 1)) is None
    assert states.expire(1000, 1000) == 1
    assert states.original_of(_header((9, 0, 8), 1)) is None, "the refused batch has come"


def _code_of(states: ProducerStates, sequence: int, epoch: int = 3) -> ErrorCode | None:
    """Return the error for a batch with one record; None if it may be appended."""
    try:
        assert states.original_of(_header((9, epoch, sequence), 1)) is None
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize("start", [0, 5, _WRAP - 2])
def test_batches_behind_a_refused_one_get_its_error(start: int) -> None:
    """After OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka sends unanswered batches of other partitions under a new epoch."""
    states = ProducerStates()
    before, refused, *behind = ((start + number) % _WRAP for number in range(5))
    states.record(_header((9, 3, before), 1), 0, now_ms=0)
    for _ in range(2):
        states.will_come_again(_header((9, 3, refused), 1), ErrorCode.KAFKA_STORAGE_ERROR)
        for sequence in behind:
            assert _code_of(states, sequence) is ErrorCode.KAFKA_STORAGE_ERROR
    assert _code_of(states, refused) is None
    states.record(_header((9, 3, refused), 1), 1, now_ms=0)
    assert _code_of(states, behind[1]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the refused batch has come"
    assert _code_of(states, behind[0]) is None


def test_a_client_that_leaves_a_refused_batch_out_learns_of_the_gap() -> None:
    states = ProducerStates()
    states.record(_header((9, 3, 0), 1), 0, now_ms=0)
    states.will_come_again(_header((9, 3, 1), 1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert _code_of(states, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert _code_of(states, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code_of(states, 3) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_gap_that_begins_elsewhere_than_at_a_refused_batch_is_one() -> None:
    states = ProducerStates()
    states.record(_header((9, 3, 0), 1), 0, now_ms=0)
    states.will_come_again(_header((9, 3, 2), 1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert _code_of(states, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _code_of(states, 3, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.record(_header((9, 3, 1), 1), 1, now_ms=0)
    assert _code_of(states, 3) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "now the gap begins at the refused batch"
    states.record(_header((9, 4, 0), 1), 2, now_ms=0)
    assert _code_of(states, 3, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_nothing_but_its_transaction_while_one_is_open() -> None:
    states, in_transaction = ProducerStates(), (4, 0, 0)
    states.record(parse_header(make_batch(1, producer=in_transaction, attributes=TRANSACTIONAL_FLAG)), 0, 0)
    with pytest.raises(KafkaError, match="is in none") as caught:
        states.original_of(_header((4, 0, 1), 1))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    assert (
        states.original_of(parse_header(make_batch(1, producer=(4, 0, 1), attributes=TRANSACTIONAL_FLAG)))
        is None
    )


def test_refusals_of_many_unknown_producers_are_forgotten_oldest_first() -> None:
    states = ProducerStates()
    for producer_id in range(REFUSED_MAX + 1):
        states.will_come_again(_header((producer_id, 0, 0), 1), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert states.original_of(_header((0, 0, 1), 1)) is None
    with pytest.raises(KafkaError):
        states.original_of(_header((REFUSED_MAX, 0, 1), 1))


def test_expiry_spares_the_active_and_the_transactional() -> None:
    states = ProducerStates()
    states.record(_header((1, 0, 0), 1), 0, now_ms=0)
    states.record(_header((2, 0, 0), 1), 1, now_ms=900)
    states.record(parse_header(make_batch(attributes=0x10, producer=(3, 0, 0))), 2, now_ms=0)
    assert states.expire(1000, 1000) == 1
    assert {entry.producer_id for entry in states.entries()} == {2, 3}


def test_a_producer_with_the_id_of_one_of_the_source_has_none_of_its_batches() -> None:
    """Seed 3324 of the two clusters: a follower had seen both write before it led.

    The local producer's batch with the same sequence was taken for a retry, and acknowledged without being appended.
    """
    states = ProducerStates()
    for offset, sequence in ((0, 0), (1, 1), (2, 2)):
        states.record(_header((1, 0, sequence), 1), offset, now_ms=0)
    states.record(_header((1, 0, 0), 1), 3, now_ms=0)
    states.forget_copied(3)
    assert states.original_of(_header((1, 0, 1), 1)) is None
    original = states.original_of(_header((1, 0, 0), 1))
    assert original is not None
    assert original.last_offset == 3


def test_undoing_batches_gives_the_state_before() -> None:
    states = ProducerStates()
    for number in range(4):
        states.record(_header((1, 0, number * 10), 10), number * 10, now_ms=0)
    assert states.forget_from(20)
    assert states.original_of(_header((1, 0, 20), 10)) is None
    assert states.original_of(_header((1, 0, 10), 10)) is not None
    assert not states.forget_from(0), "with the whole window cut off, only the log knows"


@given(
    st.lists(
        st.tuples(st.integers(0, 2) | st.integers(0, 2**40), st.integers(0, 2), st.integers(0, 2**31 - 1)),
        max_size=30,
    )
)
def test_snapshot_keeps_the_windows_and_notices_damage(producers: list[tuple[int, int, int]]) -> None:
    states = ProducerStates()
    for offset, producer in enumerate(producers):
        states.record(_header(producer, 1), offset, now_ms=offset)
    data = encode_snapshot(states)
    loaded = decode_snapshot(data)
    assert {
        entry.producer_id: (entry.producer_epoch, entry.batches, entry.last_seen_ms)
        for entry in loaded.entries()
    } == {
        entry.producer_id: (entry.producer_epoch, entry.batches, entry.last_seen_ms)
        for entry in states.entries()
    }
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b"", b"\0\2" + data[2:]):
        with pytest.raises(ValueError, match=r"."):
            decode_snapshot(damaged)
