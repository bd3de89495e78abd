"""The active leader's handling of marker reports before they are in its log."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.metadata_quorum.marker_reports import MarkerReports, ReportedMarkers
from ottla.metadata_quorum.raft.effects import Done
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import PlainResult
from tests.metadata_quorum.state.transactional import Transactions


class Reporting(Transactions):
    """Transactions, and marker reports that are not applied yet."""

    def __init__(self) -> None:
        super().__init__()
        self.told = ReportedMarkers(lambda: self.machine.image)

    def report(
        self, index: int, producer_id: int, number: int, *, epoch_ago: int = 0, leader_ago: int = 0
    ) -> t.ReportMarkers:
        """Report one marker in a partition of topic t as its leader, or in an earlier epoch."""
        topic = self.machine.image.topics["t"]
        state = topic.partitions[index]
        return t.ReportMarkers(
            broker_id=state.leader,
            broker_epoch=self.epoch(state.leader) - epoch_ago,
            partitions=[
                t.WrittenMarkers(
                    topic_id=topic.id,
                    partition=index,
                    leader_epoch=state.leader_epoch - leader_ago,
                    writers=[t.WrittenMarker(producer_id=producer_id, number=number)],
                )
            ],
        )

    def note(self, report: t.ReportMarkers) -> list[tuple[str, int]]:
        """Return the transactions that are now known to be complete."""
        return [(transaction.transactional_id, transaction.number) for transaction in self.told.note(report)]


def test_a_transaction_is_over_with_the_last_report_though_none_is_applied() -> None:
    reporting = Reporting()
    who = reporting.begin()
    reporting.add(who, reporting.places(0, 1))
    ended = reporting.end(who)
    first, second = (reporting.report(index, who[0], ended.number) for index in (0, 1))
    assert reporting.note(first) == []
    assert reporting.note(first) == []
    assert reporting.note(second) == [("x", ended.number)]
    assert reporting.note(first) == [("x", ended.number)], "it was reported again, as the answer was lost"
    reporting.told.clear()
    assert reporting.note(second) == [], "another leader has not heard of the first"
    reporting.do(first, PlainResult)
    reporting.told.changed(["x"])
    assert reporting.note(second) == [("x", ended.number)], "applied reports count as well"
    reporting.do(second, PlainResult)
    reporting.told.changed(["x"])
    assert reporting.note(second) == []


def test_reports_that_would_not_be_applied_count_for_nothing() -> None:
    reporting = Reporting()
    who = reporting.begin()
    reporting.add(who, reporting.places(0))
    number = reporting.end(who).number
    assert reporting.note(reporting.report(0, who[0], number, epoch_ago=1)) == []
    assert reporting.note(reporting.report(0, who[0], number, leader_ago=1)) == []
    assert reporting.note(reporting.report(0, who[0], number - 1)) == []
    assert reporting.note(reporting.report(1, who[0], number)) == []
    assert reporting.note(reporting.report(0, who[0] + 1, number)) == []
    assert reporting.note(reporting.report(0, who[0], number)) == [("x", number)]


def test_what_a_former_leader_has_told_of_counts_no_more() -> None:
    """The current leader may not have the marker, and reports it once it has."""
    reporting = Reporting()
    who = reporting.begin()
    reporting.add(who, reporting.places(0, 1))
    number = reporting.end(who).number
    assert reporting.note(reporting.report(0, who[0], number)) == []
    reporting.fence(1)
    assert reporting.note(reporting.report(1, who[0], number)) == []
    assert reporting.note(reporting.report(0, who[0], number)) == [("x", number)]


@pytest.mark.parametrize("seed", range(40))
def test_it_is_told_when_all_that_was_told_would_complete_it(seed: int) -> None:
    """Two ids write to some partitions with two writers each; reports come in any order, twice, and
    are applied late.
    """
    random = Random(seed)
    reporting = Reporting()
    owed: list[tuple[str, int, int, int]] = []
    for name in ("x", "y"):
        who = reporting.begin(name)
        reporting.add(who, (), name)
        joined = reporting.join(who, name)
        other = (joined.producer_id, joined.producer_epoch)
        for writer in (who, other):
            indexes = random.sample(range(4), random.randrange(1, 5))
            assert not reporting.add(writer, reporting.places(*indexes), name).error_code
            owed += [(name, index, writer[0], reporting.state(name).number) for index in indexes]
        reporting.end(who, name=name, writers=[other])
    left, unapplied = list(owed), []
    while left:
        name, index, producer_id, number = random.choice(owed)
        if reporting.state(name).phase.is_over:
            continue
        left = [marker for marker in left if marker != (name, index, producer_id, number)]
        report = reporting.report(index, producer_id, number)
        is_owed = not reporting.places(index).isdisjoint(
            reporting.state(name).writers[producer_id].outstanding
        )
        settled = is_owed and all(marker[0] != name for marker in left)
        assert (reporting.note(report) == [(name, number)]) == settled, f"seed {seed}"
        unapplied.append(report)
        while unapplied and random.random() < 0.4:
            reporting.do(unapplied.pop(0), PlainResult)
            reporting.told.changed(["x", "y"])
    for report in unapplied:
        reporting.do(report, PlainResult)
    assert {reporting.state(name).phase for name in ("x", "y")} == {Phase.COMPLETE_COMMIT}


async def test_reports_wait_for_the_next_command_or_a_moment() -> None:
    reporting = Reporting()
    proposed: list[tuple[bytes, Done]] = []
    done: list[object] = []

    def note(result: object, error: Exception | None) -> None:
        done.append(result)

    reports = MarkerReports(reporting.told, lambda command, done: proposed.append((command, done)))
    command = t.ReportMarkers(broker_id=1, broker_epoch=0, partitions=[])
    for encoded in (b"one", b"two"):
        reports.take(command, encoded, note)
    assert not proposed
    reports.flush()
    assert [encoded for encoded, _ in proposed] == [b"one", b"two"]
    answered: list[int] = []
    reports.take(command, b"three", note)
    reports.once_applied(lambda: answered.append(1))
    assert proposed[-1][0] == b"three", "a question is not answered before what was reported counts"
    for number, (_, settle) in enumerate(proposed):
        assert not answered
        settle(number, None)
    assert (done, answered) == ([0, 1, 2], [1])
    reports.once_applied(lambda: answered.append(2))
    assert answered == [1, 2], "nothing is on its way"
    reports.take(command, b"four", note)
    async with asyncio.timeout(60):
        while len(proposed) < 4:
            await asyncio.sleep(0.001)
