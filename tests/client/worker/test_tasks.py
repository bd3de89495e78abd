"""The pure state of a worker: order by key, offsets that count, retries, memory, and partitions that come and go."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.client.worker.commit_metadata import TEXT_MAX, decode
from ottla.client.worker.letters import DeadLetter
from ottla.client.worker.partition_tasks import Task
from ottla.client.worker.rates import Rate
from ottla.client.worker.retries import Retry
from ottla.client.worker.tasks import (
    DeferredRetry,
    Halted,
    HeldRetry,
    LetterDue,
    OutdatedResult,
    Policy,
    Tasks,
)
from tests.client.worker.worker_model import Group

ORDERS = TopicPartition("orders", 0)


def by_key(record: ConsumerRecord) -> Hashable:
    return record.key


def tasks_of(lane_of: Callable[[ConsumerRecord], Hashable] = by_key, **policy: Any) -> Tasks:
    defaults: dict[str, Any] = {
        "retry": Retry(attempts=2, jitter=0),
        "retry_topic": False,
        "dead_letter": DeadLetter("letters"),
        "rates": (),
        "max_records": 10_000,
        "max_bytes": 1 << 26,
    }
    tasks = Tasks(Policy(lane_of=lane_of, **(defaults | policy)))
    tasks.assign(ORDERS)
    return tasks


def records(*keys: bytes | None, begin: int = 0, partition: TopicPartition = ORDERS) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(*partition, begin + index, 0, key, b"value", (), 1) for index, key in enumerate(keys)
    ]


def started(tasks: Tasks, now_s: float = 0) -> list[Task]:
    found = []
    while (task := tasks.next(now_s)) is not None:
        found.append(task)
    return found


def done(tasks: Tasks, task: Task) -> None:
    tasks.succeeded(task)
    tasks.release(task)
    tasks.finish(task)


def committed(tasks: Tasks) -> dict[TopicPartition, OffsetAndMetadata]:
    due = tasks.commits(lambda _, offset: OffsetAndMetadata(offset))
    tasks.committed(due.values())
    return {partition: commit.place for partition, commit in due.items()}


@pytest.mark.parametrize("first", range(0, 150, 30))
def test_histories_keep_their_promises(first: int) -> None:
    """Each key in order and alone, each record finished or a letter, no commit beyond an unfinished record, and no
    committed record again: over handovers, losses and crashes."""
    for seed in range(first, first + 30):
        try:
            Group(seed, steps=400).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_retry_holds_its_key_and_no_other() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(b"a", b"b", b"a", b"c"), 0, 0)
    first, *others = started(tasks)
    assert [task.record.offset for task in (first, *others)] == [0, 1, 3]
    assert tasks.failed(first, 10, 0.5, is_final=False) == HeldRetry(11)
    for task in others:
        done(tasks, task)
    assert tasks.next(10.9) is None
    assert tasks.due_s() == 11
    assert committed(tasks)[ORDERS].offset == 0
    again = tasks.next(11)
    assert again is first
    assert tasks.failed(first, 11, 0.5, is_final=False) == LetterDue()
    tasks.release(first)
    tasks.finish(first)
    assert committed(tasks)[ORDERS].offset == 2
    assert [task.record.offset for task in started(tasks, 11)] == [2]


def test_a_series_needs_tasks_only_for_what_waits() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(b"a", b"b", b"a", b"c", b"a", b"d"), 0, 0)
    series = tasks.series()
    assert series is not None
    assert tasks.stats(0).in_flight == 1
    begun = iter(series)
    assert [next(begun).offset for _ in range(3)] == [0, 1, 2]
    waiting = tasks.interrupted(series, 0)
    tasks.ended(series)
    assert (waiting.record.offset, waiting.running, len(series)) == (2, True, 2)
    assert committed(tasks)[ORDERS].offset == 2
    stats = tasks.stats(0)
    assert (stats.in_flight, stats.held, stats.succeeded, stats.lanes) == (1, 4, 2, 3)

    series = tasks.series()
    assert series is not None
    assert [record.offset for record in series] == [3], "the next record has the key of the waiting record"
    tasks.ended(series)
    assert tasks.series() is None
    assert [task.record.offset for task in started(tasks)] == [5]
    done(tasks, waiting)
    assert [task.record.offset for task in started(tasks)] == [4]


@pytest.mark.parametrize("policy", [{"rates": [Rate(1)]}, {"lane_of": lambda record: [record.key]}])
def test_records_that_need_more_than_a_handler_are_in_no_series(policy: dict[str, Any]) -> None:
    tasks = tasks_of(**policy)
    tasks.offer(ORDERS, records(b"a", b"b"), 0, 0)
    assert tasks.series() is None


def test_verdicts() -> None:
    tasks = tasks_of(
        dead_letter=None, retry=Retry(attempts=3, first=400, most=400, jitter=0), retry_topic=True
    )
    tasks.offer(ORDERS, records(b"a", b"b", b"c", b"d"), 0, 0)
    deferred, final, gone, _ = started(tasks)
    assert tasks.failed(deferred, 0, 0, is_final=False) == DeferredRetry(400)
    assert tasks.failed(final, 0, 0, is_final=True) == Halted()
    assert len(tasks.forget([ORDERS])) == 2
    assert tasks.failed(gone, 0, 0, is_final=True) == OutdatedResult()
    limited = tasks_of(dead_letter=DeadLetter("letters", None, 1))
    limited.offer(ORDERS, records(b"a", b"b"), 0, 0)
    one, two = started(limited)
    assert limited.failed(one, 0, 0, is_final=True) == LetterDue()
    verdict = limited.failed(two, 0, 0, is_final=True)
    assert isinstance(verdict, Halted)
    assert "most_in_a_row" in verdict.limit


def test_a_record_that_fails_while_its_partition_leaves_is_left_to_the_next_member() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(b"a", b"b"), 0, 0)
    failing, other = started(tasks)
    assert tasks.leave([ORDERS]) == [failing, other]
    assert tasks.failed(failing, 0, 0.5, is_final=False) == OutdatedResult()
    tasks.release(failing)
    done(tasks, other)
    assert started(tasks, 1_000) == []
    assert tasks.due_s() is None
    assert committed(tasks)[ORDERS].offset == 0
    assert tasks.stats(0).retried == 0


def test_a_record_of_a_retry_topic_waits_for_its_time_and_holds_nothing() -> None:
    tasks = tasks_of()
    retries = TopicPartition("orders.retry", 0)
    tasks.assign(retries)
    note = [
        ("ottla.retry.at", b"100000"),
        ("ottla.retry.attempt", b"1"),
        ("ottla.retry.origin", b"orders/0/0"),
    ]
    waiting, due = records(b"a", b"a", partition=retries)
    tasks.offer(retries, [waiting._replace(headers=note), due._replace(headers=note[1:])], 0, 90_000)
    tasks.offer(ORDERS, records(b"a"), 0, 90_000)
    (plain,) = started(tasks)
    assert (plain.record.offset, plain.failures) == (1, 0), "the key is busy, and one note was incomplete"
    assert tasks.due_s() == 10
    done(tasks, plain)
    (other,) = started(tasks)
    assert started(tasks, 10) == [], "at its time it waits behind the others of its key"
    done(tasks, other)
    (retried,) = started(tasks, 10)
    assert retried.failures == 1
    assert tasks.failed(retried, 10, 0, is_final=False) == LetterDue(), "attempts of the retry topic count"


def test_a_clock_that_was_set_back_delays_a_retry_by_no_more_than_the_schedule() -> None:
    tasks = tasks_of(retry=Retry(most=60, jitter=0))
    retries = TopicPartition("orders.retry", 0)
    tasks.assign(retries)
    note = [
        ("ottla.retry.at", b"7200000"),
        ("ottla.retry.attempt", b"1"),
        ("ottla.retry.origin", b"orders/0/0"),
    ]
    tasks.offer(retries, [records(b"a", partition=retries)[0]._replace(headers=note)], 0, 0)
    assert tasks.due_s() == 60


def test_a_hole_stops_series_before_the_metadata_overflows() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(*(b"%d" % number for number in range(6_000))), 0, 0)
    held = [tasks.next(0)]
    while (series := tasks.series()) is not None:
        next(begun := iter(series))
        next(begun)
        held.append(tasks.interrupted(series, 0))
        tasks.ended(series)
    assert started(tasks) == []
    place = committed(tasks)[ORDERS]
    assert place.offset == 0
    assert 800 < len(place.metadata) <= TEXT_MAX
    assert len(decode(place.metadata).runs) == len(held) - 1


def test_a_hole_stops_new_keys_before_the_metadata_overflows() -> None:
    """One record is stuck at the beginning, and every second record finishes: each finished offset is a run."""
    tasks = tasks_of()
    tasks.offer(ORDERS, records(*(b"%d" % number for number in range(6_000))), 0, 0)
    stuck, *_ = held = started(tasks)
    begun = len(held)
    assert begun < 6_000
    for task in held[1::2]:
        done(tasks, task)
    rounds = 0
    while more := started(tasks):
        rounds += 1
        for task in more[::2]:
            done(tasks, task)
    assert rounds
    assert tasks.partitions[ORDERS].blocked
    assert [state.partition for state in tasks.held_back()] == [ORDERS]
    place = committed(tasks)[ORDERS]
    assert place.offset == 0
    assert 800 < len(place.metadata) <= TEXT_MAX
    finished = {offset for start, end in decode(place.metadata).runs for offset in range(start, end)}
    unfinished = set(tasks.partitions[ORDERS].unfinished)
    assert finished.isdisjoint(unfinished)
    done(tasks, stuck)
    assert started(tasks), "the committed offset moves, and new keys start"


def test_lanes_across_partitions_do_not_block_each_other_for_ever() -> None:
    """Each partition's first record is behind a record of the other partition, whose metadata is full."""
    other = TopicPartition("orders", 1)
    tasks = tasks_of(lambda record: record.value)
    tasks.assign(other)
    for partition, lanes in ((ORDERS, b"xy"), (other, b"yx")):
        tasks.partitions[partition].resume(0, "", 10)
        first, second = records(b"", b"", partition=partition)
        tasks.offer(partition, [first._replace(value=lanes[:1])], 0, 0)
        tasks.offer(partition, [second._replace(value=lanes[1:])], 0, 0)
    order = []
    while (task := tasks.next(0)) is not None:
        order.append((task.record.partition, task.record.offset))
        done(tasks, task)
    assert sorted(order) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_many_keys_leave_nothing_behind() -> None:
    tasks = tasks_of()
    for number in range(0, 200_000, 10_000):
        keys = [b"%d" % key for key in range(number, number + 10_000)]
        tasks.offer(ORDERS, records(*keys, begin=number), 0, 0)
        while (task := tasks.next(0)) is not None:
            done(tasks, task)
        committed(tasks)
    stats = tasks.stats(0)
    assert (stats.lanes, stats.held, stats.held_bytes, stats.succeeded) == (0, 0, 0, 200_000)
    assert committed(tasks) == {}
    assert tasks.partitions[ORDERS].watermark == 200_000


