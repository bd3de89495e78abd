"""Random texts are planted in every secret of a cluster and its clients, and appear in no forbidden place."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import signal
import socket
import ssl
import struct
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, AuthenticationFailed, Consumer, NewTopic, Producer, UserPassword
from ottla.cli.local_cluster.ports import free_ports
from ottla.cli.main import main
from ottla.cli.nodes.config_providers import resolve
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.metadata_quorum.config import QuorumNodeConfig
from ottla.protocol.credentials.scram import SCRAM_MECHANISMS
from ottla.protocol.messages.config_commands import ResourceType
from tests.commands import run_ottla
from tests.network.tls.certificates import pkcs12_file

from .planted_secrets import Planted
from .tls_cluster import HOST, TlsBroker, TlsCluster, tls_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.xdist_group("test_planted_secrets")]

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKER_LOGGER = 8
TOPIC = "planted"


@dataclass
class Scene:
    """A cluster that was used, misused and stopped, and the collected outputs."""

    planted: Planted
    cluster: TlsCluster
    told: dict[str, str] = field(default_factory=dict)
    """Outputs that clients, programs and the command line showed, by occasion."""
    reprs: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    commands: dict[str, bytes] = field(default_factory=dict)

    def tell(self, occasion: str, text: str) -> None:
        self.told[occasion] = self.told.get(occasion, "") + text

    @property
    def quorum_settings(self) -> Path:
        return self.cluster.directory / "quorum" / "quorum.properties"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("planted")
    planted = Planted()
    reserved: list[socket.socket] = []
    choosing = free_ports(reserved)
    metrics = {name: next(choosing) for name in ("quorum", "1", "2")}
    choosing.close()
    passwords = {name: planted.new(f"password of {name}") for name in ("ann", "bob", "inter")}
    passwords["tokens"] = planted.new("key of delegation tokens")

    scraper = directory / "metrics.token"
    scraper.touch(mode=0o600)
    scraper.write_text(planted.new("token of metrics"))
    of_tokens = planted.new("secret of delegation tokens")

    def adjust(broker: TlsBroker | None, settings: dict[str, str]) -> None:
        settings["metrics.bearer.token.file"] = str(scraper)
        settings["delegation.token.secret.key"] = of_tokens
        if broker is None:
            secret = directory / "quorum.secret"
            secret.write_text(planted.add("quorum secret", os.urandom(32).hex()))
            settings["quorum.secret.file"] = str(secret)
            settings["metrics.listener"] = f"{HOST}:{metrics['quorum']}"
        else:
            planted.add("cluster secret", (directory / "secret").read_text())
            settings["metrics.listener"] = f"{HOST}:{metrics[str(broker.id)]}"
            plant_in_broker(planted, broker, passwords)

    with tls_cluster(directory, log_level="debug", adjust=adjust) as running:
        scene = Scene(planted, running)
        asyncio.run(use(scene, passwords))
        asyncio.run(change_settings(scene))
        refuse_starts(scene)
        talk_nonsense(scene)
        reload(scene)
        look_at_processes(scene)
        for name, port in metrics.items():
            request = urllib.request.Request(
                f"http://{HOST}:{port}/metrics", headers={"Authorization": f"Bearer {scraper.read_text()}"}
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                scene.tell(f"metrics of {name}", answer.read().decode())
        look_at_configurations(scene)
        for broker in running.brokers:
            broker.stop()
        assert running.quorum is not None
        running.quorum.terminate()
        running.quorum.wait(45)
        yield scene
    for held in reserved:
        held.close()


def plant_in_broker(planted: Planted, broker: TlsBroker, passwords: dict[str, str]) -> None:
    """Plant a store with a password on one listener, PEM keys with a password on the inter-broker
    listener, and logins.
    """
    issued = broker.issued
    store_password = planted.new("password of the key store")
    store = pkcs12_file(issued, broker.folder / "own.p12", password=store_password)
    key_password = planted.new("password of the key")
    encrypted = issued.key_pem(key_password)
    for line in (encrypted + issued.key_pem()).splitlines():
        if not line.startswith("---") and len(line) == 64:
            planted.add("key", line)
    mentioned = planted.new("what a file holds")
    (broker.folder / "secrets.properties").write_text(f"bob={passwords['bob']}\nmentioned={mentioned}\n")
    (broker.folder / "secrets.properties").chmod(0o600)
    settings = broker.settings
    settings |= {
        "config.providers": "file",
        "listener.name.logins.ssl.keystore.type": "PKCS12",
        "listener.name.logins.ssl.keystore.location": str(store),
        "listener.name.logins.ssl.keystore.password": store_password,
        "listener.name.brokers.ssl.keystore.key": encrypted.replace("\n", " "),
        "listener.name.brokers.ssl.keystore.certificate.chain": "".join(issued.chain).replace("\n", " "),
        "listener.name.brokers.ssl.key.password": key_password,
        "listener.name.clients.ssl.keystore.location": settings["ssl.keystore.location"],
        "ssl.truststore.password": planted.new("password of the trust store"),
        "listener.name.clients.ssl.key.password": f"${{file:{broker.folder}/secrets.properties:mentioned}}",
        "delegation.token.secret.key": passwords["tokens"],
        "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.logins.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="{passwords["ann"]}" '
        f'user_bob="${{file:{broker.folder}/secrets.properties:bob}}";',
        "listener.name.logins.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} required username="brokers" '
        f'password="{passwords["inter"]}";',
    }
    del settings["ssl.keystore.location"]


# ------------------------------------------------------------ actions


async def use_token(scene: Scene, options: dict[str, Any]) -> None:
    """Use a token of ann's, from its creation to its expiry."""
    planted, cluster = scene.planted, scene.cluster
    async with Admin(**options) as admin:
        token = await admin.create_delegation_token(renewers=["User:bob"])
        planted.add("secret of a delegation token", token.password)
        planted.add("secret of a delegation token, decoded", token.hmac.hex())
        scene.tell("a token", repr(token))
        async with asyncio.timeout(60):
            while not await logs_in(logins(cluster, "SCRAM-SHA-512", token.token_id, token.password)):
                pass
        await admin.renew_delegation_token(token.hmac)
        await admin.expire_delegation_token(token.hmac)
        await refused(scene, "a token", admin.renew_delegation_token(token.hmac))


