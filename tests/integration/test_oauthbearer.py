"""Ottla's client and stock clients log in by tokens of an authorization server, and outlive them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

from ottla import Admin, AuthenticationFailed, Consumer, Producer
from ottla.client.connections.connection import Connection
from ottla.testing import LocalCluster
from tests.cluster import PAUSE_S
from tests.oauth_issuer import AUDIENCE, CLIENTS, ISSUER, Issuer, claims_of, new_key, running_issuer, signed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

LASTS_S = 8.0
"""Seconds that a token is valid. Clients renew it when a fifth is left, and none may renew within a second."""
RUN_S = 1.75 * LASTS_S
USER = "ann"
PREFIX = "listener.name.plaintext.oauthbearer."


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        running.lasts_s = LASTS_S
        yield running


@pytest.fixture(scope="module")
def cluster(issuer: Issuer) -> Iterator[LocalCluster]:
    """Run three brokers whose only listener takes tokens."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/keys",
        f"{PREFIX}sasl.oauthbearer.expected.issuer": ISSUER,
        f"{PREFIX}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{PREFIX}sasl.oauthbearer.clock.skew.seconds": "0",
    }
    with LocalCluster(brokers=3, settings=settings) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


def ours(cluster: LocalCluster, issuer: Issuer) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": f"{issuer.url}/token",
        "sasl_oauthbearer_client_id": USER,
        "sasl_oauthbearer_client_secret": CLIENTS[USER],
    }


async def test_our_own_client_renews_its_login(cluster: LocalCluster, issuer: Issuer, topic: str) -> None:
    options = ours(cluster, issuer)
    sent, read = 0, []
    async with (
        Producer(**options) as producer,
        Consumer(topic, group_id=topic, auto_offset_reset="earliest", **options) as consumer,
    ):
        await producer.send_and_wait(topic, b"0")
        seen_s: dict[Connection, float] = {}
        end_s = time.monotonic() + RUN_S

        def has_outlived_its_token() -> bool:
            """Return whether a connection has outlived its token.

            On a busy machine a renewal may come too late for some connections.
            """
            now = time.monotonic()
            for connection in producer.parts.cluster._connections.values():
                seen_s.setdefault(connection, now)
            return any(
                connection.lost is None and now - since > LASTS_S for connection, since in seen_s.items()
            )

        async with asyncio.timeout(RUN_S + 60):
            writes = True
            while writes or len(read) <= sent:
                writes = not has_outlived_its_token() or time.monotonic() < end_s
                if writes:
                    sent += 1
                    await producer.send_and_wait(topic, b"%d" % sent)
                    await asyncio.sleep(PAUSE_S)
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    read += [record.value for record in records]
        assert read == [b"%d" % number for number in range(sent + 1)]


async def test_who_has_no_good_token_is_refused(cluster: LocalCluster, issuer: Issuer) -> None:
    with pytest.raises(AuthenticationFailed, match="gave no token"):
        async with Admin(**ours(cluster, issuer) | {"sasl_oauthbearer_client_secret": "wrong"}):
            pass
    common = {name: text for name, text in ours(cluster, issuer).items() if "oauthbearer_" not in name}
    for token in (signed(claims_of(), new_key("first")), signed(claims_of(aud="x"), issuer.keys[0])):
        provider = Always(token)
        with pytest.raises(
            AuthenticationFailed, match=r"login by OAUTHBEARER failed: .\"status\":\"invalid_token\""
        ):
            async with Admin(**common, sasl_oauth_token_provider=provider):
                pass


async def test_a_rotated_key_lets_clients_in(cluster: LocalCluster, issuer: Issuer, topic: str) -> None:
    issuer.rotate(topic)
    async with asyncio.timeout(60):
        while True:  # brokers ask for a key that they do not know every ten seconds
            try:
                async with Producer(**ours(cluster, issuer)) as producer:
                    await producer.send_and_wait(topic, b"value")
                    return
            except AuthenticationFailed:
                await asyncio.sleep(1)


class Always:
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def librdkafka(cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": 0,
        **more,
    }


