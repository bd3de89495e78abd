"""Stock clients, inter-broker connections, and tools over TLS."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from cryptography import x509

from tests.network.tls.certificates import Authority

from .tls_cluster import HOST, TlsCluster, brokers_seen, tls_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
COUNT = 3000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    with tls_cluster(tmp_path_factory.mktemp("tls"), ssl_reload_interval_ms="300") as running:
        yield running


def create(settings: dict[str, str], topic: str, partitions: int = 2) -> None:
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(topic, partitions, 2)]).values():
        future.result(30)


def produced(settings: dict[str, str], topic: str) -> None:
    producer = Producer(settings | {"acks": "all", "linger.ms": "20"})
    failures: list[object] = []
    for number in range(COUNT):
        producer.produce(
            topic,
            b"%06d" % number * 50,
            on_delivery=lambda error, _: error is not None and failures.append(error),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures


def consumed(settings: dict[str, str], topic: str, group: str) -> list[bytes]:
    consumer = Consumer(settings | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < COUNT:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {COUNT} records"
            assert message.error() is None
            found.append((message.value() or b"")[:6])
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found)


EXPECTED = [b"%06d" % number for number in range(COUNT)]


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_confluent_kafka(cluster: TlsCluster, versions: str) -> None:
    """The followers fetch over TLS, too, because of acks=all."""
    settings = cluster.client() | cluster.client_files(f"ann-{versions}")
    settings |= {"ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384"} if versions == "TLSv1.2" else {}
    topic = f"confluent-{versions}"
    create(settings, topic)
    produced(settings, topic)
    assert consumed(settings, topic, f"group-{versions}") == EXPECTED


async def test_aiokafka(cluster: TlsCluster) -> None:
    create(cluster.client(), "aiokafka")
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    secured = {"bootstrap_servers": cluster.bootstrap(), "security_protocol": "SSL", "ssl_context": context}
    async with aiokafka.AIOKafkaProducer(acks="all", **secured) as producer:
        await asyncio.gather(*[await producer.send("aiokafka", b"%06d" % number) for number in range(COUNT)])
    found = []
    async with aiokafka.AIOKafkaConsumer(
        "aiokafka", group_id="aiokafka", auto_offset_reset="earliest", **secured
    ) as consumer:
        while len(found) < COUNT:
            found.append((await asyncio.wait_for(consumer.getone(), 30)).value)
    assert sorted(found) == EXPECTED


@pytest.mark.skipif(not shutil.which("kcat"), reason="kcat is not installed")
def test_kcat(cluster: TlsCluster) -> None:
    create(cluster.client(), "kcat")
    own = [
        "kcat",
        "-b",
        cluster.bootstrap(),
        "-X",
        "security.protocol=SSL",
        "-X",
        f"ssl.ca.location={cluster.ca_file}",
    ]
    lines = "".join(f"{number}\n" for number in range(100))
    subprocess.run([*own, "-P", "-t", "kcat"], input=lines, text=True, check=True, timeout=60)
    done = subprocess.run(
        [*own, "-C", "-t", "kcat", "-e", "-q"], capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(map(int, done.stdout.split())) == list(range(100))


def test_the_plain_listener_goes_on_beside_it(cluster: TlsCluster) -> None:
    plain = {"bootstrap.servers": cluster.bootstrap("PLAIN")}
    create(plain, "plain")
    produced(plain, "plain")
    assert consumed(plain, "plain", "plain") == EXPECTED


def test_logins_over_tls(cluster: TlsCluster) -> None:
    settings = cluster.client() | {
        "bootstrap.servers": cluster.bootstrap("LOGINS"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "ann-secret",
    }
    create(settings, "logins")
    produced(settings, "logins")
    assert consumed(settings, "logins", "logins") == EXPECTED
    with pytest.raises(KafkaException):
        AdminClient(settings | {"sasl.password": "wrong"}).list_topics(timeout=3)


def test_clients_are_told_of_the_listener_that_they_came_by(cluster: TlsCluster) -> None:
    brokers = AdminClient(cluster.client()).list_topics(timeout=60).brokers
    assert {broker.port for broker in brokers.values()} == {
        broker.ports["CLIENTS"] for broker in cluster.brokers
    }
    brokers = AdminClient({"bootstrap.servers": cluster.bootstrap("PLAIN")}).list_topics(timeout=60).brokers
    assert {broker.port for broker in brokers.values()} == {
        broker.ports["PLAIN"] for broker in cluster.brokers
    }


def test_strangers_are_kept_out_of_the_listener_between_brokers(cluster: TlsCluster, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap("BROKERS")}
    with pytest.raises(KafkaException):
        AdminClient(cluster.client() | settings).list_topics(timeout=3)
    stranger = TlsCluster(tmp_path, Authority(), cluster.ca_file).client_files("stranger")
    with pytest.raises(KafkaException):
        AdminClient(cluster.client() | settings | stranger).list_topics(timeout=3)
    known = cluster.client() | settings | cluster.client_files("known")
    assert AdminClient(known).list_topics(timeout=60).brokers


def in_sync(cluster: TlsCluster) -> bool:
    try:
        topics = AdminClient(cluster.client()).list_topics(timeout=5).topics
    except KafkaException:
        return False
    return all(
        len(partition.isrs) == 2 for topic in topics.values() for partition in topic.partitions.values()
    )


def test_a_follower_that_was_away_catches_up_over_tls(cluster: TlsCluster) -> None:
    create(cluster.client(), "away", 1)
    cluster.brokers[1].stop(kill=True)
    producer = Producer(cluster.client() | {"acks": "1"})
    for number in range(500):
        producer.produce("away", b"%d" % number * 500)
        producer.poll(0)
    assert producer.flush(60) == 0
    cluster.brokers[1].start()

    wait_until(lambda: in_sync(cluster), "the follower")


def test_brokers_that_do_not_trust_each_other_say_so(cluster: TlsCluster) -> None:
    own, key = cluster.brokers[1], "listener.name.brokers.ssl.truststore.location"
    own.stop()
    own.settings[key] = str(Authority().trust_file(own.folder / "strangers.pem"))
    own.start()
    complaint = "broker 1 cannot be followed: the TLS handshake with"
    wait_until(lambda: complaint in own.log, "the complaint")
    assert "the certificate is refused: self-signed certificate in certificate chain" in own.log
    own.stop()
    del own.settings[key]
    own.start()
    wait_until(lambda: in_sync(cluster), "the follower")


def s_client(cluster: TlsCluster, *options: str, listener: str = "CLIENTS") -> str:
    port = cluster.brokers[0].ports[listener]
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"{HOST}:{port}", "-CAfile", str(cluster.ca_file), *options],
        input="", capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-tls1_2"], r"New, TLSv1\.2, Cipher is ECDHE"),
        (["-tls1_3"], r"New, TLSv1\.3, Cipher is TLS_"),
        (["-tls1", "-cipher", "ALL:@SECLEVEL=0"], r"Cipher is \(NONE\)"),
        (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], r"Cipher is \(NONE\)"),
        (["-tls1_2", "-cipher", "NULL:aNULL:EXPORT:@SECLEVEL=0"], r"Cipher is \(NONE\)"),
        (["-tls1_2"], r"Compression: NONE"),
        (["-verify_return_error", "-verify_hostname", "localhost"], r"Verify return code: 0 \(ok\)"),
    ],
)
def test_what_openssl_can_agree_on(cluster: TlsCluster, options: list[str], expected: str) -> None:
    assert re.search(expected, s_client(cluster, *options))


def test_no_renegotiation(cluster: TlsCluster) -> None:
    port = cluster.brokers[0].ports["CLIENTS"]
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"{HOST}:{port}", "-tls1_2"],
        input="R\n", capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert "RENEGOTIATING" in done.stdout + done.stderr
    assert "no renegotiation" in done.stderr


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"ssl.keystore.location": "/nowhere.pem"},
            r"ssl\.keystore\.location: /nowhere\.pem: cannot be read",
        ),
        (
            {"listener.name.clients.ssl.truststore.location": "/nowhere"},
            r"listener\.name\.clients\.ssl\.trust",
        ),
        ({"ssl.principal.mapping.rules": "RULE:("}, r"ssl\.principal\.mapping\.rules: 'RULE:\('"),
        (
            {"listener.security.protocol.map": "PLAIN:PLAINTEXT,CLIENTS:TLS,BROKERS:SSL"},
            "CLIENTS:TLS. is not of the form",
        ),
    ],
)
def test_a_broker_does_not_start_with_what_it_cannot_use(
    cluster: TlsCluster, tmp_path: Path, changes: dict[str, str], complaint: str
) -> None:
    file = tmp_path / "broker.properties"
    settings = cluster.brokers[0].settings | {"log.dirs": str(tmp_path / "data")} | changes
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "broker", "-c", str(file)],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert re.search(complaint, done.stderr)
    assert len(done.stderr.splitlines()) == 1


# While brokers run


@contextmanager
def load(cluster: TlsCluster, topic: str) -> Iterator[list[int]]:
    """Run a producer, and clients that reconnect all the time, all of which must succeed. Yields the current count."""
    create(cluster.client(), topic)
    ending, failures, count = threading.Event(), [], [0]

    def produce() -> None:
        producer = Producer(cluster.client() | {"acks": "all"})
        while not ending.is_set():
            producer.produce(
                topic, b"x" * 200, on_delivery=lambda error, _: failures.append(error) if error else None
            )
            if producer.flush(60):
                failures.append("not delivered")
            count[0] += 1

    def connect() -> None:
        while not ending.is_set():
            try:
                AdminClient(cluster.client()).list_topics(timeout=60)
            except KafkaException as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for work in (produce, connect)]
    for thread in threads:
        thread.start()
    wait_until(lambda: count[0] > 5, "the load")
    try:
        yield count
        before = count[0]
        wait_until(lambda: count[0] > before + 20, "the load afterwards")
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert not failures


def shown(cluster: TlsCluster, broker: int = 0) -> int:
    """Return the serial number of the certificate that a broker presents now."""
    port = cluster.brokers[broker].ports["CLIENTS"]
    pem = ssl.get_server_certificate((HOST, port), timeout=60)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def renew(cluster: TlsCluster, broker: int = 0) -> None:
    own = cluster.brokers[broker]
    issued = cluster.authority.issue(
        HOST, "localhost", common_name=f"broker-{own.id}", organization_unit="brokers"
    )
    issued.pem_file(own.key_file.with_name("next")).rename(own.key_file)


def test_files_that_change_are_used_under_load(cluster: TlsCluster) -> None:
    with load(cluster, "watched"):
        for broker in range(2):
            before = shown(cluster, broker)
            renew(cluster, broker)
            wait_until(lambda: shown(cluster, broker) != before, "the new certificate")  # noqa: B023


def test_a_signal_makes_a_broker_look(cluster: TlsCluster) -> None:
    before = shown(cluster)
    renew(cluster)
    process = cluster.brokers[0].process
    assert process is not None
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: shown(cluster) != before, "the new certificate", 2)


def alter(cluster: TlsCluster, name: str, value: str) -> None:
    admin = AdminClient(cluster.client())
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def test_settings_of_a_listener_change_while_it_runs(cluster: TlsCluster) -> None:
    own = cluster.brokers[0]
    with load(cluster, "altered"):
        alter(cluster, "listener.name.clients.ssl.enabled.protocols", "TLSv1.3")
        assert re.search(r"Cipher is \(NONE\)", s_client(cluster, "-tls1_2"))
        before = shown(cluster)
        renew(cluster)
        alter(cluster, "listener.name.clients.ssl.keystore.location", str(own.key_file))
        assert shown(cluster) != before, "the same location again reloads the file"
    for name, value, complaint in (
        ("listener.name.clients.ssl.keystore.location", "/nowhere.pem", "cannot be read"),
        ("listener.name.clients.ssl.principal.mapping.rules", "DEFAULT", "dynamically"),
        ("ssl.keystore.location", str(own.key_file), "dynamically"),
    ):
        with pytest.raises(KafkaException, match=complaint):
            alter(cluster, name, value)
    admin = AdminClient(cluster.client())
    described = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])
    settings = next(iter(described.values())).result(30)
    assert settings["listener.name.clients.ssl.enabled.protocols"].value == "TLSv1.3"
    assert settings["listener.name.brokers.ssl.client.auth"].value == "required"
    alter(cluster, "listener.name.clients.ssl.enabled.protocols", "TLSv1.2,TLSv1.3")
    assert re.search(r"New, TLSv1\.2", s_client(cluster, "-tls1_2"))


def test_the_password_of_a_key_is_set_while_brokers_run_and_stays_through_a_restart(
    cluster: TlsCluster,
) -> None:
    prefix, own = "listener.name.clients.ssl", cluster.brokers[0]
    file = cluster.directory / "encrypted.pem"
    own.issued.pem_file(file, "hunter2")
    admin = AdminClient(cluster.client())

    def change(operation: AlterConfigOpType, **values: str) -> None:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        for name, value in values.items():
            key = f"{prefix}.{name.replace('_', '.')}"
            resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=operation))
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    with pytest.raises(KafkaException, match=r"ssl\.key\.password") as refused:
        change(AlterConfigOpType.SET, keystore_location=str(file), key_password="hunter3")
    assert "hunter3" not in str(refused.value)
    with load(cluster, "encrypted"):
        change(AlterConfigOpType.SET, keystore_location=str(file), key_password="hunter2")
    described = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])
    setting = next(iter(described.values())).result(30)[f"{prefix}.key.password"]
    assert (setting.value, setting.is_sensitive) == (None, True)
    own.stop()
    seen = own.log.count("listener CLIENTS has new keys")
    own.start()
    wait_until(lambda: brokers_seen(cluster) == 2, "the restart")
    wait_until(lambda: own.log.count("listener CLIENTS has new keys") > seen, "the key with a password")
    change(AlterConfigOpType.DELETE, keystore_location="", key_password="")
    for part in (own.log, *(path.read_bytes().decode("latin-1") for path in data_of(cluster))):
        assert "hunter2" not in part


def data_of(cluster: TlsCluster) -> list[Path]:
    return [path for path in (cluster.directory / "quorum" / "data").rglob("*") if path.is_file()]


def test_a_bad_certificate_keeps_the_old_one_in_force(cluster: TlsCluster) -> None:
    own, before = cluster.brokers[0], shown(cluster)
    good = own.key_file.read_text()
    Authority().issue(HOST, "localhost", common_name="broker-1").pem_file(own.key_file)
    wait_until(lambda: "listener CLIENTS goes on with its old keys" in own.log, "the complaint")
    assert shown(cluster) == before
    produced(cluster.client(), "plain")
    own.key_file.write_text(good)
