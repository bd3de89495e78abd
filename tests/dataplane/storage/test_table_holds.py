"""Retention that waits for a table of the lake: records that the table lacks stay, for a limited time."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.storage.log_upkeep import LogUpkeep
from tests.dataplane.log.batches import make_batch
from tests.dataplane.log.held_replicas import Held, holds_of

NOW = 1_000_000
HELD = LogConfig(
    segment_bytes=250, retention_ms=1000, lake_enable=True, lake_hold=True, lake_hold_max_ms=5000
)


@dataclass(eq=False)
class Replica:
    """A replica, as the upkeep of logs sees it."""

    topic: str
    index: int
    log: PartitionLog
    high_watermark: int

    def log_start_moved(self) -> None:
        """Do nothing, since no request waits for it."""


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[dict[int, Replica]]:
    """Return two partitions of a topic, each with ten records in segments of two, written at NOW."""
    made = {}
    for index in (0, 1):
        log = PartitionLog.open(
            tmp_path / f"t-{index}",
            HELD,
            clean_shutdown=False,
            recovery_point=0,
            log_start_offset=0,
            now_ms=NOW,
        )
        for _ in range(10):
            log.produced.append(memoryview(make_batch(1, b"x" * 40, timestamp=NOW)), 3, NOW)
        for segment in log.segments:
            os.utime(segment.path, ns=(NOW * 10**6, NOW * 10**6))
        made[index] = Replica("t", index, log, 10)
    yield made
    for replica in made.values():
        replica.log.close(clean=False)


class Checks:
    """Checks of retention of some replicas, with the questions that they asked."""

    def __init__(
        self,
        logs: Mapping[int, Replica],
        committed: Mapping[str, Mapping[int, int] | None],
        followers: Collection[Replica] = (),
    ) -> None:
        self.asked: list[tuple[str, str]] = []
        self.logs = logs
        self.holds = holds_of(committed, self.asked, followers)
        self._replicas: Held[Replica] = Held(*logs.values())
        self._followers = followers

    def check(self, after_ms: int) -> list[int]:
        """Apply retention that long after the write, and return the log starts."""

        async def keep() -> None:
            return

        upkeep = LogUpkeep(self._replicas, self.holds, keep, 1000, lambda: NOW + after_ms)
        asyncio.run(upkeep.check())
        return [replica.log.log_start_offset for replica in self.logs.values()]

    def held_bytes(self) -> dict[object, object]:
        """Return the metric by topic and partition."""
        (family,) = self.holds.metric_families()
        return dict(family.rows)


def test_only_what_the_table_has_goes(logs: dict[int, Replica], caplog: pytest.LogCaptureFixture) -> None:
    checks = Checks(logs, {"t": {0: 5, 1: 10}})
    assert checks.check(1000) == [0, 0]
    assert checks.asked == [], "nothing is expired"
    assert checks.check(1001) == [4, 10]
    assert checks.asked == [("ottla-lake-lake.t", "t")], "one question for both partitions"
    segment = logs[0].log.segments[0].size
    assert checks.held_bytes() == {("t", 0): 3 * segment}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("answer", [None, {}], ids=["no answer", "no offsets"])
def test_without_offsets_all_is_held_up_to_the_limit(
    logs: dict[int, Replica], caplog: pytest.LogCaptureFixture, answer: Mapping[int, int] | None
) -> None:
    checks = Checks(logs, {"t": answer})
    assert checks.check(6000) == [0, 0]
    assert set(checks.held_bytes()) == {("t", 0), ("t", 1)}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert checks.check(6001) == [10, 10]
    assert checks.held_bytes() == {}
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [
        f"retention dropped offsets 0 to 9 of t-{index}, which table lake.t may not have read, as its offsets are "
        "unknown: ottla.lake.hold.max.ms is over"
        for index in (0, 1)
    ]
    assert checks.check(9000) == [10, 10]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2


def test_the_limit_lets_records_go_and_names_those_that_the_table_lacks(
    logs: dict[int, Replica], caplog: pytest.LogCaptureFixture
) -> None:
    checks = Checks(logs, {"t": {0: 5, 1: 10}})
    assert checks.check(6001) == [10, 10]
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [
        "retention dropped offsets 5 to 9 of t-0, which table lake.t had not read: ottla.lake.hold.max.ms is over"
    ]


def test_a_follower_drops_by_its_leaders_log_start_alone(logs: dict[int, Replica]) -> None:
    checks = Checks(logs, {"t": {0: 10, 1: 10}}, followers=logs.values())
    assert checks.check(1 << 40) == [0, 0]
    assert (checks.asked, checks.held_bytes()) == ([], {})
    logs[0].log.advance_log_start_offset(5)
    assert checks.check(1 << 40) == [5, 0]
    assert len(logs[0].log.segments) == 3


def test_records_that_a_person_deletes_are_not_held(
    logs: dict[int, Replica], caplog: pytest.LogCaptureFixture
) -> None:
    checks = Checks(logs, {"t": None})
    logs[0].log.advance_log_start_offset(8)
    assert checks.check(1001) == [8, 0]
    assert len(logs[0].log.segments) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("setting", ["lake_enable", "lake_hold"])
def test_without_one_of_the_settings_nothing_is_held(logs: dict[int, Replica], setting: str) -> None:
    checks = Checks(logs, {"t": None})
    assert checks.check(1001) == [0, 0]
    for replica in logs.values():
        replica.log.config = LogConfig(
            segment_bytes=250,
            retention_ms=1000,
            lake_enable=setting != "lake_enable",
            lake_hold=setting != "lake_hold",
        )
    assert checks.check(1001) == [10, 10]
    assert len(checks.asked) == 1
