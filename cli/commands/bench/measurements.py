"""The measurements of `ottla bench`, made with this package's clients."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from ....client.admin import Admin, NewTopic
from ....client.consumer import Consumer
from ....client.producer import Producer
from ....client.producing.deliveries import RecordDelivery
from ....protocol.errors import ErrorCode, KafkaError
from ...failures import CommandFailed
from ...run_client import may_be_executed, refusal, run_client
from ...terminal.progress import progress_bar, waiting
from ...terminal.text import note
from ..produce import ACKS

_SHOWN_EVERY: Final = 100
"""The number of acknowledged records after which the progress is shown again."""
SILENCE_S = 30.0
"""Seconds without a record after which a phase has failed."""
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of `ottla bench`; `commands.bench` describes each."""

    connection: Mapping[str, Any]
    """Keyword arguments that every client of the cluster takes."""
    phases: tuple[str, ...]
    records: int
    latency_records: int
    value_bytes: int
    topic: str | None
    partitions: int
    replication_factor: int
    acks: str
    compression: str | None
    linger_ms: float
    batch_bytes: int


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The result of one phase of `ottla bench`: produce, consume or latency.

    `latencies_ms` is sorted: acknowledgement times of the produce phase, times from send to receipt of the latency
    phase.
    """

    phase: str
    records: int
    value_bytes: int
    seconds: float
    latencies_ms: Sequence[float]

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mb_per_s(self) -> float:
        return self.records_per_s * self.value_bytes / 1e6

    def row(self) -> tuple[object, ...]:
        """Return the phase's rates and latencies as the cells of a table row."""
        spread = [f"{at:.2f}" for at in self._spread()] if self.latencies_ms else ["-"] * 4
        return (
            self.phase,
            self.records,
            f"{self.seconds:.2f}",
            f"{self.records_per_s:.0f}",
            f"{self.mb_per_s:.2f}",
            *spread,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the phase's rates and latencies for the JSON output, unrounded."""
        names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
        spread = self._spread() if self.latencies_ms else (None,) * 4
        return {
            "phase": self.phase,
            "records": self.records,
            "value_bytes": self.value_bytes,
            "seconds": self.seconds,
            "records_per_s": self.records_per_s,
            "mb_per_s": self.mb_per_s,
            **dict(zip(names, spread, strict=True)),
        }

    def _spread(self) -> tuple[float, ...]:
        return tuple(percentile(self.latencies_ms, share) for share in (0.5, 0.99, 0.999, 1.0))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that the part `share` (0 to 1) of the sorted values does not exceed (nearest rank). Pure."""
    rank = max(1, -(-len(ordered) * round(share * 1000) // 1000))
    return ordered[rank - 1]


def measure(options: BenchOptions) -> list[PhaseResult]:
    """Run the chosen phases of `ottla bench` in order, in one topic, and return their results.

    Raises CommandFailed, and SystemExit after SIGTERM.
    """
    try:
        return run_client(_measure(options), waits_for=None)
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


async def _measure(options: BenchOptions) -> list[PhaseResult]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Admin(**options.connection) as admin:
        if options.topic is not None:
            await admin.describe_topics([options.topic])
            return await _phases(options.topic, options)
        async with _new_topic(admin, options) as topic:
            return await _phases(topic, options)


@asynccontextmanager
async def _new_topic(admin: Admin, options: BenchOptions) -> AsyncIterator[str]:
    """Create a topic for the block, and delete it unless the cluster has refused to create it."""
    topic = f"ottla-bench-{os.urandom(4).hex()}"
    may_exist = True
    try:
        try:
            async with waiting(f"topic {topic}"):
                await admin.create_topics([NewTopic(topic, options.partitions, options.replication_factor)])
        except BaseException as error:
            may_exist = may_be_executed(error)
            raise
        yield topic
    finally:
        if may_exist:
            await _delete(admin, topic)


async def _delete(admin: Admin, topic: str) -> None:
    """Delete the topic of the measurement, however it ends. A failure is only reported."""
    try:
        async with waiting(f"the deletion of topic {topic}"):
            await admin.delete_topics([topic])
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            note(f"ottla bench: topic {topic} is left: {refusal(error)}")
    except asyncio.CancelledError:
        note(f"ottla bench: topic {topic} is left: 'ottla topic delete {topic}' deletes it")
        raise


async def _phases(topic: str, options: BenchOptions) -> list[PhaseResult]:
    return [await _phase(phase, topic, options) for phase in options.phases]


async def _phase(phase: str, topic: str, options: BenchOptions) -> PhaseResult:
    run = {"produce": _produce, "consume": _consume, "latency": _latency}[phase]
    total = options.latency_records if phase == "latency" else options.records
    with progress_bar(phase, total) as progress:
        return await run(topic, options, progress)


def _producer(options: BenchOptions, linger_ms: float) -> Producer:
    return Producer(
        **options.connection,
        acks=ACKS[options.acks],
        compression_type=options.compression,
        linger_ms=linger_ms,
        batch_size=options.batch_bytes,
    )


async def _produce(topic: str, options: BenchOptions, progress: Progress) -> PhaseResult:
    value = os.urandom(options.value_bytes)
    latencies: list[float] = []
    failures: list[BaseException] = []
    clock = time.perf_counter

    def settle(sent_s: float) -> Callable[[RecordDelivery], None]:
        def settled(delivery: RecordDelivery) -> None:
            if (error := delivery.exception()) is not None:
                failures.append(error)
            latencies.append((clock() - sent_s) * 1000)
            if not len(latencies) % _SHOWN_EVERY:
                progress(len(latencies))

        return settled

    async with _producer(options, options.linger_ms) as producer:
        began = clock()
        for number in range(options.records):
            delivery = await producer.send(topic, value)
            delivery.add_done_callback(settle(clock()))
            if not number % 1000:
                await asyncio.sleep(0)
        await producer.flush()
        await asyncio.sleep(0)  # Let the callbacks of the last deliveries run.
        seconds = clock() - began
    if failures:
        raise CommandFailed(
            f"{len(failures)} of {options.records} records were not delivered: {failures[-1]}"
        )
    return PhaseResult("produce", options.records, options.value_bytes, seconds, sorted(latencies))


async def _consume(topic: str, options: BenchOptions, progress: Progress) -> PhaseResult:
    """Consume the topic from its beginning, up to the number of records asked for.

    The produce phase may have filled the topic.
    """
    done = size = 0
    began = time.perf_counter()
    async with Consumer(
        topic,
        **options.connection,
        auto_offset_reset="earliest",
        max_poll_records=5000,
        max_partition_fetch_bytes=8 * 1024 * 1024,
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        starts = await consumer.beginning_offsets(consumer.assignment())
        wanted = min(options.records, sum(ends[partition] - starts[partition] for partition in ends))
        if not wanted:
            raise CommandFailed(
                f"{topic} holds no records to consume: measure produce before it, or name a --topic"
            )
        while done < wanted:
            some = await consumer.getmany(timeout_ms=SILENCE_S * 1000)
            if not some:
                raise CommandFailed(
                    f"nothing arrived for {SILENCE_S:g} s, {done} of {wanted} records were there"
                )
            for records in some.values():
                done += len(records)
                size += sum(len(record.value or b"") for record in records)
            progress(done)
    seconds = time.perf_counter() - began
    return PhaseResult("consume", done, size // done, seconds, ())


async def _latency(topic: str, options: BenchOptions, progress: Progress) -> PhaseResult:
    """Measure the time from before `send` until the consumer has received the record, with one record in flight."""
    latencies: list[float] = []
    filler = os.urandom(options.value_bytes - 8)
    async with (
        Consumer(topic, **options.connection, auto_offset_reset="latest", fetch_max_wait_ms=500) as consumer,
        _producer(options, 0) as producer,
    ):
        for partition in consumer.assignment():
            await consumer.position(partition)
        await producer.send_and_wait(topic, b"\xff" * 8 + filler)
        began = time.perf_counter()
        for number in range(options.latency_records):
            mark = number.to_bytes(8, "big")
            sent = time.perf_counter()
            delivery = await producer.send(topic, mark + filler)
            await _receive(consumer, mark)
            latencies.append((time.perf_counter() - sent) * 1000)
            await delivery
            progress(number)
        seconds = time.perf_counter() - began
    return PhaseResult("latency", len(latencies), options.value_bytes, seconds, sorted(latencies))


async def _receive(consumer: Consumer, mark: bytes) -> None:
    try:
        async with asyncio.timeout(SILENCE_S):
            while True:
                record = await consumer.getone()
                if (record.value or b"")[:8] == mark:
                    return
    except TimeoutError:
        raise CommandFailed(f"a record did not arrive within {SILENCE_S:g} s") from None
    except KafkaError as error:
        raise CommandFailed(f"consuming failed: {error.message}") from error
