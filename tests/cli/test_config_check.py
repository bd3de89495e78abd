"""`ottla config check` reports about a node's file the same as the node's start."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.build import this_build
from ottla.cli.certificate_authority import issue_missing
from ottla.cli.failures import CommandFailed
from ottla.cli.main import main
from ottla.cli.nodes.config_providers import ResolvedSettings
from ottla.cli.nodes.configuration_report import ConfigurationReport, report_of
from ottla.network.tls.issuing import CertificateOwner
from tests.commands import run_ottla

NOW = datetime.now(UTC)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with two secrets and certificates."""
    folder = tmp_path_factory.mktemp("check")
    issue_missing(folder / "tls", "c", [CertificateOwner("broker-1", ("127.0.0.1", "localhost"))], NOW)
    for name in ("cluster.secret", "quorum.secret"):
        secret = folder / name
        secret.write_text(f"{'0123456789abcdef' * 2}{name}\n")
        secret.chmod(0o600)
    return folder


def quorum(folder: Path) -> dict[str, str]:
    return {
        "process.roles": "controller",
        "node.id": "101",
        "cluster.id": "c",
        "cluster.secret.file": str(folder / "cluster.secret"),
        "quorum.secret.file": str(folder / "quorum.secret"),
        "cluster.link.encryption": "required",
        "controller.quorum.voters": "101@127.0.0.1:19093",
        "log.dirs": str(folder / "data"),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
    }


def broker(folder: Path) -> dict[str, str]:
    """Return the settings of a fully secured broker."""
    settings = quorum(folder) | {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": "LOCAL://127.0.0.1:19092,CLIENTS://0.0.0.0:19094",
        "advertised.listeners": "LOCAL://127.0.0.1:19092,CLIENTS://localhost:19094",
        "listener.security.protocol.map": "LOCAL:SASL_PLAINTEXT,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_ann="secret of ann" user_bob="b";',
        "ssl.keystore.location": str(folder / "tls/broker-1.pem"),
        "ssl.truststore.location": str(folder / "tls/ca.pem"),
        "ssl.client.auth": "none",
    }
    del settings["quorum.secret.file"]
    return settings


def report(
    settings: Mapping[str, str], now: datetime = NOW, *, without: str = "", **others: str
) -> ConfigurationReport:
    """Return the report on changed settings, whose names have _ in place of dots."""
    changed = {**settings, **{name.replace("_", "."): value for name, value in others.items()}}
    changed.pop(without, None)
    role = "quorum" if changed["process.roles"] == "controller" else "broker"
    return report_of(role, ResolvedSettings(changed), now)


def test_a_secured_broker(folder: Path) -> None:
    found = report(broker(folder), without="ssl.client.auth")
    local, clients = found.listeners
    assert (local.protocol, local.certificate, local.between_brokers) == ("SASL_PLAINTEXT", None, False)
    assert (clients.protocol, clients.between_brokers) == ("SASL_SSL", True)
    assert (clients.address, clients.advertised) == ("0.0.0.0:19094", "localhost:19094")
    assert [(mechanism.name, mechanism.users) for mechanism in clients.mechanisms] == [
        ("SCRAM-SHA-512", "kept by the quorum"),
        ("PLAIN", "2 in sasl.jaas.config"),
    ]
    assert clients.certificate is not None
    assert clients.certificate.subject == "CN=broker-1,OU=Ottla node"
    assert clients.certificate.names == ["localhost", "127.0.0.1"]
    assert clients.certificate.expires.startswith(f"{NOW + timedelta(days=825):%Y-%m-%d}")
    assert found.authorizer is not None
    assert found.authorizer.super_users == ["User:admin"]
    assert found.remarks == []
    assert "secret of ann" not in repr(found)


TOKENS = {
    "listener_name_clients_sasl_enabled_mechanisms": "OAUTHBEARER",
    "sasl_oauthbearer_jwks_endpoint_url": "https://issuer.test/keys",
    "sasl_oauthbearer_expected_issuer": "https://issuer.test/",
    "sasl_oauthbearer_expected_audience": "kafka",
}


def test_a_broker_that_takes_tokens(folder: Path) -> None:
    def clients(**others: str) -> tuple[list[tuple[str, str]], list[str]]:
        given = {name: value for name, value in (TOKENS | others).items() if value}
        found = report(broker(folder), without="ssl.client.auth", **given)
        return [
            (mechanism.name, mechanism.users) for mechanism in found.listeners[1].mechanisms
        ], found.remarks

    assert clients() == ([("OAUTHBEARER", "those of https://issuer.test/")], [])
    anybodys = {"sasl_oauthbearer_expected_issuer": "", "sasl_oauthbearer_allow_unverified_issuer": "true"}
    listed, remarks = clients(**anybodys)
    assert listed == [("OAUTHBEARER", "those of https://issuer.test/keys")]
    assert "sasl.oauthbearer.allow.unverified.issuer is true" in remarks[0]
    listed, remarks = clients(sasl_oauthbearer_jwks_endpoint_url="", sasl_oauthbearer_allow_unsecured="true")
    assert listed == [("OAUTHBEARER", "any client")]
    assert "is let in as any user" in remarks[0]


