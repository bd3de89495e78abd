"""`ottla consume`: where partitions end, partitions that lose their leaders, and the choice of records. No cluster."""

from __future__ import annotations

import argparse
import asyncio
import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.arguments.record_filters import add_filters, filters_of
from ottla.cli.commands.consume import reading
from ottla.cli.commands.consume.places import EARLIEST, LATEST, Place, Places
from ottla.cli.commands.consume.reading import SearchProgress, print_records
from ottla.cli.commands.consume.selection import RecordSelection
from ottla.cli.failures import CommandFailed
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
Portion = dict[TopicPartition, list[ConsumerRecord]]
GONE = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "t-1 has no leader now")


def record(offset: int, value: bytes = b"", *, partition: int = 0, timestamp_ms: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, timestamp_ms, None, value)


def places(
    admin: FakeAdmin, until: Place | None = None, *, start: Place = ("beginning", 0), exits: bool = False
) -> Places:
    fake: Any = admin
    return Places(fake, start, until, exits_at_end=exits, read_committed=False, now_ms=lambda: admin.now_ms)


class FakeAdmin:
    """An admin client of two partitions whose records have their offset as timestamp.

    A partition in `gone` is answered by this error. `log_end` is the end of both logs.
    """

    def __init__(self, log_end: int = 2, now_ms: int = 0) -> None:
        self.gone: dict[TopicPartition, KafkaError] = {}
        self.log_end = log_end
        self.now_ms = now_ms
        self.asked = 0

    async def list_offsets(self, wanted: Any, *, read_committed: bool) -> dict[TopicPartition, Any]:
        self.asked += 1
        return {
            partition: self.gone.get(partition, self._offset(stamp)) for partition, stamp in wanted.items()
        }

    def _offset(self, stamp: int) -> int:
        if stamp in (EARLIEST, LATEST):
            return 0 if stamp == EARLIEST else self.log_end
        return stamp if stamp < self.log_end else -1


class FakeConsumer:
    """A consumer of given portions of records, which gives no more of a partition that is paused.

    After the last portion `on_end` is called. A further assignment brings the portions `when_assigned`.
    """

    def __init__(
        self,
        portions: Sequence[Portion],
        on_end: Callable[[], None] = lambda: None,
        when_assigned: Sequence[Portion] = (),
    ) -> None:
        self.positions = {ZERO: 0, ONE: 0}
        self.commits: list[dict[TopicPartition, int]] = []
        self._portions, self._on_end, self._when_assigned = list(portions), on_end, when_assigned
        self._paused: set[TopicPartition] = set()

    def assignment(self) -> set[TopicPartition]:
        return {ZERO, ONE}

    async def getmany(self, **options: Any) -> dict[TopicPartition, list[ConsumerRecord]]:
        await asyncio.sleep(0)
        if not self._portions:
            self._on_end()
            return {}
        found = {
            partition: records
            for partition, records in self._portions.pop(0).items()
            if partition not in self._paused
        }
        self.positions |= {partition: records[-1].offset + 1 for partition, records in found.items()}
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._portions += self._when_assigned

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)

    async def commit(self) -> None:
        self.commits.append(dict(self.positions))

    async def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]


async def printed(
    consumer: FakeConsumer,
    where: Places,
    capfdbinary: pytest.CaptureFixture[bytes],
    *words: str,
    count: int | None = None,
    group: str | None = None,
) -> str:
    """Return the values that the command prints."""
    options = argparse.ArgumentParser()
    add_filters(options)
    fake: Any = consumer
    selection = RecordSelection(where.before_end, filters_of(options.parse_args(words)), count)
    async with asyncio.timeout(20):
        await print_records(fake, where, selection, lambda record: record.value or b"", group=group)
    return capfdbinary.readouterr().out.decode()


# ------------------------------------------------------------ leaders


