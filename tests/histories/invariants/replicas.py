"""Promises of the replicas: they hold the same bytes, and committed records stay committed."""

from __future__ import annotations

from collections.abc import Iterator

from ..operations import Dump, Watermark
from .base import Invariant
from .facts import Facts, Place, named


class ReplicaDivergence(Invariant):
    """All replicas of a partition are equal below the lowest high watermark, so every leader gives readers the same
    records. (Replicas of a compacted topic may have dropped different records.)
    """

    scenarios = (4, 15, 16, 18, 20, 23)

    def violations(self, facts: Facts) -> Iterator[str]:
        latest: dict[Place, dict[int, Dump]] = {}
        for dump in facts.history.dumps:
            latest.setdefault((dump.topic, dump.partition), {})[dump.broker] = dump
        for place, by_broker in latest.items():
            if place in facts.compacted:
                continue
            dumps = list(by_broker.values())
            start = max(dump.log_start for dump in dumps)
            end = min(dump.high_watermark for dump in dumps)
            model = self._between(dumps[0], start, end)
            for dump in dumps[1:]:
                entries = self._between(dump, start, end)
                if entries != model:
                    offset = self._first_difference(model, entries)
                    yield (
                        f"brokers {dumps[0].broker} and {dump.broker} differ in {named(place)} at offset {offset}, "
                        f"below high watermark {end}: (leader epoch, digest) {model.get(offset)} and "
                        f"{entries.get(offset)}"
                    )

    def _between(self, dump: Dump, start: int, end: int) -> dict[int, tuple[int, int]]:
        return {offset: (epoch, digest) for offset, epoch, digest in dump.entries if start <= offset < end}

    def _first_difference(
        self, entries: dict[int, tuple[int, int]], others: dict[int, tuple[int, int]]
    ) -> int:
        return min(
            offset for offset in entries.keys() | others.keys() if entries.get(offset) != others.get(offset)
        )


class HighWatermarkWentBack(Invariant):
    """A broker never lowers the high watermark or the log start offset that it reported to a reader within a leader
    epoch, and the log start never exceeds the high watermark. Answers without a leader epoch are not judged.
    """

    scenarios = (14, 15, 19)

    def violations(self, facts: Facts) -> Iterator[str]:
        latest: dict[tuple[str, int | None, str, int, int], Watermark] = {}
        for watermark in facts.history.watermarks:
            if watermark.log_start > watermark.high_watermark >= 0:
                yield f"{watermark}: it starts behind its high watermark"
            if watermark.leader_epoch < 0 or watermark.high_watermark < 0:
                continue
            key = (
                watermark.observer,
                watermark.broker,
                watermark.topic,
                watermark.partition,
                watermark.leader_epoch,
            )
            before = latest.get(key)
            if before is not None and (
                watermark.high_watermark < before.high_watermark or watermark.log_start < before.log_start
            ):
                yield f"{watermark} after {before}"
            latest[key] = watermark