def by_oidc(cluster: LocalCluster, issuer: Issuer) -> dict[str, Any]:
    return librdkafka(
        cluster,
        **{
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": CLIENTS[USER],
            "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        },
    )


def by_callback(cluster: LocalCluster, issuer: Issuer) -> dict[str, Any]:
    """Return options with a callback that reports an earlier expiry, so that no connection begins with a token that
    ends within a second.
    """
    return librdkafka(
        cluster, oauth_cb=lambda _config: (issuer.token(USER), time.time() + issuer.lasts_s / 2)
    )


@pytest.mark.parametrize("options", [by_oidc, by_callback])
def test_librdkafka_renews_its_login(
    cluster: LocalCluster,
    issuer: Issuer,
    topic: str,
    options: Callable[[LocalCluster, Issuer], dict[str, Any]],
) -> None:
    said: list[str] = []
    common = options(cluster, issuer) | {"error_cb": lambda error: said.append(error.str())}
    producer = confluent_kafka.Producer(common)
    consumer = confluent_kafka.Consumer(common | {"group.id": topic, "auto.offset.reset": "earliest"})
    producer.produce(topic, b"0")
    assert producer.flush(30) == 0
    consumer.subscribe([topic])
    sent, read = 1, []
    end_s = time.monotonic() + RUN_S
    while time.monotonic() < end_s or len(read) < sent:
        assert time.monotonic() < end_s + 60, (len(read), sent, said)
        if time.monotonic() < end_s:
            producer.produce(topic, b"%d" % sent)
            sent += 1
            assert producer.flush(30) == 0
            time.sleep(PAUSE_S)
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    assert sorted(read, key=int) == [b"%d" % number for number in range(sent)]
    # On a machine that is busy it may renew a login within a second, which Kafka refuses, too.
    assert [each for each in said if "Request not valid in current SASL state" not in each] == []


def test_librdkafka_is_told_what_is_wrong(cluster: LocalCluster, issuer: Issuer) -> None:
    said: list[str] = []
    token = signed(claims_of(iss="https://elsewhere/"), issuer.keys[-1])
    producer = confluent_kafka.Producer(
        librdkafka(
            cluster,
            oauth_cb=lambda _config: (token, time.time() + 300),
            error_cb=lambda error: said.append(error.str()),
        )
    )
    deadline = time.monotonic() + 60
    while not any('{"status":"invalid_token"}' in text for text in said):
        assert time.monotonic() < deadline, said
        producer.poll(0.1)


async def test_aiokafka_logs_in_again(cluster: LocalCluster, issuer: Issuer, topic: str) -> None:
    """aiokafka does not renew a login on a connection; the broker closes the connection, and aiokafka reconnects."""

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token(USER)

    options = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    sent, read = 0, []
    async with (
        AIOKafkaProducer(**options) as producer,
        AIOKafkaConsumer(topic, **options, group_id=topic, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(RUN_S + 90),
    ):
        end_s = time.monotonic() + RUN_S
        while time.monotonic() < end_s or len(read) < sent:
            if time.monotonic() < end_s:
                await producer.send_and_wait(topic, b"%d" % sent)
                sent += 1
                await asyncio.sleep(PAUSE_S)
            for records in (await consumer.getmany(timeout_ms=200)).values():
                read += [record.value for record in records]
    assert set(read) == {b"%d" % number for number in range(sent)}


def test_kafka_python_renews_its_login(
    cluster: LocalCluster, issuer: Issuer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Tokens(KafkaPythonProvider):  # type: ignore[misc]
        def token(self) -> str:
            return issuer.token(USER)

    options = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    producer = KafkaProducer(**options)
    consumer = KafkaConsumer(
        topic, **options, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=100
    )
    sent, read = 0, []
    end_s = time.monotonic() + RUN_S
    while time.monotonic() < end_s or len(read) < sent:
        assert time.monotonic() < end_s + 60, (len(read), sent)
        if time.monotonic() < end_s:
            producer.send(topic, b"%d" % sent).get(30)
            sent += 1
            time.sleep(PAUSE_S)
        read += [record.value for record in consumer]
    consumer.close()
    producer.close()
    assert set(read) == {b"%d" % number for number in range(sent)}

    class Wrong(KafkaPythonProvider):  # type: ignore[misc]
        def token(self) -> str:
            return signed(claims_of(USER), new_key("first"))

    caplog.clear()
    with pytest.raises(KafkaError):
        KafkaProducer(**options | {"sasl_oauth_token_provider": Wrong()}, bootstrap_timeout_ms=5_000)
    assert "[Error 58]" in caplog.text  # SASL_AUTHENTICATION_FAILED: it tries again until that time is over


def test_tokens_are_in_no_file_and_no_log(cluster: LocalCluster, issuer: Issuer) -> None:
    directory = cluster._directory
    assert directory is not None
    assert issuer.given
    signatures = [token.rpartition(".")[2].encode() for token in issuer.given]
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [signature for signature in signatures if signature in content], path
