"""Every login path into a secured cluster of Apache Kafka, and the client's errors without one."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    TOPIC_RESOURCE,
    Admin,
    AuthenticationFailed,
    AuthorizationFailed,
    ConnectionLost,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    NoBrokerReachable,
    Producer,
    TlsFailed,
    TopicPartition,
    UserLogin,
    UserPassword,
)
from ottla.cli.main import main
from tests.compat.reading import becomes
from tests.compat.secured import (
    MECHANISMS,
    PASSWORD,
    SESSION_MS,
    USER,
    Secured,
    UnsecuredTokens,
    secured_kafka,
)

WAYS = [
    ("SSL", None),
    *((protocol, mechanism) for protocol in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in MECHANISMS),
]


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Run an Apache Kafka that knows one user."""
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        asyncio.run(_create_user(running))
        yield running


async def _create_user(secured: Secured) -> None:
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        scram = [name for name in MECHANISMS if name.startswith("SCRAM")]
        await admin.alter_scram_credentials([UserPassword(USER, PASSWORD, name) for name in scram])

        async def known() -> list[str]:
            return [credential.mechanism for credential in await admin.describe_scram_credentials()]

        await becomes(known, scram)


@pytest.fixture
async def admin(secured: Secured) -> AsyncIterator[Admin]:
    """Return an admin client with all rights."""
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        yield admin


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_everything_works_by(
    protocol: str, mechanism: str | None, secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """The actions are topics, a transaction, and a group with its offsets; no secret is in a log."""
    caplog.set_level(logging.DEBUG)
    options = secured.options(protocol, mechanism)
    topic = f"t-{uuid.uuid4().hex}"
    async with Admin(**options) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
        assert topic in await admin.list_topics()
    async with Producer(**options) as producer:
        assert (await producer.send_and_wait(topic, b"plain", partition=0)).offset == 0
    async with Producer(transactional_id=topic, **options) as producer, producer.transaction():
        await producer.send(topic, b"within", partition=1)
    reading: dict[str, Any] = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
    }
    found: set[bytes | None] = set()
    async with Consumer(topic, **reading, **options) as consumer, asyncio.timeout(60):
        while len(found) < 2:
            for records in (await consumer.getmany(timeout_ms=5_000)).values():
                found |= {record.value for record in records}
        await consumer.commit()
    assert found == {b"plain", b"within"}
    async with Admin(**options) as admin:
        kept = await admin.committed_offsets(topic)
        assert {partition.partition for partition in kept} == {0, 1}
    assert PASSWORD not in caplog.text
    assert "eyJhbGciOiAibm9uZSJ9" not in caplog.text, "the head of a token"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_logins_are_renewed_while_records_flow(mechanism: str, secured: Secured, admin: Admin) -> None:
    """The test covers three lifetimes of a login, on unchanged connections."""
    options = secured.options("SASL_SSL", mechanism)
    topic = f"t-{uuid.uuid4().hex}"
    await admin.create_topics([NewTopic(topic, 1)])
    sent = 0
    async with (
        Producer(**options) as producer,
        Consumer(auto_offset_reset="earliest", fetch_max_wait_ms=100, **options) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        await producer.send_and_wait(topic, b"0")
        connections = list(producer.parts.cluster._connections.values())
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 3 * SESSION_MS / 1000
        read = 0
        while loop.time() < end_s or read <= sent:
            if loop.time() < end_s:
                sent += 1
                await producer.send(topic, b"%d" % sent)
            for records in (await consumer.getmany(timeout_ms=50)).values():
                assert [record.value for record in records] == [
                    b"%d" % number for number in range(read, read + len(records))
                ]
                read += len(records)
        assert all(connection.lost is None for connection in connections)
    if mechanism == "OAUTHBEARER":
        assert options["sasl_oauth_token_provider"].asked > 2


@pytest.mark.parametrize(
    ("protocol", "mechanism", "changes", "message"),
    [
        ("SASL_SSL", "PLAIN", {"sasl_plain_password": "wrong"}, "login as 'ann' by PLAIN failed"),
        ("SASL_SSL", "SCRAM-SHA-512", {"sasl_plain_password": "wrong"}, "login as 'ann' by SCRAM-SHA-512"),
        ("SASL_SSL", "SCRAM-SHA-256", {"sasl_plain_username": "bob"}, "login as 'bob' by SCRAM-SHA-256"),
        (
            "SASL_SSL",
            "OAUTHBEARER",
            {"sasl_oauth_token_provider": UnsecuredTokens(lasts_s=-60)},
            "login by OAUTHBEARER failed",
        ),
    ],
)
async def test_a_refused_login_is_told_and_not_tried_again(
    protocol: str, mechanism: str, changes: dict[str, Any], message: str, secured: Secured
) -> None:
    with pytest.raises(AuthenticationFailed, match=message) as failed:
        async with Admin(**secured.options(protocol, mechanism) | changes):
            pass
    assert failed.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong" not in str(failed.value)


async def test_the_two_ends_speak_different_protocols(secured: Secured) -> None:
    plain, listeners = secured.cluster.bootstrap, secured.cluster.listeners
    for options, kind, message in (
        ({"bootstrap_servers": listeners["SASL_SSL"]}, TlsFailed, "the broker expects TLS"),
        (
            secured.options("SSL") | {"bootstrap_servers": plain},
            NoBrokerReachable,
            "does not speak TLS on that port",
        ),
        (
            {"bootstrap_servers": listeners["SASL_PLAINTEXT"]},
            ConnectionLost,
            "security_protocol may not be that of the listener",
        ),
        (
            secured.options("SASL_PLAINTEXT", "PLAIN") | {"bootstrap_servers": plain},
            AuthenticationFailed,
            "this listener has no logins",
        ),
    ):
        with pytest.raises(kind, match=message):
            async with Admin(**options):
                pass


async def test_what_is_wrong_with_a_certificate_is_told(secured: Secured) -> None:
    options = secured.options("SSL")
    unsigned = {key: value for key, value in options.items() if key != "ssl_cafile"}
    with pytest.raises(TlsFailed, match=r"not signed by anyone whom the client trusts.*subject: CN=broker"):
        async with Admin(**unsigned):
            pass
    nobody = {key: value for key, value in options.items() if key not in ("ssl_certfile", "ssl_keyfile")}
    with pytest.raises(TlsFailed, match=r"bad certificate.*ssl_certfile"):
        async with Admin(**nobody):
            pass


async def test_a_denial_tells_what_and_whom(secured: Secured, admin: Admin) -> None:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    topic = f"t-{uuid.uuid4().hex}"
    await admin.create_topics([NewTopic(topic, 1)])
    stock = AdminClient({"bootstrap.servers": secured.cluster.bootstrap})
    acls = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            operation,
            AclPermissionType.DENY if operation is AclOperation.WRITE else AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]
    for future in stock.create_acls(acls).values():
        await asyncio.wrap_future(future)
    options = secured.options("SASL_PLAINTEXT", "SCRAM-SHA-512")

    async def denied(call: Any) -> AuthorizationFailed:
        with pytest.raises(AuthorizationFailed) as failed:
            await call
        return failed.value

    async with Producer(enable_idempotence=False, **options) as producer:
        error = await denied(producer.send_and_wait(topic, b""))
        assert (error.operation, error.resource) == ("WRITE", f"topic '{topic}'")
        assert f"denied: WRITE on topic '{topic}' for User:{USER}" in str(error)
    async with Consumer(auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        error = await denied(consumer.getmany(timeout_ms=20_000))
        assert (error.operation, error.code) == ("READ", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with Admin(**options) as another:
        error = await denied(another.describe_configs(TOPIC_RESOURCE, topic))
        assert error.operation == "DESCRIBE_CONFIGS"


async def test_users_come_and_go(admin: Admin) -> None:
    name = f"u-{uuid.uuid4().hex}"
    await admin.alter_scram_credentials(
        [UserPassword(name, "one", "SCRAM-SHA-256", 4096), UserPassword(name, "two")]
    )

    async def known() -> list[UserLogin]:
        return [
            credential for credential in await admin.describe_scram_credentials() if credential.user == name
        ]

    await becomes(known, [UserLogin(name, "SCRAM-SHA-256", 4096), UserLogin(name, "SCRAM-SHA-512", 8192)])
    await admin.alter_scram_credentials(deletions=[(name, "SCRAM-SHA-256"), (name, "SCRAM-SHA-512")])

    await becomes(known, [])
    with pytest.raises(KafkaError, match=name) as failed:
        await admin.describe_scram_credentials([name])
    assert failed.value.code is ErrorCode.RESOURCE_NOT_FOUND
    with pytest.raises(KafkaError, match=name) as failed:
        await admin.alter_scram_credentials(deletions=[(name, "SCRAM-SHA-256")])
    assert failed.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_the_command_line_by_properties_flags_and_profile(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path))
    listener, name = secured.cluster.listeners["SASL_SSL"], f"u-{uuid.uuid4().hex}"
    (tmp_path / "password").write_text("of the new user")
    (tmp_path / "of-ann").write_text(PASSWORD)
    quoted = PASSWORD.replace('"', '\\\\"')  # once for JAAS, once for the properties file
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="{USER}" password="{quoted}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority.file}\n"
    )

    async def ottla(*words: str) -> str:
        code = await asyncio.to_thread(main, words)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        assert PASSWORD not in printed.out + printed.err
        return printed.out

    by_file = ("-b", listener, "--command-config", str(tmp_path / "client.properties"))
    await ottla("user", "create", name, "--password-file", str(tmp_path / "password"), *by_file)
    flags = [
        *("-b", listener, "-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=PLAIN"),
        *("-X", f"sasl.username={USER}", "-X", f"ssl.ca.location={secured.authority.file}"),
    ]
    await ottla("profile", "create", "p", *flags, "--password-file", str(tmp_path / "of-ann"))

    async def listed() -> bool:
        return name in await ottla("user", "list", "--profile", "p")

    await becomes(listed, True)
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", PASSWORD)
    assert "cluster" in (await ottla("cluster", *flags)).lower()
    await ottla("user", "delete", name, "-y", "--profile", "p")
    await becomes(listed, False)
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", "wrong")
    assert await asyncio.to_thread(main, ["topic", "list", *flags]) == 1
    assert "login as 'ann' by PLAIN failed" in capsys.readouterr().err
