"""The batches of a partition that may be sent at a time, and their sequences."""

from __future__ import annotations

from itertools import count

from ottla.client.producing.accumulator import SEQUENCES, PartitionQueue, ProducerBatch, ProducerIdentity
from ottla.client.producing.batch_limit import HOLDS_S, BatchLimit
from ottla.protocol.records.record import EncodedRecords, encode_records

FIRST, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
LIMIT = 5


def queue_of(batches: int) -> PartitionQueue[int]:
    """Return a queue whose batches hold one record each; results are numbered."""
    numbers = count()
    queue = PartitionQueue[int]("t", 0, BatchLimit(1), result=lambda *_: next(numbers))
    for number in range(batches):
        queue.append((None, b"%d" % number, 0, ()), 100, 0.0)
    return queue


def taken(queue: PartitionQueue[int], identity: ProducerIdentity, leader: str) -> ProducerBatch[int]:
    batch = queue.take(identity, LIMIT, leader)
    assert batch is not None
    return batch


def place(batch: ProducerBatch[int]) -> tuple[int, ProducerIdentity | None, int]:
    return batch.result, batch.identity, batch.base_sequence


def test_nothing_follows_the_first_batch_until_its_leader_has_taken_it() -> None:
    queue = queue_of(4)
    first = taken(queue, FIRST, "broker 1")
    assert queue.take(FIRST, LIMIT, "broker 1") is None
    queue.acknowledged(first)
    assert [place(taken(queue, FIRST, "broker 1")) for _ in range(3)] == [(n, FIRST, n) for n in (1, 2, 3)]


def test_nothing_goes_to_another_leader_while_something_is_under_way() -> None:
    """The next leader may not know the producer, and the batches in flight may not have reached it."""
    queue = queue_of(4)
    queue.acknowledged(taken(queue, FIRST, "broker 1"))
    late = taken(queue, FIRST, "broker 1")
    assert queue.take(FIRST, LIMIT, "broker 2") is None
    queue.acknowledged(late)
    only = taken(queue, FIRST, "broker 2")
    assert place(only) == (2, FIRST, 2)
    assert queue.take(FIRST, LIMIT, "broker 2") is None


def test_what_may_have_been_appended_keeps_its_number_when_an_older_batch_is_given_up() -> None:
    queue = queue_of(4)
    queue.acknowledged(taken(queue, FIRST, "broker 1"))
    lost, doubtful, refused = (taken(queue, FIRST, "broker 1") for _ in range(3))
    queue.given_up(lost)
    queue.restart_numbering()
    doubtful.doubtful = True
    queue.give_back(doubtful)
    queue.give_back(refused)
    assert place(taken(queue, NEXT, "broker 1")) == (2, FIRST, 2)
    assert queue.take(NEXT, LIMIT, "broker 1") is None
    queue.acknowledged(doubtful)
    assert place(taken(queue, NEXT, "broker 1")) == (3, NEXT, 0)


def test_once_it_was_refused_under_its_old_number_it_gets_a_new_one() -> None:
    queue = queue_of(2)
    lost = taken(queue, FIRST, "broker 1")
    queue.acknowledged(lost)
    doubtful = taken(queue, FIRST, "broker 1")
    doubtful.doubtful = True
    queue.give_back(doubtful)
    queue.restart_numbering()
    assert place(taken(queue, NEXT, "broker 1")) == (1, FIRST, 1)
    doubtful.doubtful = False
    queue.give_back(doubtful)
    assert place(taken(queue, NEXT, "broker 1")) == (1, NEXT, 0)


def test_encoded_batches_stand_between_others_and_count_all_their_records() -> None:
    queue = PartitionQueue[int]("t", 0, BatchLimit(1000), result=lambda *_: 0)
    queue.append((None, b"a", 0, ()), 100, 5.0)
    assert queue.due_s(10.0) == 15.0
    encoded = queue.append_encoded(EncodedRecords(b"...", 40, 0, 0), 400, 6.0)
    assert queue.due_s(10.0) == 5.0  # nothing more comes to the one before
    batch, _, filled = queue.append((None, b"b", 0, ()), 100, 7.0)
    assert (batch is encoded, filled) == (False, False)
    queue.append((None, b"c", 0, ()), 100, 7.0)
    first = taken(queue, FIRST, "broker 1")
    assert (first.count, first.is_open, first.base_sequence) == (1, False, 0)
    queue.acknowledged(first)
    assert queue.due_s(10.0) == 6.0
    assert taken(queue, FIRST, "broker 1") is encoded
    assert (encoded.count, encoded.record_bytes, encoded.base_sequence) == (40, 400, 1)
    assert queue.due_s(10.0) == 17.0
    last = taken(queue, FIRST, "broker 1")
    assert (last.count, last.base_sequence) == (2, 41)
    encoded.release()
    assert encoded.body is None