def test_a_huge_key_is_shortened_in_the_stats() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(b"k" * 1_000_000, b"k" * 1_000_000), 0, 0)
    ((key, length),) = tasks.stats(5).longest_lanes
    assert len(key) < 200
    assert length == 2
    assert tasks.stats(5).oldest_s == 5


def test_lanes_are_named_for_readers() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise ArithmeticError

    lanes = {
        b"plain": ("orders", b"customer \xc3\xbc\n\xff"),
        b"partition": ("orders", 3),
        b"own": ("eu", "north"),
        b"mute": Mute(),
        b"none": None,
    }
    tasks = tasks_of(lambda record: lanes[record.key])
    tasks.offer(ORDERS, records(*lanes), 0, 0)
    assert [name for name, _ in tasks.stats(0).longest_lanes] == [
        "orders, key customer ü\\n\\\\xff",
        "orders-3",
        "('eu', 'north')",
        "Mute",
        "orders-0, offset 4",
    ]


def test_stats_may_be_asked_for_by_any_thread() -> None:
    tasks = tasks_of()
    errors: list[Exception] = []
    asked = 0
    ended = threading.Event()

    def ask() -> None:
        nonlocal asked
        while not ended.is_set():
            asked += 1
            try:
                tasks.stats(0)
            except Exception as error:
                errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for number in range(0, 5_000, 50):
            tasks.offer(ORDERS, records(*(b"%d" % key for key in range(50)), begin=number), 0, 0)
            while (task := tasks.next(0)) is not None:
                done(tasks, task)
            committed(tasks)
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert asked
    assert errors == []


