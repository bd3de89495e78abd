"""Batches that are validated, or recompressed, in threads: they are stored in their producers' order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from ottla.dataplane.handlers.produce import ProduceHandlers
from ottla.dataplane.log import LogConfig
from ottla.dataplane.log.config import StoredCompression
from ottla.dataplane.producing import admission, validation_queue
from ottla.dataplane.quotas import ClientQuotas, RequestMeter
from ottla.dataplane.server import HandlerTable, Server
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record, decode_records, encode_batch
from ottla.protocol.records.record_batch import BatchHeader, check_integrity, parse_header, walk_batches
from tests.dataplane.fetching.consumers import Shelf
from tests.dataplane.transactions.closed_gate import closed_gate
from tests.protocol.produced import produced, record

TOPIC_ID = b"t" * 16
VERSION = 9
TIMEOUT_S = 20


class Bench:
    """A broker with the topic `t`, and a connection to it."""

    def __init__(
        self,
        shelf: Shelf,
        queue: validation_queue.ValidationQueue,
        port: int,
        quotas: ClientQuotas,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.shelf = shelf
        self.queue = queue
        self.port = port
        self.quotas = quotas
        self._reader, self._writer = reader, writer
        self._sent = 0

    def store_as(self, text: str, **config: int) -> None:
        for partition in self.shelf.replicas:
            stored = replace(LogConfig(), compression_type=text, **config).stored_compression
            partition.reconfigure(replace(partition.settings, stored=stored))

    def send(self, *batches: bytes, acks: int = 1) -> None:
        """Send one request with batches for partitions 0, 1 and so on."""
        data = [PartitionProduceData(index=i, records=records) for i, records in enumerate(batches)]
        topics = [TopicProduceData(name="t", partition_data=data)]
        request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)
        self._sent += 1
        self._writer.write(encode_request(request, VERSION, self._sent, "test"))

    async def answer(self) -> Sequence[PartitionProduceResponse]:
        size = int.from_bytes(await asyncio.wait_for(self._reader.readexactly(4), TIMEOUT_S), "big")
        frame = memoryview(await self._reader.readexactly(size))
        (topic,) = decode_response(ProduceRequest, frame, VERSION)[1].responses
        return list(topic.partition_responses)

    def stored(self, index: int = 0) -> list[tuple[BatchHeader, list[Record]]]:
        log = self.shelf.replica("t", index).log
        piece = log.read(0, 1 << 30, log.log_end_offset, at_least_one=True)
        data = piece.read()
        piece.release()
        found = []
        for position, header in walk_batches(data):
            check_integrity(data, position, header)
            found.append((header, list(decode_records(data[position : position + header.size]))))
        return found


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Bench]:
    shelf = Shelf(directory)
    shelf.create("t", TOPIC_ID, 2)
    table = HandlerTable()
    server = Server(table)
    queue = validation_queue.ValidationQueue()
    handlers = ProduceHandlers(shelf.replicas, server.purgatory, closed_gate(), validation=queue)
    table.add(handlers)
    port = server.listen("PLAINTEXT", "127.0.0.1", 0).port
    server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Bench(shelf, queue, port, server.quotas, reader, writer)
    finally:
        writer.close()
        server.close()
        handlers.close()
        await shelf.close()


@contextlib.asynccontextmanager
async def another(bench: Bench) -> AsyncIterator[Bench]:
    """Open one more connection to the same broker."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    try:
        yield Bench(bench.shelf, bench.queue, bench.port, bench.quotas, reader, writer)
    finally:
        writer.close()


def batch(number: int, size: int, codec: Compression, count: int = 2) -> bytes:
    """Return an idempotent batch, whose sequences follow the previous one's."""
    records = [(b"key", b"%d" % number * size, 1_000 + number + i, [("h", b"v")]) for i in range(count)]
    return encode_batch(
        records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=number * count
    )


