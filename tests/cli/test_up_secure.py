"""`ottla up --secure`: its output and files are all that a new user needs, and no other user gets in."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from ottla.cli.local_cluster.layout import known_layout
from tests.cli.test_up import taken_range
from tests.cluster import RunningCluster, executed_cluster, processes_of, wait_until
from tests.commands import run_ottla

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_up_secure")]


def ottla(*words: str, config: Path, given: str = "", fails: bool = False, **variables: str) -> str:
    """Return the output of a command that only knows the profiles in `config`; its error if it `fails`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    environment |= {"OTTLA_CONFIG_DIR": str(config)} | variables
    done = run_ottla(*words, given=given, environ=environment)
    assert (done.returncode != 0) == fails, (done.returncode, done.stdout, done.stderr)
    return done.stderr if fails else done.stdout


def properties(file: Path) -> dict[str, str]:
    """Return the contents of a file of key=value lines."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three quorum nodes, so that the first user has to reach the one that forms the cluster."""
    folder = tmp_path_factory.mktemp("secure")
    with executed_cluster(folder, quorum=3, brokers=2, arguments=("--secure",)) as running:
        yield running


@pytest.fixture
def config(cluster: RunningCluster) -> Path:
    """Return the folder for OTTLA_CONFIG_DIR, by the printed text."""
    said = (cluster.directory / "up.log").read_text()
    [line] = [line for line in said.splitlines() if "OTTLA_CONFIG_DIR" in line]
    return Path(line.partition("OTTLA_CONFIG_DIR=")[2])


def test_the_commands_that_are_printed_work(cluster: RunningCluster, config: Path) -> None:
    said = (cluster.directory / "up.log").read_text()
    assert "  ottla topic create orders\n" in said
    ottla("topic", "create", "orders", config=config)
    ottla("produce", "orders", config=config, given="1\n2\n")
    assert ottla("consume", "orders", "-o", "beginning", "-e", config=config) == "1\n2\n"
    assert "admin" in ottla("user", "list", config=config)
    command = "acl create --principal User:ann --operation READ --topic orders"
    assert f"  ottla {command}\n" in said
    ottla(*command.split(), config=config)
    assert "User:ann" in ottla("acl", "list", config=config)
    assert ottla("cluster", "health", config=config) == "healthy\n"


def test_files_are_for_their_owner_alone(cluster: RunningCluster) -> None:
    for path in cluster.directory.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.name != "up.log":
            assert mode & 0o077 == 0, (path, oct(mode))


def test_nothing_printed_or_logged_has_the_password(cluster: RunningCluster, config: Path) -> None:
    password = (config / "admin.password").read_text().strip()
    logs = [cluster.directory / "up.log", *cluster.directory.glob("logs/*")]
    commands = [Path(f"/proc/{node.pid}/cmdline") for node in (*cluster.brokers, *cluster.quorum)]
    settings = [*cluster.directory.glob("config/*"), cluster.directory / "cluster.json"]
    for file in (*logs, *commands, *settings):
        assert password not in file.read_text(errors="replace"), file