def test_a_lane_function_that_fails_breaks_its_record_alone() -> None:
    tasks = tasks_of(lambda record: record.key.decode() if record.key != b"list" else [])
    tasks.offer(ORDERS, records(b"\xff", b"list", b"fine"), 0, 0)
    broken, unhashable, fine = started(tasks)
    assert isinstance(broken.broken, UnicodeDecodeError)
    assert isinstance(unhashable.broken, TypeError)
    assert fine.broken is None


def test_memory_pauses_the_partitions_that_hold_the_most() -> None:
    tasks = tasks_of(max_records=100)
    partitions = [TopicPartition("orders", number) for number in range(4)]
    for partition in partitions[1:]:
        tasks.assign(partition)
    tasks.offer(ORDERS, records(*[b"hot"] * 50), 0, 0)
    tasks.offer(partitions[1], records(b"a", b"b", partition=partitions[1]), 0, 0)
    assert list(tasks.to_pause()) == [ORDERS], "one key fills its partition's share, and the others are read"
    assert list(tasks.to_resume()) == partitions[1:]
    tasks.offer(partitions[2], records(*[b"hot"] * 48, partition=partitions[2]), 0, 0)
    assert tasks.room() == 0
    assert set(tasks.to_pause()) == set(partitions)
    assert list(tasks.to_resume()) == []
    while tasks.stats(0).held > 20:
        task = tasks.next(0)
        assert task is not None
        done(tasks, task)
    assert list(tasks.to_resume()) == [], "finished records count until they are committed"
    committed(tasks)
    assert set(tasks.to_resume()) == set(partitions)