@pytest.mark.parametrize("text", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_stored_in_the_topics_form_and_in_order(tmp_path: Path, text: str) -> None:
    chance = random.Random(text)
    async with running(tmp_path) as bench:
        bench.store_as(text)
        sent = []
        for number in range(40):
            # A mix of slow and instant batches, with and without recompression.
            sent.append(batch(number, chance.choice([1, 10, 50_000]), chance.choice(list(Compression))))
            bench.send(sent[-1], acks=-1)
        for number in range(40):
            (answer,) = await bench.answer()
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
        codec = Compression.NONE if text == "uncompressed" else Compression[text.upper()]
        for number, (header, records) in enumerate(bench.stored()):
            ((_, original),) = walk_batches(sent[number])
            assert header.compression == codec
            assert header[6:] == original[6:], "timestamps, producer, sequence and count are the producer's"
            assert header.base_offset == 2 * number
            assert [record[1:] for record in records] == [
                sent_record[1:] for sent_record in decode_records(sent[number])
            ]
        bench.send(sent[39])
        assert (await bench.answer())[0].base_offset == 78, "a duplicate is known as one"


async def test_one_that_is_refused_holds_nobody_up(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.store_as("gzip")
        damaged = bytearray(batch(0, 10, Compression.NONE))
        damaged[-1] ^= 1
        bench.send(bytes(damaged), batch(0, 10, Compression.LZ4))
        bench.send(batch(0, 10, Compression.LZ4), batch(1, 10, Compression.GZIP))
        assert [response.error_code for response in await bench.answer()] == [ErrorCode.CORRUPT_MESSAGE, 0]
        assert [response.base_offset for response in await bench.answer()] == [0, 2]
        bomb = encode_batch([(None, bytes(1 << 20), 0)] * 80, compression=Compression.ZSTD)
        assert len(bomb) < 100_000
        bench.send(bomb)
        bench.send(bytes(70))
        assert (await bench.answer())[0].error_code == ErrorCode.INVALID_RECORD
        assert (await bench.answer())[0].error_code == ErrorCode.CORRUPT_MESSAGE
        incompressible = random.Random(1).randbytes(1_100_000)
        bench.send(encode_batch([(None, b"0" * 1_100_000, 0)], compression=Compression.GZIP))
        bench.send(encode_batch([(None, incompressible, 0)]))
        assert (await bench.answer())[0].error_code == 0
        assert (await bench.answer())[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
        bench.store_as("uncompressed")
        bench.send(encode_batch([(None, b"0" * 1_100_000, 0)], compression=Compression.GZIP))
        too_large = (await bench.answer())[0].error_code
        assert too_large == ErrorCode.MESSAGE_TOO_LARGE, "its expanded size counts as well"


async def test_large_batches_keep_their_places_among_small_ones(tmp_path: Path) -> None:
    chance = random.Random(3)
    async with running(tmp_path) as bench:
        sent = []
        for number in range(40):
            value = chance.randbytes(chance.choice([1, 100, 60_000])) * chance.choice([1, 2, 3])
            records = [(b"key", value, 1_000 + number), (b"key", bytes(chance.choice([0, 400_000])), 2_000)]
            codec = chance.choice(list(Compression))
            sent.append(
                encode_batch(
                    records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=2 * number
                )
            )
            bench.send(sent[-1], acks=-1)
        for number in range(40):
            (answer,) = await bench.answer()
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
        assert not bench.queue.waiting
        stored = bench.stored()
        assert [header.compression for header, _ in stored] == [
            parse_header(batch).compression for batch in sent
        ]
        assert [[record[2:] for record in records] for _, records in stored] == [
            [record[2:] for record in decode_records(batch)] for batch in sent
        ]


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
async def test_a_small_batch_that_expands_far_holds_its_place(tmp_path: Path, codec: Compression) -> None:
    async with running(tmp_path) as bench:
        far = encode_batch(
            [(None, bytes(600_000), 0)] * 2,
            compression=codec,
            producer_id=7,
            producer_epoch=1,
            base_sequence=0,
        )
        bench.send(far)
        for number in range(1, 5):
            bench.send(batch(number, 10, codec))
        assert [(await bench.answer())[0].base_offset for _ in range(5)] == [0, 2, 4, 6, 8]


async def test_a_batch_that_nobody_could_read_is_refused_in_a_thread_too(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        noise = random.Random(1).randbytes(200_000)
        count, body = 2, record(0, value=noise) + record(0, value=noise)
        for codec in Compression:
            bench.send(bytes(produced(count, body, codec)))
            bench.send(batch(0, 10, codec, count=1))
            (refused,) = await bench.answer()
            assert refused.error_code == ErrorCode.INVALID_RECORD
            assert refused.error_message is not None
            assert "record 1 of 2 is malformed" in refused.error_message
            assert (await bench.answer())[0].error_code == 0


@pytest.mark.parametrize(
    ("max_message_bytes", "expanded_bytes_max"),
    [(1_048_588, 64 * 1_048_588), (1_000, 16 << 20), (100_000_000, 256 << 20)],
)
def test_how_far_a_batch_may_expand_depends_on_its_topic(
    max_message_bytes: int, expanded_bytes_max: int
) -> None:
    assert LogConfig(max_message_bytes=max_message_bytes).expanded_bytes_max == expanded_bytes_max


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
async def test_a_batch_expands_no_further_than_its_topic_allows(tmp_path: Path, codec: Compression) -> None:
    async with running(tmp_path) as bench:
        for size in ((16 << 20) - 100, 16 << 20):
            bomb = encode_batch([(None, bytes(size), 0)], compression=codec)
            log = bench.shelf.replica("t", 0).log
            log.config = replace(log.config, max_message_bytes=100_000)
            bench.send(bomb)
        assert (await bench.answer())[0].error_code == 0
        (refused,) = await bench.answer()
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert refused.error_message == f"the batch expands to more than the {16 << 20} bytes allowed"


async def test_a_producer_waits_for_no_more_than_the_batches_that_threads_have_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six batches of a megabyte that expanded to a gigabyte delayed another producer by nine seconds."""
    begun: list[int] = []
    go_on = threading.Event()
    outcome = validation_queue._outcome_in_thread

    def counted(data: memoryview, *rest: Any) -> validation_queue.Outcome:
        begun.append(parse_header(data).producer_id)
        assert go_on.wait(TIMEOUT_S)
        return outcome(data, *rest)

    monkeypatch.setattr(validation_queue, "_outcome_in_thread", counted)
    noise = random.Random(1).randbytes(100_000)
    async with running(tmp_path) as bench, another(bench) as victim:
        for producer_id in range(20):
            bench.send(encode_batch([(None, noise, 0)], compression=Compression.GZIP, producer_id=producer_id,
                                    producer_epoch=0, base_sequence=0))  # fmt: skip
        while len(begun) < 2 or bench.queue.turns.waiting < 18:
            await asyncio.sleep(0.001)
        # In another partition, as batches of one partition keep their order.
        victims = encode_batch([(None, noise, 0)], compression=Compression.GZIP, producer_id=99, producer_epoch=0,
                               base_sequence=0)  # fmt: skip
        victim.send(batch(0, 1, Compression.NONE), victims)
        while bench.queue.turns.waiting < 19:
            await asyncio.sleep(0.001)
        go_on.set()
        assert [response.error_code for response in await victim.answer()] == [0, 0]
        for _ in range(20):
            assert (await bench.answer())[0].error_code == 0
    assert begun.index(99) <= 3, "two that were begun with, and one more turn of the other connection"


async def test_the_time_of_threads_counts_for_the_quota_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[float] = []
    monkeypatch.setattr(RequestMeter, "spend", lambda _meter, seconds: spent.append(seconds))
    async with running(tmp_path) as bench:
        bench.send(encode_batch([(None, bytes(3 << 20), 0)], compression=Compression.GZIP))
        await bench.answer()
        assert not spent, "no client has a quota"
        bench.quotas.changed({(("client-id", "test"),): {"request_percentage": 1000.0}})
        bench.send(encode_batch([(None, bytes(3 << 20), 0)], compression=Compression.GZIP))
        await bench.answer()
    assert len(spent) == 1
    assert spent[0] > 0


def test_a_meter_charges_what_threads_have_spent() -> None:
    charged: list[float] = []

    class Quota:
        def charge(self, user: str, client_id: str | None, amount: float, now_ms: float) -> int:
            charged.append(amount)
            return 0

    meter = RequestMeter(cast(Any, Quota()), "ann", "c", 5.0, lambda: 5.0)
    meter.spend(0.25)
    meter.charge()
    assert charged == [25.0]


async def test_a_large_duplicate_is_acknowledged_whatever_has_changed(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        noise = random.Random(1).randbytes(200_000)
        now_ms = int(time.time() * 1000)
        once = encode_batch(
            [(b"k", noise, now_ms)],
            compression=Compression.ZSTD,
            producer_id=7,
            producer_epoch=1,
            base_sequence=0,
        )
        bench.send(once)
        assert (await bench.answer())[0].base_offset == 0
        log = bench.shelf.replica("t", 0).log
        log.config = replace(log.config, message_timestamp_before_max_ms=1, max_message_bytes=1000)
        bench.send(once)
        bench.send(batch(1, 10, Compression.NONE, count=1))
        (again,) = await bench.answer()
        assert (again.error_code, again.base_offset) == (0, 0)
        assert (await bench.answer())[0].error_code == ErrorCode.INVALID_TIMESTAMP


async def test_a_request_that_has_taken_its_time_goes_on_in_threads(tmp_path: Path) -> None:
    with mock.patch.object(admission, "_ON_LOOP_S", -1.0):
        async with running(tmp_path) as bench:
            for number in range(6):
                codec = Compression.ZSTD if number % 2 else Compression.NONE
                bench.send(batch(number, 10, codec), batch(number, 10, Compression.LZ4))
            bench.send(batch(5, 10, Compression.ZSTD), batch(5, 10, Compression.LZ4))
            for number in range(7):
                answers = await bench.answer()
                expected = (0, 2 * min(number, 5))
                assert [(answer.error_code, answer.base_offset) for answer in answers] == [expected] * 2


async def test_what_no_longer_has_to_be_compressed_waits_for_what_has(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.store_as("gzip", compression_gzip_level=9)
        bench.send(batch(0, 200_000, Compression.NONE))
        while not bench.queue.waiting:
            await asyncio.sleep(0)
        bench.store_as("producer")
        bench.send(batch(1, 1, Compression.NONE))
        assert [(await bench.answer())[0].base_offset for _ in range(2)] == [0, 2]
        bench.send(batch(2, 1, Compression.SNAPPY))
        await bench.answer()
        assert [header.compression for header, _ in bench.stored()] == [1, 0, 2]


async def test_a_duplicate_is_known_before_its_size_is_judged(tmp_path: Path) -> None:
    """A producer whose first attempt is reported as too large concludes that it is not in the log."""
    async with running(tmp_path) as bench:
        bench.store_as("gzip", compression_gzip_level=9)
        for limit in (1 << 20, 1_000):
            log = bench.shelf.replica("t", 0).log
            log.config = replace(log.config, max_message_bytes=limit)
            bench.send(batch(0, 5_000, Compression.NONE))
            assert (await bench.answer())[0].base_offset == 0
        bench.send(batch(1, 5_000, Compression.NONE))
        assert (await bench.answer())[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_one_that_was_appended_while_it_was_compressed_again_is_a_duplicate(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.store_as("gzip", compression_gzip_level=9)
        bench.send(batch(0, 300_000, Compression.NONE))
        while not bench.queue.waiting:
            await asyncio.sleep(0)
        log = bench.shelf.replica("t", 0).log
        log.config = replace(log.config, max_message_bytes=5_000)  # Compressed it is smaller.
        bench.send(batch(0, 300_000, Compression.NONE))
        for _ in range(2):
            answer = (await bench.answer())[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    with mock.patch.object(validation_queue, "HELD_BYTES_MAX", 1_000_000):
        async with running(tmp_path) as bench:
            bench.store_as("zstd")
            for number in range(4):
                bench.send(batch(number, 150_000, Compression.NONE))
            codes = [(await bench.answer())[0].error_code for _ in range(4)]
            assert set(codes) <= {0, ErrorCode.REQUEST_TIMED_OUT}
            assert codes[:3] == [0, 0, 0]


async def test_what_was_sent_behind_a_first_batch_without_room_does_not_overtake_it(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.store_as("zstd")
        with mock.patch.object(validation_queue, "HELD_BYTES_MAX", 200_000):
            for number, size in enumerate((300_000, 1_000)):
                bench.send(batch(number, size, Compression.NONE))
            codes = [(await bench.answer())[0].error_code for _ in range(2)]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2
        for number, size in enumerate((300_000, 1_000)):
            bench.send(batch(number, size, Compression.NONE))
            assert (await bench.answer())[0].base_offset == 2 * number


def test_levels() -> None:
    config = LogConfig.from_properties({"compression.type": "zstd", "compression.zstd.level": "7"})
    assert config.stored_compression == StoredCompression(Compression.ZSTD, 7)
    assert LogConfig().stored_compression is None
