"""Delegation tokens on two brokers: their recipients, the rights of a login with a token, and the end of a token."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from ottla import (
    Admin,
    AuthenticationFailed,
    AuthorizationFailed,
    Consumer,
    DelegationToken,
    ErrorCode,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
    sync,
)
from ottla.cli.main import main
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.testing import LocalCluster
from tests import java
from tests.cluster import PAUSE_S
from tests.java import Tools, needs_java

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

_MODULE = "org.apache.kafka.common.security"
PASSWORDS = {name: f"the secret of {name}" for name in ("ann", "bob", "eve")}
KEY = "b1946ac92492d2347c6235b4d2611184"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Run a cluster in which ann is a super user, and resources without ACLs are open to all."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{_MODULE}.plain.PlainLoginModule required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann",
        "allow.everyone.if.no.acl.found": "true",
        "delegation.token.secret.key": KEY,
    }
    with LocalCluster(brokers=2, settings=settings) as cluster:
        yield cluster


def as_user(cluster: LocalCluster, name: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": name,
        "sasl_plain_password": PASSWORDS[name],
    }


def by_token(
    cluster: LocalCluster, token: DelegationToken, mechanism: str = "SCRAM-SHA-256"
) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": token.token_id,
        "sasl_plain_password": token.password,
        "sasl_token_auth": True,
    }


@asynccontextmanager
async def admin_of(cluster: LocalCluster, name: str) -> AsyncIterator[Admin]:
    async with Admin(**as_user(cluster, name)) as admin:
        yield admin


async def known_everywhere(cluster: LocalCluster, token: DelegationToken) -> None:
    """Wait until each broker knows the token, since it reaches other brokers a moment later."""
    for address in cluster.bootstrap_servers.split(","):
        async with asyncio.timeout(60):
            while True:
                async with Admin(**as_user(cluster, "ann") | {"bootstrap_servers": address}) as admin:
                    connection = await admin.session.cluster.any_connection()
                    assert connection is not None
                    found = await admin.describe_delegation_tokens()
                if token.token_id in {known.token_id for known in found}:
                    break


async def new_token(cluster: LocalCluster, name: str = "bob", **wanted: Any) -> DelegationToken:
    async with admin_of(cluster, name) as admin:
        token = await admin.create_delegation_token(**wanted)
    await known_everywhere(cluster, token)
    return token


async def refused(call: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as failed:
        await call
    assert isinstance(failed.value.code, ErrorCode)
    return failed.value.code


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_login_with_a_token_acts_as_its_owner(cluster: LocalCluster, mechanism: str) -> None:
    token = await new_token(cluster)
    options = by_token(cluster, token, mechanism)
    topic = f"t-{uuid.uuid4().hex}"
    async with Admin(**options) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
    async with Producer(transactional_id=topic, **options) as producer, producer.transaction():
        for partition in (0, 1):
            await producer.send(topic, b"%d" % partition, partition=partition)
    found: set[bytes | None] = set()
    reading: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(topic, group_id=topic, **reading, **options) as consumer, asyncio.timeout(60):
        while len(found) < 2:
            for records in (await consumer.getmany(timeout_ms=2_000)).values():
                found |= {record.value for record in records}
    async with admin_of(cluster, "ann") as ann:
        await ann.create_acls(
            [
                Acl(
                    AclResourceType.TOPIC,
                    topic,
                    PatternType.LITERAL,
                    "User:bob",
                    "*",
                    AclOperation.WRITE,
                    AclPermission.DENY,
                )
            ]
        )

    async def is_denied() -> bool:
        async with Producer(enable_idempotence=False, **options) as producer:
            try:
                await producer.send_and_wait(topic, b"", partition=0)
            except AuthorizationFailed:
                return True
            return False

    async with asyncio.timeout(60):
        while not await is_denied():
            pass


async def test_a_login_with_a_token_cannot_deal_with_tokens(cluster: LocalCluster) -> None:
    token = await new_token(cluster)
    async with Admin(**by_token(cluster, token)) as admin:
        for call in (
            admin.create_delegation_token(),
            admin.renew_delegation_token(token.hmac),
            admin.expire_delegation_token(token.hmac),
            admin.describe_delegation_tokens(),
        ):
            assert await refused(call) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_no_other_password_logs_in(cluster: LocalCluster) -> None:
    token = await new_token(cluster)
    another = await new_token(cluster, "eve")
    for wrong in (
        {"sasl_plain_password": another.password},
        {"sasl_plain_username": "bob"},
        {"sasl_plain_username": "nobody"},
        {"sasl_token_auth": False},
    ):
        with pytest.raises(AuthenticationFailed):
            async with Admin(**by_token(cluster, token) | wrong):
                pass


async def test_a_token_that_is_removed_takes_its_connections_along(cluster: LocalCluster) -> None:
    token = await new_token(cluster, renewers=["User:eve"])
    topic = f"t-{uuid.uuid4().hex}"
    async with admin_of(cluster, "ann") as ann:
        await ann.create_topics([NewTopic(topic, 4)])
    options = by_token(cluster, token)
    async with (
        Producer(**options) as producer,
        Consumer(auto_offset_reset="earliest", **options) as consumer,
    ):
        consumer.assign([TopicPartition(topic, partition) for partition in range(4)])
        for partition in range(4):
            await producer.send_and_wait(topic, b"", partition=partition)
        await consumer.getmany(timeout_ms=5_000)
        connections = list(producer.parts.cluster._connections.values())
        async with admin_of(cluster, "eve") as eve:
            await eve.expire_delegation_token(token.hmac)
        async with asyncio.timeout(60):
            while any(connection.lost is None for connection in connections):
                await asyncio.sleep(0.01)
        with pytest.raises(AuthenticationFailed):
            await producer.send_and_wait(topic, b"", partition=0)
        with pytest.raises(AuthenticationFailed):
            async with asyncio.timeout(60):
                while True:
                    await consumer.getmany(timeout_ms=1_000)


async def test_a_token_that_expires_earlier_ends_its_sessions_then(cluster: LocalCluster) -> None:
    token = await new_token(cluster)
    topic = f"t-{uuid.uuid4().hex}"
    async with admin_of(cluster, "bob") as bob, Producer(**by_token(cluster, token)) as producer:
        await bob.create_topics([NewTopic(topic, 1)])
        await producer.send_and_wait(topic, b"")
        expires_ms = await bob.expire_delegation_token(token.hmac, 1_500)
        assert expires_ms < token.expires_at_ms
        with pytest.raises(AuthenticationFailed):
            async with asyncio.timeout(60):
                while True:
                    await producer.send_and_wait(topic, b"")
                    await asyncio.sleep(PAUSE_S)
        assert time.time() * 1000 >= expires_ms
        codes = [
            await refused(bob.renew_delegation_token(token.hmac)),
            await refused(bob.expire_delegation_token(token.hmac, 1_000)),
        ]
        assert set(codes) == {ErrorCode.DELEGATION_TOKEN_EXPIRED}
        assert await bob.expire_delegation_token(token.hmac) > expires_ms, "an expired one can be removed"
        assert await refused(bob.renew_delegation_token(token.hmac)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_a_session_lives_as_long_as_a_token_that_is_renewed(cluster: LocalCluster) -> None:
    """The login is renewed on the same connection past the token's first expiry."""
    token = await new_token(cluster)
    topic = f"t-{uuid.uuid4().hex}"
    async with admin_of(cluster, "bob") as bob:
        await bob.create_topics([NewTopic(topic, 1)])
        first_end = await bob.expire_delegation_token(token.hmac, 2_500)
        async with Producer(**by_token(cluster, token)) as producer:
            await producer.send_and_wait(topic, b"")
            connections = list(producer.parts.cluster._connections.values())
            await bob.renew_delegation_token(token.hmac)
            while time.time() * 1000 < first_end + 500:
                await producer.send_and_wait(topic, b"")
                await asyncio.sleep(PAUSE_S)
            assert all(connection.lost is None for connection in connections)


