"""Token settings in a broker's file: accepted settings, and errors that prevent the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.security.oauth.settings import BearerSettings, KeySource, TokenRules
from ottla.protocol.settings.config_key import ConfigError
from ottla.protocol.settings.config_keys import Scope, check_properties
from tests.certificates import Authority

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PREFIX = "listener.name.clients.oauthbearer."
JAAS, OAUTH = f"{PREFIX}sasl.jaas.config", f"{PREFIX}sasl.oauthbearer."
URL = "https://issuer.test/keys"
SIGNED = {
    f"{OAUTH}jwks.endpoint.url": URL,
    f"{OAUTH}expected.issuer": "https://issuer.test/",
    f"{OAUTH}expected.audience": "kafka, other",
}
UNSECURED = {f"{OAUTH}allow.unsecured": "true"}


def bearer(tmp_path: Path, **changes: str | None) -> BearerSettings:
    secret = tmp_path / "cluster.secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    properties = {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "101@localhost:9093",
        "log.dirs": str(tmp_path),
        "listeners": "CLIENTS://127.0.0.1:9094",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    given = {name: text for name, text in {**properties, **changes}.items() if text is not None}
    (listener,) = BrokerConfig.from_properties(given).listeners
    assert listener.sasl is not None
    (mechanism,) = listener.sasl.mechanisms
    assert mechanism.bearer is not None
    return mechanism.bearer


def test_kafkas_defaults(tmp_path: Path) -> None:
    settings = bearer(tmp_path, **SIGNED)
    assert settings == BearerSettings(
        TokenRules("https://issuer.test/", frozenset({"kafka", "other"}), 30_000, "sub", "scope"),
        KeySource(URL, None, 3_600_000, 100, 10_000),
    )


def test_all_keys_and_options(tmp_path: Path) -> None:
    """The file is a typical one of Kafka, plus the options for a broker's own token."""
    authority = Authority(tmp_path)
    given = {
        **SIGNED,
        f"{OAUTH}jwks.endpoint.refresh.ms": "1000",
        f"{OAUTH}jwks.endpoint.retry.backoff.ms": "20",
        f"{OAUTH}jwks.endpoint.retry.backoff.max.ms": "30",
        f"{OAUTH}clock.skew.seconds": "0",
        "sasl.oauthbearer.sub.claim.name": "client",
        "listener.name.clients.sasl.oauthbearer.scope.claim.name": "scp",
        "sasl.oauthbearer.allowed.urls": f"https://other/,{URL}",
        f"{PREFIX}sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{OAUTH}token.endpoint.url": "https://issuer.test/token",
        f"{PREFIX}sasl.login.callback.handler.class": "x",
        f"{OAUTH}client.credentials.client.secret": "geheim",
        JAAS: f'{MODULE} required clientId="me" clientSecret="geheim" scope="x" extension_pool="y" '
        f'unsecuredLoginStringClaim_sub="unused" ssl.truststore.location="{authority.file}" ssl.truststore.type="PEM" '
        'ssl.truststore.password="geheim";',
    }
    settings = bearer(tmp_path, **given)
    assert settings.source is not None
    assert settings.source.trusted is not None
    assert settings.source.trusted.path == authority.file
    assert (settings.source.refresh_ms, settings.source.backoff_ms, settings.source.backoff_max_ms) == (
        1000,
        20,
        30,
    )
    assert (settings.rules.user_claim, settings.rules.scope_claim, settings.rules.skew_ms) == (
        "client",
        "scp",
        0,
    )
    assert settings.remarks == ()
    assert "geheim" not in repr(settings)
    notes = check_properties(given, Scope.BROKER)
    assert len(notes) == 3
    assert all(note.endswith("brokers log in to each other by the cluster secret") for note in notes)


def test_what_is_taken_from_anybody_is_said_at_each_start(tmp_path: Path) -> None:
    given = {
        f"{OAUTH}jwks.endpoint.url": "http://issuer.test/keys",
        f"{OAUTH}allow.unverified.issuer": "true",
        "sasl.oauthbearer.allow.unverified.audience": "true",
    }
    settings = bearer(tmp_path, **given)
    assert (settings.rules.issuer, settings.rules.audiences) == (None, frozenset())
    assert [remark.partition(":")[0] for remark in settings.remarks] == [
        f"{OAUTH}jwks.endpoint.url is http",
        "sasl.oauthbearer.allow.unverified.issuer is true",
        "sasl.oauthbearer.allow.unverified.audience is true",
    ]
    here = bearer(tmp_path, **given | {f"{OAUTH}jwks.endpoint.url": "http://127.0.0.1:8080/keys"})
    assert len(here.remarks) == 2


def test_tokens_without_a_signature(tmp_path: Path) -> None:
    settings = bearer(tmp_path, **UNSECURED)
    assert settings.source is None
    assert settings.rules == TokenRules(skew_ms=0, needs_issue_time=False)
    assert "is let in as any user" in settings.remarks[0]
    options = " ".join(
        f'unsecuredValidator{name}="{value}"'
        for name, value in (
            ("PrincipalClaimName", "who"),
            ("ScopeClaimName", "scp"),
            ("RequiredScope", "read write"),
            ("AllowableClockSkewMs", "3000"),
        )
    )
    settings = bearer(tmp_path, **UNSECURED, **{JAAS: f"{MODULE} required {options};"})
    assert settings.rules == TokenRules(
        None, frozenset(), 3000, "who", "scp", frozenset({"read", "write"}), needs_issue_time=False
    )


