"""Letters of a range of records, as one batch for the topic for dead letters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.share.leader.dependencies import ShareKey
from ottla.dataplane.share.leader.letters import (
    LETTERS_MAX,
    LetterForm,
    SourceRecords,
    encoded,
    size_of,
)
from ottla.dataplane.share.states import DeathReason
from ottla.dataplane.share.transitions import DeadRecords
from ottla.protocol.records.record import NewRecord, Record, decode_records
from ottla.protocol.records.record_batch import HEADER_SIZE, parse_header

KEY = ShareKey("g", b"t" * 16, 3)


def form(bytes_max: int = 1_000_000, *, copies: bool = True) -> LetterForm:
    return LetterForm("tasks", KEY, copies, bytes_max, 99)


def rejected(first: int, last: int, count: int = 2) -> DeadRecords:
    return DeadRecords(first, last, count, DeathReason.REJECTED)


def record(offset: int, value: bytes = b"v") -> Record:
    return Record(offset, 5, b"k", value, [("own", b"1"), ("__dlq.errors.topic", b"before")])


def source(*offsets: int, behind: int) -> SourceRecords:
    return SourceRecords({offset: record(offset) for offset in offsets}, behind)


def test_a_letter_says_where_its_record_was_and_why_it_was_given_up() -> None:
    batch = form().batch([rejected(7, 7)], source(7, behind=8))
    (letter,) = decode_records(encoded(batch.letters, 11, 4))
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", b"v", 99)
    assert list(letter.headers) == [
        ("own", b"1"),
        ("__dlq.errors.topic", b"tasks"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]
    header = parse_header(encoded(batch.letters, 11, 4))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 4, 0)
    assert header.is_transactional


def test_a_group_that_copies_nothing_sends_headers_alone() -> None:
    (letter,) = form(copies=False).batch([rejected(7, 7)], source(7, behind=8)).letters
    assert letter[:2] == (None, None)
    assert len(letter) == 4
    assert len(letter[3]) == 6


def test_a_letter_that_its_topic_would_refuse_has_headers_alone() -> None:
    large = SourceRecords({7: record(7, b"x" * 5_000), 8: record(8)}, 9)
    letters = form(2_000).batch([rejected(7, 8)], large).letters
    assert [letter[1] for letter in letters] == [None, b"v"]
    fits = SourceRecords({7: record(7, b"x" * 1_500)}, 8)
    (letter,) = form(2_000).batch([rejected(7, 7)], fits).letters
    assert letter[1] == b"x" * 1_500


def test_a_gap_needs_no_letter_and_an_unreadable_record_has_headers_alone() -> None:
    read = SourceRecords({5: record(5), 8: None}, 9)
    batch = form().batch([rejected(5, 12)], read)
    assert [letter[1] for letter in batch.letters] == [b"v", None]
    assert batch.spans == [(5, 8)], "offset 9 was not read"


@given(
    ranges=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 300)), min_size=1, max_size=6),
    gaps=st.sets(st.integers(0, 400)),
    unread=st.integers(0, 400),
    bytes_max=st.integers(600, 50_000),
)
def test_rounds_of_letters_cover_each_record_once(
    ranges: list[tuple[int, int]], gaps: set[int], unread: int, bytes_max: int
) -> None:
    dead, offset = [], 0
    for space, length in ranges:
        dead.append(rejected(offset + space, offset + space + length - 1, 1 + length % 5))
        offset += space + length
    wanted = {offset for records in dead for offset in range(records.first, records.last + 1)}
    done: set[int] = set()
    told: list[NewRecord] = []
    while left := [_cut(records, done) for records in dead if _cut(records, done) is not None]:
        first = left[0].first  # type: ignore[union-attr]
        behind = max(first + 1, min(offset, first + unread))
        read = SourceRecords({at: record(at) for at in range(first, behind) if at not in gaps}, behind)
        batch = form(bytes_max).batch([records for records in left if records], read)
        assert batch.spans, "each round makes progress"
        assert len(batch.letters) <= LETTERS_MAX
        if batch.letters:
            assert len(encoded(batch.letters, 1, 1)) <= HEADER_SIZE + sum(map(size_of, batch.letters))
            assert len(batch.letters) == 1 or len(encoded(batch.letters, 1, 1)) <= bytes_max
        spans = {at for begin, end in batch.spans for at in range(begin, end + 1)}
        assert not spans & done
        done |= spans
        told += batch.letters
    assert done == wanted
    assert len(told) == len(wanted - gaps)


def _cut(records: DeadRecords, done: set[int]) -> DeadRecords | None:
    """Return the records that have no letter yet; letters are written in the order of offsets."""
    left = [offset for offset in range(records.first, records.last + 1) if offset not in done]
    return records._replace(first=left[0]) if left else None
