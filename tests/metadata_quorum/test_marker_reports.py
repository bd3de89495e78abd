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
        return [(one.transactional_id, one.number) for one in self.told.note(report)]


def test_a_transaction_is_over_with_the_last_report_though_none_is_applied() -> None:
    one = Reporting()
    who = one.begin()
    one.add(who, one.places(0, 1))
    ended = one.end(who)
    first, second = (one.report(index, who[0], ended.number) for index in (0, 1))
    assert one.note(first) == []
    assert one.note(first) == []
    assert one.note(second) == [("x", ended.number)]
    assert one.note(first) == [("x", ended.number)], "it was reported again, as the answer was lost"
    one.told.clear()
    assert one.note(second) == [], "another leader has not heard of the first"
    one.do(first, PlainResult)
    one.told.changed(["x"])
    assert one.note(second) == [("x", ended.number)], "applied reports count as well"
    one.do(second, PlainResult)
    one.told.changed(["x"])
    assert one.note(second) == []


def test_reports_that_would_not_be_applied_count_for_nothing() -> None:
    one = Reporting()
    who = one.begin()
    one.add(who, one.places(0))
    number = one.end(who).number
    assert one.note(one.report(0, who[0], number, epoch_ago=1)) == []
    assert one.note(one.report(0, who[0], number, leader_ago=1)) == []
    assert one.note(one.report(0, who[0], number - 1)) == []
    assert one.note(one.report(1, who[0], number)) == []
    assert one.note(one.report(0, who[0] + 1, number)) == []
    assert one.note(one.report(0, who[0], number)) == [("x", number)]


def test_what_a_former_leader_has_told_of_counts_no_more() -> None:
    """The current leader may not have the marker, and reports it once it has."""
    one = Reporting()
    who = one.begin()
    one.add(who, one.places(0, 1))
    number = one.end(who).number
    assert one.note(one.report(0, who[0], number)) == []
    one.fence(1)
    assert one.note(one.report(1, who[0], number)) == []
    assert one.note(one.report(0, who[0], number)) == [("x", number)]


@pytest.mark.parametrize("seed", range(40))
def test_it_is_told_when_all_that_was_told_would_complete_it(seed: int) -> None:
    """Two ids write to some partitions with two writers each; reports come in any order, twice, and
    are applied late.
    """
    random = Random(seed)
    one = Reporting()
    owed: list[tuple[str, int, int, int]] = []
    for name in ("x", "y"):
        who = one.begin(name)
        one.add(who, (), name)
        joined = one.join(who, name)
        other = (joined.producer_id, joined.producer_epoch)
        for writer in (who, other):
            indexes = random.sample(range(4), random.randrange(1, 5))
            assert not one.add(writer, one.places(*indexes), name).error_code
            owed += [(name, index, writer[0], one.state(name).number) for index in indexes]
        one.end(who, name=name, writers=[other])
    left, unapplied = list(owed), []
    while left:
        name, index, producer_id, number = random.choice(owed)
        if one.state(name).phase.is_over:
            continue
        left = [marker for marker in left if marker != (name, index, producer_id, number)]
        report = one.report(index, producer_id, number)
        is_owed = not one.places(index).isdisjoint(one.state(name).writers[producer_id].outstanding)
        settled = is_owed and all(marker[0] != name for marker in left)
        assert (one.note(report) == [(name, number)]) == settled, f"seed {seed}"
        unapplied.append(report)
        while unapplied and random.random() < 0.4:
            one.do(unapplied.pop(0), PlainResult)
            one.told.changed(["x", "y"])
    for report in unapplied:
        one.do(report, PlainResult)
    assert {one.state(name).phase for name in ("x", "y")} == {Phase.COMPLETE_COMMIT}


async def test_reports_wait_for_the_next_command_or_a_moment() -> None:
    one = Reporting()
    proposed: list[tuple[bytes, Done]] = []
    done: list[object] = []

    def note(result: object, error: Exception | None) -> None:
        done.append(result)

    reports = MarkerReports(one.told, lambda command, done: proposed.append((command, done)))
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
