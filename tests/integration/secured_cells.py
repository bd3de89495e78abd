"""All login paths into a secured cluster, and the actions that a stock client performs with each.

One cluster offers all of them. An authorizer knows two users: ann, by password or certificate, and the anonymous user
without either. Each has rights over names with its own prefix, so a client that is taken for another user is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ottla import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    Admin,
    AuthenticationFailed,
    NewTopic,
    PatternType,
    UserPassword,
)
from tests.integration.tls_cluster import HOST, START_S, TlsCluster, tls_cluster
from tests.oauth_issuer import AUDIENCE, ISSUER, claims_of, key_set, new_key, signed

OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
TOKEN_LASTS_S = 3600
USER, PASSWORD = "ann", 'ann\'s "secret", =x'
ADMIN, ADMIN_PASSWORD = "admin", "of the administrator"
RECORDS = 10
"""Number of records of each kind: plain, committed, and aborted."""
PRINCIPALS = {USER: "User:ann", "": "User:ANONYMOUS"}
PREFIXES = {USER: "of-ann-", "": "of-nobody-"}
"""Name prefixes over which each user has rights."""
TOLD = {
    "partitions": 2,
    "read": ["committed"] * RECORDS + ["plain"] * RECORDS,
    "committed": True,
    "setting": "86400000",
    "denied": "TOPIC_AUTHORIZATION_FAILED",
    "deleted": True,
}
"""Results that a client reports at the end.

It has made a topic, written to it within transactions and without, and read it in a group that commits. It has
requested the group's offsets, changed a setting, tried to write without the right, and deleted the topic."""


@dataclass(frozen=True)
class Cell:
    """A way to log in: a protocol with a mechanism, a certificate, or neither."""

    name: str
    bootstrap: str
    protocol: str
    ca: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    """Password, or a token for OAUTHBEARER."""
    certificate: str = ""
    """File with the certificate chain; empty without a certificate."""
    key: str = ""
    both: str = ""
    """File with key and chain, as Java requires it."""
    topic: str = ""
    """Name of the topic, the group and the transactional id."""
    denied: str = ""
    """Topic of the other user."""

    @property
    def described(self) -> dict[str, str]:
        """The cell in a form for programs in other languages."""
        return asdict(self)


