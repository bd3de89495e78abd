"""A leader that stops for longer than its session and comes back: what it still holds is not acknowledged."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record import encode_batch
from tests.cluster import running_cluster, wait_for, wait_until
from tests.integration.history import (
    SMALL_CLUSTER,
    Load,
    make_topic,
    read_all,
    wait_identical_replicas,
)

pytestmark = pytest.mark.cluster

VERSION = 9
TOPIC = "haunted"


class RawProducer:
    """Writes one record per request to one broker, whoever leads, and reads the answer when told to."""

    def __init__(self, port: int, acks: int) -> None:
        self._acks = acks
        self._socket = socket.create_connection(("127.0.0.1", port), 5)
        self._socket.settimeout(30)
        self._stream = self._socket.makefile("rb")

    def send(self, value: bytes) -> None:
        data = PartitionProduceData(
            index=0, records=bytes(encode_batch([(b"zombie", value, 1_700_000_000_000)]))
        )
        message = ProduceRequest(
            acks=self._acks,
            timeout_ms=8_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        self._socket.sendall(encode_request(message, VERSION, 1, "zombie"))

    def answer(self) -> ErrorCode:
        (size,) = struct.unpack(">i", self._stream.read(4))
        _, response = decode_response(ProduceRequest, self._stream.read(size), VERSION)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@pytest.mark.parametrize("min_in_sync", [1, 2])
def test_a_leader_that_slept_past_its_session(tmp_path: Path, min_in_sync: int) -> None:
    settings = SMALL_CLUSTER | {"broker.session.timeout.ms": "1000"}
    with running_cluster(tmp_path, quorum=1, settings=settings) as cluster:
        make_topic(cluster.bootstrap, TOPIC, 1, min_insync_replicas=min_in_sync)
        zombie = cluster.broker(wait_for(lambda: cluster.leader(TOPIC, 0), "a leader"))
        strict, lax = RawProducer(zombie.port, -1), RawProducer(zombie.port, 1)
        with Load(cluster.bootstrap, TOPIC, settings={"socket.timeout.ms": 3_000}) as load:
            strict.send(b"zombie:0")
            assert strict.answer() == ErrorCode.NONE
            load.wait_acknowledged(300)
            zombie.pause()
            # These lie in the socket of the process that sleeps, and are its to answer when it wakes up.
            strict.send(b"zombie:1")
            lax.send(b"zombie:2")
            wait_until(lambda: cluster.leader(TOPIC, 0) not in (None, zombie.id), "another leader")
            load.wait_acknowledged(300)
            zombie.resume()
            assert strict.answer() != ErrorCode.NONE
            lax.answer()  # With acks=1 either is right; the record is gone.
            load.wait_acknowledged(300)
            cluster.wait_until_in_sync(TOPIC)
            strict.send(b"zombie:3")
            assert strict.answer() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        strict.close()
        lax.close()
        assert load.failed == []
        read = read_all(cluster.bootstrap, TOPIC)
        own = [one for one in read if not one.value.startswith(b"zombie")]
        load.check(own)
        assert [one.value for one in read if one.value.startswith(b"zombie")] == [b"zombie:0"]
        wait_identical_replicas(cluster, TOPIC, 1)
