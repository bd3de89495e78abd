"""Compressed data: each place that expands it has a bound, and none expands much on the event loop."""

from __future__ import annotations

import ast
import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.consuming.fetched import consumer_records
from ottla.client.records import TopicPartition
from ottla.dataplane.groups.records import read_records
from ottla.dataplane.handlers.list_offsets import MAX_TIMESTAMP, ListOffsetsHandlers
from ottla.dataplane.log import LogConfig
from ottla.dataplane.log.append_checks import EXPANDED_ON_LOOP_MAX, TakesLong, check_records_on_loop
from ottla.dataplane.log.compaction.record_scan import records_of
from ottla.dataplane.log.inspection import _records_at_fault
from ottla.dataplane.log.timestamps import BatchLookup
from ottla.dataplane.producing.validation_queue import _outcome_in_thread
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.share.leader.key_reads import _batch_keys
from ottla.dataplane.share.leader.source_records import _decoded
from ottla.dataplane.share.state.records import read_records as read_share_states
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Compression
from ottla.protocol.records.record import (
    CONTROL_BATCH_BYTES_MAX,
    decode_records,
    encode_batch,
    read_control_record,
)
from ottla.protocol.records.record_batch import HEADER_SIZE, parse_header
from tests.dataplane.fetching.consumers import Shelf
from tests.dataplane.log.batches import raw_batch
from tests.protocol.produced import record

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def bomb(size: int) -> bytes:
    """Return a batch whose only record has `size` bytes, in gzip members of 16 MiB."""
    head = record(value=b"", value_size=size, size=size + 100)[:-1]
    member = gzip.compress(bytes(16 * MIB), 9)
    return bytes(
        raw_batch(1, gzip.compress(head) + member * (size // (16 * MIB) + 1), attributes=Compression.GZIP)
    )


@pytest.fixture(scope="module")
def endless() -> bytes:
    return bomb(DECOMPRESSED_BYTES_MAX + 32 * MIB)


def refused(work: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as error:
        work()
    return error.value


def _copied_records(batch: bytes) -> list[object]:
    data = cast(Any, SimpleNamespace(read=lambda: batch))
    return [found for found in _decoded(data, 0, 0).records.values() if found is not None]


EXPANDING: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "protocol/records/record.py": ("clients and tools: 256 MiB", lambda batch: list(decode_records(batch))),
    "client/consuming/fetched.py": (
        "a consumer, in its own process: 256 MiB",
        lambda batch: list(consumer_records(TopicPartition("t", 0), parse_header(batch), batch, 0)),
    ),
    "dataplane/log/compaction/record_scan.py": (
        "the process that cleans logs: 256 MiB",
        lambda batch: records_of(batch, parse_header(batch)),
    ),
    "dataplane/log/inspection.py": (
        "tools, and the thread that verifies logs: 256 MiB",
        lambda batch: _records_at_fault(Path("x"), 0, parse_header(batch), memoryview(batch)),
    ),
    "cli/commands/log/dump.py": ("a tool: 256 MiB", lambda batch: list(decode_records(batch))),
}
"""Modules that refuse data which expands too far, with their bounds."""
PASSING_OVER: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "dataplane/coordinated_log/batches.py": (
        "a batch of groups or of share states that does not fit into 64 MiB is passed over",
        lambda batch: [*read_records(memoryview(batch)), *read_share_states(memoryview(batch))],
    ),
    "dataplane/log/timestamps.py": (
        "a lookup by time, in a thread unless it is short: 256 MiB, else the header stands for the records",
        lambda batch: [BatchLookup(batch, parse_header(batch), 5, 0).find()][1:],
    ),
    "dataplane/share/leader/key_reads.py": (
        "a thread that reads keys: 256 KiB at a time, up to the key of the last record",
        lambda batch: [*_batch_keys(memoryview(batch)[HEADER_SIZE:], parse_header(batch), 0, 1)][1:],
    ),
    "dataplane/share/leader/source_records.py": (
        "a thread that copies records into dead letters: 16 MiB, else a letter has its headers alone",
        lambda batch: _copied_records(batch),
    ),
}
PRODUCED: dict[str, str] = {
    "protocol/records/produced_batch.py": "goes over the pieces and keeps none, as far as its caller allows",
    "dataplane/log/append_checks.py": "256 KiB on the event loop",
    "dataplane/producing/validation_queue.py": "in threads: 64 times max.message.bytes, from 16 to 256 MiB",
}
LIBRARIES = {
    "protocol/records/compression.py",
    "protocol/records/compression_gzip.py",
    "protocol/records/compression_lz4.py",
    "protocol/records/compression_snappy.py",
    "protocol/records/compression_zstd.py",
    "protocol/records/frame_ends.py",
}
"""Modules that expand piece by piece; their callers count."""
OTHER_FORMATS = {"client/backup/cut_file.py": "a tool that reads a cut of a backup: 512 MiB"}
_EXPANDS = {
    "expand",
    "decompress",
    "decompress_raw",
    "decompressobj",
    "decode_records",
    "expanded_body",
    "records_of",
    "walk_records",
    "check_records",
    "LZ4FrameDecompressor",
    "ZstdDecompressor",
}
_OTHERS = {"protocol/cluster/transaction_table.py", "metadata_quorum/state/transaction_audience.py"}
"""Modules whose `records_of` is about transactions."""


def _calls() -> Iterator[tuple[str, str]]:
    for package in ("protocol", "network", "dataplane", "metadata_quorum", "client", "console", "cli"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    if name in _EXPANDS:
                        yield path.relative_to(ROOT).as_posix(), name


def test_every_place_that_expands_is_in_a_table() -> None:
    places = {place for place, _ in _calls()} - _OTHERS
    libraries = LIBRARIES - {"protocol/records/frame_ends.py"}
    assert places == {*EXPANDING, *PASSING_OVER, *PRODUCED, *OTHER_FORMATS, *libraries}


@pytest.mark.parametrize("place", EXPANDING)
def test_what_expands_too_far_is_refused(place: str, endless: bytes) -> None:
    error = refused(lambda: EXPANDING[place][1](endless))
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert f"expands to more than the {DECOMPRESSED_BYTES_MAX} bytes allowed" in error.message


@pytest.mark.parametrize("place", PASSING_OVER)
def test_what_expands_too_far_is_passed_over(place: str, endless: bytes) -> None:
    assert PASSING_OVER[place][1](endless) == []


def test_produced_batches_expand_as_far_as_their_topic_allows() -> None:
    config = LogConfig(max_message_bytes=100_000)
    batch = bomb(20 * MIB)
    refusal = _outcome_in_thread(memoryview(batch), None, config, 0)
    assert isinstance(refusal, KafkaError)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert f"more than the {16 * MIB} bytes allowed" in refusal.message
    with pytest.raises(TakesLong):
        check_records_on_loop(memoryview(batch), parse_header(batch), config, 0)
    assert EXPANDED_ON_LOOP_MAX == 256 * 1024


def test_a_marker_expands_no_further_than_markers_do() -> None:
    batch = bomb(16 * MIB)
    assert len(batch) < CONTROL_BATCH_BYTES_MAX
    assert refused(lambda: read_control_record(batch)).code is ErrorCode.CORRUPT_MESSAGE


async def test_a_lookup_by_time_expands_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 1 MB may expand to 64 MB, and a lookup in it blocked the event loop for that time."""
    shelf = Shelf(tmp_path)
    shelf.create("t", b"t" * 16, 1)
    looked_in: list[bool] = []
    find = BatchLookup.find

    def noted(lookup: BatchLookup) -> object:
        looked_in.append(threading.current_thread() is threading.main_thread())
        return find(lookup)

    monkeypatch.setattr(BatchLookup, "find", noted)
    try:
        log = shelf.replica("t").log
        log.config = replace(log.config, index_interval_bytes=1 << 30)
        for base in (1_000, 2_000, 3_000):
            records = [(None, bytes(700_000), base + 100 * number) for number in range(10)]
            batch = memoryview(bytearray(encode_batch(records, compression=Compression.GZIP)))
            shelf.replica("t").append(batch, required_acks=1, max_timestamp=base + 900)
        answers = {}
        for timestamp in (1_550, 2_900, 3_100, 4_000, MAX_TIMESTAMP):
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            message = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])]
            )
            request: Any = SimpleNamespace(
                access=EVERYTHING, api_version=7, session=SimpleNamespace(is_broker=lambda _id: False)
            )
            response = await ListOffsetsHandlers(shelf.replicas).list_offsets(cast(Any, request), message)
            answer = response.topics[0].partitions[0]
            assert answer.error_code == 0
            answers[timestamp] = (answer.offset, answer.timestamp)
        assert answers == {
            1_550: (6, 1_600),
            2_900: (19, 2_900),
            3_100: (21, 3_100),
            4_000: (-1, -1),
            MAX_TIMESTAMP: (29, 3_900),
        }
        assert looked_in == [False] * 4
    finally:
        await shelf.close()
