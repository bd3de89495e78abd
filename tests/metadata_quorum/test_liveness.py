"""Sessions by the leader's clock, and the datagrams that keep them alive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.liveness import (
    Expiry,
    ExpiryReason,
    Heartbeat,
    ProgressTable,
    ReplicaProgress,
    SessionTracker,
)
from ottla.protocol.session.liveness_datagrams import (
    Datagram,
    DatagramHeartbeat,
    DatagramSeal,
    HeartbeatAnswer,
    InvalidDatagram,
    Probe,
    ProbeAnswer,
    key_id_of,
)

A, B = b"a" * 16, b"b" * 16


def beat(
    broker_id: int = 1,
    epoch: int = 7,
    incarnation: bytes = A,
    offset: int = 0,
    loop_age_s: float = 0.0,
    counter: int | None = None,
    answered: int | None = None,
) -> Heartbeat:
    return Heartbeat(broker_id, epoch, incarnation, offset, loop_age_s, counter, answered)


def tracker() -> SessionTracker:
    sessions = SessionTracker(timeout_s=3.0)
    sessions.begin([(1, 7, A)], end_offset=0, now=100.0)
    return sessions


def test_a_new_leader_gives_every_broker_a_full_timeout() -> None:
    sessions = tracker()
    assert sessions.expired(103.0) == []
    assert sessions.expired(103.1) == [Expiry(1, 7, ExpiryReason.SILENT)]
    sessions.begin([(1, 7, A)], end_offset=0, now=200.0)
    assert sessions.expired(203.0) == []


def test_a_new_leader_suspects_a_broker_that_fell_silent_together_with_the_old_one() -> None:
    """Every node hears every broker, so the new leader need not hear the dead one first."""
    sessions = SessionTracker(timeout_s=3.0, suspicion_s=0.9)
    registered = [(1, 7, A), (2, 8, A)]
    for broker_id, epoch, incarnation in registered:
        sessions.register(broker_id, epoch, incarnation, 0, 100.0)
        assert sessions.heard(beat(broker_id, epoch), 0, 100.0)
    sessions.begin(registered, end_offset=0, now=101.0)
    assert sessions.heard(beat(2, 8), 0, 101.4)
    assert sessions.suspicions.turn({1, 2}, 101.5).new == (1,)


def test_a_process_that_starts_again_has_no_rhythm_yet() -> None:
    sessions = SessionTracker(timeout_s=3.0, suspicion_s=0.9)
    sessions.register(1, 7, A, 0, 100.0)
    for now in (100.0, 100.6):
        assert sessions.heard(beat(), 0, now)
    assert sessions.suspicions.patience_s(1) == pytest.approx(1.5)
    sessions.register(1, 8, B, 0, 101.0)
    assert sessions.suspicions.patience_s(1) == 0.9


def test_the_longest_silent_expires_first() -> None:
    """If all brokers are fenced the last one stays in the ISR: it should be the one most likely to be alive."""
    sessions = SessionTracker(timeout_s=3.0)
    sessions.begin([(1, 7, A), (2, 8, A), (3, 9, A)], end_offset=0, now=100.0)
    assert sessions.heard(beat(1, 7), 0, 100.4)
    assert sessions.heard(beat(3, 9), 0, 100.2)
    assert [expiry.broker_id for expiry in sessions.expired(104.0)] == [2, 3, 1]


def test_a_fresh_clock_is_no_sign_of_life() -> None:
    sessions = tracker()
    assert not sessions.is_live(1, 100.1)
    assert sessions.heard(beat(), 0, 100.1)
    assert sessions.is_live(1, 103.0)
    assert not sessions.is_live(1, 103.2)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 6)), max_size=30))
def test_a_session_lives_as_long_as_the_loop_turned_within_the_timeout(
    steps: list[tuple[float, float]],
) -> None:
    sessions = tracker()
    now = last_turn = 100.0
    for pause, loop_age in steps:
        now += pause
        sessions.heard(beat(loop_age_s=loop_age), 0, now)
        last_turn = max(last_turn, now - loop_age)
        assert (sessions.expired(now) != []) == (now - last_turn > 3.0)


def test_other_incarnations_epochs_and_replays_do_not_count() -> None:
    sessions = tracker()
    assert not sessions.heard(beat(incarnation=B), 0, 101.0)
    assert not sessions.heard(beat(epoch=6), 0, 101.0)
    assert not sessions.heard(beat(broker_id=2), 0, 101.0)
    assert sessions.heard(beat(counter=5), 0, 101.0)
    assert not sessions.heard(beat(counter=5), 0, 102.0)
    assert not sessions.heard(beat(counter=4), 0, 102.0)
    assert sessions.heard(beat(counter=6), 0, 102.0)


def test_counters_outlive_a_change_of_leader() -> None:
    sessions = tracker()
    assert sessions.heard(beat(counter=9), 0, 101.0)
    sessions.begin([(1, 7, A)], end_offset=0, now=110.0)
    assert not sessions.heard(beat(counter=9), 0, 111.0)


def test_a_new_registration_replaces_the_session() -> None:
    sessions = tracker()
    sessions.heard(beat(counter=50), 0, 101.0)
    sessions.register(1, 9, B, end_offset=3, now=102.0)
    assert not sessions.heard(beat(counter=51), 3, 102.5)
    assert sessions.heard(beat(epoch=9, incarnation=B, counter=1), 3, 102.5)


def test_an_image_that_lags_ends_the_session_and_catching_up_restores_it() -> None:
    sessions = tracker()
    for step in range(1, 92):
        now = 100.0 + step / 8
        sessions.heard(beat(offset=0), 5, now)
        lagging = sessions.expired(now) == [Expiry(1, 7, ExpiryReason.LAGGING)]
        assert lagging == (now - 100.0 > 10.0)
    sessions.heard(beat(offset=5), 5, 112.0)
    assert sessions.is_live(1, 112.0)


def test_a_broker_that_follows_a_moving_end_does_not_lag() -> None:
    sessions = tracker()
    for step in range(1, 400):
        sessions.heard(beat(offset=step * 10 - 3), step * 10, 100.0 + step / 10)
        assert sessions.expired(100.0 + step / 10) == []


def test_progress_of_the_asked_partitions_only() -> None:
    table = ProgressTable()
    older = ReplicaProgress(A, 0, 1, 3, 10)
    newer = ReplicaProgress(A, 0, 1, 3, 12)
    other = ReplicaProgress(B, 0, 2, 3, 9)
    for progress in (older, other, newer):
        table.note(progress)
    assert table.of([(A, 0), (A, 1)]) == [newer]
    table.forget([A])
    assert table.of([(A, 0), (B, 0)]) == [other]


DATAGRAMS = [
    DatagramHeartbeat(3, 2**40, A, 2**50, 17, 2**41, 0),
    DatagramHeartbeat(3, 2**40, A, 2**50, 17, 2**41, 2**50 - 1),
    HeartbeatAnswer(101, A, 2**50),
    Probe(B),
    ProbeAnswer(B),
]


def seals(key: bytes = b"s" * 32) -> tuple[DatagramSeal, DatagramSeal]:
    """Return the broker's end of a link, and the quorum node's."""
    return DatagramSeal(key, is_broker=True), DatagramSeal(key, is_broker=False)


@pytest.mark.parametrize("datagram", DATAGRAMS)
def test_datagrams_survive_the_trip_and_nothing_else_does(datagram: Datagram) -> None:
    sender, receiver = seals()
    data = sender.encode(datagram)
    assert A not in data
    assert B not in data
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(InvalidDatagram):
            receiver.decode(bytes(broken))
    for of_another_link in seals(b"t" * 32):
        with pytest.raises(InvalidDatagram):
            of_another_link.decode(data)
    with pytest.raises(InvalidDatagram):
        sender.decode(data)
    assert receiver.decode(data) == datagram


def test_a_datagram_that_comes_again_or_late_is_refused() -> None:
    sender, receiver = seals()
    first, second, third = (sender.encode(Probe(B)) for _ in range(3))
    receiver.decode(first)
    with pytest.raises(InvalidDatagram, match="later"):
        receiver.decode(first)
    receiver.decode(third)
    with pytest.raises(InvalidDatagram, match="later"):
        receiver.decode(second)


def test_both_ends_know_which_key_a_datagram_needs() -> None:
    sender, receiver = seals()
    assert sender.key_id == receiver.key_id == key_id_of(sender.encode(Probe(B)))
    assert seals(b"t" * 32)[0].key_id != sender.key_id
    assert key_id_of(b"OtL2") is None
    assert key_id_of(bytes(100)) is None


def test_no_answer_is_longer_than_what_it_answers() -> None:
    sender, receiver = seals()
    heartbeat = sender.encode(DatagramHeartbeat(3, 4, A, 5, 6, 7, 0))
    assert len(receiver.encode(HeartbeatAnswer(101, A, 7))) <= len(heartbeat)
    assert len(sender.encode(ProbeAnswer(B))) <= len(receiver.encode(Probe(B)))


@given(st.binary(max_size=100), st.booleans())
def test_garbage_is_no_datagram(data: bytes, is_addressed: bool) -> None:
    sender, receiver = seals()
    if is_addressed:
        data = sender.encode(Probe(B))[:20] + data
    with pytest.raises(InvalidDatagram):
        receiver.decode(data)
