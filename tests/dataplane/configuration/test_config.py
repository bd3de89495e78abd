"""The broker's configuration from Kafka's property names."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from ottla.dataplane.configuration.config import BrokerConfig
from ottla.protocol.settings.config_chain import ConfigSource, topic_defaults
from ottla.protocol.settings.config_keys import ConfigError


def properties(folder: Path, **changes: str) -> dict[str, str]:
    secret = folder / "secret"
    secret.write_text("0123456789abcdef" * 2)
    return {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "101@127.0.0.1:9193",
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:9092",
    } | {name.replace("_", "."): value for name, value in changes.items()}


def test_an_ordinary_file(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(properties(tmp_path, log_retention_hours="2", num_partitions="6"))
    assert (config.node_id, config.listeners[0].advertised_port, config.topics.num_partitions) == (1, 9092, 6)
    assert topic_defaults([(ConfigSource.STATIC_BROKER, config.properties)])["retention.ms"] == "7200000"
    assert config.quorum.voters == {101: ("127.0.0.1", 9193)}


def test_how_long_a_commit_may_take(tmp_path: Path) -> None:
    given = properties(tmp_path, offsets_commit_timeout_ms="500")
    assert BrokerConfig.from_properties(given).groups.commit_timeout_ms == 500
    assert BrokerConfig.from_properties(properties(tmp_path)).groups.commit_timeout_ms == 5_000


def test_followers_hear_sooner_of_the_high_watermark_where_they_are_read(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    unread, read = (
        BrokerConfig.from_properties(properties(tmp_path, **changes)).watermark_delay_s
        for changes in ({}, {"replica_selector_class": selector})
    )
    assert (unread, read) == (0.05, 0.005)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_partitions": "many"}, "num.partitions"),
        ({"node_id": "-1"}, "node.id"),
        ({"listeners": "127.0.0.1:9092"}, "listeners"),
        ({"num_partition": "3"}, "num.partitions"),
        ({"cordoned_log_dirs": "/nowhere"}, "Missing entries : /nowhere"),
        ({"controller_quorum_voters": "x"}, "controller.quorum.voters"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig.from_properties(properties(tmp_path, **changes))


PLAIN_AND_TLS = "PLAINTEXT://127.0.0.1:9092,CLIENTS://127.0.0.1:9093"
MAP = "PLAINTEXT:PLAINTEXT,CLIENTS:SSL,SSL:SSL"


def secured(folder: Path, **changes: str) -> dict[str, str]:
    own = {
        "listeners": PLAIN_AND_TLS,
        "listener.security.protocol.map": MAP,
        "ssl.keystore.location": "/keys/own.p12",
        "ssl.keystore.password": "secret",
    }
    return properties(folder) | own | {name.replace("__", "."): value for name, value in changes.items()}


def test_listeners_with_and_without_tls(tmp_path: Path) -> None:
    given = {"listener__name__clients__ssl__keystore__location": "/keys/clients.pem"}
    config = BrokerConfig.from_properties(secured(tmp_path, **given))
    plain, clients = config.listeners
    assert (plain.security_protocol, plain.tls) == ("PLAINTEXT", None)
    assert clients.security_protocol == "SSL"
    assert clients.tls is not None
    assert clients.tls.keys.path == Path("/keys/clients.pem"), (
        "a key of the listener counts before the bare one"
    )
    assert clients.tls.keys.password == "secret"
    assert clients.tls.rules.protocols == ("TLSv1.2", "TLSv1.3")
    assert config.inter_broker_listener == "PLAINTEXT"
    assert "'secret'" not in repr(config)


def _advertised(settings: dict[str, str]) -> list[tuple[str, int]]:
    config = BrokerConfig.from_properties(settings)
    return [(each.advertised_host, each.advertised_port) for each in config.listeners]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_every_address_is_advertised_by_a_name(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = {"listeners": f"PLAINTEXT://{host}:9092"}
    assert _advertised(properties(tmp_path, **listeners)) == [("localhost", 9092)]
    settings = properties(tmp_path, **listeners) | {"controller.quorum.voters": "101@10.0.0.2:9193"}
    monkeypatch.setattr(socket, "gethostname", lambda: "kafka7")
    assert _advertised(settings) == [("kafka7", 9092)]
    changed = settings | {"advertised.listeners": "PLAINTEXT://kafka7.example.com:9092"}
    assert _advertised(changed) == [("kafka7.example.com", 9092)]


@pytest.mark.parametrize("name", ["", "localhost", "localhost.localdomain", "127.0.1.1"])
def test_a_machine_without_a_name_has_to_be_given_one(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    settings = properties(tmp_path, listeners="PLAINTEXT://:9092")
    settings |= {"controller.quorum.voters": "101@127.0.0.1:9193,102@10.0.0.2:9193"}
    with pytest.raises(
        ConfigError, match=r"advertised.listeners is missing.* Set it to PLAINTEXT://HOST:9092"
    ):
        BrokerConfig.from_properties(settings)


def test_only_what_is_advertised_is_told(tmp_path: Path) -> None:
    listeners = {"advertised__listeners": "CLIENTS://public.example.com:443"}
    config = BrokerConfig.from_properties(secured(tmp_path, **listeners))
    assert [listener.is_advertised for listener in config.listeners] == [False, True]
    assert config.inter_broker_listener == "CLIENTS"
    shared = "PLAINTEXT://balancer:443,CLIENTS://balancer:443"
    assert len(BrokerConfig.from_properties(secured(tmp_path, advertised__listeners=shared)).listeners) == 2


def test_a_listener_may_be_bound_twice_for_both_families(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CLIENTS://[::1]:9092"
    assert len(BrokerConfig.from_properties(secured(tmp_path, listeners=listeners)).listeners) == 2


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"listeners": "A://h:1,A://h:2"}, "the listener A stands there twice"),
        ({"listeners": "SSL://h:1,ssl://h:2"}, "SSL and ssl have the same name in lower case"),
        ({"listeners": "PLAINTEXT://h:9092,CLIENTS://h:9092"}, "have the same address h:9092"),
        ({"listeners": "OTHER://h:1"}, "has no protocol for the listener OTHER; there are PLAINTEXT, SSL,"),
        (
            {"listener__security__protocol__map": "CLIENTS:TLS"},
            "'CLIENTS:TLS' is not of the form NAME:protocol",
        ),
        ({"listener__security__protocol__map": "A:SSL,A:SSL"}, "the listener A stands there twice"),
        ({"listener__security__protocol__map": "CLIENTS:SASL_SSL"}, "sasl.enabled.mechanisms is missing"),
        ({"advertised__listeners": "OTHER://h:1"}, "OTHER is not among the listeners"),
        ({"inter__broker__listener__name": "X"}, "inter.broker.listener.name is 'X'"),
        (
            {"inter__broker__listener__name": "CLIENTS", "security__inter__broker__protocol": "SSL"},
            "both given",
        ),
        ({"security__inter__broker__protocol": "SSL"}, "security.inter.broker.protocol is 'SSL'"),
        (
            {"advertised__listeners": "CLIENTS://h:1", "inter__broker__listener__name": "PLAINTEXT"},
            "the advertised listeners are",
        ),
        (
            {"ssl__keystore__location": ""},
            "CLIENTS speaks TLS and has no certificate: give listener.name.clients.ssl",
        ),
        ({"ssl__keystore__key": "x", "ssl__keystore__certificate__chain": "y"}, "are both given"),
        ({"ssl__keystore__location": "", "ssl__keystore__key": "x"}, "go together"),
        ({"ssl__truststore__location": "a", "ssl__truststore__certificates": "b"}, "are both given"),
        ({"ssl__keystore__type": "BKS"}, "one of JKS, PKCS12, PEM"),
        ({"ssl__client__auth": "maybe"}, "one of none, requested, required"),
        ({"listener__name__clients__ssl__client__auth": "maybe"}, "listener.name.clients.ssl.client.auth"),
        ({"ssl__enabled__protocols": "TLSv1.1,TLSv1.2"}, "any of TLSv1.2, TLSv1.3"),
        ({"ssl__enabled__protocols": "TLSv1.3", "ssl__protocol": "TLSv1.2"}, "has nothing as old"),
        ({"ssl__endpoint__identification__algorithm": "ldaps"}, "must be https, or empty"),
        ({"principal__builder__class": "com.example.Mine"}, "principal.builder.class"),
        ({"listener__name__other__ssl__client__auth": "none"}, "there is no listener 'other'"),
        ({"listener__name__clients__num__partitions": "3"}, "Unknown configuration"),
    ],
)
def test_mistakes_about_listeners_are_named(tmp_path: Path, changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        BrokerConfig.from_properties(secured(tmp_path, **changes))


def test_who_logs_in_needs_a_certificate_only_if_the_listener_says_so(tmp_path: Path) -> None:
    own = {
        "listener__security__protocol__map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        "sasl__enabled__mechanisms": "SCRAM-SHA-256",
        "ssl__client__auth": "required",
    }
    tls = BrokerConfig.from_properties(secured(tmp_path, **own)).listeners[1].tls
    assert tls is not None
    assert tls.rules.client_auth.value == "none"
    assert "ssl.client.auth does not count for the listener CLIENTS" in tls.remarks[0]
    own["listener__name__clients__ssl__client__auth"] = "requested"
    tls = BrokerConfig.from_properties(secured(tmp_path, **own)).listeners[1].tls
    assert tls is not None
    assert tls.rules.client_auth.value == "requested"


def test_keys_are_logged_if_both_the_setting_and_the_variable_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(**given: str) -> tuple[Path | None, tuple[str, ...]]:
        tls = BrokerConfig.from_properties(secured(tmp_path, **given)).listeners[1].tls
        assert tls is not None
        return tls.rules.key_log, tls.remarks

    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)
    assert told(ssl__keylog__enable="true") == (
        None, ("ssl.keylog.enable has no effect: the variable SSLKEYLOGFILE is not set",)
    )  # fmt: skip
    monkeypatch.setenv("SSLKEYLOGFILE", "/keys")
    assert told() == (None, ())
    path, remarks = told(ssl__keylog__enable="true")
    assert path == Path("/keys")
    assert remarks == ("ssl.keylog.enable: whoever reads /keys can decrypt what goes over CLIENTS",)


def test_names_that_are_not_checked_are_remarked(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(secured(tmp_path, ssl__endpoint__identification__algorithm=""))
    tls = config.listeners[1].tls
    assert tls is not None
    assert not tls.rules.checks_names
    assert "nodes do not check for which host the certificate is" in tls.remarks[0]


TOKEN_KEY = "c4ca4238a0b923820dcc509a6f75849b"


def test_the_key_of_tokens_may_come_from_a_file_with_older_ones(tmp_path: Path) -> None:
    assert BrokerConfig.from_properties(properties(tmp_path)).token_keys is None
    given = BrokerConfig.from_properties(properties(tmp_path, delegation_token_secret_key=TOKEN_KEY))
    assert given.token_keys is not None
    assert given.token_keys.accepted == (TOKEN_KEY.encode(),)
    assert TOKEN_KEY not in repr(given)
    older = TOKEN_KEY[::-1]
    (tmp_path / "key").write_text(f"{TOKEN_KEY}\n{older}\n")
    read = BrokerConfig.from_properties(
        properties(
            tmp_path,
            delegation_token_secret_file=str(tmp_path / "key"),
            delegation_token_max_lifetime_ms="5000",
            delegation_token_expiry_time_ms="3000",
        )
    )
    assert read.token_keys is not None
    assert read.token_keys.accepted == (TOKEN_KEY.encode(), older.encode())
    assert (read.token_lifetimes.longest_ms, read.token_lifetimes.renewed_for_ms) == (5000, 3000)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"key": TOKEN_KEY, "file": "x"},
            "delegation.token.secret.key and delegation.token.secret.file are both given",
        ),
        ({"file": "/nowhere"}, "delegation.token.secret.file: cannot read /nowhere"),
        ({"key": "short"}, "delegation.token.secret.key: it holds 5 bytes, at least 16"),
        ({"key": "a" * 40}, "delegation.token.secret.key: it can be guessed"),
    ],
)
def test_a_key_of_tokens_that_cannot_be_used_ends_the_start(
    tmp_path: Path, changes: dict[str, str], complaint: str
) -> None:
    given = {f"delegation_token_secret_{name}": value for name, value in changes.items()}
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        BrokerConfig.from_properties(properties(tmp_path, **given))
