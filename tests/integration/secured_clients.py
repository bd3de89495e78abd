"""Stock clients of Python, and kcat, in one cell of a secured cluster; their results are compared with
`secured_cells.TOLD`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.admin
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.admin
import kafka.errors
import kafka.net.sasl.oauth
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.integration.secured_cells import OAUTHBEARER, RECORDS, TOKEN_LASTS_S, TOLD, Cell

WAIT_S = 60.0
SETTLE_S = 10.0
RETENTION_MS = str(TOLD["setting"])
READ = 2 * RECORDS


def kinds(values: list[bytes]) -> list[str]:
    """Return the kinds of the records that were read."""
    return sorted(value.decode().rpartition("-")[0] for value in values)


def settled(what: str, ask: Callable[[], Any]) -> Any:
    """Repeat the question until its answer equals `TOLD`, since another broker may learn of a change later; return the
    last answer.
    """
    deadline = time.monotonic() + SETTLE_S
    while (found := ask()) != TOLD[what] and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


async def settled_async(what: str, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Do the same as `settled` for an asyncio client."""
    deadline = time.monotonic() + SETTLE_S
    while (found := await ask()) != TOLD[what] and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return found


# ---------------------------------------------------------------- confluent-kafka


def librdkafka_options(cell: Cell) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap.servers": cell.bootstrap, "security.protocol": cell.protocol}
    if cell.protocol.endswith("SSL"):
        options["ssl.ca.location"] = cell.ca
    if cell.certificate:
        options |= {"ssl.certificate.location": cell.certificate, "ssl.key.location": cell.key}
    if cell.mechanism == OAUTHBEARER:
        token = cell.password, time.time() + TOKEN_LASTS_S
        options |= {"sasl.mechanism": OAUTHBEARER, "oauth_cb": lambda _config: token}
    elif cell.mechanism:
        options |= {
            "sasl.mechanism": cell.mechanism,
            "sasl.username": cell.user,
            "sasl.password": cell.password,
        }
    return options


def with_confluent_kafka(cell: Cell) -> dict[str, Any]:
    options = librdkafka_options(cell) | {"log_level": 0}
    admin = AdminClient(options)
    admin.create_topics([confluent_kafka.admin.NewTopic(cell.topic, 2, 2)])[cell.topic].result(WAIT_S)
    report: dict[str, Any] = {
        "partitions": settled(
            "partitions", lambda: len(admin.list_topics(cell.topic, WAIT_S).topics[cell.topic].partitions)
        )
    }
    _confluent_writes(cell, options)
    consumer = confluent_kafka.Consumer(
        {
            **options,
            "group.id": cell.topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([cell.topic])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < READ:
        assert time.monotonic() < deadline, f"{cell.name}: {len(found)} of {READ} were read"
        if (message := consumer.poll(1)) is not None:
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    report["read"] = kinds(found)
    (asked,) = admin.list_consumer_group_offsets(
        [confluent_kafka.ConsumerGroupTopicPartitions(cell.topic)]
    ).values()
    report["committed"] = sum(partition.offset for partition in asked.result(WAIT_S).topic_partitions) >= READ
    of_topic = ConfigResource(ResourceType.TOPIC, cell.topic)
    of_topic.add_incremental_config(
        ConfigEntry("retention.ms", RETENTION_MS, incremental_operation=AlterConfigOpType.SET)
    )
    (altered,) = admin.incremental_alter_configs([of_topic]).values()
    altered.result(WAIT_S)

    def setting() -> Any:
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, cell.topic)]).values()
        return described.result(WAIT_S)["retention.ms"].value

    report["setting"] = settled("setting", setting)
    refused: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**options, "enable.idempotence": False})
    producer.produce(
        cell.denied, b"denied", on_delivery=lambda error, _: refused.append(error) if error else None
    )
    producer.flush(WAIT_S)
    report["denied"] = refused[0].name()
    admin.delete_topics([cell.topic])[cell.topic].result(WAIT_S)
    report["deleted"] = settled("deleted", lambda: cell.topic not in admin.list_topics(timeout=WAIT_S).topics)
    return report