async def logs_in(options: dict[str, Any]) -> bool:
    """Return whether both brokers accept a login with a token."""
    try:
        async with Producer(sasl_token_auth=True, **options) as producer:
            for partition in (0, 1):
                await producer.send_and_wait(TOPIC, b"a value", partition=partition)
    except AuthenticationFailed:
        return False
    return True


async def use(scene: Scene, passwords: dict[str, str]) -> None:
    """Use users, records and groups, and fail some logins."""
    planted, cluster = scene.planted, scene.cluster
    async with Admin(bootstrap_servers=cluster.bootstrap("PLAIN")) as admin:
        await admin.create_topics([NewTopic(TOPIC, 2, 2)])
        users = [UserPassword("carl", planted.new("password of carl"), name) for name in SCRAM_MECHANISMS]
        scene.tell("users", repr(users))
        await admin.alter_scram_credentials(users)
        for attempt in (UserPassword("", planted.new("password of nobody")), UserPassword("dora", "")):
            await refused(scene, "users", admin.alter_scram_credentials([attempt]))
    for mechanism, user, password in (
        ("PLAIN", "ann", passwords["ann"]),
        ("PLAIN", "bob", passwords["bob"]),
        *((each.mechanism, each.user, each.password) for each in users),
    ):
        options = logins(cluster, mechanism, user, password)
        async with Producer(**options) as producer:
            await producer.send_and_wait(TOPIC, b"a value")
            scene.reprs[f"a producer by {mechanism}"] = planted.found_in_reprs(producer)
        async with Consumer(TOPIC, group_id=user, auto_offset_reset="earliest", **options) as consumer:
            await anext(aiter(consumer))
            scene.reprs[f"a consumer by {mechanism}"] = planted.found_in_reprs(consumer)
    await use_token(scene, logins(cluster, "PLAIN", "ann", passwords["ann"]))
    for mechanism in ("PLAIN", *SCRAM_MECHANISMS):
        wrong = logins(cluster, mechanism, "ann", planted.new(f"wrong password of {mechanism}"))
        await refused(scene, "a wrong password", started(Admin(**wrong)))
    with token_endpoint(planted.new("a token")) as url:
        bearer = logins(cluster, "OAUTHBEARER", "", "")
        bearer |= {
            "sasl_oauthbearer_token_endpoint_url": url,
            "sasl_oauthbearer_client_id": "client",
            "sasl_oauthbearer_client_secret": planted.new("client secret"),
        }
        admin = Admin(**bearer)
        scene.reprs["a client with a token"] = planted.found_in_reprs(admin)
        await refused(scene, "a token", started(admin))
        bearer["sasl_oauthbearer_token_endpoint_url"] = f"{url}/refused"
        await refused(scene, "no token", started(Admin(**bearer)))
    for option, value in {
        "sasl_plain_password": planted.new("a password of bytes").encode(),
        "ssl_password": planted.new("a password in a list").split(),
        "sasl_plain_pasword": planted.new("a misspelt option"),
    }.items():
        with pytest.raises((TypeError, ValueError)) as caught:
            Admin(**{**logins(cluster, "PLAIN", "ann", passwords["ann"]), option: value})
        scene.tell("wrong options", repr(caught.value))


