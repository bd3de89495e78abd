"""`ottla security authority` and `certificate`: nodes start with the files, and no private key is lost."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from ottla.cli.main import main
from ottla.dataplane.security.principal_mapping import NoMatchingRule, PrincipalMapping

HOSTS = ("kafka1.example.com", "10.0.0.1")
BROKER = {
    "node.id": "1",
    "process.roles": "broker",
    "cluster.id": "c",
    "controller.quorum.voters": "101@10.0.0.1:9093",
    "listeners": "CLIENTS://10.0.0.1:9094",
    "advertised.listeners": "CLIENTS://kafka1.example.com:9094",
    "inter.broker.listener.name": "CLIENTS",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
QUORUM = {
    "node.id": "101",
    "process.roles": "controller",
    "cluster.id": "c",
    "controller.quorum.voters": "101@10.0.0.1:9093",
    "listeners": "CONTROLLER://10.0.0.1:9093",
}


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    folder = tmp_path / "authority"
    assert main(["security", "authority", str(folder), "--name", "production"]) == 0
    return folder


def issue(authority: Path, into: Path, *words: str, name: str = "broker-1") -> int:
    return main(["security", "certificate", name, "--ca", str(authority), "--into", str(into), *words])


def of_hosts() -> list[str]:
    return [word for host in HOSTS for word in ("--host", host)]


def settings_file(folder: Path, settings: dict[str, str], lines: Path, *, quorum_tls: bool = False) -> Path:
    """Write a node's settings, followed by the lines that the command wrote."""
    secret = folder / "cluster.secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    given = settings | {"cluster.secret.file": str(secret), "log.dirs": str(folder / "data")}
    text = lines.read_text()
    if quorum_tls:
        given.pop("listener.security.protocol.map", None)
        text = "".join(
            line.removeprefix("#") if not line.startswith("# ") else line for line in text.splitlines(True)
        )
    mark = "=" if lines.suffix == ".properties" else ": "
    file = folder / f"node{lines.suffix}"
    file.write_text("".join(f"{key}{mark}{value}\n" for key, value in given.items()) + text)
    return file


