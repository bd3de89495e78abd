"""Fetch sessions of clients, compared with a client that trusts incremental answers, and Kafka's rules one by one."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.fetching.sessions import (
    EVICTABLE_AFTER_MS,
    MAX_SESSION_ID,
    PARTITION_BYTES,
    FetchSession,
    FetchSessionCache,
    next_epoch,
)
from ottla.dataplane.handlers.fetch import FetchSettings
from ottla.dataplane.security.principal import ANONYMOUS, USER, Principal
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

from .consumers import OTHER_ID, OWN_ID, Consumer, Shelf, offsets, parts_of, wanted

ID = b"t" * 16
PARTITIONS = 5


def run(test: Callable[[Shelf], Coroutine[Any, Any, None]], **slots: Any) -> None:
    """Run a test on a broker with one topic of five partitions."""

    async def body() -> None:
        with tempfile.TemporaryDirectory() as name:
            shelf = Shelf(Path(name), FetchSettings(**slots))
            try:
                shelf.create("t", ID, PARTITIONS)
                await test(shelf)
            finally:
                await shelf.close()

    asyncio.run(body())


class SessionClient:
    """A client that keeps its latest knowledge of each partition."""

    def __init__(self, shelf: Shelf) -> None:
        self.consumer = Consumer(shelf, 18)
        self.session_id = self.epoch = 0
        self.positions: dict[int, int] = {}
        self.told: dict[int, int] = {}
        self.view: dict[int, PartitionData] = {}

    def poll(self, max_bytes: int) -> dict[int, PartitionData]:
        """Return the partitions of an answer; the request names partitions that changed since the last."""
        full = self.epoch == 0
        named = [(i, at) for i, at in self.positions.items() if full or self.told.get(i) != at]
        gone = [index for index in self.told if index not in self.positions]
        response = self.consumer.fetch(
            [wanted(ID, *named)] if named else [],
            session_id=self.session_id,
            session_epoch=self.epoch,
            max_bytes=max_bytes,
            forgotten_topics_data=[ForgottenTopic(topic_id=ID, partitions=gone)] if gone and not full else [],
        )
        self.told = dict(self.positions)
        if response.error_code or not response.session_id:
            self.session_id = self.epoch = 0
        else:
            self.session_id, self.epoch = response.session_id, next_epoch(self.epoch)
        for gone_index in set(self.view) - set(self.positions):
            del self.view[gone_index]
        answered = {key[1]: part for key, part in parts_of(response).items()}
        self.view.update(answered)
        return answered


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "trim", "role", "seek", "forget", "add", "poll", "poll", "follow"]
        ),
        st.integers(0, PARTITIONS - 1),
        st.integers(0, 6),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(steps=STEPS, tight=st.booleans())
def test_incremental_answers_tell_what_full_ones_would(
    steps: list[tuple[str, int, int]], tight: bool
) -> None:
    async def body(shelf: Shelf) -> None:
        client, plain = SessionClient(shelf), Consumer(shelf, 18)
        epochs = dict.fromkeys(range(PARTITIONS), 0)
        client.positions = dict.fromkeys(range(3), 0)

        def turn(index: int, leader: int) -> None:
            epochs[index] += 1
            shelf.tell(shelf.state(ID, index, leader=leader, epoch=epochs[index], isr=[leader]))

        for action, index, number in [*steps, ("poll", 0, 0)]:
            replica = shelf.replica("t", index)
            if action == "append" and replica.leader is not None:
                shelf.append("t", index, b"v" * 50)
            elif action == "trim" and replica.leader is not None:
                replica.record_deletion.trim(min(number, replica.high_watermark))
            elif action == "role":
                turn(index, OWN_ID if replica.leader is None else OTHER_ID)
            elif action == "follow" and replica.leader is None:
                replica.following.append_fetched(None, number, min(number, replica.log.log_start_offset + 1))
            elif action == "seek" and index in client.positions:
                client.positions[index] = number
            elif action == "forget" and len(client.positions) > 1:
                client.positions.pop(index, None)
            elif action == "add":
                client.positions.setdefault(index, number)
            elif action == "poll":
                answered = client.poll(1 if tight else 1 << 20)
                full = plain.fetch([wanted(ID, *client.positions.items())])
                for key, expected in parts_of(full).items():
                    seen = client.view[key[1]]
                    assert seen.error_code == expected.error_code
                    assert seen.high_watermark == expected.high_watermark
                    assert seen.log_start_offset == expected.log_start_offset
                    if expected.error_code:
                        assert key[1] in answered
                    if not tight:
                        answer = answered.get(key[1], PartitionData())
                        assert bytes(answer.records or b"") == bytes(expected.records or b"")
                if tight and any(part.records for part in parts_of(full).values()):
                    assert any(part.records for part in answered.values()), "one batch comes always"

    run(body)


def test_partitions_take_turns_when_bytes_run_out() -> None:
    async def body(shelf: Shelf) -> None:
        for index in range(PARTITIONS):
            for _ in range(3):
                shelf.append("t", index, b"v" * 50)
        client = SessionClient(shelf)
        client.positions = dict.fromkeys(range(PARTITIONS), 0)
        served = []
        for _ in range(3 * PARTITIONS):
            with_records = [(i, offsets(part)) for i, part in client.poll(1).items() if part.records]
            ((index, found),) = with_records
            served.append(index)
            client.positions[index] = found[-1] + 1
        for start in range(0, len(served), PARTITIONS):
            assert sorted(served[start : start + PARTITIONS]) == list(range(PARTITIONS))

    run(body)


def test_an_idle_session_costs_nothing_and_wakes_when_something_moves() -> None:
    async def body(shelf: Shelf) -> None:
        consumer = Consumer(shelf)
        opened = consumer.fetch([wanted(ID, *((i, 0) for i in range(PARTITIONS)))], session_epoch=0)
        assert len(parts_of(opened)) == PARTITIONS
        assert opened.session_id
        again = {"session_id": opened.session_id, "max_wait_ms": 60_000}
        assert not parts_of(consumer.fetch(session_epoch=1, session_id=opened.session_id))
        (session,) = shelf.handlers.sessions
        assert not session.active
        consumer.send(session_epoch=2, **again)
        assert not consumer.adapter.answers
        shelf.append("t", 3)
        assert [partition.key for partition in session.active] == [(ID, 3)]
        answer = parts_of(await consumer.answered())
        assert {key[1]: offsets(part) for key, part in answer.items()} == {3: [0]}

        def polled(epoch: int, *positions: tuple[int, int]) -> dict[tuple[bytes | str, int], PartitionData]:
            named = [wanted(ID, *positions)] if positions else []
            return parts_of(consumer.fetch(named, session_id=opened.session_id, session_epoch=epoch))

        assert not polled(3, (3, 1))
        assert not session.active
        replica = shelf.replica("t", 3)
        replica.record_deletion.trim(1)
        assert [(key[1], part.log_start_offset) for key, part in polled(4).items()] == [(3, 1)]
        assert not polled(5)
        shelf.tell(shelf.state(ID, 3, leader=OTHER_ID, epoch=1, isr=[OTHER_ID]))
        replica.following.append_fetched(None, 1, 1)
        assert not polled(6), "a follower that has nothing new tells nothing"

    run(body)


def test_the_rules_of_epochs_and_ids() -> None:
    async def body(shelf: Shelf) -> None:
        consumer, by_name = Consumer(shelf, 18), Consumer(shelf, 12)
        topics = [wanted(ID, (0, 0))]
        session_id = consumer.fetch(topics, session_epoch=0).session_id

        def error(
            asker: Consumer, session: int, epoch: int, topics: list[FetchTopic] | None = None
        ) -> tuple[int, int]:
            response = asker.fetch(topics or [], session_id=session, session_epoch=epoch)
            return response.error_code, response.session_id

        assert error(consumer, session_id, 2) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
        assert error(by_name, session_id, 1) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
        assert error(consumer, session_id ^ 1, 1) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert error(consumer, 0, 1) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert error(consumer, session_id, 1) == (0, session_id), (
            "refused requests leave the session as it was"
        )
        # A full request closes the session that it names, and opens another; the final epoch opens none.
        _, second = error(consumer, session_id, 0, topics)
        assert second not in (0, session_id)
        assert error(consumer, session_id, 2) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert error(consumer, second, -1, topics) == (0, 0)
        assert len(shelf.handlers.sessions) == 0
        # Without partitions a session ends.
        third = consumer.fetch(topics, session_epoch=0).session_id
        empty = consumer.fetch(
            session_id=third,
            session_epoch=1,
            forgotten_topics_data=[ForgottenTopic(topic_id=ID, partitions=[0])],
            max_wait_ms=60_000,
        )
        assert (empty.error_code, empty.session_id, len(shelf.handlers.sessions)) == (0, 0, 0)
        assert not shelf.replica("t").readers._waiting, "nothing is watched any more"

    run(body)
    assert next_epoch(MAX_SESSION_ID) == 1


def test_only_who_opened_a_session_goes_on_with_it_or_closes_it() -> None:
    async def body(shelf: Shelf) -> None:
        owner, other = Consumer(shelf, 18), Consumer(shelf, 18)
        other.adapter.session = replace(other.adapter.session, principal=Principal(USER, "ann"))
        topics = [wanted(ID, (0, 0))]
        session_id = owner.fetch(topics, session_epoch=0).session_id
        stolen = other.fetch(session_id=session_id, session_epoch=1)
        assert (stolen.error_code, stolen.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        for epoch in (-1, 0):
            assert other.fetch(topics, session_id=session_id, session_epoch=epoch).error_code == 0
        assert owner.fetch(session_id=session_id, session_epoch=1).session_id == session_id
        # On another connection, too, as Kafka's clients do when they reconnect.
        again = Consumer(shelf, 18).fetch(session_id=session_id, session_epoch=2)
        assert again.session_id == session_id

    run(body)


def test_what_becomes_of_deleted_topics() -> None:
    async def body(shelf: Shelf) -> None:
        consumer = Consumer(shelf)
        unknown = b"u" * 16
        opened = consumer.fetch([wanted(ID, (0, 0)), wanted(unknown, (0, 0))], session_epoch=0)
        assert parts_of(opened)[unknown, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

        def errors(epoch: int) -> dict[bytes | str, int]:
            response = consumer.fetch(session_id=opened.session_id, session_epoch=epoch)
            return {key[0]: part.error_code for key, part in parts_of(response).items()}

        shelf.delete(ID)
        gone = {ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown: ErrorCode.UNKNOWN_TOPIC_ID}
        assert errors(1) == gone
        assert errors(2) == gone, "errors are repeated in each answer"
        shelf.create("t", b"n" * 16, 1)
        assert errors(3)[ID] == ErrorCode.INCONSISTENT_TOPIC_ID
        shelf.create("u", unknown, 1)
        parts = parts_of(consumer.fetch(session_id=opened.session_id, session_epoch=4))
        assert parts[unknown, 0].error_code == 0

    run(body)


def test_a_second_request_of_a_session_supersedes_the_parked_one() -> None:
    async def body(shelf: Shelf) -> None:
        first, second = Consumer(shelf), Consumer(shelf)
        session_id = first.fetch([wanted(ID, (0, 0))], session_epoch=0).session_id
        first.send(session_id=session_id, session_epoch=1, max_wait_ms=60_000)
        second.send(session_id=session_id, session_epoch=2, max_wait_ms=60_000)
        assert first.take().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        shelf.append("t")
        assert parts_of(await second.answered())
        second.send([wanted(ID, (0, 1))], session_id=session_id, session_epoch=3, max_wait_ms=60_000)
        second.adapter.close()
        shelf.append("t")
        answer = first.fetch(session_id=session_id, session_epoch=4)
        assert {key[1]: offsets(part) for key, part in parts_of(answer).items()} == {0: [1]}

    run(body)


# The cache


def session_of(size: int) -> FetchSession:
    session = FetchSession(ANONYMOUS, by_id=True)
    session.update([FetchTopic(topic_id=ID, partitions=[FetchPartition(partition=i) for i in range(size)])])
    return session


def test_the_cache_gives_a_slot_to_a_larger_session_or_for_a_stale_one() -> None:
    cache = FetchSessionCache(2, random.Random(1))
    small, large = session_of(2), session_of(5)
    assert cache.admit(small, 0)
    assert cache.admit(large, 0)
    assert not cache.admit(session_of(9), 1000), "no session is old enough to give way"
    old = EVICTABLE_AFTER_MS + 1
    cache.proceed(small, old)
    cache.proceed(large, old)
    assert not cache.admit(session_of(2), old), "only a larger one takes a place"
    assert cache.admit(session_of(3), old)
    assert {len(session) for session in cache} == {3, 5}
    cache.proceed(large, old + 10)
    assert cache.admit(session_of(1), 2 * old + 5), "unused for so long gives way to anyone"
    assert {len(session) for session in cache} == {1, 5}
    assert cache.evictions == 2
    assert not FetchSessionCache(0, random.Random(1)).admit(session_of(1), 0)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, EVICTABLE_AFTER_MS), st.integers(0, 3)), max_size=60)
)
def test_the_cache_does_as_a_scan_of_all_sessions_would(steps: list[tuple[int, int, int]]) -> None:
    cache, slots, now_ms = FetchSessionCache(3, random.Random(1)), 3, 0
    known: dict[int, list[int]] = {}  # id -> size, created, used, whether it was old when last used
    for size, passed, use in steps:
        now_ms += passed
        if use and known:
            session_id = sorted(known)[use % len(known)]
            session = next(cached for cached in cache if cached.id == session_id)
            cache.proceed(session, now_ms)
            known[session_id][2:] = [now_ms, now_ms - known[session_id][1] > EVICTABLE_AFTER_MS]
            continue
        expected_victim: int | None = None
        may = len(known) < slots
        if not may:
            stale = min(known, key=lambda known_id: known[known_id][2])
            evictable = [(entry[0], known_id) for known_id, entry in known.items() if entry[3]]
            if now_ms - known[stale][2] > EVICTABLE_AFTER_MS:
                expected_victim = stale
            elif evictable and size > min(evictable)[0]:
                expected_victim = min(evictable)[1]
            may = expected_victim is not None
        session = session_of(size)
        assert cache.admit(session, now_ms) == may
        if expected_victim is not None:
            del known[expected_victim]
        if may:
            known[session.id] = [size, now_ms, now_ms, False]
        assert {cached.id for cached in cache} == set(known)


def test_a_cache_without_slots_declines() -> None:
    async def body(shelf: Shelf) -> None:
        response: FetchResponse = Consumer(shelf).fetch([wanted(ID, (0, 0))], session_epoch=0)
        assert (response.error_code, response.session_id) == (0, 0)
        assert not shelf.replica("t").readers._waiting

    run(body, session_slots=0)


# Memory


def unknown(number: int, partitions: int) -> FetchTopic:
    """Return partitions of an unknown topic."""
    return wanted(number.to_bytes(16, "big"), *((index, 0) for index in range(partitions)))


def test_sessions_of_unknown_partitions_take_no_more_than_the_share_of_their_client() -> None:
    """Each request of a megabyte kept twelve, since sessions were counted, and their partitions were not."""

    async def body(shelf: Shelf) -> None:
        attacker, other = Consumer(shelf), Consumer(shelf)
        for adapter, name, host in (
            (attacker.adapter, "mallory", "192.0.2.1"),
            (other.adapter, "ann", "192.0.2.2"),
        ):
            adapter.session = replace(adapter.session, principal=Principal(USER, name), host=host)
        granted = [attacker.fetch([unknown(number, 50)], session_epoch=0).session_id for number in range(100)]
        sessions = shelf.handlers.sessions
        assert granted[0]
        assert not any(granted[10:])
        assert sessions.partitions <= 500
        assert sessions.budget.total <= sessions.budget.share_max
        assert other.fetch([unknown(0, 50)], session_epoch=0).session_id, "others have their own share"

    run(body, session_bytes=1000 * PARTITION_BYTES)


def test_a_session_that_outgrows_the_memory_ends() -> None:
    async def body(shelf: Shelf) -> None:
        consumer = Consumer(shelf)
        session_id = consumer.fetch([unknown(0, 50)], session_epoch=0).session_id
        answers = [
            consumer.fetch([unknown(epoch, 50)], session_id=session_id, session_epoch=epoch).error_code
            for epoch in range(1, 10)
        ]
        assert answers == [0] + 8 * [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
        assert (len(shelf.handlers.sessions), shelf.handlers.sessions.budget.total) == (0, 0)

    run(body, session_bytes=250 * PARTITION_BYTES)


def test_a_large_fetch_that_does_not_fit_into_memory_does_not_wait() -> None:
    async def body(shelf: Shelf) -> None:
        many = b"m" * 16
        shelf.create("many", many, 110)
        async with asyncio.timeout(60):
            while any(shelf.replicas.find("many", index) is None for index in range(110)):
                await asyncio.sleep(0)
        topics = [wanted(many, *((index, 0) for index in range(110)))]
        waits, first, second = {"max_wait_ms": 60_000}, Consumer(shelf), Consumer(shelf)
        first.send(topics, **waits)
        assert not first.adapter.answers
        assert len(parts_of(second.fetch(topics, **waits))) == 110
        first.adapter.close()
        assert shelf.handlers.sessions.budget.total == 0

    run(body, session_bytes=250 * PARTITION_BYTES)


def test_an_idle_session_gives_its_memory_up_for_another() -> None:
    cache = FetchSessionCache(10, random.Random(1), 10 * PARTITION_BYTES)
    first, second, third = session_of(4), session_of(4), session_of(4)
    assert cache.admit(first, 0)
    assert not cache.admit(second, EVICTABLE_AFTER_MS)
    assert cache.admit(third, EVICTABLE_AFTER_MS + 1)
    assert [session.id for session in cache] == [third.id]
    assert cache.budget.total == third.retained_bytes
    cache.budget.check()


def test_errors_of_the_cache_say_what_is_wrong() -> None:
    with pytest.raises(KafkaError, match="no fetch session 5"):
        FetchSessionCache(1, random.Random(1)).get(5, 1, ANONYMOUS, by_id=True)
