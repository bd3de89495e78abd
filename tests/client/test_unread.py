"""Records given one by one, to the event loop and to another thread."""

from __future__ import annotations

import threading

import pytest

from ottla.client.consuming.record_iterator import RecordIterator
from ottla.client.records import ConsumerRecord, TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def record(partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, None, b"v")


def test_both_ways_of_taking_see_the_same() -> None:
    unread = RecordIterator()
    unread.add([record(0, 5), record(1, 7), record(0, 6), record(1, 8)])
    assert unread.take_on_loop() == record(0, 5)
    assert unread.positions() == {FIRST: 6, SECOND: 7}
    assert unread.drop([SECOND]) == {SECOND: 7}
    unread.add([record(0, 7)])
    assert unread.take() == record(0, 6)
    unread.keep([SECOND])
    assert unread.take() is None
    with pytest.raises(IndexError):
        unread.take_on_loop()
    unread.add([record(1, 9)])
    assert unread.take_on_loop() == record(1, 9)


def test_a_thread_that_takes_meanwhile_gets_each_record_once_and_in_order() -> None:
    """The loop drops and keeps partitions all the time, none of which holds up the ones that stay."""
    unread, taken, count = RecordIterator(), list[int](), 20_000
    ended = threading.Event()

    def take() -> None:
        while not (ended.is_set() and not unread):
            first_unread = unread.take()
            if first_unread is not None and first_unread.partition == 0:
                taken.append(first_unread.offset)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        for offset in range(0, count, 10):
            unread.add([record(0, offset + number) for number in range(10)])
            unread.add([record(1, offset)])
            unread.drop([SECOND])
            unread.keep([FIRST])
    finally:
        ended.set()
        thread.join()
    assert taken == list(range(count))
