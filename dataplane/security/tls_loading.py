"""The loading of a listener's stores: they are read, checked, and turned into contexts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ...network.tls.checks import check_server_use, check_validity
from ...network.tls.contexts import client_context, server_context
from ...network.tls.failures import TlsUnusable
from ...network.tls.settings import ClientAuth, ReachedAs
from ...network.tls.stores import KeyStore, TrustStore, load_key_store, load_trust_store
from ...protocol.settings.config_key import ConfigError
from .principal_mapping import PrincipalMapping
from .tls_settings import TlsSettings


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A listener's loaded TLS: the context for accepted connections, the context for connections to other brokers, and
    the stores that they were made from.
    """

    settings: TlsSettings
    keys: KeyStore
    trusted: TrustStore | None
    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    mapping: PrincipalMapping
    remarks: tuple[str, ...]


def load_tls(settings: TlsSettings, reached: ReachedAs | None, now: datetime) -> LoadedTls:
    """Read and check a listener's key store and trust store, and create its TLS contexts.

    `reached` is the address that others dial; None if no program dials it, or the name is unknown. Raises ConfigError
    that names option, file and cause.
    """
    try:
        keys = load_key_store(settings.keys)
        trusted = None if settings.trusted is None else load_trust_store(settings.trusted)
        remarks = (
            *settings.remarks,
            *keys.remarks,
            *(trusted.remarks if trusted else ()),
            *check_validity(keys, now),
            *check_server_use(keys, reached),
            *_check_trust(settings),
        )
        return LoadedTls(
            settings,
            keys,
            trusted,
            server_context(settings.rules, keys, trusted),
            client_context(settings.rules, keys, trusted),
            PrincipalMapping(settings.mapping_rules, settings.mapping_option),
            remarks,
        )
    except (TlsUnusable, ValueError) as error:
        raise ConfigError(str(error)) from None


def _check_trust(settings: TlsSettings) -> Iterator[str]:
    if settings.trusted is None and settings.rules.client_auth is not ClientAuth.NONE:
        yield (
            f"listener {settings.listener} asks clients for certificates and believes none: "
            "ssl.truststore.location is not given"
        )
