"""`ottla up --listen`: the address on which clients reach the brokers, their names, and what stays on loopback.

127.0.0.2 stands for another address of this machine, and 0.0.0.0 for all addresses.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.local_cluster.client_address import ClientAddress, changed
from ottla.cli.local_cluster.layout import ClusterLayout, open_layout
from ottla.network.tls.checks import alternative_names
from ottla.protocol.settings.security_protocol import SecurityProtocol
from tests.cluster import RunningCluster, executed_cluster
from tests.commands import run_ottla

from .test_up_secure import ottla

HERE = ClientAddress()


def opened(
    folder: Path,
    listen: str | None = None,
    advertise: str | None = None,
    *,
    protocol: SecurityProtocol | None = SecurityProtocol.SASL_SSL,
    base_port: int | None = None,
) -> ClusterLayout:
    layout = open_layout(
        folder,
        quorum=1,
        brokers=2,
        base_port=base_port,
        protocol=protocol,
        listen=listen,
        advertise=advertise,
    )
    layout.write({})
    return layout


def settings(layout: ClusterLayout) -> dict[str, str]:
    """Return the settings of the first broker about its listeners."""
    return layout.settings(layout.brokers[0], {})


def names_in_certificate(layout: ClusterLayout) -> set[str]:
    file = layout.directory / "tls" / "broker-1.pem"
    return set(alternative_names(x509.load_pem_x509_certificate(file.read_bytes())))


def test_by_default_there_is_one_listener_on_loopback(tmp_path: Path) -> None:
    layout = opened(tmp_path)
    port = layout.brokers[0].port
    assert settings(layout)["listeners"] == f"SASL_SSL://127.0.0.1:{port}"
    assert "inter.broker.listener.name" not in settings(layout)
    assert "client_address" not in (tmp_path / "layout.json").read_text()


@pytest.mark.parametrize(
    ("listen", "advertise", "dialled"),
    [
        ("127.0.0.2", None, "127.0.0.2"),
        ("0.0.0.0", "kafka.example.com", "kafka.example.com"),
        ("0.0.0.0", "2001:DB8::1", "[2001:db8::1]"),
        (None, "localhost", "localhost"),
    ],
)
def test_clients_get_the_name_and_brokers_stay_on_loopback(
    listen: str | None, advertise: str | None, dialled: str, tmp_path: Path
) -> None:
    layout = opened(tmp_path, listen, advertise)
    found, broker = settings(layout), layout.brokers[0]
    local = f"LOCAL://127.0.0.1:{broker.local_port}"
    assert found["listeners"] == f"SASL_SSL://{listen or '127.0.0.1'}:{broker.port},{local}"
    assert found["advertised.listeners"] == f"SASL_SSL://{dialled}:{broker.port},{local}"
    assert found["inter.broker.listener.name"] == "LOCAL"
    assert layout.bootstrap == ",".join(f"{dialled}:{node.port}" for node in layout.brokers)
    assert layout.local_bootstrap == ",".join(f"127.0.0.1:{node.local_port}" for node in layout.brokers)
    assert names_in_certificate(layout) == {"127.0.0.1", "::1", "localhost", dialled.strip("[]")}
    quorum = layout.settings(layout.quorum[0], {})
    for address in (quorum["listeners"], quorum["metrics.listener"], found["metrics.listener"]):
        assert "127.0.0.1:" in address


def test_the_folder_keeps_address_name_and_ports(tmp_path: Path) -> None:
    first = opened(tmp_path, "0.0.0.0", "a.example.com")
    assert opened(tmp_path, protocol=None) == first
    assert opened(tmp_path, "0.0.0.0") == first, "the same command again"
    renamed = opened(tmp_path, None, "b.example.com")
    assert renamed.client_address == ClientAddress("0.0.0.0", "b.example.com")
    assert renamed.brokers == first.brokers
    back = opened(tmp_path, "127.0.0.1")
    assert back.client_address == HERE
    assert settings(back)["listeners"] == f"SASL_SSL://127.0.0.1:{first.brokers[0].port}"


def test_the_second_listener_has_a_port_above_the_base(tmp_path: Path) -> None:
    layout = opened(tmp_path, "127.0.0.2", base_port=23_000)
    assert [(node.port, node.metrics_port, node.local_port) for node in layout.brokers] == [
        (23_000, 23_200, 23_400),
        (23_001, 23_201, 23_401),
    ]
    moved = opened(tmp_path, base_port=24_000)
    assert [node.local_port for node in moved.brokers] == [24_400, 24_401]


def test_other_names_need_new_certificates_of_the_same_authority(tmp_path: Path) -> None:
    layout = opened(tmp_path)
    kept = {
        file: (tmp_path / file).read_bytes() for file in ("tls/ca.pem", "tls/ca.key", "client/admin.password")
    }
    layout = open_layout(tmp_path, quorum=1, brokers=2, base_port=None, listen="127.0.0.2")
    assert layout.write({}) == ["broker-1", "broker-2"]
    assert layout.write({}) == [], "they are there now"
    assert {file: (tmp_path / file).read_bytes() for file in kept} == kept


@pytest.mark.parametrize(
    ("listen", "advertise", "message"),
    [
        ("0.0.0.0", None, "--advertise NAME gives the name or address by which clients reach this machine"),
        ("::", None, "no client can dial it"),
        ("kafka.example.com", None, "--listen takes an address of this machine"),
        ("10.0.0.1:9092", None, "--listen takes an address of this machine"),
        ("fe80::1%eth0", None, "an address with a zone"),
        ("127.0.0.1", "0.0.0.0", "--advertise takes an address that clients can dial"),
        ("127.0.0.1", "a b", "--advertise takes a host name"),
        (None, "*.example.com", "--advertise takes one name"),
    ],
)
def test_an_address_that_no_program_can_bind_or_dial(
    listen: str | None, advertise: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        changed(HERE, listen, advertise, SecurityProtocol.SASL_SSL)
    assert message in str(refused.value)
    assert "--secure" not in str(refused.value)


def test_both_missing_options_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--advertise NAME gives.*a new cluster gets both by --secure"):
        opened(tmp_path, "0.0.0.0", protocol=None)


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"this machine has no address 192\.0\.2\.1"):
        opened(tmp_path, "192.0.2.1")


@pytest.mark.parametrize("protocol", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT])
def test_the_network_needs_tls(protocol: SecurityProtocol, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--listen 0\.0\.0\.0 needs TLS and logins.*could (read, change|read all)"
    ):
        opened(tmp_path, "0.0.0.0", "h", protocol=protocol)
    opened(tmp_path, "127.0.0.2", protocol=protocol)


def test_the_refusal_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    done = run_ottla("up", "--data", str(folder), "--listen", "0.0.0.0", "--advertise", "h")
    assert (done.returncode, "needs TLS and logins" in done.stderr) == (2, True), done.stderr
    assert not folder.exists()


def test_a_port_in_use_on_the_address_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        others = [number for number in range(25_000, 25_100) if number != port]
        monkeypatch.setattr("ottla.cli.local_cluster.ports.candidate_ports", lambda: [port, *others])
        layout = opened(tmp_path, "127.0.0.2")
        assert port not in [number for member in layout.members for _, number in layout.addresses(member)]


def handshake(address: tuple[str, int], ca_file: Path, name: str) -> None:
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection(address, 10) as connection,
        context.wrap_socket(connection, server_hostname=name),
    ):
        pass


@pytest.mark.cluster
@pytest.mark.parametrize("combined", [False, True], ids=["processes", "combined"])
def test_clients_use_the_address_and_the_cluster_uses_loopback(combined: bool, tmp_path: Path) -> None:
    arguments = ("--combined",) if combined else ()
    config, ca_file = tmp_path / "client", tmp_path / "tls/ca.pem"
    with executed_cluster(tmp_path, quorum=1, brokers=1, arguments=(*arguments, "--secure")) as cluster:
        ottla("topic", "create", "t", config=config)
        ottla("produce", "t", config=config, given="v\n")
        assert cluster.stop() == 0
    moved = (*arguments, "--listen", "0.0.0.0", "--advertise", "127.0.0.3")
    with executed_cluster(tmp_path, quorum=1, brokers=1, arguments=moved) as cluster:
        said = (tmp_path / "up.log").read_text()
        told = "new certificates of broker-1, for 127.0.0.1, ::1, localhost, 127.0.0.3; the authority and the users"
        assert said.count(told) == 1
        port = cluster.brokers[0].port
        assert cluster.bootstrap == f"127.0.0.3:{port}"
        assert f"  firewall      TCP {port} of every address of this machine, for other machines." in said
        handshake(("127.0.0.4", port), ca_file, "127.0.0.3")
        assert ottla("consume", "t", "-o", "beginning", "-e", config=config) == "v\n"
        local = cluster.description["local_bootstrap"]
        assert ottla("topic", "list", "-b", local, config=config).splitlines()[-1].startswith("t")
        _check_loopback_alone(cluster, port)


def _check_loopback_alone(cluster: RunningCluster, port: int) -> None:
    """Check that the cluster listens beyond loopback with its port for clients alone."""
    layout = open_layout(cluster.directory, quorum=None, brokers=None, base_port=None)
    for member in layout.members:
        for _, other in layout.addresses(member):
            with socket.socket() as connection:
                connection.settimeout(10)
                refused = connection.connect_ex(("127.0.0.4", other)) != 0
            assert refused == (other != port), (member.name, other)


@pytest.mark.cluster
def test_settings_of_two_listeners_are_decided_by_up(tmp_path: Path) -> None:
    words = ("up", "--secure", "--combined", "--data", str(tmp_path / "c"), "--listen", "127.0.0.2")
    error = ottla(*words, "--set", "inter.broker.listener.name=SASL_SSL", config=tmp_path, fails=True)
    assert "--set inter.broker.listener.name: ottla up decides this itself" in error
    assert not (tmp_path / "c").exists()
