"""What it costs a producer of very many partitions that a broker dies: its CPU, and what it asks the others.

    python -m benchmarks.leader_changes [--partitions 30000] [--in-need 10000] [--silence-ms 300] [--step-ms 50]

Three stand-ins for brokers run in a process of their own and hold everything in memory, so that only the client is
measured. The producer has written to all partitions. Then the stand-in that leads a third of them ends, as by a kill,
and the producer writes one record to each of `--in-need` of its partitions. The others learn of new leaders as brokers
do: nothing for `--silence-ms`, then `STEP` partitions every `--step-ms`. They refuse what they do not lead yet, and
name the leader that they know (KIP-951).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import struct
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import cast

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.client.producer import Producer
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.headers import RequestHeader, decode_request_header, response_header
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.metadata_layout import TopicWriter
from ottla.protocol.schema import EncodedArray, Message

from .rounds import record

PARTITIONS_OF_TOPIC = 1_000
BROKERS = (1, 2, 3)
KILLED = 3
STEP = 1_000
SERVED = (ApiVersionsRequest, MetadataRequest, ProduceRequest, InitProducerIdRequest)
DEADLINE_S = 300.0


# ---------------------------------------------------------------- stand-ins for brokers


class StandIns:
    """Three brokers that agree on who leads. A partition is a pair of its topic's number and its own."""

    def __init__(self, partitions: int, silence_s: float, step_s: float) -> None:
        self._silence_s, self._step_s = silence_s, step_s
        self.asked: Counter[str] = Counter()
        """Requests and bytes of answers, by the name of the request."""
        self._leaders = {
            (number // PARTITIONS_OF_TOPIC, number % PARTITIONS_OF_TOPIC): (BROKERS[number % 3], 0)
            for number in range(partitions)
        }
        self._topics = partitions // PARTITIONS_OF_TOPIC
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._live = set(BROKERS)
        self._ports: dict[int, int] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._writers: dict[int, set[asyncio.StreamWriter]] = {broker: set() for broker in BROKERS}

    async def start(self) -> str:
        """The bootstrap servers: all but the one to be killed."""
        for broker in BROKERS:
            server = await asyncio.start_server(self._serving(broker), "127.0.0.1", 0, limit=1 << 24)
            self._servers[broker] = server
            self._ports[broker] = server.sockets[0].getsockname()[1]
        return ",".join(f"127.0.0.1:{self._ports[broker]}" for broker in BROKERS if broker != KILLED)

    async def kill(self) -> None:
        """End one, and tell the others by and by who leads instead."""
        self._servers[KILLED].close()
        for writer in self._writers[KILLED]:
            writer.transport.abort()
        await asyncio.sleep(self._silence_s)
        self._live.discard(KILLED)
        self._encoded.clear()
        moving = [place for place, (leader, _) in self._leaders.items() if leader == KILLED]
        for first in range(0, len(moving), STEP):
            for turn, place in enumerate(moving[first : first + STEP]):
                self._leaders[place] = (BROKERS[turn % 2], 1)
            for topic in {topic for topic, _ in moving[first : first + STEP]}:
                for key in [key for key in self._encoded if key[0] == topic]:
                    del self._encoded[key]
            await asyncio.sleep(self._step_s)

    def _serving(self, broker: int):  # type: ignore[no-untyped-def]  # asyncio takes it as it is
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers[broker].add(writer)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    size = struct.unpack(">i", await reader.readexactly(4))[0]
                    answer = self._answer(broker, memoryview(await reader.readexactly(size)))
                    writer.write(struct.pack(">i", len(answer)) + answer)
            self._writers[broker].discard(writer)
            writer.transport.abort()

        return serve

    def _answer(self, broker: int, frame: memoryview) -> bytes:
        header, position = decode_request_header(frame)
        kind = next(one for one in SERVED if one.api_key == header.api_key)
        request = decode(cast(type[Message], kind), frame, header.api_version, position)
        body = encode(self._response(broker, request, header), header.api_version)
        self.asked[kind.__name__] += 1
        self.asked[f"{kind.__name__} bytes"] += len(body)
        return response_header(header.api_key, header.api_version, header.correlation_id) + body

    def _response(self, broker: int, request: Message, header: RequestHeader) -> Message:
        match request:
            case ApiVersionsRequest():
                keys = [
                    ApiVersion(api_key=one.api_key, min_version=one.min_version, max_version=one.max_version)
                    for one in SERVED
                ]
                return ApiVersionsResponse(api_keys=keys)
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=1, producer_epoch=0)
            case MetadataRequest():
                numbers = [int(one.name.removeprefix("wide-")) for one in request.topics or () if one.name]
                return self._metadata(numbers, header.api_version)
            case ProduceRequest():
                return self._produce(broker, request)
        raise AssertionError(request)

    def _metadata(self, topics: list[int], version: int) -> MetadataResponse:
        encoded = EncodedArray([self._topic(number, version) for number in topics])
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker, host="127.0.0.1", port=self._ports[broker])
                for broker in sorted(self._live)
            ],
            cluster_id="stand-ins",
            controller_id=1,
            topics=cast(list[MetadataResponseTopic], encoded),
        )

    def _topic(self, number: int, version: int) -> bytes:
        found = self._encoded.get((number, version))
        if found is not None:
            return found
        writer = TopicWriter(version)
        isr = sorted(self._live)
        offline = [broker for broker in BROKERS if broker not in self._live]
        partitions = []
        for index in range(PARTITIONS_OF_TOPIC):
            leader, epoch = self._leaders[number, index]
            leader = leader if leader in self._live else -1
            replicas = [BROKERS[(number * PARTITIONS_OF_TOPIC + index + more) % 3] for more in range(3)]
            partitions.append(writer.partition(0, index, leader, epoch, replicas, isr, offline))
        name = f"wide-{number}"
        found = writer.topic(name, (number + 1).to_bytes(16, "big"), False, partitions, -(1 << 31))
        self._encoded[number, version] = found
        return found

    def _produce(self, broker: int, request: ProduceRequest) -> ProduceResponse:
        topics, named = [], set()
        for topic in request.topic_data:
            number = int(topic.name.removeprefix("wide-"))
            answers = []
            for data in topic.partition_data:
                leader, epoch = self._leaders[number, data.index]
                if leader == broker:
                    answers.append(PartitionProduceResponse(index=data.index, error_code=0, base_offset=0))
                    continue
                self.asked["batches refused"] += 1
                named.add(leader)
                answers.append(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        base_offset=-1,
                        current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
                    )
                )
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        ends = [NodeEndpoint(node_id=one, host="127.0.0.1", port=self._ports[one]) for one in sorted(named)]
        return ProduceResponse(responses=topics, node_endpoints=ends)