def test_sequences_of_encoded_batches_wrap() -> None:
    queue = PartitionQueue[int]("t", 0, BatchLimit(1000), result=lambda *_: 0)
    for _ in range(4):
        queue.append_encoded(EncodedRecords(b"...", SEQUENCES // 2 - 1, 0, 0), 400, 0.0)
    numbers = []
    for _ in range(4):
        batch = taken(queue, FIRST, "broker 1")
        numbers.append(batch.base_sequence)
        queue.acknowledged(batch)
    assert numbers == [0, SEQUENCES // 2 - 1, SEQUENCES - 2, SEQUENCES // 2 - 3]


def test_the_parts_of_a_batch_share_its_place_and_its_numbers() -> None:
    queue = PartitionQueue[int]("t", 0, BatchLimit(10_000), result=lambda *_: 0)
    values = [b"%d" % number for number in range(9)]
    for value in values:
        queue.append((None, value, 0, ()), 22, 5.0)
    first = taken(queue, FIRST, "broker 1")
    queue.append((None, b"behind", 0, ()), 100, 6.0)
    queue.acknowledged(first)
    behind = taken(queue, FIRST, "broker 1")
    first.base_sequence = SEQUENCES - 2
    queue._under_way.append(first)  # as if it were in flight again
    queue.limit.refused(61 + 22 * 9, 7.0)
    queue.give_back(first)
    parts = queue.split(first)
    assert [value for part in parts for _, value, _, _ in part.records] == values
    assert all(part.created_s == 5.0 and not part.is_open and part.size <= 130 for part in parts)
    assert [part.count for part in parts] == [3, 3, 3]
    assert [part.base_sequence for part in parts] == [SEQUENCES - 2, 1, 4]
    queue.give_back(behind)
    assert [batch.place for batch in queue.drain()] == [(0, 0), (0, 3), (0, 6), (1, 0)]


def test_parts_of_parts_keep_their_places_though_several_are_under_way() -> None:
    queue = PartitionQueue[int]("t", 0, BatchLimit(10_000), result=lambda *_: 0)
    for number in range(9):
        queue.append((None, b"%d" % number, 0, ()), 22, 5.0)
    for size in (61 + 8 * 22, 61 + 4 * 22):  # of another partition
        queue.limit.refused(size, 5.0)
        for batch in queue.oversized():
            queue.split(batch)
    queue.acknowledged(taken(queue, FIRST, "broker 1"))
    under_way = [taken(queue, FIRST, "broker 1") for _ in range(5)]
    for batch in reversed(under_way):
        queue.give_back(batch)
    left = [record[1] for batch in queue.drain() for record in batch.records]
    assert left == [b"%d" % number for number in range(9 - len(left), 9)]
    assert len(left) > len(under_way)


def test_what_may_have_been_appended_is_not_split_unless_it_is_refused_for_its_size() -> None:
    queue = queue_of(1)
    queue.append_encoded(EncodedRecords(*encode_records([(None, b"a", 0)] * 4)), 400, 0.0)
    queue.acknowledged(taken(queue, FIRST, "broker 1"))
    doubtful = taken(queue, FIRST, "broker 1")
    doubtful.doubtful = True
    queue.give_back(doubtful)
    assert queue.oversized() == []
    assert all(part.torn and part.doubtful for part in queue.split(doubtful))


def test_a_limit_that_was_learned_is_tried_again_after_a_while() -> None:
    limit = BatchLimit(100_000)
    assert limit.for_new_batch(0.0) == 100_000
    for size in (90_000, 45_000, 90_000):  # the last was in flight before anything was known
        limit.refused(size, 10.0)
    assert limit.for_new_batch(10.0) == limit.for_new_batch(9.9 + HOLDS_S) == limit.bytes_max == 22_500
    assert [limit.for_new_batch(10.0 + n * HOLDS_S) for n in range(1, 5)] == [
        45_000,
        90_000,
        100_000,
        100_000,
    ]
