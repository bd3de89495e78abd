"""An authorization server that is down when brokers start, comes up, and goes away again, or is unavailable for
clients.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.request
from pathlib import Path

import confluent_kafka
import pytest

from ottla import ConnectionLost, NoBrokerReachable, Producer
from ottla.cli.local_cluster.ports import free_ports
from ottla.testing import LocalCluster
from tests.integration.tls_cluster import wait_until
from tests.oauth_issuer import AUDIENCE, ISSUER, claims_of, new_key, running_issuer, signed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PREFIX = "listener.name.plaintext.oauthbearer.sasl.oauthbearer."


class Tokens:
    """Tokens of an authorization server whose keys no broker can fetch."""

    def __init__(self) -> None:
        self.key = new_key("key", "P-256")

    async def token(self) -> str:
        return signed(claims_of(), self.key, "ES256")


def metric(cluster: LocalCluster, name: str) -> float | None:
    """Return a metric of the broker; None if it is not exported."""
    assert cluster._directory is not None
    (broker,) = json.loads((cluster._directory / "cluster.json").read_text())["brokers"]
    with urllib.request.urlopen(broker["metrics"], timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{")), None)


async def send_with_ours(cluster: LocalCluster, tokens: Tokens) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=tokens,
    ) as producer:
        await producer.send_and_wait("topic", b"value")


async def test_clients_wait_for_it_and_outlive_it() -> None:
    reserved: list[socket.socket] = []
    choosing = free_ports(reserved)
    port = next(choosing)
    choosing.close()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}jwks.endpoint.url": f"http://localhost:{port}/keys",
        f"{PREFIX}jwks.endpoint.refresh.ms": "500",
        f"{PREFIX}jwks.endpoint.retry.backoff.max.ms": "500",
        f"{PREFIX}expected.issuer": ISSUER,
        f"{PREFIX}expected.audience": AUDIENCE,
    }
    tokens, said = Tokens(), list[str]()
    token = await tokens.token()
    with LocalCluster(brokers=1, settings=settings) as cluster:
        assert (metric(cluster, "ottla_oauth_keys"), metric(cluster, "ottla_oauth_keys_age_seconds")) == (
            0,
            None,
        )
        with pytest.raises((ConnectionLost, NoBrokerReachable)):  # and not that the login failed
            await send_with_ours(cluster, tokens)
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "log_level": 0,
                "oauth_cb": lambda _config: (token, time.time() + 300),
                "error_cb": lambda error: said.append(error.str()),
            }
        )
        producer.produce("topic", b"value")
        assert producer.flush(2) == 1
        for each in reserved:
            each.close()
        with running_issuer(port=port) as issuer:
            issuer.keys = [tokens.key]
            assert producer.flush(60) == 0
            await send_with_ours(cluster, tokens)
            assert metric(cluster, "ottla_oauth_keys") == 1
        assert not any("authentication failed" in text.lower() for text in said), said
        wait_until(lambda: (metric(cluster, "ottla_oauth_keys_age_seconds") or 0) >= 2, "ageing")
        await send_with_ours(cluster, tokens)
        assert metric(cluster, "ottla_oauth_keys") == 1


class ShortTokens(Tokens):
    """Tokens, with their expiry, of an authorization server that is away at times."""

    def __init__(self, life_s: float) -> None:
        super().__init__()
        self.life_s = life_s
        self.is_away = False
        self.calls = 0

    async def token(self) -> tuple[str, float]:  # type: ignore[override]
        self.calls += 1
        if self.is_away:
            raise ConnectionRefusedError("the authorization server is away")
        claims = claims_of(lasts_s=self.life_s)
        return signed(claims, self.key, "ES256"), claims["exp"]


async def test_a_token_is_used_to_its_end_while_the_server_is_away(tmp_path: Path) -> None:
    life_s = 20.0  # a fifth of it, in which logins are renewed, outlasts a pause of this process
    tokens, of_spool = ShortTokens(life_s), ShortTokens(life_s=300)
    of_spool.key = tokens.key
    with running_issuer() as issuer:
        issuer.keys = [tokens.key]
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "listener.name.plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
            "connections.max.reauth.ms": "3600000",
            f"{PREFIX}jwks.endpoint.url": f"{issuer.url}/keys",
            f"{PREFIX}expected.issuer": ISSUER,
            f"{PREFIX}expected.audience": AUDIENCE,
        }
        with LocalCluster(brokers=1, settings=settings) as cluster:
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=tokens,
            ) as producer:
                await producer.send_and_wait("topic", b"value")
                reached = producer.parts.cluster
                (broker,) = reached.metadata.brokers
                stands = await reached.connection(broker, "stands")
                began_s = time.monotonic()
                tokens.is_away = True
                while time.monotonic() - began_s < 0.8 * life_s:  # logins are renewed from this time on
                    await producer.send_and_wait("topic", b"value")
                    await asyncio.sleep(0.05)
                while time.monotonic() - began_s < 0.83 * life_s:
                    await producer.send_and_wait("topic", b"value")
                    made = await reached.connection(broker, f"made at {time.monotonic()}")
                    made.close()
                assert stands.lost is None
                assert 1 < tokens.calls < 10
                tokens.is_away = False
                while time.monotonic() - began_s < life_s + 2:  # that token has ended
                    await producer.send_and_wait("topic", b"value")
                    await asyncio.sleep(0.05)
                assert stands.lost is None
                assert tokens.calls < 20
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=of_spool,
                spool_dir=tmp_path / "spool",
            ) as spooling:
                await spooling.send_and_wait("topic", b"value")
            assert of_spool.calls == 1, "a spool and those that deliver it log in with one token"
