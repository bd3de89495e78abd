"""The check that new keys and certificates of a listener may replace the present ones without locking out its peers."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import datetime

from cryptography.hazmat.primitives.serialization import Encoding

from ...network.tls.checks import alternative_names, check_validity, is_valid
from ...network.tls.contexts import client_context, server_context
from ...network.tls.failures import TlsUnusable
from ...network.tls.handshake import reason_of
from ...network.tls.handshake_check import check_handshake
from ...protocol.settings.config_key import ConfigError
from .distinguished_names import subject_name
from .listener_tls import ReloadedListener
from .tls_loading import LoadedTls, load_tls
from .tls_settings import TlsSettings


def successor(listener: ReloadedListener, settings: TlsSettings, now: datetime) -> LoadedTls:
    """Load a listener's new TLS settings with their key and certificate files. Raises ConfigError if they are invalid
    or must not replace the listener's current TLS.
    """
    loaded = load_tls(settings, listener.reached, now)
    check_successor(listener.tls.loaded, loaded, listener, now)
    return loaded


def validity_warnings(loaded: LoadedTls, now: datetime) -> frozenset[str]:
    """Return warnings if certificates of the listener expire soon, or have expired."""
    try:
        return frozenset(check_validity(loaded.keys, now))
    except TlsUnusable as error:
        return frozenset({str(error)})


def check_successor(old: LoadedTls, new: LoadedTls, listener: ReloadedListener, now: datetime) -> None:
    """Raise ConfigError if the TLS `new` must not replace `old` on a listener: its subject or alternative names differ
    without permission, or nodes could no longer connect.
    """
    source = new.keys.source
    subjects = [subject_name(loaded.keys.certificate.public_bytes(Encoding.DER)) for loaded in (old, new)]
    if subjects[0] != subjects[1] and not new.settings.allows_name_changes:
        raise ConfigError(
            f"{source}: the new certificate is of {subjects[1]!r}, the old one of {subjects[0]!r} "
            "(ssl.allow.dn.changes allows that)"
        )
    names = [set(alternative_names(loaded.keys.certificate)) for loaded in (old, new)]
    if names[0] != names[1] and not new.settings.allows_alternative_name_changes:
        raise ConfigError(
            f"{source}: the new certificate is for {sorted(names[1])}, the old one for {sorted(names[0])} "
            "(ssl.allow.san.changes allows that)"
        )
    if listener.is_between_nodes:
        # A node with an expired certificate cannot connect to any other node, so no node depends on it.
        beside = old if is_valid(old.keys, now) else _with_keys_of(new, old)
        _check_among_nodes(beside, new, None if listener.reached is None else listener.reached.host)


def _with_keys_of(new: LoadedTls, old: LoadedTls) -> LoadedTls:
    """Return the TLS of a node during a rollover: it has the certificate of `new`, and still the trust store of
    `old`.
    """
    rules = old.settings.rules
    return replace(
        old,
        accepting=server_context(rules, new.keys, old.trusted),
        dialling=client_context(rules, new.keys, old.trusted),
    )


def _check_among_nodes(old: LoadedTls, new: LoadedTls, host: str | None) -> None:
    """Raise ConfigError if nodes with the TLS `old` and `new` could not connect to each other. Nodes change their files
    at different times, so each end may have either.

    `host` is None if no node dials this one.
    """
    for accepting, dialling, which in (
        (new, old, "the old trust store refuses the new certificate"),
        (new, new, "the new trust store refuses the new certificate"),
        (old, new, "the new trust store refuses the old certificate"),
    ):
        try:
            check_handshake(accepting.accepting, dialling.dialling if host else _of_any_name(dialling), host)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{new.keys.source}: nodes could not connect to each other: {which}, or they agree on nothing "
                f"({reason_of(error)})"
            ) from None


def _of_any_name(dialling: LoadedTls) -> ssl.SSLContext:
    """Return a client context from this TLS that accepts a server certificate with any host name."""
    return client_context(
        replace(dialling.settings.rules, checks_names=False), dialling.keys, dialling.trusted
    )