def scraped(address: str, token: str | None) -> tuple[int, str]:
    """Return the status and text of a metrics endpoint."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_metrics_are_for_whoever_has_the_token(cluster: RunningCluster, config: Path) -> None:
    """Metrics name topics, groups and users. Health is public, but without a reason."""
    file = Path(cluster.description["security"]["metrics_token_file"])
    assert file == config / "metrics.token"
    assert f"  metrics       with the token in {file}\n" in (cluster.directory / "up.log").read_text()
    token = file.read_text().strip()
    for node in (*cluster.brokers, *cluster.quorum):
        address = node.entry["metrics"]
        for wrong in (None, "", token[:-1], "x"):
            status, text = scraped(address, wrong)
            assert status == 401
            assert "kafka_" not in text
            assert "ottla_" not in text
        status, text = scraped(address, token)
        assert status == 200
        assert "ottla_" in text
        assert scraped(address.replace("/metrics", "/readyz"), None) == (200, "ready\n")


def test_a_user_may_do_what_acls_allow(cluster: RunningCluster, config: Path, tmp_path: Path) -> None:
    ottla("topic", "create", "news", config=config)
    ottla("produce", "news", config=config, given="n\n")
    ottla("user", "create", "bea", config=config, OTTLA_NEW_PASSWORD="of bea")
    ca = cluster.description["security"]["ca_file"]
    words = ["-X", "security.protocol=SASL_SSL", "-X", f"ssl.ca.location={ca}"]
    words += ["-X", "sasl.mechanism=SCRAM-SHA-512", "-X", "sasl.username=bea"]
    mine = tmp_path / "bea"
    ottla(
        "profile", "create", "c", "-b", cluster.bootstrap, *words, config=mine, OTTLA_SASL_PASSWORD="of bea"
    )
    reading = ("consume", "news", "-o", "beginning", "-e", "--profile", "c")
    assert "there is no topic 'news'" in ottla(*reading, config=mine, fails=True), (
        "a user without rights sees no topic"
    )
    ottla("acl", "create", "--principal", "User:bea", "--operation", "READ", "--topic", "news", config=config)
    wait_until(lambda: ottla(*reading, config=mine) == "n\n", "records that bea may read")


def test_the_files_of_a_new_user_are_all_that_the_clients_need(
    cluster: RunningCluster, config: Path, tmp_path: Path
) -> None:
    ottla("topic", "create", "parts", config=config)
    ottla("produce", "parts", config=config, given="p\n")
    made = tmp_path / "made"
    ottla("user", "create", "dora", "--client-files", str(made), config=config)
    ottla(
        "acl", "create", "--principal", "User:dora", "--operation", "READ", "--topic", "parts", config=config
    )
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()} == dict.fromkeys(
        ("dora.password", "dora.properties", "dora.conf", "profiles.json", "ca.pem"), 0o600
    )
    assert (made / "ca.pem").read_bytes() == (cluster.directory / "tls/ca.pem").read_bytes()
    AdminClient(properties(made / "dora.conf") | {"log_level": 0}).list_topics(timeout=30)
    moved = made.rename(tmp_path / "moved")
    reading = ("consume", "parts", "-o", "beginning", "-e")
    wait_until(lambda: ottla_or_nothing(*reading, config=moved) == "p\n", "records that dora may read")
    by_java = ("--command-config", str(moved / "dora.properties"))
    assert ottla(*reading, *by_java, config=tmp_path / "none") == "p\n"
    denied = ottla("user", "create", "eve", "--client-files", str(tmp_path / "eve"), config=moved, fails=True)
    assert "CLUSTER_AUTHORIZATION_FAILED" in denied
    assert not (tmp_path / "eve").exists()


def test_files_of_a_user_with_a_given_password_and_place(
    cluster: RunningCluster, config: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    words = ("user", "create", "finn", "--client-files", str(folder), "--mechanism", "SCRAM-SHA-256")
    ottla(*words, "--installed-in", "/etc/finn", config=config, OTTLA_NEW_PASSWORD='of "finn" \\ = #')
    options = properties(folder / "finn.conf")
    assert options["ssl.ca.location"] == "/etc/finn/ca.pem"
    options["ssl.ca.location"] = str(folder / "ca.pem")
    assert AdminClient(options | {"log_level": 0}).list_topics(timeout=30).brokers
    ottla("topic", "list", "--command-config", str(folder / "finn.properties"), config=tmp_path / "none")
    assert "it has files already" in ottla(*words, config=config, fails=True)


def test_whoever_does_not_know_how_is_told(cluster: RunningCluster, config: Path, tmp_path: Path) -> None:
    listing = ("topic", "list", "-b", cluster.bootstrap)
    ca = f"ssl.ca.location={cluster.description['security']['ca_file']}"
    login = ("-X", "sasl.mechanism=SCRAM-SHA-512", "-X", "sasl.username=admin")
    secured = ("-X", "security.protocol=SASL_SSL")

    without_tls = ottla(*listing, config=tmp_path, fails=True)
    assert "the broker expects TLS: security_protocol is SSL or SASL_SSL; a profile" in without_tls
    assert "a profile, -X or --command-config say how" in without_tls
    other_ca = ottla(*listing, *secured, *login, config=tmp_path, fails=True, OTTLA_SASL_PASSWORD="x")
    assert "not signed by anyone whom the client trusts" in other_ca
    wrong = ottla(
        *listing, *secured, "-X", ca, *login, config=tmp_path, fails=True, OTTLA_SASL_PASSWORD="wrong"
    )
    assert "the login as 'admin' by SCRAM-SHA-512 failed" in wrong
    unknown = ottla(
        *listing, *secured, "-X", ca, *login[:2], "-X", "sasl.username=carl",
        config=tmp_path, fails=True, OTTLA_SASL_PASSWORD="wrong",
    )  # fmt: skip
    assert unknown.replace("carl", "admin") == wrong
    no_login = ottla(*listing, "-X", "security.protocol=SSL", "-X", ca, config=tmp_path, fails=True)
    assert "security_protocol may not be that of the listener" in no_login


def test_librdkafka_goes_by_its_file(cluster: RunningCluster, config: Path) -> None:
    options: dict[str, Any] = properties(config / "admin.conf") | {"log_level": 0}
    assert options["bootstrap.servers"] == cluster.bootstrap
    topic = f"from-{uuid.uuid4().hex}"
    producer = Producer(options)
    producer.produce(topic, b"v")
    assert producer.flush(30) == 0
    consumer = Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        [record] = consumer.consume(1, 30)
        assert record.value() == b"v"
    finally:
        consumer.close()
    with pytest.raises(Exception, match=r"timed out|_TRANSPORT|TIMED_OUT"):
        AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=3)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
def test_kcat_as_printed(cluster: RunningCluster) -> None:
    said = (cluster.directory / "up.log").read_text()
    [command] = [line.strip() for line in said.splitlines() if "kcat -F" in line]
    done = subprocess.run(command.split(), capture_output=True, text=True, check=True, timeout=60)
    assert "2 brokers:" in done.stdout


def test_kafka_python_with_what_was_printed(cluster: RunningCluster, config: Path) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=cluster.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=cluster.description["security"]["ca_file"],
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="admin",
        sasl_plain_password=(config / "admin.password").read_text().strip(),
    )
    try:
        assert admin.describe_cluster()["cluster_id"] == cluster.description["cluster_id"]
    finally:
        admin.close()


def test_a_local_cluster_is_asked_by_its_folder(cluster: RunningCluster, tmp_path: Path) -> None:
    report = json.loads(ottla("cluster", "--data", str(cluster.directory), "-o", "json", config=tmp_path))
    assert [broker["id"] for broker in report["brokers"]] == [1, 2]
    assert cluster.quorum_leader().id in {101, 102, 103}


def test_nodes_that_were_killed_come_back(cluster: RunningCluster, config: Path) -> None:
    ottla("topic", "create", "kept", "-r", "2", config=config)
    ottla("produce", "kept", config=config, given="v\n")
    for victim in (cluster.broker(1), cluster.quorum_leader()):
        victim.kill9()
        victim.restart()
        wait_until(
            lambda: "healthy\n" in ottla_or_nothing("cluster", "health", config=config), "a healthy cluster"
        )
        assert ottla("consume", "kept", "-o", "beginning", "-e", config=config) == "v\n"


def ottla_or_nothing(*words: str, config: Path) -> str:
    """Return the standard output, or nothing if the command fails."""
    try:
        return ottla(*words, config=config)
    except AssertionError:
        return ""


def test_the_same_folder_stays_secured_and_moves(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    with executed_cluster(folder, quorum=1, brokers=1, arguments=("--secure", "--combined")) as first:
        config = folder / "client"
        kept = {
            path: path.read_bytes()
            for path in (*folder.glob("tls/*"), config / "admin.password", config / "metrics.token")
        }
        ottla("produce", "t", config=config, given="v\n")
        assert first.stop() == 0
    word = f"SCRAM-SHA-512=[name=eve,password-file={config / 'admin.password'}]"
    node = ("quorum", "-c", str(folder / "config/quorum-101.properties"))
    assert "this cluster is already formed, use 'ottla user create'" in ottla(
        *node, "--add-scram", word, config=config, fails=True
    )
    refused = ottla("up", "--data", str(folder), "--secure", "SSL", config=config, fails=True)
    assert "whose clients speak SASL_SSL, not SSL" in refused
    with taken_range() as base:
        pass
    with executed_cluster(
        folder, quorum=1, brokers=1, arguments=("--combined", "--base-port", str(base))
    ) as again:
        assert again.bootstrap == f"127.0.0.1:{base}"
        assert {path: path.read_bytes() for path in kept} == kept
        assert ottla("consume", "t", "-o", "beginning", "-e", config=config) == "v\n"
    with executed_cluster(folder, quorum=1, brokers=2) as grown:
        assert ottla("consume", "t", "-o", "beginning", "-e", config=config) == "v\n"
        assert len(grown.brokers) == 2


def test_a_cluster_without_security_is_not_switched(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    with executed_cluster(folder, quorum=1, brokers=1, arguments=("--combined",)):
        pass
    before = sorted(path.name for path in folder.iterdir())
    refused = ottla("up", "--secure", "--data", str(folder), config=tmp_path, fails=True)
    assert "holds a cluster that is not secured: --secure is for a new one" in refused
    assert sorted(path.name for path in folder.iterdir()) == before


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    folder, other = tmp_path / "c", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
        with executed_cluster(each, quorum=1, brokers=1, arguments=("--secure", "--combined")):
            pass
    up = ("up", "--combined", "--data", str(folder))
    own_ca = (folder / "tls/ca.pem").read_bytes()
    shutil.copy(other / "tls/ca.pem", folder / "tls/ca.pem")
    assert "ca.key is not the key of" in ottla(*up, config=tmp_path, fails=True)
    (folder / "tls/ca.key").unlink()
    assert "broker-1.pem was not issued by" in ottla(*up, config=tmp_path, fails=True)
    (folder / "tls/ca.pem").write_bytes(own_ca)
    more = ottla("up", "--brokers", "2", "--data", str(folder), config=tmp_path, fails=True)
    assert "ca.key is gone, and broker-2 needs a new certificate" in more
    (folder / "client/admin.password").rename(tmp_path / "password")
    assert "admin.password is gone" in ottla(*up, config=tmp_path, fails=True)
    (tmp_path / "password").rename(folder / "client/admin.password")
    (folder / "tls/broker-1.pem").write_text("no certificate")
    assert "holds no certificate in PEM" in ottla(*up, config=tmp_path, fails=True)
    assert known_layout(folder).is_formed
    assert processes_of(folder) == []


def test_a_port_in_use_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = str(taken.getsockname()[1])
        words = ("up", "--secure", "--combined", "--data", str(folder), "--base-port", base)
        assert f"port {base} on 127.0.0.1 is in use" in ottla(*words, config=tmp_path, fails=True)
    assert not folder.exists()


def test_another_protocol_is_refused_by_name(tmp_path: Path) -> None:
    refused = ottla("up", "--secure", "TLS", "--data", str(tmp_path / "up"), config=tmp_path, fails=True)
    assert "there are SSL, SASL_PLAINTEXT, SASL_SSL" in refused


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_other_protocols(tmp_path: Path, protocol: str) -> None:
    with executed_cluster(tmp_path, quorum=1, brokers=2, arguments=("--secure", protocol)) as cluster:
        config = tmp_path / "client"
        ottla("topic", "create", "t", "-r", "2", config=config)
        ottla("produce", "t", config=config, given="v\n")
        assert ottla("consume", "t", "-o", "beginning", "-e", config=config) == "v\n"
        options = properties(config / "admin.conf")
        assert "t" in AdminClient(options).list_topics(timeout=30).topics
        refused = ottla("topic", "list", "-b", cluster.bootstrap, config=tmp_path / "none", fails=True)
        reason = (
            "the broker expects TLS"
            if protocol == "SSL"
            else "security_protocol may not be that of the listener"
        )
        assert reason in refused


def test_a_second_client_with_a_certificate_of_the_cluster(tmp_path: Path) -> None:
    arguments = ("--secure", "SSL", "--combined")
    with executed_cluster(tmp_path, quorum=1, brokers=1, arguments=arguments) as cluster:
        config, own = tmp_path / "client", tmp_path / "ann"
        ottla("produce", "t", config=config, given="v\n")
        issuing = (
            "security",
            "certificate",
            "ann",
            "--client",
            "--ca",
            str(tmp_path / "tls"),
            "--into",
            str(own),
        )
        ottla(*issuing, config=tmp_path / "none")
        reading = ("consume", "t", "-o", "beginning", "-e", "-b", cluster.bootstrap)
        by_java = ("--command-config", str(own / "ann.properties"))
        assert "there is no topic 't'" in ottla(*reading, *by_java, config=tmp_path / "none", fails=True)
        ottla(
            "acl",
            "create",
            "--principal",
            "User:CN=ann",
            "--operation",
            "READ",
            "--topic",
            "t",
            config=config,
        )
        wait_until(
            lambda: ottla_or_nothing(*reading, *by_java, config=tmp_path / "none") == "v\n",
            "records that ann may read",
        )
        options = properties(own / "ann.conf") | {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        assert "t" in AdminClient(options).list_topics(timeout=30).topics
