"""Quotas, dynamic broker settings, and features, as stock clients and tools see them."""

from __future__ import annotations

import re
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from ottla.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.wire.schema import Message, Request
from tests import java
from tests.cluster import wait_until
from tests.integration.raw_producer import RawProducer

pytestmark = pytest.mark.cluster

RATE = 100_000
VALUE = b"x" * 1000
LEVEL = re.compile(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)")
_R = TypeVar("_R", bound=Message)


def ask(bootstrap: str, request: Request[_R], version: int, client_id: str = "quotas") -> _R:
    """Send one request to the first broker."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock, sock.makefile("rb") as stream:
        sock.sendall(encode_request(request, version, 1, client_id))
        (size,) = struct.unpack(">i", stream.read(4))
        return decode_response(type(request), stream.read(size), version)[1]


def change(bootstrap: str, client_id: str, **values: float | None) -> None:
    """Set or, with None, remove quotas of a client id."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)], ops=ops
    )
    (result,) = ask(bootstrap, AlterClientQuotasRequest(entries=[entry]), 1).entries
    assert (result.error_code, result.error_message) == (0, None)


def quotas_of(bootstrap: str, client_id: str) -> dict[str, float]:
    component = ComponentData(entity_type="client-id", match_type=0, match=client_id)
    answer = ask(bootstrap, DescribeClientQuotasRequest(components=[component], strict=True), 1)
    return {value.key: value.value for entry in answer.entries or [] for value in entry.values}


@contextmanager
def quota(bootstrap: str, client_id: str, key: str, value: float) -> Iterator[None]:
    """Set a quota for the duration of the block."""
    change(bootstrap, client_id, **{key: value})
    assert quotas_of(bootstrap, client_id) == {key: value}
    try:
        yield
    finally:
        change(bootstrap, client_id, **{key: None})
        assert quotas_of(bootstrap, client_id) == {}


def rate(times: list[float], from_s: float, to_s: float) -> float:
    return sum(len(VALUE) for moment in times if from_s <= moment < to_s) / (to_s - from_s)


