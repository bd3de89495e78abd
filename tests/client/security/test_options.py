"""Options that secure a client: what does not go together is named, and secrets are shown nowhere."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer, sync
from ottla.client.foreign_names import JAVA, LIBRDKAFKA, Secret, is_secret
from ottla.client.security.options import SecurityOptions
from ottla.client.security.security import security_of
from tests.certificates import Authority

PLAIN = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "ann",
    "sasl_plain_password": "hunter2",
}
KERBEROS = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
URL = "sasl_oauthbearer_token_endpoint_url"


class Tokens:
    def token(self) -> str:
        return "t"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"security_protocol": "ssl"},
            "security_protocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, not 'ssl'",
        ),
        ({"ssl_cafile": "x"}, "ssl_cafile needs security_protocol SSL or SASL_SSL, not PLAINTEXT"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname needs security_protocol"),
        (
            {**PLAIN, "security_protocol": "SSL"},
            "sasl_mechanism needs security_protocol SASL_PLAINTEXT or SASL_SSL, not SSL",
        ),
        (
            {**PLAIN, "security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "x"},
            "ssl_cafile needs security_protocol SSL or SASL_SSL, not SASL_PLAINTEXT",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_context": ssl.create_default_context(),
                "ssl_cafile": "x",
            },
            "ssl_context brings its own .* excludes ssl_cafile",
        ),
        ({"security_protocol": "SSL", "ssl_keyfile": "x"}, "ssl_keyfile .* needs ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_password": "x"}, "ssl_password .* needs ssl_certfile"),
        ({"security_protocol": "SASL_SSL"}, "SASL_SSL needs a sasl_mechanism: PLAIN, SCRAM-SHA-256"),
        ({**PLAIN, "sasl_mechanism": "SCRAM-SHA256"}, "did you mean 'SCRAM-SHA-256'?"),
        (
            {**PLAIN, "sasl_mechanism": "GSSAPI"},
            "sasl_plain_username is for PLAIN and SCRAM, not for .* GSSAPI",
        ),
        ({**PLAIN, "sasl_kerberos_principal": "x"}, "is for GSSAPI, not for .* PLAIN"),
        ({**OAUTH, "sasl_kerberos_domain_name": "x"}, "is for GSSAPI, not for .* OAUTHBEARER"),
        (
            {**KERBEROS, "sasl_kerberos_service_name": ""},
            "the first part of the brokers' principal, .* not ''",
        ),
        ({**KERBEROS, "sasl_kerberos_service_name": "kafka/h"}, "not 'kafka/h'"),
        ({**KERBEROS, "sasl_kerberos_keytab": "x"}, "sasl_kerberos_keytab needs sasl_kerberos_principal"),
        ({**PLAIN, "sasl_plain_username": None}, "sasl_mechanism PLAIN needs sasl_plain_username"),
        ({**PLAIN, "sasl_plain_password": ""}, "sasl_mechanism PLAIN needs sasl_plain_password"),
        ({**PLAIN, "sasl_plain_password": "a\0b"}, "sasl_plain_password has a zero character"),
        ({**PLAIN, "sasl_plain_password": 7}, "sasl_plain_password is a text, .* not a int"),
        ({**PLAIN, "sasl_token_auth": True}, "sasl_token_auth.* needs .*SCRAM-SHA-512, not PLAIN"),
        ({**PLAIN, "sasl_oauth_token_provider": Tokens()}, "is for OAUTHBEARER, not for .* PLAIN"),
        ({**OAUTH, "sasl_plain_username": "x"}, "is for PLAIN and SCRAM, not for .* OAUTHBEARER"),
        (OAUTH, f"either sasl_oauth_token_provider or {URL}; neither is given"),
        (
            {**OAUTH, "sasl_oauth_token_provider": Tokens(), URL: "https://x/"},
            "both of them are given",
        ),
        ({**OAUTH, "sasl_oauth_token_provider": object()}, r"an object with a method token\(\)"),
        (
            {**OAUTH, "sasl_oauth_token_provider": Tokens(), "sasl_oauthbearer_scope": "x"},
            f"sasl_oauthbearer_scope needs {URL}",
        ),
        ({**OAUTH, URL: "https://x/"}, f"{URL} needs sasl_oauthbearer_client_id"),
    ],
)
def test_what_does_not_go_together_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        SecurityOptions(**options)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://idp.example/token", "ftp://x/", "idp.example/token"])
def test_a_secret_goes_to_nobody_unencrypted(url: str) -> None:
    with pytest.raises(ValueError, match=f"{URL} is https://HOST/PATH"):
        security_of(
            SecurityOptions(
                **OAUTH,  # type: ignore[arg-type]
                sasl_oauthbearer_token_endpoint_url=url,
                sasl_oauthbearer_client_id="id",
                sasl_oauthbearer_client_secret="s",
            )
        )


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, sync.Admin])
def test_all_clients_take_them(client: Any) -> None:
    with pytest.raises(ValueError, match="needs a sasl_mechanism"):
        client(security_protocol="SASL_SSL")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("ssl.ca.location", "ssl_cafile"),
        ("sasl.username", "sasl_plain_username"),
        ("sasl.mechanisms", "sasl_mechanism"),
        ("oauth_cb", "sasl_oauth_token_provider"),
        ("ssl.truststore.location", "ssl_cafile"),
        ("security.protocol", "security_protocol"),
        ("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ],
)
def test_other_clients_names_are_understood(option: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"the nearest is '{meant}'"):
        Producer(**{option: "x"})  # type: ignore[arg-type]


def test_kerberos_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ValueError, match=r"GSSAPI: .* pip install '\.\[gssapi\]' in a checkout"):
        Admin(**KERBEROS)  # type: ignore[arg-type]


def test_every_foreign_name_is_that_of_an_option() -> None:
    known = {*SecurityOptions.__dataclass_fields__, "bootstrap_servers", "client_id"}
    assert {*LIBRDKAFKA.values(), *JAVA.values()} <= known


def test_secrets_are_shown_nowhere() -> None:
    options = SecurityOptions(**PLAIN)  # type: ignore[arg-type]
    assert "hunter2" not in repr(options)
    with pytest.raises(TypeError, match="ssl_password is a str or None, not a bytes") as refused:
        Producer(security_protocol="SSL", ssl_certfile="x", ssl_password=b"hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(refused.value)
    assert repr({"password": Secret("hunter2")}) == "{'password': '[hidden]'}"
    assert Secret("hunter2") == "hunter2"


def test_what_counts_as_secret() -> None:
    secret = {
        field
        for field in (*SecurityOptions.__dataclass_fields__, *JAVA, *LIBRDKAFKA, "sasl.jaas.config")
        if is_secret(field)
    }
    assert secret == {
        "ssl_password",
        "ssl_keydata",
        "ssl.key.pem",
        "ssl.keystore.key",
        "sasl_plain_password",
        "sasl_oauth_token_provider",
        "sasl_oauthbearer_client_secret",
        "ssl.key.password",
        "sasl.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
    }


def test_files_that_cannot_be_used_are_named_when_the_client_is_made(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("a", "a.test")
    other = authority.issue("b", "b.test")
    (tmp_path / "text").write_text("no certificate\n")
    for options, message in (
        ({"ssl_cafile": tmp_path / "missing"}, r"ssl_cafile: .*missing cannot be used: No such file"),
        ({"ssl_cafile": tmp_path / "text"}, r"ssl_cafile: .*text cannot be used: "),
        ({"ssl_cadata": "text"}, "ssl_cadata holds no certificates in PEM"),
        ({"ssl_crlfile": tmp_path / "missing"}, r"ssl_crlfile: .*missing"),
        ({"ssl_certfile": issued.certificate}, r"ssl_certfile: .*a.pem cannot be used"),
        (
            {"ssl_certfile": issued.certificate, "ssl_keyfile": other.key},
            r"ssl_certfile and ssl_keyfile: .* key values mismatch",
        ),
        ({"ssl_ciphers": "nonsense"}, "ssl_ciphers: OpenSSL knows none of 'nonsense'"),
    ):
        with pytest.raises(ValueError, match=message):
            Producer(security_protocol="SSL", **options)  # type: ignore[arg-type]
    for options, message in (
        (
            {"ssl_certdata": "text", "ssl_keydata": "hunter2"},
            r"ssl_certdata and ssl_keydata: \(text\) and \(text\)",
        ),
        (
            {"ssl_certdata": issued.certificate.read_text(), "ssl_keydata": other.key.read_text()},
            "key values mismatch",
        ),
    ):
        with pytest.raises(ValueError, match=message) as refused:
            Producer(security_protocol="SSL", **options)  # type: ignore[arg-type]
        assert "hunter2" not in str(refused.value)
    Producer(
        security_protocol="SSL",
        ssl_cafile=authority.file,
        ssl_certfile=issued.certificate,
        ssl_keyfile=issued.key,
    )