async def test_who_sees_and_changes_which_tokens(cluster: LocalCluster) -> None:
    async with (
        admin_of(cluster, "ann") as ann,
        admin_of(cluster, "bob") as bob,
        admin_of(cluster, "eve") as eve,
    ):
        await ann.create_acls([_token_right("User:eve", AclResourceType.USER, "User:carl", "CREATE_TOKENS")])
        async with asyncio.timeout(60):
            while await refused_or_none(eve.create_delegation_token(owner="User:carl")):
                pass
        assert (
            await refused(bob.create_delegation_token(owner="User:carl"))
            is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        )
        token = await new_token(
            cluster, "eve", owner="User:carl", renewers=["User:bob"], max_lifetime_ms=60_000
        )
        assert (token.owner, token.requester) == ("User:carl", "User:eve")
        assert token.expires_at_ms == token.ends_at_ms == token.issued_at_ms + 60_000
        assert token.hmac.hex() not in repr(token)
        seen = {known.token_id: known for known in await bob.describe_delegation_tokens()}
        assert seen[token.token_id] == token
        assert token.token_id in {
            known.token_id for known in await eve.describe_delegation_tokens(["User:bob"])
        }
        assert token.token_id not in {
            known.token_id for known in await eve.describe_delegation_tokens(["User:ann"])
        }
        assert await eve.describe_delegation_tokens([]) == []
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert await refused(eve.renew_delegation_token(token.hmac)) is mismatch, (
            "the requester is not the owner"
        )
        assert await refused(ann.expire_delegation_token(token.hmac)) is mismatch
        assert await bob.renew_delegation_token(token.hmac) == token.ends_at_ms
        assert await refused(bob.renew_delegation_token(b"x")) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def refused_or_none(call: Any) -> ErrorCode | None:
    try:
        await call
    except KafkaError as error:
        return ErrorCode.of(error.code)
    return None