def _confluent_writes(cell: Cell, options: dict[str, Any]) -> None:
    producer = confluent_kafka.Producer({**options, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(cell.topic, f"plain-{number}".encode(), partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    producer = confluent_kafka.Producer({**options, "transactional.id": cell.topic})
    producer.init_transactions(WAIT_S)
    for kind in ("committed", "aborted"):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(cell.topic, f"{kind}-{number}".encode(), partition=number % 2)
        assert producer.flush(WAIT_S) == 0
        if kind == "committed":
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)


# ---------------------------------------------------------------- aiokafka


def _aiokafka_options(cell: Cell) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": cell.bootstrap, "security_protocol": cell.protocol}
    if cell.protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=cell.ca)
        if cell.certificate:
            context.load_cert_chain(cell.certificate, cell.key)
        options["ssl_context"] = context
    return options | _login(cell, _AiokafkaToken)


class _AiokafkaToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _login(cell: Cell, token_provider: Callable[[str], object]) -> dict[str, Any]:
    """Return the login options of aiokafka and kafka-python."""
    if not cell.mechanism:
        return {}
    if cell.mechanism == OAUTHBEARER:
        return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": token_provider(cell.password)}
    return {
        "sasl_mechanism": cell.mechanism,
        "sasl_plain_username": cell.user,
        "sasl_plain_password": cell.password,
    }


async def with_aiokafka(cell: Cell) -> dict[str, Any]:
    options = _aiokafka_options(cell)
    admin = aiokafka.admin.AIOKafkaAdminClient(**options)
    await admin.start()
    await admin.create_topics([aiokafka.admin.NewTopic(cell.topic, 2, 2)])

    async def partitions() -> int:
        return len((await admin.describe_topics([cell.topic]))[0]["partitions"])

    report: dict[str, Any] = {"partitions": await settled_async("partitions", partitions)}
    async with aiokafka.AIOKafkaProducer(**options, enable_idempotence=True) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(cell.topic, f"plain-{number}".encode(), partition=number % 2)
    async with aiokafka.AIOKafkaProducer(**options, transactional_id=cell.topic) as producer:
        for kind in ("committed", "aborted"):
            await producer.begin_transaction()
            for number in range(RECORDS):
                await producer.send_and_wait(cell.topic, f"{kind}-{number}".encode(), partition=number % 2)
            await (producer.commit_transaction if kind == "committed" else producer.abort_transaction)()
    found: list[bytes] = []
    async with aiokafka.AIOKafkaConsumer(
        cell.topic,
        **options,
        group_id=cell.topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len(found) < READ:
            found.append((await consumer.getone()).value)
        await consumer.commit()
    report["read"] = kinds(found)
    kept = await admin.list_consumer_group_offsets(cell.topic)
    report["committed"] = sum(committed.offset for committed in kept.values()) >= READ
    kind_of = aiokafka.admin.config_resource.ConfigResourceType.TOPIC
    resource = aiokafka.admin.config_resource.ConfigResource
    await admin.alter_configs([resource(kind_of, cell.topic, {"retention.ms": RETENTION_MS})])

    async def setting() -> Any:
        (answer,) = await admin.describe_configs([resource(kind_of, cell.topic, {"retention.ms": None})])
        return answer.resources[0][4][0][1]

    report["setting"] = await settled_async("setting", setting)
    producer = aiokafka.AIOKafkaProducer(**options)
    await producer.start()
    try:
        await producer.send_and_wait(cell.denied, b"denied", partition=0)
    except aiokafka.errors.TopicAuthorizationFailedError:
        report["denied"] = "TOPIC_AUTHORIZATION_FAILED"
    finally:
        await producer.stop()
    await admin.delete_topics([cell.topic])

    async def deleted() -> bool:
        return cell.topic not in await admin.list_topics()

    report["deleted"] = await settled_async("deleted", deleted)
    await admin.close()
    return report


# ---------------------------------------------------------------- kafka-python


def kafka_python_options(cell: Cell) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": cell.bootstrap, "security_protocol": cell.protocol}
    if cell.protocol.endswith("SSL"):
        options["ssl_cafile"] = cell.ca
    if cell.certificate:
        options |= {"ssl_certfile": cell.certificate, "ssl_keyfile": cell.key}
    return options | _login(cell, _KafkaPythonToken)


class _KafkaPythonToken(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def with_kafka_python(cell: Cell) -> dict[str, Any]:
    options = kafka_python_options(cell)
    admin = kafka.KafkaAdminClient(**options)
    admin.create_topics([kafka.admin.NewTopic(cell.topic, 2, 2)])
    report: dict[str, Any] = {
        "partitions": settled("partitions", lambda: len(admin.describe_topics([cell.topic])[0]["partitions"]))
    }
    producer = kafka.KafkaProducer(**options, enable_idempotence=True)
    for number in range(RECORDS):
        producer.send(cell.topic, f"plain-{number}".encode(), partition=number % 2).get(WAIT_S)
    producer.close()
    producer = kafka.KafkaProducer(**options, transactional_id=cell.topic)
    producer.init_transactions()
    for kind in ("committed", "aborted"):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.send(cell.topic, f"{kind}-{number}".encode(), partition=number % 2).get(WAIT_S)
        (producer.commit_transaction if kind == "committed" else producer.abort_transaction)()
    producer.close()
    consumer = kafka.KafkaConsumer(
        cell.topic,
        **options,
        group_id=cell.topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    found = [record.value for _, record in zip(range(READ), consumer, strict=False)]
    consumer.commit()
    consumer.close()
    report["read"] = kinds(found)
    (kept,) = admin.list_group_offsets(cell.topic).values()
    report["committed"] = sum(committed.offset for committed in kept.values()) >= READ
    resource = kafka.admin.ConfigResource
    admin.alter_configs(
        [resource(kafka.admin.ConfigResourceType.TOPIC, cell.topic, {"retention.ms": RETENTION_MS})]
    )

    def setting() -> Any:
        described = admin.describe_configs([resource(kafka.admin.ConfigResourceType.TOPIC, cell.topic)])
        return described["topic"][cell.topic]["retention.ms"]["value"]

    report["setting"] = settled("setting", setting)
    producer = kafka.KafkaProducer(**options, enable_idempotence=False)
    try:
        producer.send(cell.denied, b"denied").get(WAIT_S)
    except kafka.errors.TopicAuthorizationFailedError:
        report["denied"] = "TOPIC_AUTHORIZATION_FAILED"
    finally:
        producer.close()
    admin.delete_topics([cell.topic])
    report["deleted"] = settled("deleted", lambda: cell.topic not in admin.list_topics())
    admin.close()
    return report


# ---------------------------------------------------------------- kcat


def with_kcat(cell: Cell) -> dict[str, Any]:
    """Run kcat, which commits a transaction of its input, and has no admin client."""

    def run(*arguments: str, kind: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        options = librdkafka_options(cell) | {key.replace("_", "."): value for key, value in more.items()}
        given = [text for key, value in options.items() for text in ("-X", f"{key}={value}")]
        lines = "".join(f"{kind}-{number}\n" for number in range(RECORDS))
        return subprocess.run(
            ["kcat", *given, *arguments],
            input=lines if kind else None,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    for done in (
        run("-P", "-t", cell.topic, kind="plain", enable_idempotence="true"),
        run("-P", "-t", cell.topic, kind="committed", transactional_id=cell.topic),
    ):
        assert done.returncode == 0, f"{cell.name}: {done.stderr}"
    read = run("-G", cell.topic, "-e", "-q", cell.topic, auto_offset_reset="earliest")
    listed = json.loads(run("-L", "-J", "-t", cell.topic).stdout)
    refused = run("-P", "-t", cell.denied, kind="denied")
    return {
        "partitions": len(listed["topics"][0]["partitions"]),
        "read": kinds([line.encode() for line in read.stdout.splitlines()]),
        "denied": "TOPIC_AUTHORIZATION_FAILED" if "Topic authorization failed" in refused.stderr else refused,
    }
