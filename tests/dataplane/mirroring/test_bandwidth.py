"""A limit of bandwidth: the bytes that a fetcher takes from its source, within windows of a simulated clock."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.dataplane.mirroring.copies import Copy
from ottla.dataplane.mirroring.fetching import SourceFetcher
from ottla.dataplane.replication.throttle import UNLIMITED, Throttle
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.mirror_table import Mirror, MirrorPhase
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.records.record_batch import parse_header
from tests.dataplane.log.batches import make_batch

RATE = 100_000
ANSWER_S = 0.01
"""Seconds that the source takes for an answer."""
TURN_S = 1e-6
"""Seconds that a turn of the loop takes."""


class _Selector(selectors.PollSelector):
    """A selector that waits by advancing the clock."""

    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> Any:
        self.now_s += (timeout or 0.0) + TURN_S
        return super().select(0)


class MovedClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once, and only while all tasks wait."""

    def __init__(self) -> None:
        self._moved = _Selector()
        super().__init__(self._moved)

    def time(self) -> float:
        return self._moved.now_s


@dataclass
class Log:
    log_end_offset: int = 0
    log_start_offset: int = 0


@dataclass
class Led:
    """A partition that this broker leads, without other replicas."""

    index: int
    topic: str = "t"
    topic_id: bytes = b"t" * 16
    leader: Any = "this broker"
    leader_epoch: int = 1
    log: Log = field(default_factory=Log)

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    def append_copied(self, batches: memoryview) -> None:
        position = 0
        while position < len(batches):
            header = parse_header(batches[position:])
            self.log.log_end_offset = header.next_offset
            position += header.size


class EndlessSource:
    """A source that always has more records, in batches of one size."""

    def __init__(self, batch_bytes: int) -> None:
        self._payload = bytes(batch_bytes)
        self.sent: list[tuple[float, int]] = []
        """Time and bytes of each answer."""

    async def ask(self, broker_id: int, message: FetchRequest, **_: Any) -> FetchResponse:
        await asyncio.sleep(ANSWER_S)
        left, parts = message.max_bytes, []
        for part in message.topics[0].partitions:
            records = bytearray()
            offset = part.fetch_offset
            allowed = min(left, part.partition_max_bytes)
            while len(records) + len(self._payload) < allowed or (not records and not parts):
                records += make_batch(1, self._payload, base_offset=offset, leader_epoch=3)
                offset += 1
            left -= len(records)
            parts.append(
                PartitionData(partition_index=part.partition, high_watermark=1 << 40, records=bytes(records))
            )
        size = sum(len(part.records or b"") for part in parts)
        self.sent.append((asyncio.get_running_loop().time(), size))
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"s" * 16, partitions=parts)])

    def between(self, first_s: float, end_s: float) -> int:
        return sum(size for at_s, size in self.sent if first_s <= at_s < end_s)


async def fetched(rate: int, batch_bytes: int, seconds: float, fetchers: int = 1) -> EndlessSource:
    """Run fetchers of one mirror, one for each broker of the source, for `seconds`."""
    source, loop = EndlessSource(batch_bytes), asyncio.get_running_loop()
    throttle = Throttle(loop.time)
    throttle.set_rate(rate)
    mirror = Mirror("m", "there", "there:9092", ".*", "", -2, MirrorPhase.ACTIVE)
    copies = [
        Copy(Led(index), 1, b"s" * 16, index % fetchers, 3, 3)  # type: ignore[arg-type]
        for index in range(2 * fetchers)
    ]

    async def report(partitions: Sequence[Any]) -> None:
        pass

    async def ask_no_cuts(broker: int, copies: Sequence[Copy]) -> None:
        pass

    running = [
        SourceFetcher(
            broker,
            mirror,
            source,  # type: ignore[arg-type]
            ClusterImage,
            lambda broker: [copy for copy in copies if copy.source_leader == broker],
            report,
            throttle,
            lambda size: None,
            lambda: None,
            ask_no_cuts,
        )
        for broker in range(fetchers)
    ]
    await asyncio.sleep(seconds)
    for fetcher in running:
        fetcher.close()
    assert all(copy.log_end > 0 for copy in copies), "some partition had no turn"
    return source


def in_time(work: Any) -> EndlessSource:
    with asyncio.Runner(loop_factory=MovedClockLoop) as runner:
        source: EndlessSource = runner.run(work)
        return source


@pytest.mark.parametrize("fetchers", [1, 3])
@pytest.mark.parametrize("batch_bytes", [500, 5_000])
def test_a_mirror_takes_its_rate_from_its_source_and_no_more(batch_bytes: int, fetchers: int) -> None:
    source = in_time(fetched(RATE, batch_bytes, 30, fetchers))
    begin = 1_000.0
    for second in range(1, 25):
        window = source.between(begin + second, begin + second + 5)
        assert 0.9 * 5 * RATE < window < 1.2 * 5 * RATE, f"seconds {second} to {second + 5}: {window}"
    assert source.between(begin, begin + 30) <= 30 * RATE + 0.5 * RATE * fetchers


def test_batches_that_are_larger_than_the_rate_go_one_by_one() -> None:
    source = in_time(fetched(RATE, 5 * RATE, 60))
    assert all(size < 5.1 * RATE for _, size in source.sent)
    assert 0.8 * 60 * RATE < source.between(1_000.0, 1_060.0) < 1.2 * 60 * RATE


def test_without_a_limit_it_takes_what_it_gets() -> None:
    source = in_time(fetched(UNLIMITED, 50_000, 0.1))
    assert source.between(1_000.0, 1_001.0) > 100 * RATE
