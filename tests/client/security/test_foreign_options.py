"""Options written for other clients are understood, or named in the error."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.foreign_names import JAVA, LIBRDKAFKA
from ottla.client.security.foreign_options import of_java, of_librdkafka
from ottla.client.security.options import SecurityOptions

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def made(given: dict[str, Any]) -> SecurityOptions:
    return SecurityOptions(**{key: value for key, value in given.items() if key != "bootstrap_servers"})


def test_librdkafka() -> None:
    given = of_librdkafka(
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "sasl.password": "p=w",
        }
    )
    assert given == {
        "bootstrap_servers": "h:1",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "p=w",
    }
    assert "p=w" not in repr(given)
    made(given)


def test_a_file_of_a_java_client() -> None:
    given, others = of_java(
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{_SCRAM} required username="ann" password="s;\\"x" tokenauth=true;',
            "ssl.truststore.type": "pem",
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.protocol": "TLSv1.3",
            "group.id": "g",
            "acks": "all",
        }
    )
    assert others == ["group.id", "acks"]
    assert given == {
        "bootstrap_servers": "h:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "ann",
        "sasl_plain_password": 's;"x',
        "sasl_token_auth": True,
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }
    made(given)


@pytest.mark.parametrize(
    ("jaas", "given"),
    [
        (
            f"{_PLAIN} required username=a password=b;",
            {"sasl_plain_username": "a", "sasl_plain_password": "b"},
        ),
        (
            f'{_KERBEROS} required useKeyTab=true storeKey=true keyTab="/k" principal="a@R" serviceName=s;',
            {
                "sasl_kerberos_keytab": "/k",
                "sasl_kerberos_principal": "a@R",
                "sasl_kerberos_service_name": "s",
            },
        ),
        (f'{_KERBEROS} required useTicketCache=true keyTab="/k";', {}),
        (
            f'{_BEARER} required clientId="id" clientSecret="s" scope="x y" extension_pool="p";',
            {
                "sasl_oauthbearer_client_id": "id",
                "sasl_oauthbearer_client_secret": "s",
                "sasl_oauthbearer_scope": "x y",
                "sasl_oauthbearer_extensions": {"pool": "p"},
            },
        ),
    ],
)
def test_login_modules(jaas: str, given: dict[str, Any]) -> None:
    assert of_java({"sasl.jaas.config": jaas}) == (given, [])


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.jaas.config": f"{_KERBEROS} required debug=true;"}, "Krb5LoginModule has no option 'debug'"),
        (
            {"sasl.jaas.config": "a.EvilModule required;"},
            r"no login module 'a.EvilModule' here; there are Plain",
        ),
        ({"sasl.jaas.config": f"{_PLAIN} required user=a;"}, "PlainLoginModule has no option 'user'"),
        ({"sasl.jaas.config": f"{_PLAIN} sometimes;"}, r"sasl.jaas.config: .* no control flag"),
        ({"sasl.jaas.config": f"{_PLAIN} required; {_PLAIN} required;"}, "names 2 login modules"),
        ({"sasl.kerberos.service.nam": "kafka"}, "did you mean 'sasl.kerberos.service.name'?"),
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type 'JKS': only PEM is read"),
        ({"ssl.truststore.locaton": "x"}, "did you mean 'ssl.truststore.location'?"),
        ({"ssl.endpoint.identification.algorithm": "http"}, "is https, or empty"),
        (
            {"sasl.login.callback.handler.class": "com.example.Mine"},
            "classes of Java are not run here",
        ),
    ],
)
def test_what_java_clients_have_and_ours_do_not_is_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_java(properties)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ssl.ca.locaton", "did you mean 'ssl.ca.location'?"),
        ("oauth_cb", "there is no option 'oauth_cb'"),
        ("sasl.kerberos.princpal", "did you mean 'sasl.kerberos.principal'?"),
        ("qqq", "there is no option 'qqq'; there are bootstrap.servers"),
    ],
)
def test_what_librdkafka_does_not_have_is_named(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_librdkafka({name: "x"})


def test_how_others_get_tickets_is_of_no_account() -> None:
    given = {"sasl.kerberos.kinit.cmd": "kinit", "sasl.kerberos.min.time.before.relogin": "1"}
    assert of_java(given) == ({}, [])
    assert of_librdkafka(given) == {}


def test_a_password_is_in_no_message() -> None:
    for text in (
        f'{_PLAIN} required username="a" password="hunter2"',
        f"{_PLAIN} required password=hunter2 x=1;",
    ):
        with pytest.raises(ValueError, match=r"sasl.jaas.config") as refused:
            of_java({"sasl.jaas.config": text})
        assert "hunter2" not in str(refused.value)


def test_each_name_is_taken() -> None:
    special = {
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.oauthbearer.extensions": "a=b,c=d",
        "sasl.token.auth": "true",
    }
    for name in LIBRDKAFKA.keys() - {"oauth_cb"}:
        assert LIBRDKAFKA[name] in of_librdkafka({name: special.get(name, "x")})
    for name in JAVA:
        assert JAVA[name] in of_java({name: special.get(name, "x")})[0]
