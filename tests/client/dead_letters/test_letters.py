"""Letters as they are found, the records that are sent for them, and the memory of those that were sent. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.dead_letters.found import ErrorCounts, FoundLetter
from ottla.client.dead_letters.places import is_at, places_of
from ottla.client.dead_letters.resending import LETTER, resent
from ottla.client.dead_letters.settled import CannotReplay, Settled, Stretch
from ottla.client.records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla.client.worker.letters import letter_headers
from ottla.client.worker.retry_notes import note_headers

TOPIC_ID = bytes(range(16))
ZERO = TopicPartition("orders.dlq", 0)


def a_letter(offset: int = 0, *headers: tuple[str, bytes | None], timestamp_ms: int = 5) -> ConsumerRecord:
    return ConsumerRecord("orders.dlq", 0, offset, timestamp_ms, b"key", b"value", headers)


def workers_letter(error: BaseException | None = None) -> ConsumerRecord:
    origin = ConsumerRecord("orders", 3, 42, 1, b"key", b"value", (("trace", b"\xff"), ("none", None)))
    retried = origin._replace(headers=tuple(note_headers(origin, 7, 1)))
    told = letter_headers(retried, "billing", error or KeyError("customer"), 5)
    return a_letter(17, *told)


def test_all_headers_of_a_worker_are_told() -> None:
    letter = FoundLetter.of(workers_letter())
    assert (letter.origin, letter.group_id, letter.attempts) == ("orders:3:42", "billing", 5)
    assert (letter.error_type, letter.error_text) == ("KeyError", "'customer'")
    assert letter.reason == "'customer'"
    assert letter.message == "KeyError: 'customer'"
    assert letter.tells


def test_a_letter_of_a_share_group_is_told_as_far_as_its_headers_go() -> None:
    record = a_letter(
        1,
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.offset", b"x1"),
        ("__dlq.errors.delivery.count", b"3"),
        ("__dlq.errors.message", b"gave up"),
    )
    letter = FoundLetter.of(record)
    assert (letter.origin, letter.partition, letter.offset) == ("orders:?:?", None, None)
    assert (letter.attempts, letter.reason, letter.error_type, letter.group_id) == (3, "gave up", None, None)


@pytest.mark.parametrize("value", [b"", b"-1", b"\xb2", b"9" * 19, b"1" * 5_000, None])
def test_a_number_that_is_none_is_not_told(value: bytes | None) -> None:
    assert FoundLetter.of(a_letter(0, ("__dlq.errors.offset", value))).offset is None


def test_a_record_without_headers_is_a_letter_of_which_nothing_is_told() -> None:
    letter = FoundLetter.of(a_letter())
    assert (letter.origin, letter.reason, letter.tells) == ("", "", False)
    with pytest.raises(CannotReplay, match=r"orders\.dlq:0:0 tells no topic of origin"):
        resent(letter, None, {})
    assert resent(letter, "orders", {"orders": [0]}).topic == "orders"


def test_errors_are_counted_the_most_frequent_first() -> None:
    counts = ErrorCounts()
    counts.add(FoundLetter.of(a_letter(0, ("ottla.error.type", b"B"), timestamp_ms=at)) for at in (9, -1, 4))
    counts.add([FoundLetter.of(a_letter())])
    assert [
        (count.error_type, count.letters, count.oldest_ms, count.newest_ms) for count in counts.most_first()
    ] == [
        ("B", 3, 4, 9),
        (None, 1, 5, 5),
    ]


@pytest.mark.parametrize(
    ("to", "partitions", "goes_to"),
    [
        (None, {"orders": [0, 3]}, ("orders", 3)),
        (None, {"orders": [0]}, ("orders", None)),
        ("other", {"orders": [3], "other": [3]}, ("other", None)),
        ("orders", {"orders": [3]}, ("orders", 3)),
    ],
)
def test_a_letter_goes_home_as_it_was(to: str | None, partitions: Any, goes_to: tuple[str, Any]) -> None:
    record = resent(FoundLetter.of(workers_letter()), to, partitions)
    assert (record.topic, record.partition) == goes_to
    assert (record.key, record.value) == (b"key", b"value")
    assert list(record.headers) == [("trace", b"\xff"), ("none", None), (LETTER, b"orders.dlq/0/17")]


def test_a_letter_that_was_a_letter_before_names_the_later_letter() -> None:
    first = resent(FoundLetter.of(workers_letter()), None, {})
    again = ConsumerRecord("orders", 3, 50, 1, first.key, first.value, tuple(first.headers))
    second = a_letter(30, *letter_headers(again, "billing", ValueError(), 1))
    headers = list(resent(FoundLetter.of(second), None, {}).headers)
    assert headers.count((LETTER, b"orders.dlq/0/30")) == 1
    assert len(headers) == 3


# ------------------------------------------------------------ places


def test_places_are_partitions_with_offsets() -> None:
    assert places_of([]) == {}
    places = places_of(["0:17,20-22", "2:3", "0:5"])
    assert places == {0: {5, 17, 20, 21, 22}, 2: {3}}
    assert [offset for offset in range(30) if is_at(a_letter(offset), places)] == [5, 17, 20, 21, 22]
    assert is_at(a_letter(), {})


@pytest.mark.parametrize(
    "text", ["17", "0:", "x:1", ":1", "0:a", "0:5-2", "-1:3", "0:1,", f"0:{'1' * 20}", "\u0661:1"]
)
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a place is PARTITION:OFFSET"):
        places_of([text])


def test_places_are_bounded() -> None:
    for texts in (["0:0-100000"], ["0:0-99999", "1:0"]):
        with pytest.raises(ValueError, match="more than 100,000 letters"):
            places_of(texts)


# ------------------------------------------------------------ progress


def settled(committed: OffsetAndMetadata | None = None, *, begin: int = 0, end: int = 100) -> Settled:
    found = {} if committed is None else {ZERO: committed}
    return Settled(TOPIC_ID, {ZERO: Stretch(begin, end)}, found)


@given(
    offsets=st.sets(st.integers(0, 60), min_size=1),
    rounds=st.lists(st.tuples(st.sets(st.integers(0, 60)), st.integers(0, 20)), max_size=6),
)
def test_each_letter_is_settled_once_over_any_choice(
    offsets: set[int], rounds: list[tuple[set[int], int]]
) -> None:
    """Replays choose letters, and each is stopped after some records. The commits remember exactly the letters sent."""
    sent: list[int] = []
    committed: OffsetAndMetadata | None = None
    for wanted, stop_after in rounds:
        state = settled(committed)
        begin = state.begins()[ZERO]
        for offset in sorted(offset for offset in offsets if offset >= begin)[:stop_after]:
            if not state.take(a_letter(offset)) and offset in wanted:
                state.settle(a_letter(offset))
                sent.append(offset)
                committed = state.commit(ZERO)
    assert len(sent) == len(set(sent))
    state = settled(committed)
    begin = state.begins()[ZERO]
    assert {offset for offset in offsets if offset < begin} <= set(sent)
    told = {offset for offset in sorted(offsets) if offset >= begin and state.take(a_letter(offset))}
    assert told | {offset for offset in offsets if offset < begin} == set(sent)


def committed_beyond() -> OffsetAndMetadata:
    """Return a commit at offset 0 that tells the letter at offset 2 as sent."""
    state = settled()
    for offset in range(4):
        state.take(a_letter(offset))
    state.settle(a_letter(2))
    return state.commit(ZERO)


def are_settled(state: Settled, offsets: range) -> list[int]:
    return [offset for offset in offsets if state.take(a_letter(offset))]


def test_metadata_of_another_topic_or_program_tells_nothing() -> None:
    found = committed_beyond()
    assert are_settled(settled(found), range(4)) == [2]
    other = Settled(bytes(16), {ZERO: Stretch(0, 100)}, {ZERO: found})
    assert are_settled(other, range(4)) == []
    for metadata in ("", "other", found.metadata[:-4] + "AAAA", found.metadata + "A"):
        assert are_settled(settled(OffsetAndMetadata(0, metadata)), range(4)) == []
    assert are_settled(settled(found._replace(offset=1)), range(1, 4)) == []


def test_offsets_outside_of_the_log_count_as_its_ends() -> None:
    assert settled(OffsetAndMetadata(7), begin=20).begins() == {ZERO: 20}
    assert settled(OffsetAndMetadata(101)).begins() == {
        ZERO: 0
    }  # The topic was made anew, with fewer letters.
    assert are_settled(settled(committed_beyond(), end=2), range(2)) == []


def test_too_many_stretches_are_refused_and_not_dropped() -> None:
    state = settled(end=10_000)
    with pytest.raises(
        CannotReplay, match=r"partition 0 lie too scattered to remember: .* Choose more letters"
    ):
        for offset in range(10_000):
            state.take(a_letter(offset))
            if offset % 2:
                state.settle(a_letter(offset))
                state.commit(ZERO)


def test_a_large_message_across_the_committed_offset_is_read_from_its_first_segment() -> None:
    state = settled()
    for offset in (0, 1, 5):
        state.take(a_letter(offset))
    state.settle(a_letter(0))
    state.settle(a_letter(1))
    found = state.commit(ZERO, 2)
    assert found.offset == 2
    again = settled(found)
    assert again.begins() == {ZERO: 2}
    assert not again.take(a_letter(5))