def test_a_secured_quorum_node(folder: Path) -> None:
    found = report(quorum(folder))
    assert (found.role, found.node_id, found.remarks) == ("quorum", 101, [])
    assert found.listeners[0].address == "127.0.0.1:19093"


def with_tls(folder: Path, settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of the same node with TLS on the quorum's listener."""
    own = "listener.name.controller.ssl."
    protocols = settings.get("listener.security.protocol.map", "")
    return settings | {
        "listener.security.protocol.map": f"CONTROLLER:SSL,{protocols}",
        f"{own}keystore.location": str(folder / "tls/broker-1.pem"),
        f"{own}truststore.location": str(folder / "tls/ca.pem"),
        "ottla.node.principals": "User:CN=broker-1,OU=Ottla node",
    }


def test_a_quorum_node_with_tls(folder: Path) -> None:
    found = report(with_tls(folder, quorum(folder)))
    (listener,) = found.listeners
    assert (listener.name, listener.protocol) == ("CONTROLLER", "proof of the secret, under TLS")
    assert listener.client_certificates == "required"
    assert listener.certificate is not None
    assert listener.certificate.subject == "CN=broker-1,OU=Ottla node"
    assert listener.certificate.names == ["localhost", "127.0.0.1"]
    assert (found.remarks, found.quorum_certificate) == ([], None)


def test_a_broker_whose_quorum_has_tls(folder: Path) -> None:
    found = report(with_tls(folder, broker(folder)), without="ssl.client.auth")
    assert found.quorum_certificate is not None
    assert found.quorum_certificate.subject == "CN=broker-1,OU=Ottla node"
    assert found.quorum_certificate.expires.startswith(f"{NOW + timedelta(days=825):%Y-%m-%d}")
    assert found.remarks == []


WRONG_WITH_TLS = {
    "listener.name.controller.ssl.keystore.location": "/none/node.pem",
    "listener.name.controller.ssl.truststore.location": "/none/ca.pem",
    "ottla.node.principals": "CN=broker-1",
}


@pytest.mark.parametrize("key", WRONG_WITH_TLS)
@pytest.mark.parametrize("of", [quorum, broker])
def test_what_is_wrong_with_the_tls_of_the_quorum_names_key_and_value(
    folder: Path, key: str, of: Callable[[Path], dict[str, str]]
) -> None:
    settings = with_tls(folder, of(folder)) | {key: WRONG_WITH_TLS[key]}
    with pytest.raises(CommandFailed, match=f"^{re.escape(key)}.*{re.escape(WRONG_WITH_TLS[key])}"):
        report(settings)


@pytest.mark.parametrize("of", [quorum, broker])
def test_the_tls_of_the_quorum_lacks_what_it_needs(
    folder: Path, of: Callable[[Path], dict[str, str]]
) -> None:
    def refusal(key: str) -> str:
        settings = with_tls(folder, of(folder))
        for name in ("ssl.keystore.location", "ssl.truststore.location"):
            settings.pop(name, None)
        if of is broker:
            settings["listener.security.protocol.map"] = "CONTROLLER:SSL,LOCAL:PLAINTEXT,CLIENTS:PLAINTEXT"
            for name in list(settings):
                if name.startswith(("sasl.", "listener.name.clients.", "ssl.")):
                    del settings[name]
        with pytest.raises(CommandFailed) as raised:
            report(settings, without=key)
        return str(raised.value)

    for store in ("keystore", "truststore"):
        key = f"listener.name.controller.ssl.{store}.location"
        assert f"give {key}, or ssl.{store}.location for all listeners" in refusal(key)
    assert "ottla.node.principals has to name whose certificates" in refusal("ottla.node.principals")


def test_a_certificate_of_the_quorums_listener_that_others_refuse(folder: Path) -> None:
    elsewhere = "101@quorum-1.internal:19093"
    settings = with_tls(folder, quorum(folder)) | {"ottla.node.principals": "User:CN=others"}
    wrong_host, wrong_owner = report(settings, controller_quorum_voters=elsewhere).remarks
    assert "not for quorum-1.internal, where nodes dial it (controller.quorum.voters)" in wrong_host
    assert "this node is User:CN=broker-1,OU=Ottla node by its certificate, which is not among" in wrong_owner
    settings = with_tls(folder, broker(folder)) | {"ottla.node.principals": "User:CN=others"}
    (wrong_owner,) = report(settings, without="ssl.client.auth", controller_quorum_voters=elsewhere).remarks
    assert "this node is User:CN=broker-1,OU=Ottla node by its certificate" in wrong_owner


@pytest.mark.parametrize(
    ("others", "remark"),
    [
        ({"listener_security_protocol_map": "LOCAL:PLAINTEXT,CLIENTS:PLAINTEXT"}, "listener CLIENTS is PLAINTEXT"),
        (
            {"listener_security_protocol_map": "LOCAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"},
            "passwords and all records can be read on the way",
        ),
        (
            {"listener_security_protocol_map": "LOCAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"} | TOKENS,
            "tokens and all records can be read on the way",
        ),
        (
            {
                "listener_security_protocol_map": "LOCAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
                "delegation_token_secret_key": "c4ca4238a0b923820dcc509a6f75849b",
            },
            "delegation tokens that are made there can be read",
        ),
        ({"listener_security_protocol_map": "LOCAL:SSL,CLIENTS:SASL_SSL"}, "LOCAL may be User:ANONYMOUS"),
        ({"authorizer_class_name": ""}, "every client that connects may do everything"),
        ({"authorizer_class_name": ""}, "super.users has no effect without"),
        ({"super_users": ""}, "super.users is empty"),
        ({"super_users": "User:ANONYMOUS"}, "clients without a login may do everything"),
        ({"allow_everyone_if_no_acl_found": "true"}, "every client may do what no ACL is about"),
        ({"cluster_link_encryption": "preferred"}, "links to nodes of older versions are not encrypted"),
        ({"metrics_listener": "0.0.0.0:9100"}, "metrics.listener serves metrics to every client that reaches 0.0.0.0"),
        ({"ssl_client_auth": "required"}, "does not count for the listener CLIENTS"),
        ({"advertised_listeners": "CLIENTS://example.org:1"}, "and not for example.org"),
        (
            {"advertised_listeners": "", "listeners": "LOCAL://127.0.0.1:19092,CLIENTS://:19094"},
            "CLIENTS listens at every address, and clients connect to localhost:19094",
        ),
        ({"ssl_engine_factory_class": "x"}, "ssl.engine.factory.class has no effect"),
    ],
)  # fmt: skip
def test_what_deserves_a_remark(folder: Path, others: dict[str, str], remark: str) -> None:
    assert any(remark in text for text in report(broker(folder), **others).remarks)


def test_a_certificate_that_is_about_to_expire(folder: Path) -> None:
    remarks = report(broker(folder), NOW + timedelta(days=800)).remarks
    assert any("in less than 30 days" in remark for remark in remarks)
    with pytest.raises(CommandFailed, match="has expired on"):
        report(broker(folder), NOW + timedelta(days=830))


def test_a_quorum_without_a_secret_of_its_own_and_files_that_others_read(
    folder: Path, tmp_path: Path
) -> None:
    readable = tmp_path / "secret"
    readable.write_text("0123456789abcdef" * 2 + "of all")
    readable.chmod(0o644)
    remarks = report(quorum(folder), without="quorum.secret.file", cluster_secret_file=str(readable)).remarks
    assert any("a stolen broker could vote" in remark for remark in remarks)
    about = [remark for remark in remarks if str(readable) in remark]
    assert about == [f"cluster.secret.file: others may read {readable}: chmod 600 {readable}"]


WRONG = {
    "ssl.keystore.location": "/none/own.pem",
    "sasl.enabled.mechanisms": "GSSAPI",
    "listener.security.protocol.map": "LOCAL:TLS",
    "listener.name.nowhere.ssl.client.auth": "none",
    "authorizer.class.name": "my.Authorizer",
    "super.users": "admin",
    "cluster.secret.file": "/none/secret",
    "metrics.listener": "9100",
    "ssl.truststore.location": "/none/ca.pem",
    "log.retention.hour": "1",
}


@pytest.mark.parametrize("key", WRONG)
def test_it_fails_as_the_start_does(folder: Path, tmp_path: Path, key: str) -> None:
    settings = broker(folder) | {"log.dirs": str(tmp_path / "data"), key: WRONG[key]}
    file = tmp_path / "broker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    said = []
    for words in (["config", "check"], ["broker"]):
        done = run_ottla(*words, "-c", str(file))
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        said.append(done.stderr.strip().splitlines()[-1].partition(": ")[2])
    assert said[0] == said[1] != ""
    assert not (tmp_path / "data").exists(), "nothing was begun"


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(json.dumps(broker(folder)))
    assert main(["config", "check", "-c", str(file)]) == 0
    said = capsys.readouterr().out
    assert "CLIENTS (brokers, too)\t0.0.0.0:19094\tlocalhost:19094\tSASL_SSL" in said
    assert "authorizer: StandardAuthorizer, super users: User:admin\n" in said
    assert f"build: {this_build()}\n" in said
    assert said.endswith("broker node 1 would start\n")
    assert main(["config", "check", "-c", str(file), "-o", "json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["starts"] is True
    assert report["build"]["codec"] == this_build().codec
    assert report["listeners"][1]["certificate"]["names"] == ["localhost", "127.0.0.1"]
    assert main(["config", "check", "-c", str(file), "-o", "json", "--set", "super.users=x"]) == 1
    wrong = capsys.readouterr()
    assert json.loads(wrong.out) == {
        "starts": False,
        "problem": wrong.err.strip().removeprefix("ottla config: "),
    }
    assert main(["config", "check", "-c", str(tmp_path / "none.yaml")]) == 1
    assert "cannot read" in capsys.readouterr().err
