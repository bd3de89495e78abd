"""Random, well-formed requests of every API and version: the broker answers or states why it hangs up, no handler
fails, and other clients are served as before.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.records.record import encode_batch
from ottla.protocol.wire.schema import Field, Message, Request
from tests.cluster import Node, RunningCluster, running_cluster, wait_until
from tests.raw_peer import ANSWER_TIMEOUT_S, Peer

pytestmark = pytest.mark.cluster

SEED = int(os.environ.get("OTTLA_TEST_SEED", "20260711"))
REQUESTS_PER_VERSION = int(os.environ.get("OTTLA_TEST_REQUESTS", "6"))
MEGABYTE = 1 << 20
TOPIC, UNTOUCHED = "orders", "untouched"
INTEGERS = {
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "uint16": 16,
    "uint32": 32,
}
NAMES = (
    TOPIC, "group", "", ".", "..", "../../etc/passwd", "a/b", "x" * 249, "x" * 250, "\u00e9\u4e2d\U0001f600",
    "line\nbreak level=error", "\x00\x1b[31m", "__consumer_offsets", "1", "-1", "0", "99999999999", "consumer",
    "retention.ms", "cleanup.policy", "compact,delete", "match", "client_id=(", "client_id=" + "(" * 3000,
    "user", "client-id", "ip", "127.0.0.1", "producer_byte_rate", "metadata.version", "group.version", "range",
    "uniform", "(a+)+$", "min.insync.replicas", "leader.replication.throttled.replicas", "0:1", "root",
    "dataplane.broker", "DEBUG", "consumer.session.timeout.ms",
)  # fmt: skip


class Chance:
    """A source of random messages, whose values are sensible, at the edges of their types, or senseless."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.topic_ids = [bytes(16)]

    def message(self, cls: type[Message], version: int, nested: bool = False) -> Message:
        """Return a random message; fields that the version does not have keep their defaults."""
        present = {f.name: self._value(f, version) for f in cls.schema.fields if version in f.versions}
        return cls(**{name: value for name, value in present.items() if value is not ...})

    def _value(self, field: Field, version: int) -> Any:
        chance = self._random
        if version in field.nullable and chance.random() < 0.2:
            return None
        if field.kind == "array":
            assert field.element is not None
            size = chance.choice((0, 1, 1, 2, 3, 40 if field.element.kind != "struct" else 2))
            values = [self._value(field.element, version) for _ in range(size)]
            return [*values, values[0]] if values and chance.random() < 0.2 else values
        if field.kind == "struct":
            assert field.struct is not None
            return self.message(field.struct, version)
        if field.name.endswith(("timeout_ms", "max_wait_ms")) and chance.random() < 0.9:
            return chance.choice((-1, 0, 1, 50, 200))
        return self._primitive(field.kind)

    def _primitive(self, kind: str) -> Any:
        chance = self._random
        match kind:
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return chance.choice((0.0, -1.0, 1.0, 1.5, 1e300, 5e-324, float("nan"), float("inf")))
            case "uuid":
                return chance.choice((*self.topic_ids, chance.randbytes(16)))
            case "string":
                return chance.choice(NAMES)
            case "bytes" | "records":
                return chance.choice((b"", chance.randbytes(30), _batch(), _batch()[:-3]))
        bits = INTEGERS[kind]
        lowest = 0 if kind.startswith("u") else -(1 << (bits - 1))
        highest = lowest + (1 << bits) - 1
        usual = (0, 1, 2, 3, 1, 0)
        return chance.choice(
            (*usual, lowest, highest, max(-1, lowest), max(-2, lowest), chance.randint(lowest, highest))
        )


def _batch() -> bytes:
    return bytes(encode_batch([(b"key", b"value", 1_700_000_000_000)]))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    with running_cluster(
        tmp_path_factory.mktemp("random"), quorum=1, brokers=1, settings=settings
    ) as cluster:
        yield cluster


def request_classes() -> dict[int, type[Request[Any]]]:
    """Return every declared request class, by its API key."""
    import importlib
    import pkgutil

    import ottla.protocol.messages as folder

    found: dict[int, type[Request[Any]]] = {}
    for info in pkgutil.iter_modules(folder.__path__):
        for value in vars(importlib.import_module(f"{folder.__name__}.{info.name}")).values():
            if isinstance(value, type) and issubclass(value, Request) and value is not Request:
                found[value.schema.api_key] = value
    return found


