"""Producers of `benchmarks.security` as separate programs, which are only a socket.

    python -m benchmarks.security_writers HOST:PORT CA_FILE TOPIC MEGABYTES PARTITION...

A program sends one prepared batch over and over, in large TLS records, with acks=all and a few requests in flight. So
it demands more of a broker than a producer does, which makes its records and encrypts them piece by piece.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import cycle, islice

from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch

from .compare import json_like
from .moving_together import when_told
from .security_clients import Peer, trusting

RECORD_BYTES, RECORDS_OF_BATCH = 1_000, 256
UNDER_WAY = 5
_VERSION = 8
"""The last version of Produce before flexible versions."""


class SocketWriter:
    """A connection that writes to some partitions in turn."""

    def __init__(self, address: str, ca_file: str, topic: str, partitions: Sequence[int]) -> None:
        self._peer = Peer(address, trusting(ca_file))
        batch = encode_batch([(None, json_like(RECORD_BYTES), 0)] * RECORDS_OF_BATCH)
        self._frames = [
            encode_request(
                ProduceRequest(
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[
                        TopicProduceData(
                            name=topic, partition_data=[PartitionProduceData(index=number, records=batch)]
                        )
                    ],
                ),
                _VERSION,
                1,
                "benchmark",
            )
            for number in partitions
        ]
        self._batch_bytes = len(batch)

    def write(self, size: int) -> int:
        """Write batches of `size` bytes or slightly more; return the number of bytes. Raises RuntimeError if a batch is
        refused.
        """
        count = -(-size // self._batch_bytes)
        for number, frame in enumerate(islice(cycle(self._frames), count)):
            if number >= UNDER_WAY:
                self._take_answer()
            self._peer.send(frame)
        for _ in range(min(count, UNDER_WAY)):
            self._take_answer()
        return count * self._batch_bytes

    def _take_answer(self) -> None:
        told = decode_response(ProduceRequest, self._peer.receive(), _VERSION)[1]
        code = told.responses[0].partition_responses[0].error_code
        if code:
            raise RuntimeError(f"a batch was refused with error {code}")


def _main(address: str, ca_file: str, topic: str, megabytes: str, *partitions: str) -> None:
    writer = SocketWriter(address, ca_file, topic, [int(number) for number in partitions])
    when_told(lambda: writer.write(int(float(megabytes) * 1e6)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
