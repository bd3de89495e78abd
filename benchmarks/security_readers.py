"""Consumers of `benchmarks.security` as separate programs: each reads some partitions of a topic to their ends.

    python -m benchmarks.security_readers librdkafka|sockets HOST:PORT CA_FILE TOPIC PARTITION...

`librdkafka` unpacks every record. `sockets` requests, decrypts, and only reads the headers of batches, so it demands
more of a broker than any consumer does.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from ottla.network.tls.stream import TlsStream
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.records.record_batch import walk_batches

from .clusters import Cluster
from .moving_together import together, when_told
from .rounds import Row
from .secured_clusters import TLS
from .security_clients import trusting

LIBRDKAFKA, SOCKETS = KINDS = ("librdkafka", "sockets")
DEADLINE_S = 120
AT_ONCE = 10_000
"""Most records that a consumer is asked for at a time. It would wait if fewer are left."""
_SIZE = struct.Struct(">i")
_FETCH_VERSION = 11
"""The last Fetch version that names topics and has no topic ids."""
_PARTITION_BYTES, _ANSWER_BYTES = 4_000_000, 16_000_000


class LibrdkafkaReader:
    """A confluent-kafka Consumer with some partitions of a topic."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, str], topic: str, partitions: Sequence[int]
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "queued.min.messages": 1_000_000,
                "fetch.message.max.bytes": _PARTITION_BYTES,
                **settings,
            }
        )
        self._partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        self._count = sum(
            self._consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in self._partitions
        )

    def read(self) -> int:
        """Read all records; return the bytes of values. Raises TimeoutError, and RuntimeError."""
        self._consumer.assign(self._partitions)
        left, read = self._count, 0
        end = time.monotonic() + DEADLINE_S
        while left > 0:
            for message in self._consumer.consume(min(AT_ONCE, left), 1):
                if (error := message.error()) is not None:
                    raise RuntimeError(str(error))
                read += len(message)
                left -= 1
            if time.monotonic() > end:
                raise TimeoutError(f"{left} records were not read within {DEADLINE_S} s")
        return read

    def close(self) -> None:
        self._consumer.close()


class SocketReader:
    """A connection with one request in flight, which receives all answers into the same memory."""

    def __init__(self, address: str, ca_file: str, topic: str, partitions: Sequence[int]) -> None:
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host, int(port)), DEADLINE_S)
        self._stream = TlsStream(sock, trusting(ca_file), host)
        self._space = memoryview(bytearray(_ANSWER_BYTES + 2 * _PARTITION_BYTES))
        self._topic = topic
        self._next = dict.fromkeys(partitions, 0)
        # The first step only sends. Later steps wait for their input.
        sock.setblocking(False)
        self._stream.step()
        sock.settimeout(DEADLINE_S)
        while not self._stream.step():
            pass

    def read(self) -> int:
        """Read all batches; return their bytes. Raises RuntimeError for an error in an answer."""
        read = 0
        while self._next:
            for partition in self._fetched().responses[0].partitions:
                if partition.error_code:
                    raise RuntimeError(f"partition {partition.partition_index}: {partition.error_code}")
                for _, header in walk_batches(partition.records or b"", partial_tail=True):
                    self._next[partition.partition_index] = header.next_offset
                    read += header.size
                if self._next[partition.partition_index] >= partition.high_watermark:
                    del self._next[partition.partition_index]
        return read

    def _fetched(self) -> FetchResponse:
        asked = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
            for number, offset in self._next.items()
        ]
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            topics=[FetchTopic(topic=self._topic, partitions=asked)],
        )
        self._stream.send(encode_request(request, _FETCH_VERSION, 1, "benchmark"))
        (size,) = _SIZE.unpack(self._received(_SIZE.size))
        return decode_response(FetchRequest, self._received(size), _FETCH_VERSION)[1]

    def _received(self, size: int) -> memoryview:
        taken = 0
        while taken < size:
            try:
                received = self._stream.recv_into(self._space[taken:size])
            except BlockingIOError:
                continue  # the input was TLS's own, or the beginning of a record
            if not received:
                raise ConnectionResetError("hung up")
            taken += received
        return self._space[:size]


def read_together(
    cluster: Cluster, kind: str, readers: int, ca_file: Path, topic: str, partitions: int
) -> Row:
    """Read a topic over TLS with `readers` programs, which share the partitions and begin together."""
    shares = [[str(number) for number in range(first, partitions, readers)] for first in range(readers)]
    arguments = [[kind, cluster.listeners[TLS], str(ca_file), topic, *share] for share in shares]
    return together(cluster, "benchmarks.security_readers", arguments, "readers'")


def _main(kind: str, address: str, ca_file: str, topic: str, *partitions: str) -> None:
    reader: LibrdkafkaReader | SocketReader
    numbers = [int(number) for number in partitions]
    if kind == LIBRDKAFKA:
        over_tls = {"security.protocol": "SSL", "ssl.ca.location": ca_file}
        reader = LibrdkafkaReader(address, over_tls, topic, numbers)
    else:
        reader = SocketReader(address, ca_file, topic, numbers)
    when_told(reader.read)


if __name__ == "__main__":
    _main(*sys.argv[1:])