def harmless(message: Message, own_id: int) -> bool:
    """Return False for a message that could change the whole cluster on purpose."""
    if isinstance(message, AlterClientQuotasRequest):
        message.validate_only = True
    return getattr(message, "broker_id", None) != own_id


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def waits_by_design(message: Message) -> bool:
    """Return whether the answer depends on other members, or no answer is wanted."""
    return type(message).__name__ in ("JoinGroupRequest", "SyncGroupRequest") or (
        isinstance(message, ProduceRequest) and message.acks == 0
    )


def test_random_requests_are_answered_and_harm_nobody(cluster: RunningCluster) -> None:
    broker = cluster.brokers[0]
    chance = Chance(SEED)
    make_topics(broker, chance)
    served = served_versions(broker)
    asked = 0
    before = 0
    problems: list[str] = []
    for number in range(REQUESTS_PER_VERSION + 1):
        if number == 1:  # Codecs are made and caches are filled.
            before = resident_bytes(broker.pid)
        for cls, versions in served.items():
            for version in versions:
                message = chance.message(cls, version)
                if not harmless(message, broker.id):
                    continue
                asked += 1
                problem = exchange(broker, message, version)
                if problem:
                    problems.append(f"seed {SEED}, request {asked}: {problem}: version {version} {message}")
                assert broker.alive, problems
    assert not problems, "\n".join(problems)
    assert "Traceback" not in broker.log(), broker.log()
    assert "Traceback" not in cluster.quorum[0].log(), cluster.quorum[0].log()
    assert resident_bytes(broker.pid) - before < 48 * MEGABYTE
    still_serves(broker)


def exchange(broker: Node, message: Message, version: int) -> str:
    """Return the fault in the broker's reaction; empty if it is right."""
    logged = len(broker.log())
    peer = Peer(broker.port, "line\nbreak level=error")
    try:
        peer.ask(message, version, 0.05 if waits_by_design(message) else ANSWER_TIMEOUT_S)
    except TimeoutError:
        return "" if waits_by_design(message) else "no answer"
    except ConnectionError:
        said = broker.log()[logged:]
        return (
            ""
            if waits_by_design(message) or "closing the connection" in said
            else f"hung up without a word {said}"
        )
    except Exception as error:
        return f"cannot be read: {error!r}"
    finally:
        peer.close()
    said = broker.log()[logged:]
    return f"a handler failed: {said}" if "Traceback" in said else ""


def make_topics(broker: Node, chance: Chance) -> None:
    wanted = [
        CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in (TOPIC, UNTOUCHED)
    ]
    peer = Peer(broker.port)
    created = peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, 15)
    chance.topic_ids += [topic.topic_id for topic in created.topics]
    wait_until(lambda: leads(peer), "leaders")
    peer.close()


def leads(peer: Peer) -> bool:
    answer = peer.ask(MetadataRequest(topics=None), 9)
    found = [p for topic in answer.topics for p in topic.partitions]
    return len(found) == 6 and all(p.leader_id >= 0 for p in found)


def served_versions(broker: Node) -> dict[type[Request[Any]], list[int]]:
    """Return the versions that the broker reports as supported."""
    peer = Peer(broker.port)
    answer = peer.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    peer.close()
    classes = request_classes()
    return {
        classes[api.api_key]: [
            version
            for version in range(api.min_version, api.max_version + 1)
            if version in classes[api.api_key].schema.versions and (api.api_key, version >= 3) != (0, False)
        ]
        for api in answer.api_keys
    }


def still_serves(broker: Node) -> None:
    """Check that a record is appended to an untouched topic, or to the next best."""
    peer = Peer(broker.port)
    wanted = [CreatableTopic(name="afterwards", num_partitions=1, replication_factor=1)]
    assert peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, 15).topics[0].error_code == 0
    data = PartitionProduceData(index=0, records=_batch())
    produce = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name="afterwards", partition_data=[data])]
    )

    def appended() -> bool:
        code = peer.ask(produce, 9, 10).responses[0].partition_responses[0].error_code
        assert code in (
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        return bool(code == ErrorCode.NONE)

    wait_until(appended, "a record is appended")
    peer.close()
