"""Actions of unauthenticated and broken clients on a running cluster have no effect on others."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.codec import encode

pytestmark = pytest.mark.cluster

MEGABYTE = 1 << 20


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


def is_closed(sock: socket.socket, timeout_s: float = 60) -> bool:
    """Return whether the peer hangs up, after any answers."""
    sock.settimeout(timeout_s)
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def call(sock: socket.socket, message: Any, version: int, correlation_id: int = 7) -> Any:
    """Send one request and return its response."""
    sock.settimeout(60)
    sock.sendall(encode_request(message, version, correlation_id, "test"))
    stream = sock.makefile("rb")
    (size,) = struct.unpack(">i", stream.read(4))
    answered, response = decode_response(type(message), stream.read(size), version)
    assert answered == correlation_id
    return response


@contextmanager
def unharmed(description: dict[str, Any], topic: str, growth_bytes: int = 64 * MEGABYTE) -> Iterator[None]:
    """Check that every process lives on, grew by little, and still acknowledges a stock client's records."""
    nodes = description["brokers"] + description["quorum"]
    before = {n["pid"]: resident_bytes(n["pid"]) for n in nodes}
    yield
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": description["bootstrap"], "message.timeout.ms": 60_000})
    for _ in range(30):
        producer.produce(topic, b"still here", on_delivery=lambda e, _m: errors.append(str(e)) if e else None)
    assert producer.flush(60) == 0
    assert not errors
    for pid, was in before.items():
        assert resident_bytes(pid) - was < growth_bytes, f"process {pid} grew by {resident_bytes(pid) - was}"


def ports(description: dict[str, Any]) -> list[int]:
    return [n["port"] for n in description["brokers"][:1] + description["quorum"][:1]]


def test_garbage_closes_the_connection_and_nothing_else(description: dict[str, Any], new_topic: str) -> None:
    seed = 20130101
    noise = random.Random(seed)
    with unharmed(description, new_topic):
        for port in ports(description):
            for size in (1, 4, 60, 5_000, 200_000):
                with connect(port) as sock:
                    try:
                        sock.sendall(noise.randbytes(size))
                        sock.shutdown(socket.SHUT_WR)
                    except OSError:
                        continue  # hung up on us already
                    assert is_closed(sock), f"seed {seed}: {size} random bytes left port {port} open"


def test_http_and_tls_are_turned_away(description: dict[str, Any], new_topic: str) -> None:
    with unharmed(description, new_topic):
        for port in ports(description):
            for hello in (
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                bytes.fromhex("16030100ff010000fb0303") + bytes(250),
            ):
                with connect(port) as sock:
                    sock.sendall(hello)
                    assert is_closed(sock)


def test_a_claim_of_two_gigabytes_is_refused_before_anything_is_allocated(
    description: dict[str, Any], new_topic: str
) -> None:
    with unharmed(description, new_topic):
        for port in ports(description):
            with connect(port) as sock:
                sock.sendall(struct.pack(">ihhi", 2**31 - 1, 0, 9, 1) + bytes(1000))
                assert is_closed(sock)


def test_lengths_inside_a_request_are_not_believed(description: dict[str, Any], new_topic: str) -> None:
    bodies = [
        struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1),  # Metadata of two thousand million topics
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x00" + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhihhhii", 0, 3, 1, -1, -1, -1, 1000, 2**30),
    ]
    with unharmed(description, new_topic):
        for body in bodies:
            with connect(description["brokers"][0]["port"]) as sock:
                sock.sendall(struct.pack(">i", len(body)) + body)
                assert is_closed(sock)


def test_a_pickle_is_bytes_like_any_other(
    description: dict[str, Any], new_topic: str, tmp_path: Path
) -> None:
    import pickle

    class Touch:
        def __reduce__(self) -> tuple[Any, tuple[str, int]]:
            return os.open, (str(tmp_path / "executed"), os.O_CREAT)

    payload = pickle.dumps(Touch())
    with unharmed(description, new_topic):
        for port in ports(description):
            with connect(port) as sock:
                sock.sendall(struct.pack(">i", len(payload)) + payload)
                assert is_closed(sock)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
                datagram.sendto(payload, ("127.0.0.1", port))
    assert not (tmp_path / "executed").exists()


