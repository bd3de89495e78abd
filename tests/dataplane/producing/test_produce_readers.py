"""A request that is read without a message gets the same answer, and leaves the same log, as with a message."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.dataplane.handlers.produce import ProduceHandlers
from ottla.dataplane.log.produced import ProducedBatches
from ottla.dataplane.server import HandlerTable, Server
from ottla.dataplane.server.handler import Handler
from ottla.dataplane.transactions.pending_writes import PendingTransactionWrites
from ottla.protocol.cluster.transaction_table import TransactionTable, by_topic
from ottla.protocol.direct_codecs.produce_frames import read_produce
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.metadata_records import TopicRecord
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.messages.transaction_records import TransactionRecord, TransactionWriterRecord
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch
from tests.dataplane.fetching.consumers import OTHER_ID, OWN_ID, Shelf
from tests.dataplane.transactions.closed_gate import closed_gate

TOPICS = {"t": b"t" * 16, "u": b"u" * 16, "gone": b"g" * 16}
FOLLOWED = "u"
"""Its records wait for a follower; those of `t` do not."""
NOW_MS = 1_700_000_000_000
TIMEOUT_S = 60
KINDS = ["next"] * 8
KINDS += [
    "anonymous",
    "again",
    "gap",
    "damaged",
    "cut",
    "empty",
    "null",
    "two",
    "large",
    "early",
    "lz4",
    "stamped",
]
"""What a producer may send."""


class Broker:
    """One with two topics of two partitions, and one connection to it."""

    def __init__(self, shelf: Shelf, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.shelf = shelf
        self._reader, self._writer = reader, writer

    def send(self, message: ProduceRequest, version: int) -> None:
        self._writer.write(encode_request(message, version, 5, "test"))

    async def answer(self) -> bytes:
        size = int.from_bytes(await asyncio.wait_for(self._reader.readexactly(4), TIMEOUT_S), "big")
        return await asyncio.wait_for(self._reader.readexactly(size), TIMEOUT_S)

    async def answers(self, version: int) -> list[PartitionProduceResponse]:
        answer = decode_response(ProduceRequest, memoryview(await self.answer()), version)[1]
        return [response for topic in answer.responses for response in topic.partition_responses]

    def acknowledge(self) -> None:
        """The follower has it all."""
        for partition in self.shelf.replicas:
            if partition.topic == FOLLOWED:
                partition.fetched_by(OTHER_ID, OTHER_ID, partition.log.log_end_offset)

    def stored(self) -> list[bytes]:
        logs = []
        for partition in self.shelf.replicas:
            piece = partition.log.read(0, 1 << 30, partition.log.log_end_offset, at_least_one=True)
            logs.append(piece.read())
            piece.release()
        return logs


class WithMessagesOnly(HandlerTable):
    """A table whose Produce handler gets each request as a message."""

    def get(self, api_key: int) -> Handler | None:
        handler = super().get(api_key)
        return None if handler is None else replace(handler, reads_frames=None)


class CountingReads(HandlerTable):
    """A table that notes of each request whether it was read without a message."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[bool] = []

    def get(self, api_key: int) -> Handler | None:
        handler = super().get(api_key)
        return None if handler is None else replace(handler, reads_frames=self._read)

    def _read(self, frame: memoryview, offset: int, version: int) -> object:
        read = read_produce(frame, offset, version)
        self.reads.append(read is not None)
        return read


def gate_of(*open_at: tuple[bytes, int]) -> PendingTransactionWrites:
    """Producer 9 has a transaction open in these partitions; nobody knows of another."""
    if not open_at:
        return closed_gate()
    table = TransactionTable()
    table.apply(TransactionRecord(transactional_id="id", producer_id=9, producer_epoch=0, number=1, phase=1))
    table.apply(
        TransactionWriterRecord(
            transactional_id="id", producer_id=9, producer_epoch=0, topics=by_topic(open_at)
        )
    )
    return closed_gate(table)


