"""Snapshots of any size in bounded chunks, and sessions whose results are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.raft.machine import MAX_CHUNK_BYTES
from ottla.metadata_quorum.state import sessions
from ottla.metadata_quorum.state.controller import Controller
from ottla.metadata_quorum.state.snapshot import cut, joined
from ottla.protocol.cluster.cluster_image import ImageInconsistent
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages.broker_commands import (
    AllocateProducerIds,
    RegisterBroker,
    RegisterBrokerResult,
    UnregisterBroker,
)
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.metadata_records import BrokerListener
from ottla.protocol.messages.quorum_session import CommandStatus
from ottla.protocol.messages.topic_commands import CreateTopics, NewTopic
from tests.counted_calls import counted_calls

from .harness import ControllerWithBrokers, topic


@given(st.lists(st.binary(max_size=50)), st.integers(1, 40), st.data())
def test_items_survive_any_cut(items: list[bytes], chunk_bytes: int, data: st.DataObject) -> None:
    chunks = list(cut(items, chunk_bytes))
    assert all(len(chunk) == chunk_bytes for chunk in chunks[:-1])
    assert list(joined(chunks)) == items
    stream = b"".join(chunks)
    borders = data.draw(st.lists(st.integers(0, len(stream)), max_size=5).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *borders], [*borders, len(stream)], strict=True)]
    assert list(joined(pieces)) == items
    if stream:
        with pytest.raises(ImageInconsistent, match="ends within an item"):
            list(joined([stream[:-1]]))


def test_a_stream_that_claims_a_huge_item_is_refused() -> None:
    with pytest.raises(ImageInconsistent, match="claims 4294967295 bytes"):
        list(joined([b"\xff" * 4]))


def test_records_and_results_larger_than_a_chunk_travel_too() -> None:
    cluster = ControllerWithBrokers(1)
    listeners = [BrokerListener(name="n" * 30_000) for _ in range(20)]
    register = RegisterBroker(broker_id=2, incarnation=b"i" * 16, listeners=listeners)
    cluster.do(register, RegisterBrokerResult)
    names = ["x" * 249 + "!"] * 3000
    ask = CreateTopics(topics=[NewTopic(name=name) for name in names])
    session = q.Session(1, cluster.epoch(1), 1)
    first = cluster.apply(ask, session)
    assert len(first.result) > MAX_CHUNK_BYTES
    chunks = list(cluster.machine.snapshot())
    assert max(map(len, chunks)) <= MAX_CHUNK_BYTES
    restored = Controller()
    restored.restore(chunks)
    assert list(restored.image.records()) == list(cluster.machine.image.records())
    again = restored.apply(9, 1, q.encode_command(session, ask))
    assert (again.status, again.result, again.records) == (CommandStatus.APPLIED, first.result, ())
    for end in (1000, 60_000):
        with pytest.raises(ImageInconsistent, match="ends within"):
            Controller().restore([chunks[0][:end]])
    (head, *_) = joined(chunks)
    with pytest.raises(ImageInconsistent, match="ends within its records, after 0"):
        Controller().restore(cut([head]))


def test_a_large_state_is_handed_out_in_slices() -> None:
    cluster = ControllerWithBrokers(3)
    for number in range(3):
        cluster.create(topic(f"t{number}", 10_000, 3))
    sizes, most = [], 0
    chunks = cluster.machine.snapshot()
    while True:
        with counted_calls() as calls:
            chunk = next(chunks, None)
        most = max(most, calls.count)
        if chunk is None:
            break
        sizes.append(len(chunk))
    assert sum(sizes) > 1_500_000
    assert set(sizes[:-1]) == {MAX_CHUNK_BYTES}
    assert most < 200_000


def test_results_that_were_acknowledged_are_forgotten() -> None:
    cluster = ControllerWithBrokers(1)
    epoch = cluster.epoch(1)
    ask = AllocateProducerIds(broker_id=1, broker_epoch=epoch)
    for sequence in range(1, 11):
        cluster.apply(ask, q.Session(1, epoch, sequence, acknowledged=max(0, sequence - 3)))
    assert cluster.apply(ask, q.Session(1, epoch, 8)).status is CommandStatus.APPLIED
    assert cluster.apply(ask, q.Session(1, epoch, 7)).status is CommandStatus.INVALID
    assert cluster.machine.image.next_producer_id == 10_000


def test_a_broker_that_acknowledges_nothing_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT_BYTES_MAX", 5000)
    cluster = ControllerWithBrokers(1)
    epoch = cluster.epoch(1)
    ask = AllocateProducerIds(broker_id=1, broker_epoch=epoch)
    for sequence in range(1, sessions.KEPT_RESULTS_MAX + 50):
        cluster.apply(ask, q.Session(1, epoch, sequence))
    (session,) = cluster.machine._sessions.sessions.values()
    assert session.kept_bytes == sum(len(result) for _, result in session.kept.values()) <= 5000
    last = sessions.KEPT_RESULTS_MAX + 49
    assert cluster.apply(ask, q.Session(1, epoch, last)).status is CommandStatus.APPLIED
    monkeypatch.setattr(sessions, "KEPT_BYTES_MAX", 1)
    cluster.apply(ask, q.Session(1, epoch, last + 1))
    assert list(session.kept) == [last + 1]


def test_a_new_registration_ends_the_session_of_the_one_before() -> None:
    cluster = ControllerWithBrokers(1)
    old = cluster.epoch(1)
    ask = AllocateProducerIds(broker_id=1, broker_epoch=old)
    assert cluster.apply(ask, q.Session(1, old, 1)).status is CommandStatus.APPLIED
    cluster.start(1)
    assert cluster.epoch(1) > old
    assert cluster.apply(ask, q.Session(1, old, 2)).status is CommandStatus.STALE_SESSION
    assert cluster.apply(ask, q.Session(1, cluster.epoch(1), 1)).status is CommandStatus.APPLIED
    cluster.do(UnregisterBroker(broker_id=1), PlainResult)
    assert cluster.apply(ask, q.Session(1, old, 1)).status is CommandStatus.STALE_SESSION


def test_fencing_a_broker_looks_at_each_of_its_partitions_a_few_times() -> None:
    cluster = ControllerWithBrokers(9)
    for number in range(10):
        cluster.create(topic(f"t{number}", 1000, 3))
    with counted_calls() as calls:
        cluster.fence(1)
    states = [
        state
        for topic_state in cluster.machine.image.topics.values()
        for state in topic_state.partitions.values()
    ]
    assert not any(1 in state.isr for state in states)
    assert calls.count < 300_000