def leader_port(description: dict[str, Any], topic: str, partition: int = 0) -> int:
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": description["bootstrap"]}).list_topics(topic, 10)
    leader = metadata.topics[topic].partitions[partition].leader
    return int(metadata.brokers[leader].port)


def produce_raw(sock: socket.socket, topic: str, batch: bytes, version: int = 9) -> Any:
    data = PartitionProduceData(index=0, records=batch)
    message = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return call(sock, message, version).responses[0].partition_responses[0]


def test_a_batch_with_a_wrong_crc_is_refused_and_appends_nothing(
    description: dict[str, Any], one_partition: str
) -> None:
    good = bytes(encode_batch([(b"k", b"v", 1_700_000_000_000)]))
    bad = good[:-1] + bytes([good[-1] ^ 1])
    with connect(leader_port(description, one_partition)) as sock:
        assert produce_raw(sock, one_partition, good).error_code == ErrorCode.NONE
        assert produce_raw(sock, one_partition, bad).error_code == ErrorCode.CORRUPT_MESSAGE
        third = produce_raw(sock, one_partition, good)
        assert (third.error_code, third.base_offset) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("cut", [1, 12, 17, 60])
def test_a_truncated_batch_is_refused(description: dict[str, Any], one_partition: str, cut: int) -> None:
    batch = bytes(encode_batch([(b"k", b"v" * 100, 1_700_000_000_000)]))
    with connect(leader_port(description, one_partition)) as sock:
        code = produce_raw(sock, one_partition, batch[:-cut]).error_code
        assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert produce_raw(sock, one_partition, batch).base_offset == 0


def test_an_unsupported_version_gets_the_answer_the_protocol_prescribes(description: dict[str, Any]) -> None:
    with connect(description["brokers"][0]["port"]) as sock:
        sock.settimeout(60)
        body = struct.pack(">hhih", 18, 99, 5, -1) + b"\x00"
        sock.sendall(struct.pack(">i", len(body)) + body)
        answer = sock.recv(4096)
    size, correlation_id, code, count, key = struct.unpack_from(">iihih", answer)
    assert (size, correlation_id) == (len(answer) - 4, 5)
    assert (code, count, key) == (ErrorCode.UNSUPPORTED_VERSION, 1, 18)


def test_a_client_that_never_reads_costs_bounded_memory(
    description: dict[str, Any], one_partition: str
) -> None:
    batch = bytes(encode_batch([(None, os.urandom(900_000), 1_700_000_000_000)]))
    port = leader_port(description, one_partition)
    with connect(port) as sock:
        for _ in range(20):
            assert produce_raw(sock, one_partition, batch).error_code == ErrorCode.NONE
    fetch = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * MEGABYTE,
        topics=[
            FetchTopic(
                topic=one_partition,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MEGABYTE)],
            )
        ],
    )
    with unharmed(description, one_partition), ExitStack() as open_sockets:
        for _ in range(10):
            greedy = open_sockets.enter_context(connect(port))
            greedy.setblocking(False)
            try:
                for n in range(2_000):
                    greedy.send(encode_request(fetch, 11, n, "never reads"))
            except BlockingIOError:
                pass


@pytest.mark.timeout(180)
def test_two_thousand_idle_connections(description: dict[str, Any], new_topic: str) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_096:
        pytest.skip("needs 4,096 file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_096), hard))
    port = description["brokers"][0]["port"]
    hello = ApiVersionsRequest(client_software_name="idle", client_software_version="1")
    assert encode(hello, 3)
    with unharmed(description, new_topic), ExitStack() as idle:
        sockets = [idle.enter_context(connect(port)) for _ in range(2_000)]
        for sock in sockets:
            sock.sendall(encode_request(hello, 3, 1, "idle"))
        for sock in sockets:
            sock.settimeout(60)
            assert sock.recv(4)
        with connect(port) as one_more:
            assert call(one_more, hello, 3).error_code == 0