@contextlib.asynccontextmanager
async def broker(
    directory: Path,
    *,
    takes_plain: bool = True,
    open_at: Sequence[tuple[bytes, int]] = (),
    table: HandlerTable | None = None,
) -> AsyncIterator[Broker]:
    shelf = Shelf(directory)
    shelf.create("t", TOPICS["t"], 2)
    members = [OWN_ID, OTHER_ID]
    shelf.tell(
        TopicRecord(topic_id=TOPICS[FOLLOWED], name=FOLLOWED),
        *(shelf.state(TOPICS[FOLLOWED], index, isr=members) for index in range(2)),
    )
    if table is None:
        table = HandlerTable() if takes_plain else WithMessagesOnly()
    server = Server(table)
    handlers = ProduceHandlers(shelf.replicas, server.purgatory, gate_of(*open_at))
    table.add(handlers)
    port = server.listen("PLAINTEXT", "127.0.0.1", 0).port
    server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Broker(shelf, reader, writer)
    finally:
        writer.close()
        server.close()
        handlers.close()
        await shelf.close()


def produce(
    *batches: tuple[str, int, bytes | None],
    acks: int = -1,
    timeout_ms: int = 60_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Those of one topic that stand side by side become one entry."""
    message = ProduceRequest(acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id)
    for topic, index, records in batches:
        if not message.topic_data or message.topic_data[-1].name != topic:
            message.topic_data.append(TopicProduceData(name=topic, topic_id=TOPICS[topic]))
        message.topic_data[-1].partition_data.append(PartitionProduceData(index=index, records=records))
    return message


class Producer:
    """Idempotent, and not always sane."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._sequences: dict[tuple[str, int], int] = {}

    def batch(self, topic: str, index: int) -> bytes | None:
        chance = self._chance
        kind = chance.choice(KINDS)
        sequence = self._sequences.get((topic, index), 0)
        count = chance.randint(1, 3)
        first = {"again": max(0, sequence - 1), "gap": sequence + 7}.get(kind, sequence)
        size = 1_200_000 if kind == "large" else chance.choice([1, 100, 3000])
        time_ms = NOW_MS if kind != "early" else 4_000_000_000_000
        producer = (
            {} if kind == "anonymous" else {"producer_id": 9, "producer_epoch": 0, "base_sequence": first}
        )
        batch = bytearray(
            encode_batch(
                [(b"k", b"%d" % (number % 10) * size, time_ms + number) for number in range(count)],
                compression=Compression.LZ4 if kind == "lz4" else Compression.NONE,
                **producer,
            )
        )
        if kind in ("next", "lz4"):
            self._sequences[topic, index] = sequence + count
        if kind == "damaged":
            batch[chance.randrange(len(batch))] ^= 0x41
        elif kind == "cut":
            del batch[chance.randrange(len(batch)) :]
        elif kind == "two":
            batch *= 2
        elif kind == "stamped":
            batch[22] |= 0x08
        return {"empty": b"", "null": None}.get(kind, bytes(batch))

    def request(self) -> ProduceRequest:
        chance = self._chance
        places = [
            (chance.choice(["t", "t", "t", "u", "gone"]), chance.choice([0, 0, 0, 1, 1, 2]))
            for _ in range(chance.choice([1, 1, 1, 2, 3]))
        ]
        return produce(
            *((topic, index, self.batch(topic, index)) for topic, index in places),
            acks=chance.choice([-1, 1]),
        )


@pytest.mark.parametrize("seed", range(6))
async def test_answers_and_logs_are_the_same(tmp_path: Path, seed: int) -> None:
    table = CountingReads()
    async with (
        broker(tmp_path / "plain", table=table) as plain,
        broker(tmp_path / "by messages", takes_plain=False) as by_messages,
    ):
        chance = random.Random(seed)
        producer = Producer(chance)
        for _ in range(60):
            message, version = producer.request(), chance.randint(3, 13)
            answers = []
            for either in (plain, by_messages):
                either.send(message, version)
                waiting = asyncio.create_task(either.answer())
                while not waiting.done():
                    either.acknowledge()
                    await asyncio.sleep(0)
                answers.append(waiting.result())
            assert answers[0] == answers[1], (message, version)
        assert plain.stored() == by_messages.stored()
        assert 10 < sum(table.reads) < 60


def _in_transaction(sequence: int = 0, *, producer_id: int = 9, transactional: bool = True) -> bytes:
    return encode_batch(
        [(b"k", b"v", NOW_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )


@pytest.mark.parametrize("takes_plain", [True, False])
async def test_a_transactional_batch_is_appended_within_its_transaction(
    tmp_path: Path, takes_plain: bool
) -> None:
    """Each request gets its error, whether it was read with a message or without."""
    first, second = _in_transaction(), _in_transaction(1)
    cases = [
        (produce(("t", 0, first), transactional_id="id"), ErrorCode.NONE),
        # A duplicate: the gate asks the quorum whether it is one of this transaction, and this one knows of none.
        (produce(("t", 0, first), transactional_id="id"), ErrorCode.INVALID_TXN_STATE),
        (produce(("t", 0, second), transactional_id="other"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (
            produce(("t", 0, second), transactional_id=None),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (produce(("t", 0, second), transactional_id="id", acks=1), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(("t", 1, first), transactional_id="id"), ErrorCode.INVALID_TXN_STATE),
        (produce(("t", 0, second), transactional_id="id"), ErrorCode.NONE),
    ]
    async with broker(tmp_path, takes_plain=takes_plain, open_at=[(TOPICS["t"], 0)]) as host:
        for message, error in cases:
            host.send(message, 9)
            (answer,) = await host.answers(9)
            assert ErrorCode.of(answer.error_code) is error, message


@pytest.mark.parametrize("takes_plain", [True, False])
async def test_what_is_not_settled_in_time_is_unknown(tmp_path: Path, takes_plain: bool) -> None:
    records = encode_batch([(b"k", b"v", NOW_MS)])
    async with broker(tmp_path, takes_plain=takes_plain) as host:
        host.send(produce(("t", 0, records), ("u", 0, records), timeout_ms=1), 9)
        answers = [(answer.error_code, answer.base_offset) for answer in await host.answers(9)]
        assert answers == [(0, 0), (ErrorCode.REQUEST_TIMED_OUT, -1)]
        host.acknowledge()
        host.send(produce(("t", 0, records)), 9)
        assert [answer.base_offset for answer in await host.answers(9)] == [1], "and answered once"


@pytest.mark.parametrize("takes_plain", [True, False])
async def test_a_leader_that_goes_leaves_an_unknown_outcome(tmp_path: Path, takes_plain: bool) -> None:
    records = encode_batch([(b"k", b"v", NOW_MS)])
    async with broker(tmp_path, takes_plain=takes_plain) as host:
        host.send(produce(("u", 0, records), ("u", 1, records)), 10)
        while host.shelf.replica("u", 1).log.log_end_offset == 0:
            await asyncio.sleep(0)
        host.shelf.tell(host.shelf.state(TOPICS["u"], 0, leader=OTHER_ID, epoch=1, isr=[OWN_ID, OTHER_ID]))
        host.acknowledge()
        first, second = await host.answers(10)
        assert (first.error_code, first.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (OTHER_ID, 1)
        assert (second.error_code, second.base_offset) == (0, 0)


@pytest.mark.parametrize("takes_plain", [True, False])
async def test_one_that_is_refused_leaves_the_others_be(
    tmp_path: Path, takes_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = encode_batch([(b"k", b"v", NOW_MS)])
    append, calls = ProducedBatches.append, 0

    def faulty(self: ProducedBatches, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("planted")
        return append(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ProducedBatches, "append", faulty)
    async with broker(tmp_path, takes_plain=takes_plain) as host:
        host.send(produce(("u", 0, records), ("t", 1, records), ("t", 0, records)), 13)
        while calls < 3:
            await asyncio.sleep(0)
        host.acknowledge()
        answers = [(answer.index, answer.error_code, answer.base_offset) for answer in await host.answers(13)]
        assert answers == [(0, 0, 0), (1, ErrorCode.UNKNOWN_SERVER_ERROR, -1), (0, 0, 0)]


@pytest.mark.parametrize("takes_plain", [True, False])
@pytest.mark.parametrize(
    ("version", "error"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_a_topic_without_a_name_and_an_id_is_unknown(
    tmp_path: Path, takes_plain: bool, version: int, error: ErrorCode
) -> None:
    data = PartitionProduceData(index=0, records=encode_batch([(b"k", b"v", NOW_MS)]))
    message = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="", partition_data=[data])]
    )
    async with broker(tmp_path, takes_plain=takes_plain) as host:
        host.send(message, version)
        assert [ErrorCode.of(answer.error_code) for answer in await host.answers(version)] == [error]


async def test_a_fault_of_ours_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_arguments: object) -> bytes:
        raise RuntimeError("planted")

    monkeypatch.setattr("ottla.dataplane.handlers.produce.write_produced", faulty)
    async with broker(tmp_path) as host:
        host.send(produce(("t", 0, encode_batch([(b"k", b"v", NOW_MS)]))), 13)
        with pytest.raises(asyncio.IncompleteReadError):
            await host.answer()
