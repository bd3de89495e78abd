"""The cost of a broker's death for a client of very many partitions: its CPU, and its requests to the other brokers.

    python -m benchmarks.leader_changes [--partitions 30000] [--in-need 10000] [--silence-ms 300] [--step-ms 50]
    python -m benchmarks.leader_changes --consumer

Three stand-ins for brokers run in a separate process and hold everything in memory, so that only the client is
measured. Then the stand-in that leads a third of the partitions ends, as by a kill. The others learn of new leaders as
brokers do: nothing for `--silence-ms`, then `STEP` partitions every `--step-ms`. They refuse requests for partitions
that they do not lead yet, and name the leader that they know (KIP-951).

A producer has written to all partitions, and writes one record to each of `--in-need` partitions without a leader. A
consumer reads all of them, and no records come: the round ends when each new leader was asked for all its partitions.
`idle_cpu` is the consumer's CPU before that, as a share of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import struct
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, cast

import uvloop
from rich.console import Console
from rich.table import Table

from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.direct_codecs.metadata_layout import TopicWriter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.fetch import LeaderIdAndEpoch as ReadLeader
from ottla.protocol.messages.headers import RequestHeader, decode_request_header, response_header
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
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
from ottla.protocol.wire.codec import decode, encode
from ottla.protocol.wire.schema import EncodedArray, Message

from .rounds import record

PARTITIONS_OF_TOPIC = 1_000
BROKERS = (1, 2, 3)
KILLED = 3
STEP = 1_000
SERVED = (
    ApiVersionsRequest,
    MetadataRequest,
    ProduceRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    FetchRequest,
)
IDLE_S = 3.0
DEADLINE_S = 300.0


# ---------------------------------------------------------------- stand-ins for brokers


class StandIns:
    """Three stand-in brokers that agree on the leaders. A partition is a pair of its topic's number and its index."""

    def __init__(self, partitions: int, silence_s: float, step_s: float) -> None:
        self._silence_s, self._step_s = silence_s, step_s
        self.unread = set(range(partitions))
        """Partitions whose leader was not asked for records yet."""
        self.all_read = asyncio.Event()
        self.asked: Counter[str] = Counter()
        """Number of requests and bytes of answers, by the name of the request."""
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
        """Start the brokers; return the bootstrap servers: all except the broker to be killed."""
        for broker in BROKERS:
            server = await asyncio.start_server(self._serving(broker), "127.0.0.1", 0, limit=1 << 24)
            self._servers[broker] = server
            self._ports[broker] = server.sockets[0].getsockname()[1]
        return ",".join(f"127.0.0.1:{self._ports[broker]}" for broker in BROKERS if broker != KILLED)

    async def kill(self) -> None:
        """End one broker, and report the new leaders to the others step by step."""
        self._servers[KILLED].close()
        for writer in self._writers[KILLED]:
            writer.transport.abort()
        await asyncio.sleep(self._silence_s)
        self._live.discard(KILLED)
        self._encoded.clear()
        self.unread.update(
            topic * PARTITIONS_OF_TOPIC + index
            for (topic, index), (leader, _) in self._leaders.items()
            if leader == KILLED
        )
        self.all_read.clear()
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
                    answer, wait_s = self._answer(broker, memoryview(await reader.readexactly(size)))
                    await asyncio.sleep(wait_s)
                    if writer.is_closing():
                        break
                    writer.write(struct.pack(">i", len(answer)) + answer)
            self._writers[broker].discard(writer)
            writer.transport.abort()

        return serve

    def _answer(self, broker: int, frame: memoryview) -> tuple[bytes, float]:
        """Return the answer, and the time to wait before it is sent."""
        header, position = decode_request_header(frame)
        kind = next(message for message in SERVED if message.api_key == header.api_key)
        request = decode(cast(type[Message], kind), frame, header.api_version, position)
        response = self._response(broker, request, header)
        body = encode(response, header.api_version)
        self.asked[kind.__name__] += 1
        self.asked[f"{kind.__name__} bytes"] += len(body)
        wait_s = 0.0
        if isinstance(request, FetchRequest) and not any(topic.partitions for topic in response.responses):
            wait_s = request.max_wait_ms / 1000
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        return head + body, wait_s

    def _response(self, broker: int, request: Message, header: RequestHeader) -> Any:
        match request:
            case ApiVersionsRequest():
                keys = [
                    ApiVersion(
                        api_key=message.api_key,
                        min_version=message.min_version,
                        max_version=message.max_version,
                    )
                    for message in SERVED
                ]
                return ApiVersionsResponse(api_keys=keys)
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=1, producer_epoch=0)
            case MetadataRequest():
                numbers = [
                    int(topic.name.removeprefix("wide-")) for topic in request.topics or () if topic.name
                ]
                return self._metadata(numbers, header.api_version)
            case ProduceRequest():
                return self._produce(broker, request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case FetchRequest():
                return self._fetch(broker, request)
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
                self.asked["partitions refused"] += 1
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
        ends = [
            NodeEndpoint(node_id=node, host="127.0.0.1", port=self._ports[node]) for node in sorted(named)
        ]
        return ProduceResponse(responses=topics, node_endpoints=ends)

    @staticmethod
    def _list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=0)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, broker: int, request: FetchRequest) -> FetchResponse:
        """Answer with the refused partitions only: there are no records."""
        refused: dict[str, list[PartitionData]] = {}
        for topic in request.topics:
            number = int(topic.topic.removeprefix("wide-"))
            for part in topic.partitions:
                leader, epoch = self._leaders[number, part.partition]
                if leader == broker:
                    self.unread.discard(number * PARTITIONS_OF_TOPIC + part.partition)
                    continue
                self.asked["partitions refused"] += 1
                data = PartitionData(
                    partition_index=part.partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                )
                data.current_leader = ReadLeader(leader_id=leader, leader_epoch=epoch)
                refused.setdefault(topic.topic, []).append(data)
        if not self.unread:
            self.all_read.set()
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=name, partitions=some) for name, some in refused.items()]
        )


