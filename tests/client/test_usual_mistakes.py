"""The texts of errors that usual mistakes lead to: each names the fault, and has no name of a code that no broker
sent."""

from __future__ import annotations

import pickle
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.client.failures import AuthorizationFailed, SerializationFailed, UnreadableRecords, UnreadableValue
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.local_cluster import LocalCluster
from tests.client.test_failures import family

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("usual mistakes")]

Mistake = Callable[[dict[str, Any]], Awaitable[object]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, settings={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    with LocalCluster(1, security="sasl_ssl") as cluster:
        yield cluster


def admin_call(call: Callable[[Admin], Awaitable[object]]) -> Mistake:
    async def mistake(options: dict[str, Any]) -> None:
        async with Admin(**options) as admin:
            await call(admin)

    return mistake


def producer_call(call: Callable[[Producer], Awaitable[object]], **more: Any) -> Mistake:
    async def mistake(options: dict[str, Any]) -> None:
        async with Producer(**options, **more) as producer:
            await call(producer)

    return mistake


def consumer_call(call: Callable[[Consumer], Awaitable[object]]) -> Mistake:
    async def mistake(options: dict[str, Any]) -> None:
        async with Consumer(**options) as consumer:
            await call(consumer)

    return mistake


async def after_stop(producer: Producer) -> None:
    await producer.stop()
    await producer.send("orders", b"x")


async def begin_twice(producer: Producer) -> None:
    await producer.begin_transaction()
    await producer.begin_transaction()


async def seek_elsewhere(consumer: Consumer) -> None:
    consumer.seek(TopicPartition("orders", 0), 1)


async def replaced_producer(options: dict[str, Any]) -> None:
    async with Producer(**options, transactional_id="shop") as first:
        await first.begin_transaction()
        async with Producer(**options, transactional_id="shop"):
            await first.send_and_wait("orders", b"x")


async def stopped_admin(options: dict[str, Any]) -> None:
    async with Admin(**options) as admin:
        pass
    await admin.list_topics()


async def unstarted_producer(options: dict[str, Any]) -> None:
    await Producer(**options).send("orders", b"x")


def refusing(value: object) -> bytes:
    raise ValueError("no colour")


MISTAKES: dict[str, tuple[Mistake, str]] = {
    "an admin client after its stop": (stopped_admin, "ClientClosed: the admin client was stopped"),
    "a producer after its stop": (producer_call(after_stop), "ClientClosed: the producer was stopped"),
    "a producer before its start": (
        unstarted_producer,
        "RuntimeError: the producer was not started: use it as a block (`async with`; `with` in ottla.sync), or "
        "await its start() before",
    ),
    "a topic that exists": (
        admin_call(lambda admin: admin.create_topics([NewTopic("orders")])),
        "KafkaError: TOPIC_ALREADY_EXISTS: topic 'orders': Topic 'orders' already exists.",
    ),
    "a topic that does not exist": (
        admin_call(lambda admin: admin.describe_topics(["order"])),
        "KafkaError: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'order'",
    ),
    "too many replicas": (
        admin_call(lambda admin: admin.create_topics([NewTopic("x", 1, 3)])),
        "KafkaError: INVALID_REPLICATION_FACTOR: topic 'x': Unable to replicate the partition 3 time(s): The target "
        "replication factor of 3 cannot be reached because only 1 broker(s) are registered.",
    ),
    "a misspelt config": (
        admin_call(lambda admin: admin.create_topics([NewTopic("x", configs={"retention.m": 5})])),
        "KafkaError: INVALID_CONFIG: topic 'x': Unknown topic config name: retention.m: did you mean retention.ms?",
    ),
    "a number of partitions that is a text": (
        admin_call(lambda admin: admin.create_topics([NewTopic("x", "3")])),  # type: ignore[arg-type]
        "TypeError: create_topics: topics[0].num_partitions is a whole number, not '3'",
    ),
    "a value that is a text": (
        producer_call(lambda producer: producer.send("orders", "x")),
        "TypeError: the value of a record for 'orders' is bytes or None, not str; encode it, or give the producer a "
        "value_serializer",
    ),
    "a serializer that fails": (
        producer_call(lambda producer: producer.send("orders", "x"), value_serializer=refusing),
        "SerializationFailed: the value_serializer failed with a record for 'orders': ValueError('no colour')",
    ),
    "a large record": (
        producer_call(lambda producer: producer.send("orders", b"x" * 2_000_000)),
        "KafkaError: MESSAGE_TOO_LARGE: the record takes 2000021 bytes, max_request_size is 1048576",
    ),
    "a transaction without an id": (
        producer_call(lambda producer: producer.begin_transaction()),
        "OutOfTurn: transactions need a producer that has a transactional_id",
    ),
    "a record outside of a transaction": (
        producer_call(lambda producer: producer.send("orders", b"x"), transactional_id="shop"),
        "OutOfTurn: the producer 'shop' is in no transaction: begin a transaction first",
    ),
    "a transaction in a transaction": (
        producer_call(begin_twice, transactional_id="shop"),
        "OutOfTurn: the producer 'shop' is in a transaction: commit or abort it first",
    ),
    "two producers of one transactional id": (
        replaced_producer,
        "ProducerFenced: the producer 'shop' was replaced by another one, or its transaction was open for longer than "
        "its timeout (PRODUCER_FENCED: transactional id 'shop', abort: A newer producer with the same transactional "
        "id has taken over.)",
    ),
    "an option by librdkafka's name": (
        producer_call(begin_twice, **{"bootstrap.servers": "localhost:9092"}),
        "TypeError: Producer has no option 'bootstrap.servers'; the nearest is 'bootstrap_servers'",
    ),
    "a field of a topic by a wrong name": (
        admin_call(lambda admin: admin.create_topics([NewTopic("x", config={"retention.ms": 1})])),  # type: ignore[call-arg]
        "TypeError: NewTopic has no option 'config'; the nearest is 'configs'",
    ),
    "an option of the wrong type": (
        producer_call(begin_twice, linger_ms="5"),
        "TypeError: linger_ms is a number, not '5'",
    ),
    "a commit without a group": (
        consumer_call(lambda consumer: consumer.commit()),
        "ValueError: committed offsets need a group_id",
    ),
    "a seek elsewhere": (
        consumer_call(seek_elsewhere),
        "ValueError: orders-0 is not assigned to this consumer",
    ),
    "TLS with a broker that has none": (
        lambda options: admin_call(after_stop)(options | {"security_protocol": "SSL"}),  # type: ignore[arg-type]
        "TlsFailed: HOST:PORT: the broker ended the TLS handshake with 'handshake failure'; it may want a certificate "
        "of the client (ssl_certfile), or may not speak TLS on that port",
    ),
}
"""Each mistake with the class and the text of its error."""


async def error_of(mistake: Mistake, options: dict[str, Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        await mistake(options)
    return f"{caught.type.__name__}: {re.sub(r'127.0.0.1:[0-9]+', 'HOST:PORT', str(caught.value))}"


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_usual_mistake_is_named(cluster: LocalCluster, name: str) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers}
    async with Admin(**options) as admin:
        if "orders" not in await admin.list_topics():
            await admin.create_topics([NewTopic("orders", 1)])
    mistake, text = MISTAKES[name]
    assert await error_of(mistake, options) == text


async def test_a_cluster_that_is_away_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options = {"bootstrap_servers": f"127.0.0.1:{free.getsockname()[1]}", "request_timeout_ms": 1000}
        text = await error_of(admin_call(lambda admin: admin.list_topics()), options)
    refused = "cannot connect to HOST:PORT: Connection refused"
    assert text == f"NoBrokerReachable: no broker answers at HOST:PORT ({refused})"


async def test_a_second_producer_of_a_spool_is_named(cluster: LocalCluster, tmp_path: Path) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers}
    async with Producer(**options, spool_dir=str(tmp_path)):
        text = await error_of(producer_call(after_stop, spool_dir=str(tmp_path)), options)
    assert text == f"SpoolUnusable: the spool {tmp_path} is used by another producer"


async def test_mistakes_of_logins_are_named(secured: LocalCluster) -> None:
    listing = admin_call(lambda admin: admin.list_topics())
    options = secured.client_options
    assert await error_of(listing, {"bootstrap_servers": secured.bootstrap_servers}) == (
        "TlsFailed: HOST:PORT: the broker expects TLS: security_protocol is SSL or SASL_SSL"
    )
    assert await error_of(listing, options | {"sasl_plain_password": "wrong"}) == (
        "AuthenticationFailed: HOST:PORT: the login as 'admin' by SCRAM-SHA-512 failed: Authentication failed during "
        "authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    )
    without_ca = {name: value for name, value in options.items() if name != "ssl_cafile"}
    assert (await error_of(listing, without_ca)).startswith(
        "TlsFailed: HOST:PORT: the certificate of 127.0.0.1 is not signed by anyone whom the client trusts"
    )


def test_errors_survive_a_copy_between_processes() -> None:
    place, damage = TopicPartition("orders", 0), KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC is wrong")
    errors: list[KafkaError] = [kind("told") for kind in family() if not issubclass(kind, UnreadableRecords)]
    errors += [
        damage,
        SerializationFailed("told", partition=place, offset=5),
        UnreadableRecords(damage, place, 5, 7, what="the marker"),
        UnreadableValue(damage, place, 5, 6, what="the value"),
        AuthorizationFailed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "denied", operation="WRITE"),
    ]
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.code) == (type(error), str(error), error.code)
        own = {name: str(value) for name, value in vars(error).items()}
        assert {name: str(value) for name, value in vars(copy).items()} == own