def test_files_with_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "keys")
    key = f"{OAUTH}jwks.endpoint.url"
    file = f"file://{tmp_path}/keys/all.json"
    assert bearer(tmp_path, **SIGNED | {key: file}).source == KeySource(file)
    allowed = {
        "sasl.oauthbearer.allowed.files": f"{tmp_path}/link/all.json",
        "sasl.oauthbearer.allowed.urls": "",
    }
    assert bearer(tmp_path, **SIGNED | {key: file} | allowed).source == KeySource(file)
    folder = allowed | {"sasl.oauthbearer.allowed.files": f"/nowhere, {tmp_path}/link"}
    assert bearer(tmp_path, **SIGNED | {key: file} | folder).source == KeySource(file)
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.allowed\.files does not list"):
        bearer(tmp_path, **SIGNED | {key: f"file://{tmp_path}/link/../keys2/all.json"} | folder)
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.allowed\.files does not list"):
        bearer(tmp_path, **SIGNED | {key: f"file://{tmp_path}/keys/../keys/other.json"} | allowed)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {f"{OAUTH}jwks.endpoint.url": None},
            r"jwks\.endpoint\.url is missing: .*allow\.unsecured=true takes",
        ),
        ({f"{OAUTH}expected.issuer": None}, r"expected\.issuer is missing: .*allow\.unverified\.issuer=true"),
        (
            {f"{OAUTH}expected.audience": None},
            r"expected\.audience is missing: .*allow\.unverified\.audience",
        ),
        (UNSECURED, r"url and listener.*allow\.unsecured are both given"),
        ({f"{OAUTH}jwks.endpoint.url": "ftp://issuer/keys"}, r"it must be https://HOST/PATH"),
        ({f"{OAUTH}jwks.endpoint.url": "https:///keys"}, r"it must be https://HOST/PATH"),
        ({f"{OAUTH}jwks.endpoint.url": "https://issuer:x/keys"}, "[Pp]ort"),
        ({f"{OAUTH}jwks.endpoint.url": "https://issuer/k y"}, r"it must be https://HOST/PATH"),
        ({f"{OAUTH}jwks.endpoint.url": "https://me:geheim@issuer/keys"}, "has a user or a password in it"),
        ({f"{OAUTH}jwks.endpoint.url": "file://host/keys"}, "a file of this machine"),
        ({f"{OAUTH}jwks.endpoint.url": "file:keys"}, "a file of this machine"),
        (
            {"sasl.oauthbearer.allowed.urls": "https://other/"},
            r"sasl\.oauthbearer\.allowed\.urls does not list",
        ),
        ({"sasl.oauthbearer.allowed.urls": ""}, r"sasl\.oauthbearer\.allowed\.urls does not list"),
        ({f"{OAUTH}clock.skew.seconds": "-1"}, r"clock\.skew\.seconds.*at least 0"),
        ({f"{OAUTH}allow.unverified.issuer": "yes"}, "true or false"),
        ({f"{OAUTH}jwks.endpoint.urls": URL}, r"Unknown configuration: .*jwks\.endpoint\.urls"),
        ({f"{PREFIX}sasl.oauthbearer.allowed.urls": URL}, "Unknown configuration"),
        (
            {f"{PREFIX}sasl.server.callback.handler.class": "com.example.Mine"},
            "must be one of org.apache.kafka",
        ),
        ({f"{OAUTH}jwt.validator.class": "com.example.Mine"}, "must be one of org.apache.kafka"),
        (
            {JAAS: f'{MODULE} required unsecuredValidatorRequiredScope="x";'},
            "is for tokens without a signature",
        ),
        (
            {JAAS: f'{MODULE} required user_ann="geheim";'},
            "'user_ann', which OAuthBearerLoginModule does not",
        ),
        ({JAAS: "com.sun.security.auth.module.JndiLoginModule required;"}, f"OAUTHBEARER takes {MODULE}"),
        ({JAAS: f'{MODULE} required ssl.truststore.type="geheim";'}, "none of PEM, PKCS12, JKS"),
        (
            {JAAS: f'{MODULE} required ssl.truststore.location="/nowhere/ca.pem";'},
            r"ssl.truststore.location in listener.*sasl\.jaas\.config: /nowhere/ca.pem: cannot be read",
        ),
        (
            {JAAS: f'{MODULE} required ssl.truststore.location="a" ssl.truststore.certificates="b";'},
            "has both ssl.truststore.location and",
        ),
    ],
)
def test_what_ends_the_start_is_named_without_a_secret(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        bearer(tmp_path, **SIGNED | changes)
    assert "geheim" not in str(caught.value)


def test_a_wrong_skew_of_unsigned_tokens_ends_the_start(tmp_path: Path) -> None:
    for skew in ("x", "-1", "\u0665"):
        jaas = f'{MODULE} required unsecuredValidatorAllowableClockSkewMs="{skew}";'
        with pytest.raises(ConfigError, match="AllowableClockSkewMs, which must be a whole number"):
            bearer(tmp_path, **UNSECURED, **{JAAS: jaas})
