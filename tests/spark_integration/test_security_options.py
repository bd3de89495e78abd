"""Options of `format("ottla")` for clusters that are secured: ours, and those of Java's clients."""

from __future__ import annotations

import pickle

import pytest

from ottla.spark_integration.options import WrongOption, admin_options, client_options, security_options
from ottla.spark_integration.sink.options import of_batch
from ottla.spark_integration.source.settings import read_settings

BOOTSTRAP = {"kafka.bootstrap.servers": "h:1"}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAVA = {
    **BOOTSTRAP,
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f'{_SCRAM} required username="ann" password="Hunter2";',
    "kafka.ssl.truststore.location": "/ca.pem",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.endpoint.identification.algorithm": "",
}
OURS = {
    **BOOTSTRAP,
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.plain.username": "ann",
    "kafka.sasl.plain.password": "Hunter2",
    "kafka.ssl.cafile": "/ca.pem",
    "kafka.ssl.check.hostname": "false",
}


@pytest.mark.parametrize("given", [JAVA, OURS])
def test_both_ways_to_say_it_come_to_the_same(given: dict[str, str]) -> None:
    client = client_options(given)
    assert client == {
        "bootstrap_servers": "h:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "Hunter2",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }
    assert admin_options(client) == client
    assert security_options(client).sasl_plain_username == "ann"
    assert security_options(pickle.loads(pickle.dumps(client))) == security_options(client)


@pytest.mark.parametrize(
    "given",
    [
        OURS | {"kafka.sasl.token.auth": "true"},
        JAVA
        | {
            "kafka.sasl.jaas.config": f'{_SCRAM} required username="id" password="Hunter2" tokenauth="true";',
        },
    ],
)
def test_a_delegation_token_logs_in(given: dict[str, str]) -> None:
    client = client_options(given)
    assert client["sasl_token_auth"] is True
    assert security_options(client).sasl_token_auth


@pytest.mark.parametrize("given", [JAVA, OURS])
def test_secrets_are_shown_nowhere(given: dict[str, str]) -> None:
    source = read_settings({**given, "subscribe": "t"}, streaming=False)
    sink = of_batch({**given, "topic": "t"})
    for shown in (source, sink, pickle.loads(pickle.dumps(source))):
        assert "Hunter2" not in repr(shown)
        assert shown.client["sasl_plain_password"] == "Hunter2"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.ssl.cafile": "x"}, "ssl_cafile needs security_protocol"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs a sasl_mechanism"),
        ({"kafka.ssl.truststore.type": "JKS"}, "only PEM is read"),
        ({"kafka.sasl.jaas.config": "x"}, "a control flag is missing"),
        (
            {"kafka.sasl.kerberos.service.name": "broker"},
            "sasl_kerberos_service_name needs security_protocol",
        ),
        ({"kafka.ssl.check.hostname": "no"}, "is true or false"),
        ({"kafka.ssl.truststore.locaton": "x"}, "did you mean 'ssl.truststore.location'"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        client_options({**BOOTSTRAP, **given})