def logins(cluster: TlsCluster, mechanism: str, user: str, password: str) -> dict[str, Any]:
    options = {
        "bootstrap_servers": cluster.bootstrap("LOGINS"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": cluster.ca_file,
        "sasl_mechanism": mechanism,
    }
    if user:
        options |= {"sasl_plain_username": user, "sasl_plain_password": password}
    return options


async def started(client: Any) -> None:
    async with client:
        pass


async def refused(scene: Scene, occasion: str, attempt: Any) -> None:
    """Collect the error that a client gets for a refused request."""
    with pytest.raises(Exception, match=r".") as caught:
        await attempt
    error: BaseException | None = caught.value
    while error is not None:
        scene.tell(occasion, f"{error!r} {error}\n")
        error = error.__cause__ or error.__context__


@contextmanager
def token_endpoint(token: str) -> Iterator[str]:
    """Run an authorization server that gives one token, and refuses at another address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path.endswith("refused"):
                body, status = b'{"error": "invalid_client"}', 401
            else:
                body, status = json.dumps({"access_token": token, "expires_in": 300}).encode(), 200
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Do nothing."""

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{HOST}:{server.server_port}/token"
        finally:
            server.shutdown()


async def change_settings(scene: Scene) -> None:
    """Change settings while brokers run: of loggers first, then some that are refused."""
    planted = scene.planted
    async with Admin(bootstrap_servers=scene.cluster.bootstrap("PLAIN")) as admin:
        for broker in scene.cluster.brokers:
            await admin.alter_configs(BROKER_LOGGER, str(broker.id), {"root": "TRACE"})
        # Its store is PEM: the password opens nothing, and is kept.
        kept = {"listener.name.clients.ssl.keystore.password": planted.new("a dynamic password")}
        await admin.alter_configs(ResourceType.BROKER, "1", kept)
        for resource, name, key in (
            (ResourceType.BROKER, "1", "listener.name.logins.ssl.keystore.password"),
            (ResourceType.BROKER, "1", "listener.name.brokers.ssl.keystore.key"),
            (ResourceType.BROKER, "", "listener.name.logins.ssl.key.password"),
            (ResourceType.BROKER, "1", "listener.name.logins.plain.sasl.jaas.config"),
            (ResourceType.BROKER, "", "ssl.truststore.password"),
            (ResourceType.BROKER, "", "sasl.jaas.config"),
            (ResourceType.BROKER, "", "plugin.api.key"),
            (ResourceType.BROKER, "", "ssl.license.key"),
            (ResourceType.BROKER, "1", "my.access_token"),
            (ResourceType.TOPIC, TOPIC, "password"),
            (ResourceType.GROUP, "ann", "secret"),
            (ResourceType.CLIENT_METRICS, "m", "token"),
        ):
            for validate_only in (True, False):
                change = {key: planted.new(f"dynamic {key}")}
                await refused(
                    scene,
                    "settings that are refused",
                    admin.alter_configs(resource, name, change, validate_only=validate_only),
                )
        await refused(
            scene,
            "a topic",
            admin.create_topics([NewTopic("t", 1, 1, {"password": planted.new("of a topic")})]),
        )
        for kind, name in (
            (ResourceType.BROKER, "1"),
            (ResourceType.BROKER, "2"),
            (ResourceType.BROKER, ""),
            (ResourceType.TOPIC, TOPIC),
            (ResourceType.GROUP, "ann"),
            (BROKER_LOGGER, "1"),
        ):
            scene.tell("DescribeConfigs", repr(await admin.describe_configs(kind, name)))


def refuse_starts(scene: Scene) -> None:
    """Start nodes with wrong passwords and invalid settings, which must refuse."""
    planted, broker = scene.planted, scene.cluster.brokers[0]
    prefix = "listener.name.logins"
    for name, change in {
        "a wrong store password": {f"{prefix}.ssl.keystore.password": planted.new("wrong store password")},
        "a wrong key password": {"listener.name.brokers.ssl.key.password": planted.new("wrong key password")},
        "no key": {"listener.name.brokers.ssl.keystore.key": f"-----BEGIN {planted.new('no key')}"},
        "no certificate": {"listener.name.brokers.ssl.keystore.certificate.chain": planted.new("no chain")},
        "jaas without quotes": {
            f"{prefix}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_a=my {planted.new('unquoted')};"
        },
        "jaas without an end": {
            f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="{planted.new("endless")}'
        },
        "jaas for no mechanism": {"sasl.jaas.config": f'M required password="{planted.new("bare")}";'},
        "a misspelt setting": {"ssl.keystore.pasword": planted.new("misspelt")},
        "no value": {"ssl.key.password": f"{planted.new('beside a reference')}${{file:/none:x}}"},
        "a mechanism": {
            f"{prefix}.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required p="{planted.new("p")}";'
        },
    }.items():
        file = broker.folder / "refused.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in (broker.settings | change).items()))
        scene.tell(f"a start with {name}", start(["broker", "-c", str(file)]))
    file.write_text(f"node.id=1\nssl.key.password=\n {planted.new('a line of its own')}\n")
    scene.tell("a start with a broken line", start(["broker", "-c", str(file)]))
    for text in (
        "ssl.key.password: [{}",
        "ssl.key.password: %{}",
        "a: b\n  ssl.key.password: {}",
        "- {}",
        "{}",
    ):
        file = broker.folder / "refused.yaml"
        file.write_text(text.format(planted.new("in YAML")))
        scene.tell("a start with broken YAML", start(["broker", "-c", str(file)]))
    visible = ["--set", f"ssl.key.password={planted.new('on a command line')}"]
    file = broker.folder / "broker.properties"
    scene.tell("a start with --set", start(["broker", "-c", str(file), *visible]))
    scene.tell("ottla up with --set", start(["up", "--data", str(broker.folder / "up"), *visible]))


def start(words: list[str]) -> str:
    """Return the output of a node that refuses to start."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    done = run_ottla(*words, environ=environ)
    assert done.returncode in (1, 2), done
    return done.stdout + done.stderr


def talk_nonsense(scene: Scene) -> None:
    """Send invalid bytes, with and without TLS, to listeners and ports of nodes."""
    planted, cluster = scene.planted, scene.cluster
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    voters = cluster.brokers[0].settings["controller.quorum.voters"]
    ports = [(int(voters.rpartition(":")[2]), False)]
    for broker in cluster.brokers:
        ports += [(broker.ports[name], name != "PLAIN") for name in ("PLAIN", "CLIENTS", "LOGINS")]
    for port, has_tls in ports:
        secret = planted.new(f"sent to {port}").encode()
        for sent in (
            f"GET / HTTP/1.1\r\nAuthorization: Bearer {secret.decode()}\r\n\r\n".encode(),
            struct.pack(">i", len(secret)) + secret,
            struct.pack(">ihhih", len(secret) + 10, 17, 1, 7, -1) + secret,
            struct.pack(">ihhihh", 12 + len(secret), 36, 1, 7, -1, len(secret)) + secret,
        ):
            for wrapped in {False, has_tls}:
                send(port, sent, context if wrapped else None)


def send(port: int, sent: bytes, context: ssl.SSLContext | None) -> None:
    """Send, and read until the other end closes."""
    try:
        with socket.create_connection((HOST, port), 10) as plain:
            stream = plain if context is None else context.wrap_socket(plain, server_hostname=HOST)
            stream.settimeout(20)
            stream.sendall(sent)
            while stream.recv(4096):
                pass
            stream.close()
    except OSError:
        pass


def reload(scene: Scene) -> None:
    """Damage a store, and make brokers reload it."""
    for broker in scene.cluster.brokers:
        (broker.folder / "own.p12").write_bytes(b"nothing of the kind")
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        wait_until(partial(has_failed_to_reload, broker), "a reload that fails")


def has_failed_to_reload(broker: TlsBroker) -> bool:
    return "goes on with its old keys" in broker.log


def look_at_processes(scene: Scene) -> None:
    """Collect the command lines of processes, as `ps` shows them to all users."""
    processes = [scene.cluster.quorum, *(broker.process for broker in scene.cluster.brokers)]
    for process in processes:
        assert process is not None
        scene.commands[str(process.pid)] = Path(f"/proc/{process.pid}/cmdline").read_bytes()


def look_at_configurations(scene: Scene) -> None:
    from ottla.cli.nodes.settings import read_settings

    for broker in scene.cluster.brokers:
        found = resolve(read_settings(broker.folder / "broker.properties"), os.environ, print)
        config = BrokerConfig.from_properties(found.values)
        scene.reprs[f"the configuration of broker {broker.id}"] = scene.planted.found_in_reprs(config)
        scene.reprs[f"the settings of broker {broker.id}"] = scene.planted.found_in_reprs(found)
    quorum = QuorumNodeConfig.from_properties(read_settings(scene.quorum_settings))
    scene.reprs["the configuration of the quorum"] = scene.planted.found_in_reprs(quorum)


# ------------------------------------------------------------ places that must hold no secret


def test_the_search_finds_what_is_there(scene: Scene) -> None:
    """The search finds secrets in the files where they belong."""
    found = scene.planted.found_in((scene.cluster.brokers[0].folder / "broker.properties").read_bytes())
    assert {"password of the key store", "password of the key", "key", "password of ann"} <= set(found)
    assert scene.planted.found_in_files([scene.cluster.directory])


def test_logs_at_the_finest_level(scene: Scene) -> None:
    logs = [broker.folder / "log" for broker in scene.cluster.brokers]
    for file in (*logs, scene.cluster.directory / "quorum" / "log"):
        assert scene.planted.found_in(file.read_bytes()) == [], file
        assert "level=info" in file.read_text()
    assert "is wrong" in "".join(file.read_text() for file in logs)


def test_folders_of_data(scene: Scene) -> None:
    """The folders of the Raft log, its snapshots, and the brokers' records and metadata contain no secret."""
    folders = [broker.folder / "data" for broker in scene.cluster.brokers]
    assert scene.planted.found_in_files([*folders, scene.cluster.directory / "quorum" / "data"]) == {}


def test_what_clients_and_operators_are_told(scene: Scene) -> None:
    found = {
        occasion: names for occasion, text in scene.told.items() if (names := scene.planted.found_in(text))
    }
    assert found == {}
    assert all(scene.told.values())


def test_representations_of_objects(scene: Scene) -> None:
    assert {name: found for name, found in scene.reprs.items() if found} == {}


def test_command_lines_of_processes(scene: Scene) -> None:
    assert {
        name: found for name, line in scene.commands.items() if (found := scene.planted.found_in(line))
    } == {}
    assert len(scene.commands) == 3


def test_the_command_line(
    scene: Scene, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile shows its names, and no password."""
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))
    password = tmp_path / "password"
    password.write_text(scene.planted.new("password of a profile"))
    words = [
        "-b",
        "h:1",
        "-X",
        "security.protocol=SASL_SSL",
        "-X",
        "sasl.mechanism=PLAIN",
        "-X",
        "sasl.username=a",
    ]
    assert main(["profile", "create", "p", *words, "--password-file", str(password)]) == 0
    assert main(["profile", "list"]) == 0
    shown = capsys.readouterr()
    assert scene.planted.found_in(shown.out + shown.err) == []