def stand_in(partitions: int, silence_s: float, step_s: float, pipe: Pipe) -> None:
    """The process of the brokers: tells where they listen, is told to kill one, and then for what was asked."""

    async def run() -> None:
        brokers = StandIns(partitions, silence_s, step_s)
        pipe.send(await brokers.start())
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), told.set)
        await told.wait()
        pipe.recv()
        told.clear()
        brokers.asked.clear()
        killing = asyncio.ensure_future(brokers.kill())
        await told.wait()
        pipe.send(brokers.asked)
        await killing

    uvloop.run(run())


# ---------------------------------------------------------------- the client


async def measure(bootstrap: str, pipe: Pipe, partitions: int, in_need: int) -> dict[str, float]:
    """One round. CPU is that of this process."""
    places = [
        (f"wide-{number // PARTITIONS_OF_TOPIC}", number % PARTITIONS_OF_TOPIC)
        for number in range(partitions)
    ]
    led = [place for number, place in enumerate(places) if BROKERS[number % 3] == KILLED][:in_need]
    loop = asyncio.get_running_loop()
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            used = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - used)

    async with asyncio.timeout(DEADLINE_S), Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for name, index in places:
            await producer.send(name, b"x", partition=index)
        await producer.flush()
        began_s, used_s = loop.time(), time.process_time()
        watching = asyncio.ensure_future(watch())
        pipe.send("kill")
        deliveries = [await producer.send(name, b"x", partition=index) for name, index in led]
        handed_over_s = time.process_time() - used_s
        for delivery in deliveries:
            await delivery
        took_s, cpu_s = loop.time() - began_s, time.process_time() - used_s
        watching.cancel()
        pipe.send("asked")
        asked: Counter[str] = await loop.run_in_executor(None, pipe.recv)
    return {
        "acknowledged_s": round(took_s, 3),
        "client_cpu_s": round(cpu_s, 3),
        "of_it_to_send_s": round(handed_over_s, 3),
        "longest_turn_ms": round(1000 * longest_s, 1),
        "metadata_requests": asked["MetadataRequest"],
        "metadata_kb": round(asked["MetadataRequest bytes"] / 1000),
        "produce_requests": asked["ProduceRequest"],
        "batches_refused": asked["batches refused"],
    }


def one_round(partitions: int, in_need: int, silence_s: float, step_s: float) -> dict[str, float]:
    """With brokers of its own."""
    ours, theirs = multiprocessing.Pipe()
    brokers = multiprocessing.Process(
        target=stand_in, args=(partitions, silence_s, step_s, theirs), daemon=True
    )
    brokers.start()
    try:
        return uvloop.run(measure(ours.recv(), ours, partitions, in_need))
    finally:
        brokers.kill()
        brokers.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=30_000, help="a multiple of 1,000 (30000)")
    parser.add_argument("--in-need", type=int, default=10_000, help="of a third of them, at most (10000)")
    parser.add_argument("--silence-ms", type=float, default=300, help="until the first new leader (300)")
    parser.add_argument("--step-ms", type=float, default=50, help="between two steps (50)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    silence_s, step_s = arguments.silence_ms / 1000, arguments.step_ms / 1000
    rounds = [
        one_round(arguments.partitions, arguments.in_need, silence_s, step_s) for _ in range(arguments.rounds)
    ]
    table = Table("", *(str(number) for number in range(1, arguments.rounds + 1)), "median")
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    for name, median in medians.items():
        table.add_row(name, *(f"{one[name]:g}" for one in rounds), f"{median:g}")
    Console(width=140).print(table)
    if arguments.record is not None:
        record(arguments.record, partitions=arguments.partitions, in_need=arguments.in_need, **medians)


if __name__ == "__main__":
    main()