def _token_right(principal: str, kind: AclResourceType, name: str, operation: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, principal, "*", AclOperation[operation], AclPermission.ALLOW)


def test_without_an_event_loop(cluster: LocalCluster) -> None:
    with sync.Admin(**as_user(cluster, "eve")) as admin:
        token = admin.create_delegation_token(max_lifetime_ms=60_000)
        assert admin.renew_delegation_token(token.hmac) == token.ends_at_ms
        assert token in admin.describe_delegation_tokens(["User:eve"])
        admin.expire_delegation_token(token.hmac)
        assert token not in admin.describe_delegation_tokens()


async def test_the_command_line(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("OTTLA_BOOTSTRAP", cluster.bootstrap_servers.split(",")[0])

    async def ottla(*words: str, user: str = "eve", code: int = 0) -> str:
        monkeypatch.setenv("OTTLA_SASL_PASSWORD", PASSWORDS.get(user, user))
        flags = [
            *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"),
            *("-X", f"sasl.username={user}"),
        ]
        assert await asyncio.to_thread(main, [*words, *flags]) == code
        printed = capsys.readouterr()
        return printed.out if not code else printed.err

    made = json.loads(
        await ottla("token", "create", "--max-lifetime", "1h", "--renewer", "User:bob", "-o", "json")
    )
    assert made["owner"] == "User:eve"
    assert made["ends_ms"] - made["issued_ms"] == 3_600_000
    for shown in (
        await ottla("token", "list"),
        await ottla("token", "list", made["id"], "-o", "json"),
        await ottla("token", "renew", made["id"], "--for", "30m", user="bob"),
    ):
        assert made["id"] in shown
        assert made["hmac"] not in shown
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", made["hmac"])
    flags = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-512"]
    flags += ["-X", f"sasl.username={made['id']}", "-X", "sasl.token.auth=true"]
    assert await asyncio.to_thread(main, ["topic", "list", *flags]) == 0
    capsys.readouterr()
    assert "HMAC" in await ottla("token", "create")
    assert made["id"] in await ottla("token", "expire", made["id"])
    assert "no token" in await ottla("token", "renew", made["id"], code=1)
    assert "User:ann" in await ottla("token", "create", "--owner", "carl", code=2)
    await ottla("token", "create", "--max-lifetime", "0s", code=2)
    for node in (*cluster.broker_ids, *cluster.quorum_ids):
        assert made["hmac"] not in cluster.log(node)


@needs_java
async def test_kafkas_own_tools(cluster: LocalCluster, tmp_path: Path) -> None:
    """Kafka's command for tokens works, and so do its console clients that log in with one."""
    module = f"{_MODULE}.plain.PlainLoginModule"
    of_bob = tmp_path / "bob.properties"
    of_bob.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="bob" password="{PASSWORDS["bob"]}";\n'
    )
    topic = f"t-{uuid.uuid4().hex}"
    command = "org.apache.kafka.tools.DelegationTokenCommand"
    common = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(of_bob))
    with Tools() as tools:
        said = await asyncio.to_thread(
            tools.run,
            command,
            *common,
            "--create",
            *("--max-life-time-period", "-1", "--renewer-principal", "User:eve"),
        )
        line = next(line for line in said.splitlines() if "User:bob" in line and "User:eve" in line)
        token_id, secret = line.split()[:2]
        async with admin_of(cluster, "bob") as bob:
            (token,) = [
                known for known in await bob.describe_delegation_tokens() if known.token_id == token_id
            ]
            assert token.password == secret
            await known_everywhere(cluster, token)
            await bob.create_topics([NewTopic(topic, 1)])
        await asyncio.to_thread(
            tools.run, command, *common, "--renew", "--renew-time-period", "-1", "--hmac", secret
        )
        said = await asyncio.to_thread(
            tools.run, command, *common, "--describe", "--owner-principal", "User:bob"
        )
        assert token_id in said
        by_it = tmp_path / "token.properties"
        by_it.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.jaas.config={_MODULE}.scram.ScramLoginModule required "
            f'username="{token_id}" password="{secret}" tokenauth="true";\n'
        )
        said = await asyncio.to_thread(
            java.run,
            "org.apache.kafka.tools.VerifiableProducer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *("--max-messages", "5", "--command-config", str(by_it)),
        )
        assert '"acked":5' in said
        reading = (
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--max-messages", "5", "--timeout-ms", "30000", "--command-config", str(by_it)),
        )
        said = await asyncio.to_thread(tools.run, *reading)
        assert [line for line in said.splitlines() if line.isdigit()] == ["0", "1", "2", "3", "4"]
        said = await asyncio.to_thread(
            tools.run, command, *common, "--expire", "--expiry-time-period", "-1", "--hmac", secret
        )
        # Its log tells of the refusal, its status does not.
        said = await asyncio.to_thread(tools.run, *reading)
        assert "Processed a total of 0 messages" in said
    with pytest.raises(AuthenticationFailed):
        async with Admin(**by_token(cluster, token)):
            pass


