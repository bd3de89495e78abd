"""The outcomes of transactions in a range of a partition: interleaved, open, aborted, and not searched for."""

from __future__ import annotations

import random

import pytest

from ottla.client.consuming.outcomes import StretchOutcomes, TransactionOutcome
from tests.client.test_whole_transactions import Log


def read(log: Log, begin: int, end: int, upto: int | None = None) -> StretchOutcomes:
    outcomes = StretchOutcomes(begin, end)
    for header, batch in log.batches[:upto]:
        if header.next_offset > begin and not outcomes.is_settled:
            outcomes.add(header, batch)
    return outcomes


def interleaved() -> Log:
    """Return a log: 0-1 of producer 1, 2 of 2, 3 plain, 4 of 1, 5: 2 commits, 6 of 3, 7: 1 aborts, 8 of 2."""
    log = Log()
    log.write(1, b"a", b"b")
    log.write(2, b"c")
    log.write(None, b"d")
    log.write(1, b"e")
    log.mark(2, 7, commits=True)
    log.write(3, b"f")
    log.mark(1, 8, commits=False)
    log.write(2, b"g")
    return log


def test_each_batch_is_told_by_its_own_marker() -> None:
    outcomes = read(interleaved(), 0, 9).known(is_at_end=True)
    assert outcomes == [
        TransactionOutcome(0, 2, "aborted", 8),
        TransactionOutcome(2, 3, "committed", 7),
        TransactionOutcome(4, 5, "aborted", 8),
        TransactionOutcome(6, 7, "open", -1),
        TransactionOutcome(8, 9, "open", -1),
    ]


def test_it_reads_on_to_the_last_marker_and_no_further() -> None:
    outcomes = read(interleaved(), 1, 3)
    assert outcomes.is_settled
    assert outcomes.position == 8
    assert outcomes.known(is_at_end=False) == [
        TransactionOutcome(0, 2, "aborted", 8), TransactionOutcome(2, 3, "committed", 7),
    ]  # fmt: skip
    assert read(interleaved(), 3, 4).position == 4


def test_what_is_not_known_is_left_out_until_nothing_more_is_there() -> None:
    outcomes = read(interleaved(), 0, 9, upto=5)
    assert not outcomes.is_settled
    assert outcomes.known(is_at_end=False) == [TransactionOutcome(2, 3, "committed", 7)]
    assert [outcome.decision for outcome in outcomes.known(is_at_end=True)] == ["open", "committed", "open"]


@pytest.mark.parametrize("seed", range(20))
def test_any_stretch_agrees_with_the_whole_log(seed: int) -> None:
    chance, log = random.Random(seed), Log()
    written: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    expected: set[TransactionOutcome] = set()
    for index in range(40):
        producer_id = chance.choice([1, 2, 3])
        if chance.random() < 0.7:
            first = log.end
            log.write(producer_id, *[b"v"] * chance.randrange(1, 4))
            written[producer_id].append((first, log.end))
        else:
            commits = chance.random() < 0.5
            log.mark(producer_id, index, commits=commits)
            decision = "committed" if commits else "aborted"
            expected |= {TransactionOutcome(*span, decision, index) for span in written[producer_id]}  # type: ignore[arg-type]
            written[producer_id] = []
    expected |= {TransactionOutcome(*span, "open", -1) for some in written.values() for span in some}
    begin, end = sorted(chance.sample(range(log.end + 1), 2))
    outcomes = read(log, begin, end).known(is_at_end=True)
    assert outcomes == sorted(
        outcome for outcome in expected if outcome.next_offset > begin and outcome.first_offset < end
    )