def test_a_record_larger_than_all_goes_alone() -> None:
    tasks = tasks_of(max_bytes=1_000)
    assert tasks.room() > 0
    tasks.offer(ORDERS, [records(b"a")[0]._replace(value=b"x" * 5_000)], 0, 0)
    assert tasks.room() == 0
    (task,) = started(tasks)
    done(tasks, task)
    committed(tasks)
    assert tasks.room() == 1


def test_a_topic_made_anew_begins_again() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(b"a", b"b", begin=100), 0, 0)
    former, queued = started(tasks)[0], tasks.partitions[ORDERS].unfinished[101]
    (warning,) = tasks.offer(ORDERS, records(b"a", b"c"), 0, 0)
    assert "orders-0 is read from offset 0 again" in warning
    tasks.succeeded(former)
    tasks.release(former)
    tasks.finish(former)
    assert queued.tasks.gone
    new = started(tasks)
    assert sorted(task.record.offset for task in new) == [0, 1]
    assert committed(tasks) == {}, "the former records do not count"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": "checkpoint 7"}, "another format"),
        ({"text": "ottla-worker:1:AAAA"}, "cut off"),
        ({"offset": 1}, "belongs to offset 0"),
        ({"topic_id": bytes(16)}, "an earlier topic"),
        ({"log_end": 2}, "beyond the end of the log"),
    ],
)
def test_metadata_that_is_not_believed_skips_nothing(change: dict[str, Any], reason: str) -> None:
    source = tasks_of()
    source.partitions[ORDERS].topic_id = b"i" * 16
    source.offer(ORDERS, records(b"a", b"b", b"c"), 0, 0)
    for task in started(source)[1:]:
        done(source, task)
    place = committed(source)[ORDERS]
    assert place.offset == 0
    given = {"text": place.metadata, "offset": 0, "topic_id": b"i" * 16, "log_end": 3} | change
    target = tasks_of()
    target.partitions[ORDERS].topic_id = given["topic_id"]
    assert reason in (
        target.partitions[ORDERS].resume(given["offset"], given["text"], given["log_end"]) or ""
    )
    target.offer(ORDERS, records(b"a", b"b", b"c")[given["offset"] :], 0, 0)
    assert len(started(target)) == 3 - given["offset"]