@needs_java
async def test_javas_clients_go_on_while_a_token_is_renewed_and_end_with_it(cluster: LocalCluster) -> None:
    """Clients go on past the token's first expiry, since they renew their logins.

    Once the token is expired, none gets in again.
    """
    program = await asyncio.to_thread(java.compiled_command, "TokenClients")
    token = await new_token(cluster)
    topic = f"t-{uuid.uuid4().hex}"
    async with admin_of(cluster, "bob") as bob:
        await bob.create_topics([NewTopic(topic, 1)])
        first_end = await bob.expire_delegation_token(token.hmac, 20_000)
        arguments = (cluster.bootstrap_servers, topic, "SCRAM-SHA-512", token.token_id, token.password)
        async with JavaClients(*program, *arguments) as clients:
            await clients.tell("acknowledged", "read")
            assert time.time() * 1000 < first_end, "a slow machine: nothing was seen before the first end"
            await bob.renew_delegation_token(token.hmac)
            while time.time() * 1000 < first_end + 1_000:
                await clients.tell("acknowledged", "read")
            assert clients.refusals == []
            await bob.expire_delegation_token(token.hmac)
            await clients.ended()
            assert sorted(clients.refusals) == [
                "consumer refused SaslAuthenticationException",
                "producer gave up TimeoutException",
                "producer refused SaslAuthenticationException",
            ]


class JavaClients:
    """A run of TokenClients.java while the block lasts."""

    def __init__(self, *argv: str) -> None:
        self._argv = argv
        self.refusals: list[str] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def tell(self, *kinds: str) -> None:
        """Return once there are new lines of all these kinds, or the program has ended."""
        missing = set(kinds)
        async with asyncio.timeout(60):
            while missing and (line := await self._line()):
                missing.discard(line.split()[0])

    async def ended(self) -> None:
        """Read the rest of the output, and check the exit status."""
        async with asyncio.timeout(60):
            while await self._line():
                pass
            assert await self._process.wait() == 0

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().strip()
        if " refused " in line or " gave up " in line:
            self.refusals.append(line)
        return line
