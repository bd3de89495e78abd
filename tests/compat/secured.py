"""Apache Kafka with all secured protocols, and the clients' options for it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clusters import Cluster
from benchmarks.kafka import kafka_cluster
from tests.certificates import Authority, Issued

PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "ann", 'ann\'s "secret", =x'
SESSION_MS = 3_000
"""Lifetime of a SASL_SSL login in milliseconds."""

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class UnsecuredTokens:
    """Unsigned tokens, which Kafka accepts without a configured validator."""

    def __init__(self, user: str = USER, lasts_s: float = 600) -> None:
        self.user = user
        self.lasts_s = lasts_s
        self.asked = 0

    async def token(self) -> str:
        self.asked += 1
        now = time.time()
        claims = {"sub": self.user, "iat": now - 1, "exp": now + self.lasts_s, "scope": []}
        return ".".join((_encoded({"alg": "none"}), _encoded(claims), ""))


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@dataclass(frozen=True)
class Secured:
    """A running cluster and its certificates."""

    cluster: Cluster
    authority: Authority
    client: Issued

    def options(self, protocol: str, mechanism: str | None = None) -> dict[str, Any]:
        """Return keyword arguments of any client."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.cluster.listeners[protocol],
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            options["ssl_cafile"] = self.authority.file
        if protocol == "SSL":
            options |= {"ssl_certfile": self.client.certificate, "ssl_keyfile": self.client.key}
        if mechanism is not None:
            options["sasl_mechanism"] = mechanism
            if mechanism == "OAUTHBEARER":
                options["sasl_oauth_token_provider"] = UnsecuredTokens()
            else:
                options |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return options


def _jaas_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _settings(server: Issued, authority: Authority) -> dict[str, str]:
    password = _jaas_quoted(PASSWORD).replace("\\", "\\\\")  # once more, for the properties file
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "broker.session.timeout.ms": "3000",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        prefix = f"listener.name.{listener}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": f"{_PLAIN} required user_{USER}={password};",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f'{_BEARER} required unsecuredLoginStringClaim_sub="broker";',
        }
    return settings


@contextmanager
def secured_kafka(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """Run one broker and one controller with `more` settings."""
    authority = Authority(folder / "certificates")
    server = authority.issue("server", "127.0.0.1", "localhost", common_name="broker")
    client = authority.issue("client", "client.test", common_name="client")
    with kafka_cluster(
        folder / "kafka",
        brokers=1,
        quorum=1,
        settings=_settings(server, authority) | dict(more or {}),
        listeners=PROTOCOLS,
    ) as cluster:
        yield Secured(cluster, authority, client)
