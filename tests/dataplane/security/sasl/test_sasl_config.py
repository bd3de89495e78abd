"""Login settings in a broker's file: the effective form of a key, and errors that prevent the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.configuration.sasl import MechanismConfig, SaslConfig
from ottla.dataplane.security.sasl.kerberos_acceptor import KerberosSettings
from ottla.protocol.settings.config_key import ConfigError, Scope
from ottla.protocol.settings.config_keys import check_properties
from ottla.protocol.settings.security_protocol import SecurityProtocol

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN_KEY = "listener.name.clients.plain.sasl.jaas.config"
MECHANISMS = "listener.name.clients.sasl.enabled.mechanisms"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    secret = tmp_path / "cluster.secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    return {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "101@localhost:9093",
        "log.dirs": str(tmp_path),
        "listeners": "LOCAL://127.0.0.1:9092,CLIENTS://127.0.0.1:9094",
        "listener.security.protocol.map": "LOCAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        MECHANISMS: "SCRAM-SHA-512,PLAIN",
        PLAIN_KEY: f'{LOGIN} user_admin="geheim";',
    }


def clients(properties: dict[str, str]) -> SaslConfig:
    local, listener = BrokerConfig.from_properties(properties).listeners
    assert (local.security_protocol, local.sasl) == (SecurityProtocol.PLAINTEXT, None)
    assert listener.security_protocol is SecurityProtocol.SASL_PLAINTEXT
    assert listener.sasl is not None
    return listener.sasl


def test_a_listener_has_its_mechanisms_and_kafkas_defaults(properties: dict[str, str]) -> None:
    config = clients(properties)
    scram, plain = config.mechanisms
    assert scram == MechanismConfig("SCRAM-SHA-512", 0)
    assert plain.module is not None
    assert plain.module.options == {"user_admin": "geheim"}
    assert (config.failure_delay_ms, config.timeout_ms, config.request_max_bytes) == (100, 10_000, 524_288)
    assert "geheim" not in repr(config)


def test_the_most_exact_form_of_a_key_counts(properties: dict[str, str]) -> None:
    key = "connections.max.reauth.ms"
    properties[key] = "1000"
    assert [each.reauthentication_max_ms for each in clients(properties).mechanisms] == [1000, 1000]
    properties[f"listener.name.clients.{key}"] = "2000"
    assert [each.reauthentication_max_ms for each in clients(properties).mechanisms] == [2000, 2000]
    properties[f"listener.name.clients.scram-sha-512.{key}"] = "3000"
    assert [each.reauthentication_max_ms for each in clients(properties).mechanisms] == [3000, 2000]


def test_plain_may_ask_the_users_of_scram(properties: dict[str, str]) -> None:
    del properties[PLAIN_KEY]
    properties["sasl.plain.verify"] = "scram"
    assert clients(properties).mechanisms[1] == MechanismConfig("PLAIN", 0, None, "scram")


KERBEROS_LOGIN = "com.sun.security.auth.module.Krb5LoginModule required"
KERBEROS_KEY = "listener.name.clients.gssapi.sasl.jaas.config"
KEYTAB = 'useKeyTab=true storeKey=true keyTab="/etc/k"'
PRINCIPAL = "kafka/h.test@R"


def test_kerberos_has_a_keytab_and_rules(properties: dict[str, str]) -> None:
    properties[MECHANISMS] = "GSSAPI"
    properties[KERBEROS_KEY] = f'{KERBEROS_LOGIN} {KEYTAB} principal="{PRINCIPAL}" serviceName=kafka;'
    (found,) = clients(properties).mechanisms
    assert found.kerberos == KerberosSettings(KERBEROS_KEY, "/etc/k", PRINCIPAL, "")
    properties["listener.name.clients.sasl.kerberos.principal.to.local.rules"] = "RULE:[1:$1](a,b),DEFAULT"
    properties["sasl.kerberos.service.name"] = "kafka"
    (found,) = clients(properties).mechanisms
    assert found.kerberos is not None
    assert found.kerberos.rules == "RULE:[1:$1](a,b),DEFAULT"


@pytest.mark.parametrize(
    ("jaas", "more", "complaint"),
    [
        ("", {}, r"gssapi\.sasl\.jaas\.config is missing: it names the broker's keytab and principal"),
        (f"{LOGIN};", {}, r"GSSAPI takes com\.sun\.security\.auth\.module\.Krb5LoginModule"),
        (f"{KERBEROS_LOGIN} {KEYTAB} debug=true;", {}, "option 'debug', which Krb5LoginModule does not"),
        (f'{KERBEROS_LOGIN} keyTab="/k" principal="{PRINCIPAL}";', {}, "useKeyTab has to be true"),
        (f"{KERBEROS_LOGIN} useKeyTab=true storeKey=false;", {}, "storeKey has to be true"),
        (f'{KERBEROS_LOGIN} useKeyTab=true principal="{PRINCIPAL}";', {}, "has no keyTab"),
        (f"{KERBEROS_LOGIN} {KEYTAB};", {}, "principal is SERVICE/HOST@REALM, .* not ''"),
        (f'{KERBEROS_LOGIN} {KEYTAB} principal="*";', {}, r"not '\*'"),
        (f'{KERBEROS_LOGIN} {KEYTAB} principal="kafka@R";', {}, "not 'kafka@R'"),
        (
            f'{KERBEROS_LOGIN} {KEYTAB} principal="{PRINCIPAL}" serviceName=broker;',
            {},
            "serviceName is 'broker', and the principal 'kafka/h.test@R' is of the service 'kafka'",
        ),
        (
            f'{KERBEROS_LOGIN} {KEYTAB} principal="{PRINCIPAL}";',
            {"listener.name.clients.sasl.kerberos.service.name": "broker"},
            r"clients\.sasl\.kerberos\.service\.name is 'broker'",
        ),
    ],
)
def test_what_is_wrong_about_kerberos_is_named(
    properties: dict[str, str], jaas: str, more: dict[str, str], complaint: str
) -> None:
    given = properties | {MECHANISMS: "GSSAPI", KERBEROS_KEY: jaas} | more
    with pytest.raises(ConfigError, match=complaint):
        clients({key: value for key, value in given.items() if value})


@pytest.mark.parametrize("prefix", ["", "listener.name.clients."])
def test_keys_of_tickets_do_nothing(prefix: str) -> None:
    names = ("kinit.cmd", "min.time.before.relogin", "ticket.renew.jitter", "ticket.renew.window.factor")
    keys = [f"{prefix}sasl.kerberos.{name}" for name in names]
    notes = check_properties(dict.fromkeys(keys, "1"), Scope.BROKER)
    why = "has no effect: a broker's key comes from its keytab, and it needs no ticket"
    assert notes == [f"{key} {why}" for key in keys]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {MECHANISMS: ""},
            r"the listener CLIENTS asks for a login; there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            {MECHANISMS: "KERBEROS"},
            r"clients\.sasl\.enabled\.mechanisms: 'KERBEROS' is not supported; there are PLAIN",
        ),
        ({MECHANISMS: "PLAIN,PLAIN"}, "names a mechanism twice"),
        (
            {PLAIN_KEY: ""},
            r"plain\.sasl\.jaas\.config is missing: it lists the users of PLAIN; or set sasl\.plain",
        ),
        ({PLAIN_KEY: f'{LOGIN} user_a="geheim"'}, r"plain\.sasl\.jaas\.config: .* ';' is missing"),
        (
            {PLAIN_KEY: f'{SCRAM_LOGIN} user_a="geheim";'},
            "PLAIN takes org.apache.kafka.common.security.plain",
        ),
        (
            {PLAIN_KEY: f'{LOGIN} user_a="geheim" usr_b="geheim";'},
            "option 'usr_b', which PlainLoginModule does not",
        ),
        ({PLAIN_KEY: f"{LOGIN}; {LOGIN};"}, "has 2 login modules"),
        ({"sasl.jaas.config": f"{LOGIN};"}, "has to name its listener and mechanism"),
        ({"listener.name.other.sasl.enabled.mechanisms": "PLAIN"}, "there is no listener 'other'"),
        ({"listener.name.clients.sasl.jaas.config": f"{LOGIN};"}, "Unknown configuration"),
        ({"listener.name.clients.ldap.sasl.jaas.config": f"{LOGIN};"}, "Unknown configuration"),
        ({"sasl.plain.verify": "ldap"}, "it must be one of jaas, scram"),
        ({"listener.name.clients.connections.max.reauth.ms": "-1"}, "at least 0"),
        (
            {"listener.security.protocol.map": "LOCAL:PLAINTEXT,CLIENTS:SASL"},
            "'CLIENTS:SASL' is not of the form",
        ),
        ({"listener.security.protocol.map": "LOCAL:PLAINTEXT"}, "no protocol for the listener CLIENTS"),
    ],
)
def test_what_ends_the_start_is_named_without_a_secret(
    properties: dict[str, str], changes: dict[str, str], complaint: str
) -> None:
    given = {key: value for key, value in (properties | changes).items() if value}
    with pytest.raises(ConfigError, match=complaint) as caught:
        BrokerConfig.from_properties(given)
    assert "geheim" not in str(caught.value)
