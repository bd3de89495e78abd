"""A reader that stays with one broker, even if another leads, and records every reported high watermark."""

from __future__ import annotations

import time

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.record import decode_records
from ottla.protocol.records.record_batch import walk_batches
from tests.faults.actors import Actor
from tests.histories.operations import Poll, Position, Reason, Watermark
from tests.raw_peer import Peer

VERSION = 11
ASLEEP_S = 30.0


class RawReader(Actor):
    """A reader of partition 0 from one broker, leader or follower.

    It retries offsets that the broker does not have or serve yet.
    """

    def __init__(self, broker_id: int, port: int, topic: str) -> None:
        super().__init__(f"raw-{broker_id}")
        self._broker_id = broker_id
        self._port = port
        self._topic = topic
        self._offset = 0

    def _run(self) -> None:
        self.history.add(Position(self.name, self.name, self._topic, 0, 0, Reason.START, time.monotonic()))
        peer = Peer(self._port, self.name)
        try:
            while not self._stop.is_set():
                self._fetch(peer)
        finally:
            peer.close()

    def _fetch(self, peer: Peer) -> None:
        wanted = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20)
        message = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        answer = peer.ask(message, VERSION, ASLEEP_S).responses[0].partitions[0]
        now = time.monotonic()
        if answer.error_code != ErrorCode.NONE:
            self._stop.wait(0.05)
            return
        self.history.add(
            Watermark(
                self.name,
                self._topic,
                0,
                -1,
                answer.high_watermark,
                answer.log_start_offset,
                now,
                self._broker_id,
            )
        )
        data = bytes(answer.records or b"")
        for position, header in walk_batches(data, partial_tail=True):
            for record in decode_records(data[position : position + header.size]):
                if record.offset >= self._offset:
                    epoch, value = header.partition_leader_epoch, record.value or b""
                    self.history.add(
                        Poll(self.name, self.name, self._topic, 0, record.offset, epoch, value, now)
                    )
            self._offset = max(self._offset, header.next_offset)