def cells(cluster: TlsCluster, client: str) -> list[Cell]:
    """Return all ways to log in, each with a separate topic for this client."""
    ca = str(cluster.ca_file)
    plain = Cell("SSL", cluster.bootstrap("CLIENTS"), "SSL", ca)
    files = cluster.client_files(USER)
    chain, key = files["ssl.certificate.location"], files["ssl.key.location"]
    both = cluster.directory / "both.pem"
    both.write_text(Path(key).read_text() + Path(chain).read_text())
    certified = replace(plain, name="SSL-certificate", certificate=chain, key=key, both=str(both))
    secrets = dict.fromkeys(MECHANISMS, PASSWORD) | {OAUTHBEARER: _token_file(cluster.directory).read_text()}
    logins = [
        Cell(f"{protocol}-{mechanism}", cluster.bootstrap(listener), protocol, ca, mechanism, USER, secret)
        for protocol, listener in (("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "LOGINS"))
        for mechanism, secret in secrets.items()
    ]
    return [_named(cell, client) for cell in (plain, certified, *logins)]


def _named(cell: Cell, client: str) -> Cell:
    user = USER if cell.user or cell.certificate else ""
    (denied,) = (prefix for known_user, prefix in PREFIXES.items() if known_user != user)
    return replace(cell, topic=f"{PREFIXES[user]}{client}-{cell.name}", denied=f"{denied}topic")


def admin_options(cluster: TlsCluster) -> dict[str, Any]:
    """Return options of Ottla's client for an administrator with all rights."""
    return {
        "bootstrap_servers": cluster.bootstrap("LOGINS"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": cluster.ca_file,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": ADMIN,
        "sasl_plain_password": ADMIN_PASSWORD,
    }


@contextmanager
def secured_cluster(directory: Path, brokers: int = 2, **settings: str) -> Iterator[TlsCluster]:
    """Run a secured cluster. PLAIN requires a login, CLIENTS uses TLS, LOGINS both. Users and their rights exist."""
    users = {ADMIN: ADMIN_PASSWORD, USER: PASSWORD}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    given = " ".join(f"user_{name}={jaas_quoted(password)}" for name, password in users.items())
    common = {
        "listener_security_protocol_map": "PLAIN:SASL_PLAINTEXT,CLIENTS:SSL,BROKERS:SSL,LOGINS:SASL_SSL",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": f"User:{ADMIN}",
    }
    for listener in ("plain", "logins"):
        common[f"listener_name_{listener}_sasl_enabled_mechanisms"] = ",".join(MECHANISMS)
        common[f"listener_name_{listener}_plain_sasl_jaas_config"] = f"{module} required {given};"
    common |= _tokens(directory)
    with tls_cluster(directory, brokers, **common | settings) as cluster:
        asyncio.run(_give_rights(cluster, brokers))
        yield cluster


def _tokens(directory: Path) -> dict[str, str]:
    """Return settings for tokens, with their signing key and a token in files."""
    key, keys = new_key("key"), directory / "keys.json"
    keys.write_bytes(key_set(key))
    _token_file(directory).write_text(signed(claims_of(USER, TOKEN_LASTS_S), key))
    return {
        "sasl_oauthbearer_jwks_endpoint_url": f"file://{keys}",
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }


def _token_file(directory: Path) -> Path:
    return directory / "token"


def jaas_quoted(text: str) -> str:
    """Quote a value for `sasl.jaas.config`."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _give_rights(cluster: TlsCluster, brokers: int) -> None:
    kinds = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
    acls = [
        Acl(kind, PREFIXES[user], PatternType.PREFIXED, principal, "*", AclOperation.ALL, AclPermission.ALLOW)
        for user, principal in PRINCIPALS.items()
        for kind in kinds
    ]
    async with Admin(**admin_options(cluster)) as admin:
        await admin.create_acls(acls)
        await admin.create_topics(
            [NewTopic(f"{prefix}topic", 1, min(2, brokers)) for prefix in PREFIXES.values()]
        )
        await admin.alter_scram_credentials(
            [UserPassword(USER, PASSWORD, name, 4096) for name in MECHANISMS if name.startswith("SCRAM")]
        )
    for broker in cluster.brokers:
        await _knows_users(admin_options(cluster) | {"bootstrap_servers": f"{HOST}:{broker.ports['LOGINS']}"})


@contextmanager
def acting_for_brokers(cluster: TlsCluster) -> Iterator[None]:
    """Give both users the brokers' right to the cluster within the block."""
    asyncio.run(_give_cluster_action(cluster))
    try:
        yield
    finally:
        asyncio.run(_take_cluster_action(cluster))


async def _give_cluster_action(cluster: TlsCluster) -> None:
    """Grant the right, and return once all brokers know of it."""
    options = admin_options(cluster)
    acls = [
        Acl(
            AclResourceType.CLUSTER,
            "kafka-cluster",
            PatternType.LITERAL,
            principal,
            "*",
            AclOperation.CLUSTER_ACTION,
            AclPermission.ALLOW,
        )
        for principal in PRINCIPALS.values()
    ]
    async with Admin(**options) as admin:
        await admin.create_acls(acls)
    for broker in cluster.brokers:
        async with Admin(**options | {"bootstrap_servers": f"{HOST}:{broker.ports['LOGINS']}"}) as admin:
            async with asyncio.timeout(START_S):
                while not set(acls) <= set(await admin.describe_acls()):
                    await asyncio.sleep(0.02)


async def _take_cluster_action(cluster: TlsCluster) -> None:
    async with Admin(**admin_options(cluster)) as admin:
        await admin.delete_acls([AclFilter(operation=AclOperation.CLUSTER_ACTION)])


async def _knows_users(options: dict[str, Any]) -> None:
    """Return once the broker accepts the password that was set last, so it knows all earlier changes, too."""
    ann = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD, "sasl_mechanism": "SCRAM-SHA-512"}
    async with asyncio.timeout(START_S):
        while True:
            try:
                async with Admin(**options | ann):
                    return
            except AuthenticationFailed:
                await asyncio.sleep(0.02)
