"""Outcomes of errors; histories in files, and put together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode
from tests.histories.operations import (
    REFUSED_FOR_WHAT_IT_IS,
    REFUSED_THIS_TIME,
    AppendFailed,
    BegunAnew,
    Commit,
    CommittedRead,
    Copied,
    Deleted,
    Dump,
    Fetched,
    FinalRead,
    Healed,
    History,
    Hung,
    Leaderless,
    Lossy,
    Operation,
    Outcome,
    Owned,
    Poll,
    Position,
    Probe,
    ProducerIdentity,
    Reason,
    Released,
    Send,
    StableEnd,
    ToldVersion,
    Transaction,
    Watermark,
    WholeRead,
    outcome_of,
)
from tests.histories.transactions import Marker

EVERY_BYTE = bytes(range(256))
ONE_OF_EACH: list[Operation] = [
    Send("a", "p", "t", 0, EVERY_BYTE, -1, True, 1, 0.5, 0.75, Outcome.FAIL, 3, "NOT_ENOUGH_REPLICAS", 2),
    Send("a", "p", "t", 0, b"", 1, False, 2, 0.5),
    Poll("c", "s", "t", 0, 7, 2, EVERY_BYTE, 1.5),
    Position("c", "s", "t", 0, None, Reason.TRUNCATION, 1.5),
    Commit("g", "m", 3, "t", 0, 9, 2.0, 2.5, Outcome.OK, None, True),
    Fetched("g", "t", 0, 9, 3.0, 3.5),
    Owned("g", 3, "m", "t", 0, 4.0),
    Released("g", 3, "m", "t", 0, 5.0),
    Watermark("c", "t", 0, 1, 10, 0, 6.0, 2),
    FinalRead("t", 0, [(0, EVERY_BYTE), (4, b"")], 0, 5, 7.0),
    CommittedRead("t", 0, [(0, EVERY_BYTE)], 0, 4, 7.5, 4),
    Transaction("T", "id", "p", 1, 2, 3.0, 3.5, True, 4.0, Outcome.OK),
    StableEnd("c", "t", 0, 4, 4.0, 4.5),
    Leaderless("t", 0, 3.0, 3.1),
    WholeRead("c", "s", 4, [("t", 0, 7, EVERY_BYTE)], 5.0),
    ToldVersion("p", "id", None, 3.0, 3.5),
    Dump(1, "t", 0, 0, 5, [(0, 1, 0xFFFFFFFF), (4, 2, 5)], 8.0, [Marker(4, 1, 2, True, 3, 9)]),
    Lossy("power", 1.0, None, "t", None, 5),
    Deleted("t", 0, 5, 1.0),
    BegunAnew("t", 0, 5, 1.0),
    AppendFailed(1, "t", 0, 1.0),
    Probe("a", "a gap", ["X", "Y"], None, 1.0),
    ProducerIdentity("p", 1, 2, 3.0),
    Copied("t", "u", True, 3.0),
    Healed(9.0, 5.0),
    Hung("c", "poll", 1.0, 2.0),
]


@pytest.mark.parametrize(
    ("error", "once", "after_silence"),
    [
        (None, Outcome.OK, Outcome.OK),
        ("NONE", Outcome.OK, Outcome.OK),
        ("NOT_ENOUGH_REPLICAS", Outcome.FAIL, Outcome.INFO),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", Outcome.FAIL, Outcome.INFO),
        ("ILLEGAL_GENERATION", Outcome.FAIL, Outcome.INFO),
        ("MESSAGE_TOO_LARGE", Outcome.FAIL, Outcome.FAIL),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", Outcome.INFO, Outcome.INFO),
        ("NOT_LEADER_OR_FOLLOWER", Outcome.INFO, Outcome.INFO),
        ("REQUEST_TIMED_OUT", Outcome.INFO, Outcome.INFO),
        ("KAFKA_STORAGE_ERROR", Outcome.INFO, Outcome.INFO),
        ("NOT_COORDINATOR", Outcome.INFO, Outcome.INFO),
        ("_MSG_TIMED_OUT", Outcome.INFO, Outcome.INFO),
    ],
)
def test_what_an_error_says_of_the_append(error: str | None, once: Outcome, after_silence: Outcome) -> None:
    assert outcome_of(error, acks=-1, idempotent=True) is once
    assert outcome_of(error, acks=-1, idempotent=True, tried_before=True) is after_silence
    assert outcome_of(error, acks=0, idempotent=False) is Outcome.INFO


def test_a_repeated_sequence_was_appended_before() -> None:
    assert outcome_of("DUPLICATE_SEQUENCE_NUMBER", acks=-1, idempotent=True) is Outcome.OK
    assert outcome_of("DUPLICATE_SEQUENCE_NUMBER", acks=-1, idempotent=False) is Outcome.INFO


def test_refusals_are_named_as_kafka_names_them() -> None:
    assert ErrorCode.__members__.keys() >= REFUSED_FOR_WHAT_IT_IS | REFUSED_THIS_TIME


def test_a_file_holds_every_kind_of_operation(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(ONE_OF_EACH).write_to(path)
    read = History.read_from(path)
    assert list(read) == ONE_OF_EACH
    assert {type(operation) for operation in read} == set(Operation.__args__)
    assert len(path.read_text().splitlines()) == len(ONE_OF_EACH)


@pytest.mark.parametrize("line", ['{"kind": "Sand"}', '{"kind": "Healed"}', "[]", "half a li", '{"at_s": 1}'])
def test_a_file_that_is_no_history_is_refused_with_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    History(ONE_OF_EACH[-1:]).write_to(path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"history\.jsonl, line 2: not an operation"):
        History.read_from(path)


@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=4))
def test_histories_are_put_together_by_time_and_each_keeps_its_order(times: list[list[int]]) -> None:
    histories = [
        History(Hung(str(number), str(index), at_s, at_s) for index, at_s in enumerate(known))
        for number, known in enumerate(times)
    ]
    merged = History.merged(histories)
    for number, history in enumerate(histories):
        assert [hung for hung in merged.hung if hung.actor == str(number)] == history.hung
    if all(known == sorted(known) for known in times):
        found = [hung.at_s for hung in merged.hung]
        assert found == sorted(found)