def test_metadata_skips_the_finished_records() -> None:
    source = tasks_of()
    source.offer(ORDERS, records(b"a", b"b", b"c"), 0, 0)
    for task in started(source)[1:]:
        done(source, task)
    place = committed(source)[ORDERS]
    target = tasks_of()
    assert target.partitions[ORDERS].resume(place.offset, place.metadata, 3) is None
    target.offer(ORDERS, records(b"a", b"b", b"c", b"d"), 0, 0)
    (first, last) = started(target)
    assert (first.record.offset, last.record.offset) == (0, 3)
    done(target, first)
    assert committed(target)[ORDERS].offset == 3


def test_another_record_at_a_finished_offset_is_worked_on() -> None:
    source = tasks_of()
    source.offer(ORDERS, records(b"a", b"b", b"c"), 0, 0)
    for task in started(source)[1:]:
        done(source, task)
    place = committed(source)[ORDERS]
    target = tasks_of()
    target.partitions[ORDERS].resume(place.offset, place.metadata, 3)
    changed = [record._replace(leader_epoch=2) for record in records(b"b", b"c", begin=1)]
    assert target.offer(ORDERS, records(b"a"), 0, 0) == []
    (warning,) = target.offer(ORDERS, changed, 0, 0)
    assert "another record at offset 1" in warning
    assert len(started(target)) == 3


def test_large_messages_resume_at_their_first_segment() -> None:
    source = tasks_of()
    source.offer(ORDERS, records(b"a", b"b", b"c", begin=10), 0, 0)
    for task in started(source)[:2]:
        done(source, task)
    due = source.commits(lambda _, offset: OffsetAndMetadata(offset - 4, "note"))
    place = due[ORDERS].place
    assert place.offset == 8
    target = tasks_of()
    assert target.partitions[ORDERS].resume(place.offset, place.metadata, 13) is None
    target.offer(ORDERS, records(b"x", b"a", b"b", b"c", begin=9), 0, 0)
    assert [task.record.offset for task in started(target)] == [12]


def test_rates_delay_starts() -> None:
    tasks = tasks_of(rates=[Rate(10, burst=2)])
    tasks.offer(ORDERS, records(b"a", b"b", b"c"), 0, 0)
    assert len(started(tasks)) == 2
    assert tasks.due_s() == pytest.approx(0.1)
    assert len(started(tasks, 0.1)) == 1
    by_keys = tasks_of(rates=[Rate(1, burst=1, per_key=True)])
    by_keys.offer(ORDERS, records(b"a", b"b", b"a"), 0, 0)
    for task in started(by_keys):
        done(by_keys, task)
    assert started(by_keys, 0.5) == []
    assert by_keys.due_s() == pytest.approx(1)
    assert len(started(by_keys, 1)) == 1


def test_a_task_of_a_lost_partition_frees_its_key_when_it_ends() -> None:
    tasks = tasks_of()
    tasks.offer(ORDERS, records(b"a", b"a"), 0, 0)
    (former,) = started(tasks)
    assert tasks.forget([ORDERS]) == [former]
    tasks.assign(ORDERS)
    tasks.offer(ORDERS, records(b"a"), 0, 0)
    assert started(tasks) == [], "the former record of this key is still in its handler"
    tasks.cancelled(former)
    assert [task.record.offset for task in started(tasks)] == [0]
