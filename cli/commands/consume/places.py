"""The offsets at which consumption of partitions begins and ends, as `-o`, `--until` and `-e` say."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from ....client.admin import Admin
from ....client.admin.records import EARLIEST, LATEST
from ....client.records import ConsumerRecord, TopicPartition
from ....protocol.errors import KafkaError
from ...arguments.selection import timestamp_ms
from ...failures import CommandFailed, UsageError
from ...run_client import refusal

RETRY_MS = 1000
"""Milliseconds after which the leader of a partition without a known end is asked again."""
_OFFSET_MAX = (1 << 63) - 1

Place = tuple[str, int]
"""A place in logs: a kind, such as `offset` or `timestamp`, and an offset, a number of records or a time in ms."""


def parse_offset(text: str, now_ms: int) -> Place:
    """Parse the start of consumption: `beginning`, `end`, `N`, `-N` or `@TIME`. Raises UsageError."""
    if text in ("beginning", "earliest", "start"):
        return "beginning", 0
    if text in ("end", "latest"):
        return "end", 0
    if text in ("json", "table"):
        raise UsageError(f"-o says where to start; for the format give --output {text}")
    if text.startswith("@"):
        return "timestamp", timestamp_ms(text[1:], now_ms)
    kind, number = ("last", text[1:]) if text.startswith("-") else ("offset", text)
    return kind, _offset(number, f"-o takes beginning, end, N, -N or @TIME, not {text[:40]!r}")


def parse_until(text: str, now_ms: int) -> Place:
    """Parse the place before which consumption ends: `N` or `@TIME`. Raises UsageError."""
    if text.startswith("@"):
        return "timestamp", timestamp_ms(text[1:], now_ms)
    return "offset", _offset(text, f"--until takes N or @TIME, not {text[:40]!r}; the end of the log is -e")


def check_order(start: Place, until: Place) -> None:
    """Raise UsageError if two offsets, or two times, have no record between them."""
    if start[0] == until[0] and start[1] >= until[1]:
        raise UsageError("--until is not behind -o, so no record lies between them")


def _offset(text: str, otherwise: str) -> int:
    if not text.isdecimal() or len(text) > len(str(_OFFSET_MAX)) or int(text) > _OFFSET_MAX:
        raise UsageError(otherwise)
    return int(text)


class Places:
    """The offsets at which consumption of each partition begins and ends, requested from the partition leaders.

    With `until`, a partition ends before the first record at this offset, or of this time or later. If no record is so
    late once the time has come, it ends at the end of the log. With `exits_at_end` no partition goes beyond the end
    that its log has when the leader is asked first.
    """

    def __init__(
        self,
        admin: Admin,
        start: Place,
        until: Place | None = None,
        *,
        exits_at_end: bool,
        read_committed: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._admin, self._start, self._until = admin, start, until
        self._read_committed, self._now_ms = read_committed, now_ms
        self._log_ends: dict[TopicPartition, int] = {}
        self._retry_at_ms = 0
        self.exits_at_end = exits_at_end
        self.ends: dict[TopicPartition, int] = {}
        """The known ends: the offset behind the last record that is printed."""
        self.missing: dict[TopicPartition, KafkaError] = {}
        """Partitions without an answering leader, each with the reason."""

    @property
    def have_ends(self) -> bool:
        """True if consumption ends at some offset of each partition."""
        return self.exits_at_end or self._until is not None

    def check(self, partitions: set[TopicPartition] | None = None) -> None:
        """Raise CommandFailed if partitions have no answering leader; `partitions` limits the check to these."""
        missing = {
            partition: why
            for partition, why in self.missing.items()
            if partitions is None or partition in partitions
        }
        if missing:
            named = "; ".join(f"{topic}-{index}: {refusal(why)}" for (topic, index), why in missing.items())
            raise CommandFailed(f"not all records are printed: {named}")

    async def ask(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Request the offsets of these partitions, and return the begin offset of each that answers.

        Updates `ends` and `missing`.

        Raises KafkaError for a refusal that is not retriable, CommandFailed for an offset beyond all ends.
        """
        kind, number = self._start
        stamp = {"end": LATEST, "timestamp": number}.get(kind, EARLIEST)
        ends, untils, begins = await asyncio.gather(
            self._offsets(partitions, LATEST),
            self._until_offsets(partitions),
            self._offsets(partitions, stamp),
        )
        found: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            self.missing.pop(partition, None)
            match ends[partition], untils[partition], begins[partition]:
                case (KafkaError() as why, _, _) | (_, KafkaError() as why, _) | (_, _, KafkaError() as why):
                    if not why.code.retriable:
                        raise why
                    self.missing[partition] = why
                case int(end), int(until), int(begin):
                    self._log_ends[partition] = end
                    self._note_end(partition, end, until)
                    found[partition] = self._begin(begin, end)
        if kind == "offset" and self._log_ends and number > (last := max(self._log_ends.values())):
            raise CommandFailed(f"there is no offset {number} yet: the log ends at {last}")
        return found

    async def find_ends(self) -> None:
        """Request the ends that are unknown although the time of `--until` has come.

        The leaders are asked again later if some do not answer. Raises KafkaError for a refusal that is not retriable.
        """
        if self._until is None or self._until[0] != "timestamp":
            return
        if self._now_ms() < max(self._until[1], self._retry_at_ms):
            return
        unknown = [partition for partition in self._log_ends if partition not in self.ends]
        if not unknown:
            return
        self._retry_at_ms = self._now_ms() + RETRY_MS
        ends, untils = await asyncio.gather(self._offsets(unknown, LATEST), self._until_offsets(unknown))
        for partition in unknown:
            match ends[partition], untils[partition]:
                case (KafkaError() as why, _) | (_, KafkaError() as why):
                    if not why.code.retriable:
                        raise why
                case int(end), int(until):
                    self._note_end(partition, end, until)

    def before_end(self, partition: TopicPartition, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the consumed records before the end of their partition.

        A record may show where that end is, while the time of `--until` has not come yet.
        """
        end = self.ends.get(partition)
        if end is not None:
            if not records or records[-1].offset < end:
                return records
            return records[: bisect_left(records, end, key=attrgetter("offset"))]
        if self._until is None or self._until[0] != "timestamp":
            return records
        for place, record in enumerate(records):
            if record.timestamp_ms >= self._until[1]:
                self.ends[partition] = record.offset
                return records[:place]
        return records

    async def _offsets(
        self, partitions: Sequence[TopicPartition], stamp: int
    ) -> Mapping[TopicPartition, int | KafkaError]:
        return await self._admin.list_offsets(
            dict.fromkeys(partitions, stamp), read_committed=self._read_committed
        )

    async def _until_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Return the first offset at or after the time of `--until` for each partition; -1 for none."""
        if self._until is None or self._until[0] != "timestamp":
            return dict.fromkeys(partitions, -1)
        return await self._offsets(partitions, self._until[1])

    def _note_end(self, partition: TopicPartition, log_end: int, until: int) -> None:
        """Note the end of a partition, if it is known now; `until` is the answer of `_until_offsets`."""
        ends = [log_end] if self.exits_at_end else []
        match self._until:
            case ("offset", number):
                ends.append(number)
            case ("timestamp", _) if until >= 0:
                ends.append(until)
            case ("timestamp", time_ms) if time_ms <= self._now_ms():
                ends.append(log_end)
        if partition in self.ends:
            ends.append(self.ends[partition])
        if ends:
            self.ends[partition] = min(ends)

    def _begin(self, begin: int, end: int) -> int:
        kind, number = self._start
        if kind == "offset":
            return min(max(number, begin), end)
        if kind == "last":
            return max(begin, end - number)
        return (
            end if begin < 0 else begin
        )  # A negative answer means that no record is as recent as the timestamp.
