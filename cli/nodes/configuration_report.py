"""A report on the security of a node by its settings, made without starting the node: no port is bound, no folder
touched."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...network.addresses import host_port
from ...network.loopback import is_loopback
from ...network.resolving import WILDCARDS
from ...network.tls.checks import alternative_names, subject_of
from ...network.tls.settings import ClientAuth
from ...protocol.cluster.authorizer_settings import AuthorizerSettings
from ...protocol.settings.config_keys import ConfigError, Scope, check_properties
from ...protocol.settings.security_protocol import SecurityProtocol
from ..build import Build, this_build
from ..failures import CommandFailed
from .config_providers import ResolvedSettings
from .node import with_endpoint

if TYPE_CHECKING:
    from ...dataplane.configuration.config import BrokerConfig, ListenerConfig
    from ...dataplane.configuration.sasl import MechanismConfig
    from ...dataplane.security.oauth.settings import BearerSettings
    from ...dataplane.security.tls_loading import LoadedTls

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """The TLS certificate of a listener: file, subject, host names and expiry."""

    source: str
    subject: str
    names: list[str]
    expires: str
    clients_trusted: int
    """The number of certificates that are trusted to sign those of clients and other brokers."""


@dataclass(frozen=True, slots=True)
class MechanismReport:
    """A SASL mechanism of a listener, and the source of its users."""

    name: str
    users: str


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """A listener of a node: addresses, protocol, TLS certificate and login mechanisms."""

    name: str
    address: str
    advertised: str
    protocol: str
    client_certificates: str
    between_brokers: bool
    certificate: CertificateReport | None
    mechanisms: list[MechanismReport]


@dataclass(frozen=True, slots=True)
class AuthorizerReport:
    """The permissions that apply without any ACL: the super users, and whether resources without ACLs are open to every
    client."""

    super_users: list[str]
    open_without_acls: bool


@dataclass(frozen=True, slots=True)
class ConfigurationReport:
    """A report on a node's security according to its settings: listeners, authorizer, encryption and warnings."""

    role: str
    node_id: int
    listeners: list[ListenerReport]
    quorum_certificate: CertificateReport | None
    """The certificate that a broker presents to quorum nodes, if their listener has TLS."""
    authorizer: AuthorizerReport | None
    link_encryption: str
    build: Build
    remarks: list[str]


def report_of(role: str, settings: ResolvedSettings, now: datetime) -> ConfigurationReport:
    """Read a node's settings as its start would, and return the report on its security.

    `now` is compared with certificates' expiry. Raises CommandFailed with the error of the node's start.
    """
    values = settings.values
    remarks: list[str] = []
    shown: CertificateReport | None = None
    try:
        with _warnings_into(remarks):
            remarks += check_properties(values, Scope.QUORUM if role == "quorum" else Scope.BROKER)
            with_endpoint(values, [])
            if role == "quorum":
                node_id, listeners = _quorum(values, remarks)
            else:
                node_id, listeners = _broker(values, now, remarks)
                shown = _shown_to_quorum(values, remarks)
            authorizer = AuthorizerSettings.from_properties(values)
    except ConfigError as error:
        raise CommandFailed(str(error)) from None
    remarks += _of_authorizer(authorizer, values, listeners)
    remarks += _of_links(values)
    remarks += _of_files(values)
    return ConfigurationReport(
        role,
        node_id,
        listeners,
        shown,
        None
        if authorizer is None
        else AuthorizerReport(sorted(authorizer.super_users), authorizer.open_without_acls),
        _link_encryption(values),
        this_build(),
        list(dict.fromkeys(remarks)),
    )