def test_producers_and_consumers_are_slowed_to_their_quota(bootstrap: str, one_partition: str) -> None:
    client_id = f"q-{uuid.uuid4().hex[:8]}"
    throttled: list[float] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    acknowledged: list[float] = []
    with quota(bootstrap, client_id, "producer_byte_rate", RATE):
        producer = Producer(settings | {"linger.ms": 5, "batch.size": 10_000})
        begin = time.monotonic()
        while time.monotonic() - begin < 5:
            if len(producer) < 200:
                producer.produce(
                    one_partition,
                    VALUE,
                    on_delivery=lambda *_: acknowledged.append(time.monotonic() - begin),
                )
                producer.poll(0)
            else:
                producer.poll(0.01)
    assert throttled
    assert max(throttled) < 10
    # By now the initial burst of the window is compensated.
    assert 0.3 * RATE < rate(acknowledged, 2.5, 5) < 1.4 * RATE
    producer.flush(60)
    free = Producer({"bootstrap.servers": bootstrap, "client.id": f"{client_id}-free"})
    for _ in range(500):
        free.produce(one_partition, VALUE)
    assert free.flush(60) == 0

    throttled.clear()
    with quota(bootstrap, client_id, "consumer_byte_rate", RATE):
        consumer = Consumer(
            settings | {"group.id": client_id, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([one_partition])
        read: list[float] = []
        deadline = time.monotonic() + 40
        while len(read) < 450:
            assert time.monotonic() < deadline
            read += [time.monotonic() for found in consumer.consume(500, 0.2) if found.error() is None]
        consumer.close()
    assert throttled
    # 450 kB: about 200 kB at once, the rest at 100 kB/s.
    assert read[-1] - read[0] > 1


def test_partitions_are_created_within_a_quota(bootstrap: str) -> None:
    client_id = f"q-{uuid.uuid4().hex[:8]}"
    topics = [
        CreatableTopic(name=f"{client_id}-{number}", num_partitions=30, replication_factor=1)
        for number in range(3)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True)
    with quota(bootstrap, client_id, "controller_mutation_rate", 0.5):
        strict, older = (ask(bootstrap, request, version, client_id) for version in (7, 5))
    # 30 partitions at once are more than the window has, and owed for: the others have to wait.
    errors = [ErrorCode(topic.error_code) for topic in strict.topics]
    assert sorted(errors) == [ErrorCode.NONE, *[ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2]
    assert strict.throttle_time_ms > 0
    # Clients that do not know the error are only slowed down.
    assert {topic.error_code for topic in older.topics} == {0}
    assert older.throttle_time_ms > strict.throttle_time_ms


def alter(bootstrap: str, broker: str, key: str, value: str | None) -> ErrorCode:
    """Set or, with None, delete a setting of a broker or, with an empty name, of all brokers."""
    change = AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
    (result,) = ask(bootstrap, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return ErrorCode(result.error_code)


def described(admin: AdminClient, kind: ResourceType, name: str, key: str) -> tuple[str, str]:
    resource = ConfigResource(kind, name)
    entry = admin.describe_configs([resource])[resource].result(60)[key]
    return entry.value, next(iter(entry.synonyms), key)


def test_a_setting_of_all_brokers_acts_at_once(
    bootstrap: str, admin: AdminClient, one_partition: str
) -> None:
    topic = (ResourceType.TOPIC, one_partition, "max.message.bytes")

    found = admin.list_topics(one_partition, 10)
    leader = found.brokers[found.topics[one_partition].partitions[0].leader]
    producer = RawProducer(leader.port, one_partition, acks=1)

    def answer() -> ErrorCode:
        return producer.ask(b"x" * 20_000)[0]

    assert answer() is ErrorCode.NONE
    assert alter(bootstrap, "", "message.max.bytes", "5000") is ErrorCode.NONE
    try:
        wait_until(lambda: answer() is ErrorCode.MESSAGE_TOO_LARGE, "the leader to hear of it")
        wait_until(lambda: described(admin, *topic) == ("5000", "message.max.bytes"), "others, too")
    finally:
        alter(bootstrap, "", "message.max.bytes", None)
    wait_until(lambda: answer() is ErrorCode.NONE, "the default again")
    wait_until(lambda: described(admin, *topic)[0] == "1048588", "the default again, described")
    producer.close()
    for key, value in (("log.dirs", "/x"), ("message.max.bytes", "many")):
        assert alter(bootstrap, "1", key, value) is ErrorCode.INVALID_REQUEST


@pytest.mark.java
@java.needs_java
def test_kafkas_tool_shows_and_changes_features(bootstrap: str, tools: java.Tools) -> None:
    def features(*arguments: str) -> str:
        tool = "org.apache.kafka.tools.FeatureCommand"
        return tools.run(tool, "--bootstrap-server", bootstrap, *arguments)

    def levels() -> dict[str, str]:
        return dict(LEVEL.findall(features("describe")))

    def heartbeat() -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-7)
        return ErrorCode(ask(bootstrap, request, 1).error_code)

    assert levels()["group.version"] == "1"
    assert heartbeat() is not ErrorCode.UNSUPPORTED_VERSION
    assert "group.version was downgraded to 0" in features("downgrade", "--feature", "group.version=0")
    try:
        assert "group.version" in levels()
        wait_until(lambda: heartbeat() is ErrorCode.UNSUPPORTED_VERSION, "no consumer groups")
    finally:
        assert "group.version was upgraded to 1" in features("upgrade", "--feature", "group.version=1")


@pytest.mark.java
@java.needs_java
@pytest.mark.timeout(240)
def test_kafkas_tool_shows_and_changes_quotas_and_settings(bootstrap: str, tools: java.Tools) -> None:
    name = f"q-{uuid.uuid4().hex[:8]}"

    def configs(*arguments: str) -> str:
        return tools.run("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, *arguments)

    who = ("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-default")
    configs("--alter", *who, "--add-config", "producer_byte_rate=1000,request_percentage=50.5")
    assert (
        f"for user-principal '{name}', the default client-id are "
        "request_percentage=50.5, producer_byte_rate=1000.0" in configs("--describe", *who)
    )
    configs("--alter", *who, "--delete-config", "producer_byte_rate,request_percentage")
    assert name not in configs("--describe", "--entity-type", "users", "--entity-type", "clients")

    subscription = ("--entity-type", "client-metrics", "--entity-name", name)
    configs("--alter", *subscription, "--add-config", "interval.ms=60000,metrics=[a,b]")
    listed = configs("--describe", "--entity-type", "client-metrics")
    assert f"client-metric {name} are:" in listed
    assert "metrics=a,b" in listed
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    configs("--alter", *loggers, "--add-config", "dataplane.configuration.config=DEBUG")
    assert "dataplane.configuration.config=DEBUG" in configs("--describe", *loggers)