@pytest.mark.parametrize("start", [("beginning", 0), ("timestamp", 7)])
async def test_a_leader_that_goes_while_others_are_read_is_named(
    start: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(reading, "SILENCE_S", 0.0)
    admin = FakeAdmin()
    where = places(admin, start=start, exits=True)
    assert set(await where.ask([ZERO, ONE])) == {ZERO, ONE}
    consumer = FakeConsumer(
        [{ZERO: [record(0, b"0"), record(1, b"0")]}, {ONE: [record(0, b"1", partition=1)]}],
        lambda: admin.gone.update({ONE: GONE}),
    )
    with pytest.raises(CommandFailed, match=r"not all records are printed: t-1: .*LEADER_NOT_AVAILABLE"):
        await printed(consumer, where, capfdbinary)
    assert capfdbinary.readouterr().out == b"001"


async def test_a_refusal_that_does_not_pass_is_raised() -> None:
    admin = FakeAdmin()
    admin.gone[ONE] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    with pytest.raises(KafkaError, match="no"):
        await places(admin, start=("end", 0)).ask([ZERO, ONE])


# ------------------------------------------------------------ ends


@pytest.mark.parametrize(
    ("until", "exits", "now_ms", "ends"),
    [
        (None, False, 0, {}),
        (None, True, 0, {ZERO: 100, ONE: 100}),
        (("offset", 7), False, 0, {ZERO: 7, ONE: 7}),
        (("offset", 700), False, 0, {ZERO: 700, ONE: 700}),
        (("offset", 700), True, 0, {ZERO: 100, ONE: 100}),
        (("timestamp", 7), False, 1_000, {ZERO: 7, ONE: 7}),
        (("timestamp", 700), False, 1_000, {ZERO: 100, ONE: 100}),
        (("timestamp", 7), False, 0, {ZERO: 7, ONE: 7}),
        (("timestamp", 700), False, 0, {}),
        (("timestamp", 700), True, 0, {ZERO: 100, ONE: 100}),
    ],
)
async def test_where_partitions_end(
    until: Place | None, exits: bool, now_ms: int, ends: dict[TopicPartition, int]
) -> None:
    where = places(FakeAdmin(100, now_ms), until, exits=exits)
    await where.ask([ZERO, ONE])
    assert where.ends == ends
    assert where.have_ends == (exits or until is not None)


async def test_a_time_to_come_is_awaited() -> None:
    admin = FakeAdmin(100)
    where = places(admin, ("timestamp", 700))
    await where.ask([ZERO, ONE])
    early = [record(100, timestamp_ms=699), record(101, timestamp_ms=5)]
    assert where.before_end(ZERO, early) == early
    # A record from the future ends its partition at once, and further records do not count.
    late = [record(102, timestamp_ms=700), record(103, timestamp_ms=0)]
    assert where.before_end(ZERO, [*early, *late]) == early
    assert where.before_end(ZERO, late) == []
    asked = admin.asked
    await where.find_ends()
    assert admin.asked == asked, "the time has not come"
    admin.now_ms, admin.log_end = 700, 150
    admin.gone[ONE] = GONE
    await where.find_ends()
    assert where.ends == {ZERO: 102}
    admin.gone.clear()
    await where.find_ends()
    assert where.ends == {ZERO: 102}, "the leader is asked again after a while"
    admin.now_ms += 1_000
    await where.find_ends()
    assert where.ends == {ZERO: 102, ONE: 150}
    admin.gone[ONE] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    await where.find_ends()  # All ends are known.


async def test_records_behind_the_end_are_neither_printed_nor_committed(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """A topic with enough producers kept `-e` reading for ever."""
    where = places(FakeAdmin(2), exits=True)
    await where.ask([ZERO, ONE])
    busy = [
        {ZERO: [record(offset, b"0")], ONE: [record(offset, b"1", partition=1)]} for offset in range(1_000)
    ]
    consumer = FakeConsumer(busy)
    assert await printed(consumer, where, capfdbinary, group="g") == "0101"
    assert consumer.commits[-1] == {ZERO: 2, ONE: 2}


async def test_a_partition_without_a_leader_is_awaited_unless_the_end_of_the_log_is_enough(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(reading, "SILENCE_S", 0.0)
    admin = FakeAdmin(2)
    admin.gone[ONE] = GONE
    where = places(admin, ("offset", 1))
    assert set(await where.ask([ZERO, ONE])) == {ZERO}
    consumer = FakeConsumer(
        [{ZERO: [record(0, b"0"), record(1, b"x")]}],
        admin.gone.clear,
        when_assigned=[{ONE: [record(0, b"1", partition=1)]}],
    )
    assert await printed(consumer, where, capfdbinary) == "01"


# ------------------------------------------------------------ filters and the count


async def test_the_count_is_of_matches_and_a_group_commits_no_further(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    where = places(FakeAdmin(100), exits=True)
    await where.ask([ZERO, ONE])
    values = [b"a", b"b", b"a", b"a", b"b", b"a", b"a"]
    portion = {
        ZERO: [record(offset, value) for offset, value in enumerate(values)],
        ONE: [record(offset, value, partition=1) for offset, value in enumerate(values)],
    }
    consumer = FakeConsumer([portion])
    assert await printed(consumer, where, capfdbinary, "--grep", "a", count=3, group="g") == "aaa"
    assert consumer.commits == [{ZERO: 4, ONE: 0}]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=30),
    st.integers(0, 70),
    st.integers(0, 12) | st.none(),
    st.integers(1, 7),
)
def test_a_selection_is_the_first_matches_before_the_end(
    steps: list[tuple[int, bool]], end: int, count: int | None, portion: int
) -> None:
    records: list[ConsumerRecord] = []
    for step, is_match in steps:
        records.append(record((records[-1].offset if records else 0) + step, b"a" if is_match else b"b"))
    where = places(FakeAdmin())
    where.ends[ZERO] = end
    selection = RecordSelection(where.before_end, [lambda record, _: record.value == b"a"], count)
    chosen: list[ConsumerRecord] = []
    for at in range(0, len(records), portion):
        some, unread = selection.take(ZERO, records[at : at + portion])
        chosen += some
        if unread is not None:
            assert selection.is_complete or unread >= end
            assert all(match.offset < unread for match in chosen)
    assert chosen == [found for found in records if found.offset < end and found.value == b"a"][:count]
    assert selection.matched == len(chosen)


async def test_a_search_that_finds_nothing_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", stderr := Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr(reading, "PROGRESS_S", 0.0)
    selection = RecordSelection(lambda _, records: records, [lambda record, _: record.offset == 1_200_000])
    with SearchProgress(selection) as progress:
        selection.looked_at = 1_199_999
        progress.show()
        assert stderr.getvalue().endswith("\x1b[Klooked at 1,199,999 records, 0 match")
        selection.take(ZERO, [record(1_200_000), record(1_200_001)])
        progress.make_room()
        assert stderr.getvalue().endswith("\r\x1b[K")
        progress.show()
    assert stderr.getvalue().endswith("looked at 1,200,001 records, 1 match\n")
    before = stderr.getvalue()
    with SearchProgress(RecordSelection(lambda _, records: records)) as progress:
        progress.show()
    assert stderr.getvalue() == before, "without filters there is no search"