@contextmanager
def _warnings_into(remarks: list[str]) -> Iterator[None]:
    """Add the log warnings that a node's start would write to `remarks`, while the block runs."""

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            remarks.append(record.getMessage())

    logger, handler = logging.getLogger("ottla"), Collecting(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def _quorum(values: Mapping[str, str], remarks: list[str]) -> tuple[int, list[ListenerReport]]:
    from ...dataplane.security.node_tls import quorum_listener
    from ...metadata_quorum.config import QuorumNodeConfig
    from .quorum_tls import quorum_tls

    config = QuorumNodeConfig.from_properties(values)
    host, port = config.voters[config.node_id]
    tls = quorum_tls(values, host)
    if tls is not None:
        remarks += tls.remarks
    listener = ListenerReport(
        name=quorum_listener(values),
        address=host_port(config.listen_host, config.listen_port),
        advertised=host_port(host, port),
        protocol="proof of the secret" if tls is None else "proof of the secret, under TLS",
        client_certificates="" if tls is None else "required",
        between_brokers=False,
        certificate=None if tls is None else _certificate(tls.loaded),
        mechanisms=[],
    )
    return config.node_id, [listener]


def _shown_to_quorum(values: Mapping[str, str], remarks: list[str]) -> CertificateReport | None:
    from .quorum_tls import quorum_tls

    tls = quorum_tls(values, None)
    if tls is None:
        return None
    remarks += tls.remarks
    return _certificate(tls.loaded)


def _broker(values: Mapping[str, str], now: datetime, remarks: list[str]) -> tuple[int, list[ListenerReport]]:
    from ...dataplane.configuration.config import BrokerConfig

    config = BrokerConfig.from_properties(values)
    reports = []
    for listener in config.listeners:
        loaded = _loaded(listener, now)
        if loaded is not None:
            remarks += loaded.remarks
        remarks += _of_kerberos(listener)
        report = _listener(config, listener, loaded)
        reports.append(report)
        remarks += _of_listener(listener, report)
        if listener.is_advertised and listener.host in WILDCARDS and not values.get("advertised.listeners"):
            remarks.append(
                f"listener {listener.name} listens at every address, and clients connect to {report.advertised}:"
                " advertised.listeners names another host"
            )
        if config.token_keys is not None:
            remarks += _of_delegation_tokens(listener)
    return config.node_id, reports


def _loaded(listener: ListenerConfig, now: datetime) -> LoadedTls | None:
    from ...dataplane.security.listener_tls import reached_by_clients
    from ...dataplane.security.tls_loading import load_tls

    return (
        None
        if listener.tls is None
        else load_tls(listener.tls, reached_by_clients(listener.advertised_host), now)
    )


def _of_kerberos(listener: ListenerConfig) -> Iterator[str]:
    """Yield warnings about Kerberos keytabs of a listener that other users can read.

    Raises ConfigError for an unusable keytab.
    """
    from ...dataplane.security.sasl.kerberos_acceptor import KerberosAcceptor

    for mechanism in listener.sasl.mechanisms if listener.sasl is not None else ():
        if mechanism.kerberos is not None:
            KerberosAcceptor(mechanism.kerberos).close()
            yield from _readable_by_others(mechanism.kerberos.option, Path(mechanism.kerberos.keytab))


def _listener(config: BrokerConfig, listener: ListenerConfig, loaded: LoadedTls | None) -> ListenerReport:
    return ListenerReport(
        name=listener.name,
        address=host_port(listener.host, listener.port),
        advertised=host_port(listener.advertised_host, listener.advertised_port)
        if listener.is_advertised
        else "",
        protocol=listener.security_protocol.value,
        client_certificates="" if listener.tls is None else listener.tls.rules.client_auth.value,
        between_brokers=listener.name == config.inter_broker_listener,
        certificate=None if loaded is None else _certificate(loaded),
        mechanisms=[]
        if listener.sasl is None
        else [_mechanism(mechanism) for mechanism in listener.sasl.mechanisms],
    )


def _certificate(loaded: LoadedTls) -> CertificateReport:
    certificate = loaded.keys.certificate
    soonest = min(link.not_valid_after_utc for link in loaded.keys.chain)
    return CertificateReport(
        source=str(loaded.keys.source),
        subject=subject_of(certificate).strip("'"),
        names=alternative_names(certificate),
        expires=soonest.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        clients_trusted=0 if loaded.trusted is None else len(loaded.trusted.certificates),
    )


def _mechanism(config: MechanismConfig) -> MechanismReport:
    from ...dataplane.configuration.sasl import VERIFY_BY_SCRAM
    from ...dataplane.security.sasl.plain import PLAIN

    if config.bearer is not None:
        return MechanismReport(config.name, _bearers(config.bearer))
    if config.kerberos is not None:
        return MechanismReport(config.name, f"those of Kerberos, by the key of {config.kerberos.principal}")
    if config.name != PLAIN:
        return MechanismReport(config.name, "kept by the quorum")
    if config.verify == VERIFY_BY_SCRAM:
        return MechanismReport(config.name, "those of SCRAM")
    assert config.module is not None, "the configuration has been checked"
    listed = [name for name in config.module.options if name.startswith("user_")]
    return MechanismReport(config.name, f"{len(listed)} in sasl.jaas.config")


def _bearers(settings: BearerSettings) -> str:
    if settings.source is None:
        return "any client"
    return f"those of {settings.rules.issuer or settings.source.url}"


def _of_listener(listener: ListenerConfig, report: ListenerReport) -> Iterator[str]:
    protocol, where = listener.security_protocol, f"listener {listener.name}"
    for mechanism in listener.sasl.mechanisms if listener.sasl is not None else ():
        yield from () if mechanism.bearer is None else mechanism.bearer.remarks
    if is_loopback(listener.host):
        return
    if protocol is SecurityProtocol.PLAINTEXT:
        yield f"{where} is PLAINTEXT at {report.address}: anyone on the network can read and change all data in transit"
    if protocol is SecurityProtocol.SASL_PLAINTEXT:
        shown = {"PLAIN": "passwords", "OAUTHBEARER": "tokens"}
        read = [shown[mechanism.name] for mechanism in report.mechanisms if mechanism.name in shown]
        yield (
            f"{where} is SASL_PLAINTEXT at {report.address}: {' and '.join((*read, 'all records'))} can be read on the "
            "way"
        )


def _of_delegation_tokens(listener: ListenerConfig) -> Iterator[str]:
    if listener.security_protocol is SecurityProtocol.SASL_PLAINTEXT and not is_loopback(listener.host):
        yield f"listener {listener.name} is SASL_PLAINTEXT: delegation tokens that are made there can be read"


def _of_authorizer(
    authorizer: AuthorizerSettings | None, values: Mapping[str, str], listeners: Iterable[ListenerReport]
) -> Iterator[str]:
    if authorizer is None:
        yield "authorizer.class.name is not given: every client that connects may do everything"
        if values.get("super.users", "").strip():
            yield "super.users has no effect without authorizer.class.name"
        return
    if not authorizer.super_users:
        yield (
            "super.users is empty: no user may create the first ACL or user. 'ottla quorum --add-scram' makes a user, "
            "and super.users has to name it"
        )
    if ANONYMOUS in authorizer.super_users:
        yield f"super.users has {ANONYMOUS}: clients without a login may do everything"
    if authorizer.open_without_acls:
        yield "allow.everyone.if.no.acl.found is true: every client may do what no ACL is about"
    for listener in listeners:
        if listener.protocol == SecurityProtocol.PLAINTEXT or (
            listener.protocol == SecurityProtocol.SSL
            and listener.client_certificates != ClientAuth.REQUIRED.value
        ):
            yield f"clients of listener {listener.name} may be {ANONYMOUS}: ACLs for that user are for all of them"


def _of_links(values: Mapping[str, str]) -> Iterator[str]:
    if _link_encryption(values) != "required":
        yield "cluster.link.encryption is preferred: links to nodes of older versions are not encrypted"


def _link_encryption(values: Mapping[str, str]) -> str:
    return values.get("cluster.link.encryption", "").strip() or "preferred"


def _of_files(values: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings about a node's secret files that other users can read."""
    for key, text in values.items():
        if key.endswith(("ssl.keystore.location", "secret.file")) and text.strip():
            yield from _readable_by_others(key, Path(text.strip()))


def _readable_by_others(key: str, path: Path) -> Iterator[str]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield f"{key}: others may read {path}: chmod 600 {path}"