def stand_in(partitions: int, silence_s: float, step_s: float, pipe: Pipe) -> None:
    """Run the brokers' process. It sends their addresses, and then answers commands from the pipe.

    The commands are to kill a broker and to return the counts of requests. The question if all is read is answered once
    it is.
    """

    async def run() -> None:
        brokers = StandIns(partitions, silence_s, step_s)
        pipe.send(await brokers.start())
        told: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: told.put_nowait(pipe.recv()))
        killing = None
        while True:
            match await told.get():
                case "kill":
                    brokers.asked.clear()
                    killing = asyncio.ensure_future(brokers.kill())
                case "read":
                    if killing is not None:
                        await killing
                    await brokers.all_read.wait()
                    pipe.send("all")
                case "asked":
                    pipe.send(brokers.asked)

    uvloop.run(run())


# ---------------------------------------------------------------- the client


Measure = Callable[[str, Pipe, int, int], Coroutine[None, None, dict[str, float]]]


class LongestTurn:
    """The largest CPU time, in ms, between two turns of this thread's loop."""

    def __init__(self) -> None:
        self.ms = 0.0
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            used_s = time.thread_time()
            await asyncio.sleep(0.001)
            self.ms = max(self.ms, 1000 * (time.thread_time() - used_s))

    def end(self) -> None:
        self._watching.cancel()


def places_of(partitions: int) -> list[TopicPartition]:
    return [
        TopicPartition(f"wide-{number // PARTITIONS_OF_TOPIC}", number % PARTITIONS_OF_TOPIC)
        for number in range(partitions)
    ]


async def produce(bootstrap: str, pipe: Pipe, partitions: int, in_need: int) -> dict[str, float]:
    """Run one round of a producer. CPU is that of this process."""
    places = places_of(partitions)
    led = [place for number, place in enumerate(places) if BROKERS[number % 3] == KILLED][:in_need]
    async with asyncio.timeout(DEADLINE_S), Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for name, index in places:
            await producer.send(name, b"x", partition=index)
        await producer.flush()
        began_s, used_s = time.monotonic(), time.process_time()
        longest = LongestTurn()
        pipe.send("kill")
        deliveries = [await producer.send(name, b"x", partition=index) for name, index in led]
        for delivery in deliveries:
            await delivery
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - used_s
        longest.end()
        return figures(took_s, cpu_s, longest, await told(pipe, "asked")) | {"idle_cpu": 0.0}


async def consume(bootstrap: str, pipe: Pipe, partitions: int, _in_need: int) -> dict[str, float]:
    """Run one round of a consumer."""
    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with asyncio.timeout(DEADLINE_S), consumer:
        consumer.assign(places_of(partitions))
        await told(pipe, "read")
        used_s = time.process_time()
        await asyncio.sleep(IDLE_S)
        idle = (time.process_time() - used_s) / IDLE_S
        began_s, used_s = time.monotonic(), time.process_time()
        longest = LongestTurn()
        pipe.send("kill")
        await told(pipe, "read")
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - used_s
        longest.end()
        return figures(took_s, cpu_s, longest, await told(pipe, "asked")) | {"idle_cpu": round(idle, 2)}


async def told(pipe: Pipe, what: str) -> Any:
    pipe.send(what)
    return await asyncio.get_running_loop().run_in_executor(None, pipe.recv)


def figures(took_s: float, cpu_s: float, longest: LongestTurn, asked: Counter[str]) -> dict[str, float]:
    return {
        "took_s": round(took_s, 3),
        "client_cpu_s": round(cpu_s, 3),
        "longest_turn_ms": round(longest.ms, 1),
        "metadata_requests": asked["MetadataRequest"],
        "metadata_kb": round(asked["MetadataRequest bytes"] / 1000),
        "produce_requests": asked["ProduceRequest"],
        "fetch_requests": asked["FetchRequest"],
        "refused": asked["partitions refused"],
    }


def one_round(
    measure: Measure, partitions: int, in_need: int, silence_s: float, step_s: float
) -> dict[str, float]:
    """Run one round, with new brokers."""
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
    parser.add_argument("--consumer", action="store_true", help="measure a consumer, not a producer")
    parser.add_argument("--silence-ms", type=float, default=300, help="until the first new leader (300)")
    parser.add_argument("--step-ms", type=float, default=50, help="between two steps (50)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    measure = consume if arguments.consumer else produce
    silence_s, step_s = arguments.silence_ms / 1000, arguments.step_ms / 1000
    rounds = [
        one_round(measure, arguments.partitions, arguments.in_need, silence_s, step_s)
        for _ in range(arguments.rounds)
    ]
    table = Table("", *(str(number) for number in range(1, arguments.rounds + 1)), "median")
    medians = {name: statistics.median(row[name] for row in rounds) for name in rounds[0]}
    for name, median in medians.items():
        table.add_row(name, *(f"{row[name]:g}" for row in rounds), f"{median:g}")
    Console(width=140).print(table)
    if arguments.record is not None:
        record(arguments.record, partitions=arguments.partitions, in_need=arguments.in_need, **medians)


if __name__ == "__main__":
    main()