def checked(file: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Return the report of `ottla config check` on a node that would start."""
    capsys.readouterr()
    code = main(["config", "check", "-c", str(file), "-o", "json"])
    report: dict[str, object] = json.loads(capsys.readouterr().out)
    assert code == 0, report
    return report


@pytest.mark.parametrize("suffix", [".properties", ".yaml"])
def test_a_broker_starts_with_the_lines(
    suffix: str, authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, *of_hosts()) == 0
    report = checked(settings_file(tmp_path, BROKER, out / f"broker-1{suffix}"), capsys)
    (listener,) = report["listeners"]  # type: ignore[misc]
    assert listener["certificate"]["names"] == list(HOSTS)
    assert listener["certificate"]["clients_trusted"] == 1
    assert not [remark for remark in report["remarks"] if "certificate" in remark]  # type: ignore[attr-defined]


@pytest.mark.parametrize("suffix", [".properties", ".yaml"])
@pytest.mark.parametrize("settings", [BROKER, QUORUM], ids=["broker", "quorum"])
def test_the_commented_lines_switch_tls_of_the_quorum_on(
    settings: dict[str, str],
    suffix: str,
    authority: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each node is among the principals that the lines name."""
    out = tmp_path / "out"
    assert issue(authority, out, *of_hosts()) == 0
    file = settings_file(tmp_path, settings, out / f"broker-1{suffix}", quorum_tls=True)
    report = checked(file, capsys)
    told = json.dumps(report)
    assert "certificate" not in json.dumps(report["remarks"])
    assert "CN=broker-1,OU=Ottla node" in told


def test_the_commented_rule_takes_no_client_for_a_node(authority: Path, tmp_path: Path) -> None:
    """A client's common name may have a comma, which a subject shows behind a backslash."""
    assert issue(authority, tmp_path / "out", *of_hosts()) == 0
    mark = "#listener.name.controller.ssl.principal.mapping.rules="
    lines = (tmp_path / "out" / "broker-1.properties").read_text().splitlines()
    (rule,) = (line.removeprefix(mark) for line in lines if line.startswith(mark))
    mapping = PrincipalMapping(rule)
    assert mapping.name_of("CN=broker-1.a_B,OU=Ottla node") == "node"
    for subject in (
        "CN=evil\\,OU=Ottla node",
        "CN=evil,OU=Guests,OU=Ottla node",
        "CN=evil",
        "CN=,OU=Ottla node",
    ):
        with pytest.raises(NoMatchingRule):
            mapping.name_of(subject)


def test_a_certificate_of_a_client_is_none_of_a_node(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, "--client") == 0
    assert issue(authority, out, *of_hosts(), name="node") == 0
    (out / "node.pem").write_bytes((out / "broker-1.pem").read_bytes())
    file = settings_file(tmp_path, BROKER, out / "node.properties", quorum_tls=True)
    assert main(["config", "check", "-c", str(file)]) == 1
    assert "not for servers" in capsys.readouterr().err


def test_files_name_the_folder_where_they_will_be(authority: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, "--host", "h", "--installed-in", "/etc/ottla") == 0
    assert "ssl.keystore.location=/etc/ottla/broker-1.pem\n" in (out / "broker-1.properties").read_text()
    assert issue(authority, out, "--host", "h", "--installed-in", "tls", "--replace") == 2


def test_private_keys_are_for_their_owner_alone(authority: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, *of_hosts()) == 0
    for file in (authority / "ca.key", out / "broker-1.pem"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with_key = {path.name for path in out.iterdir() if "PRIVATE KEY" in path.read_text()}
    assert with_key == {"broker-1.pem"}


def test_no_private_key_is_replaced_by_accident(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, *of_hosts()) == 0
    before = (out / "broker-1.pem").read_bytes()
    assert issue(authority, out, *of_hosts()) == 1
    assert "broker-1.pem exists already; --replace replaces it" in capsys.readouterr().err
    assert main(["security", "authority", str(authority)]) == 1
    assert (out / "broker-1.pem").read_bytes() == before
    assert issue(authority, out, *of_hosts(), "--replace") == 0
    assert (out / "broker-1.pem").read_bytes() != before
    assert issue(authority, out, *of_hosts(), name="broker-2") == 0


def test_a_folder_has_certificates_of_one_authority(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, out = tmp_path / "other", tmp_path / "out"
    assert main(["security", "authority", str(other)]) == 0
    assert issue(authority, out, "--host", "h") == 0
    assert issue(other, out, "--host", "h", name="broker-2") == 1
    assert "ca.pem is of another authority" in capsys.readouterr().err
    assert not (out / "broker-2.pem").exists()


def test_days(authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, "--host", "h", "--days", "30") == 0
    certificate = x509.load_pem_x509_certificate((out / "broker-1.pem").read_bytes())
    assert timedelta(days=29) < certificate.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=30)
    assert issue(authority, out, "--host", "h", "--days", "4000", name="broker-2") == 2
    assert "in 3650 days, and no certificate outlives it" in capsys.readouterr().err
    assert issue(authority, out, "--host", "h", "--days", "0", name="broker-2") == 2
    short = tmp_path / "short"
    assert main(["security", "authority", str(short), "--days", "10"]) == 0
    assert issue(short, tmp_path / "b", "--host", "h") == 0
    assert "in 10 days, and so does this certificate" in capsys.readouterr().err


@pytest.mark.parametrize(
    "host", ["", "a b", "-a", "a..b", "10.0.0", "0.0.0.0", "::", "*", "a*.b", "h:9092", "x" * 64]
)
def test_a_host_is_a_name_or_an_address(
    host: str, authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert issue(authority, tmp_path / "out", f"--host={host}") == 2
    assert "--host takes" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "ca", "a b", "x" * 65])
def test_a_name_is_a_file_name(name: str, authority: Path, tmp_path: Path) -> None:
    assert issue(authority, tmp_path / "out", "--host", "h", name=name) == 2
    assert not (tmp_path / "out").exists()


def test_a_folder_without_an_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert issue(tmp_path, tmp_path / "out", "--host", "h") == 1
    assert "ca.pem is missing: 'ottla security authority DIR' makes an authority" in capsys.readouterr().err


def test_an_authority_without_its_key(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (authority / "ca.key").unlink()
    assert issue(authority, tmp_path / "out", "--host", "h") == 1
    assert "ca.key is gone" in capsys.readouterr().err


def test_a_certificate_of_a_node_is_no_authority(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert issue(authority, out, "--host", "h") == 0
    (out / "ca.pem").write_bytes((out / "broker-1.pem").read_bytes())
    assert issue(out, tmp_path / "b", "--host", "h") == 1
    assert "is no certificate of an authority" in capsys.readouterr().err
