"""The TLS settings of a listener, from Kafka's keys: `listener.name.NAME.KEY` takes precedence over `KEY`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...network.tls.settings import PROTOCOLS, ClientAuth, StoreSource, StoreType, TlsRules
from ...protocol.settings.config_fields import default_text
from ...protocol.settings.config_key import ConfigError
from ...protocol.settings.config_keys import NODE_KEYS
from ...protocol.settings.config_listeners import LISTENER_PREFIX

CLIENT_AUTH: Final = "ssl.client.auth"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings from which the TLS contexts of a listener are made."""

    listener: str
    rules: TlsRules
    keys: StoreSource
    trusted: StoreSource | None
    mapping_rules: str
    mapping_option: str
    allows_name_changes: bool = False
    allows_alternative_name_changes: bool = False
    asks_for_login: bool = False
    """True if the listener's clients log in by SASL, too."""
    between_nodes: bool = False
    """True for the quorum's listener, which only nodes use: both sides always show certificates."""
    prefix: str = ""
    """The prefix argument of `tls_settings`."""
    remarks: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The paths of the key store, trust store and revocation list from which the TLS contexts are made."""
        paths = (self.keys.path, self.trusted.path if self.trusted else None, self.rules.crl)
        return tuple(path for path in paths if path is not None)


def tls_settings(
    properties: Mapping[str, str],
    listener: str,
    *,
    asks_for_login: bool = False,
    between_nodes: bool = False,
    prefix: str = "",
) -> TlsSettings:
    """Return the settings of a listener whose security protocol has TLS. Raises ConfigError.

    `prefix` is the prefix of its keys, if it is not a listener of a broker. If clients log in by SASL, they need a
    certificate only if the listener's own key says so (KIP-684). If only nodes connect, they always need one.
    """
    if asks_for_login and CLIENT_AUTH in properties:
        remark = (
            f"{CLIENT_AUTH} does not count for the listener {listener}, whose clients log in: "
            f"{LISTENER_PREFIX}{listener.lower()}.{CLIENT_AUTH} does"
        )
        rest = {name: text for name, text in properties.items() if name != CLIENT_AUTH}
        settings = tls_settings(rest, listener, asks_for_login=True, prefix=prefix)
        return replace(settings, remarks=(*settings.remarks, remark))
    keys = _Keys(properties, listener, prefix or f"{LISTENER_PREFIX}{listener.lower()}.")
    rules, remarks = _rules(keys)
    if between_nodes:
        rules = replace(rules, client_auth=ClientAuth.REQUIRED)
    mapping_option, mapping = keys.given("ssl.principal.mapping.rules")
    return TlsSettings(
        listener=listener,
        rules=rules,
        keys=_key_store(keys),
        trusted=_trust_store(keys),
        mapping_rules=mapping or default_text("ssl.principal.mapping.rules"),
        mapping_option=mapping_option,
        allows_name_changes=keys.value("ssl.allow.dn.changes")[1] is True,
        allows_alternative_name_changes=keys.value("ssl.allow.san.changes")[1] is True,
        asks_for_login=asks_for_login,
        between_nodes=between_nodes,
        prefix=prefix,
        remarks=remarks,
    )


class _Keys:
    def __init__(self, properties: Mapping[str, str], listener: str, prefix: str) -> None:
        self._properties = properties
        self.listener = listener
        self._prefix = prefix

    def given(self, key: str) -> tuple[str, str | None]:
        """Return the full name and the text of a key, with the listener's prefix if it is given so. Returns the bare
        name and None if it is not configured.
        """
        for name in (self._prefix + key, key):
            text = self._properties.get(name)
            if text is not None:
                return name, text.strip()
        return key, None

    def own_name(self, key: str) -> str:
        """Return the full name of a key with the prefix that makes it apply to this listener alone."""
        return self._prefix + key

    def for_all(self, key: str) -> str:
        """Return the end of an error message: it mentions that the key without a prefix applies to all listeners."""
        return f", or {key} for all listeners" if self._prefix.startswith(LISTENER_PREFIX) else ""

    def text(self, key: str) -> str | None:
        """Return the text of a key; None if it is not configured, or empty."""
        return self.given(key)[1] or None

    def value(self, key: str) -> tuple[str, object]:
        """Return the full name of a key, and its parsed value or default. Raises ConfigError."""
        name, text = self.given(key)
        declared = NODE_KEYS[key]
        if not text:
            text = declared.default or ""
        return name, declared.parse(text)


def _rules(keys: _Keys) -> tuple[TlsRules, tuple[str, ...]]:
    protocols_option, enabled = keys.value("ssl.enabled.protocols")
    newest_option, newest = keys.value("ssl.protocol")
    assert isinstance(enabled, list)
    versions = list(PROTOCOLS)
    spoken = tuple(
        version
        for version in versions
        if version in enabled and versions.index(version) <= versions.index(str(newest))
    )
    if not spoken:
        raise ConfigError(
            f"{newest_option} is {newest}, and {protocols_option} has nothing as old: {', '.join(enabled) or 'nothing'}"
        )
    suites_option, suites = keys.given("ssl.cipher.suites")
    crl_option, crl = keys.given("ssl.crl.location")
    identification_option, identification = keys.given("ssl.endpoint.identification.algorithm")
    remarks: tuple[str, ...] = ()
    if identification is not None and identification.lower() not in ("https", ""):
        raise ConfigError(f"{identification_option} is {identification!r}: it must be https, or empty")
    if identification == "":
        remarks = (
            f"{identification_option} is empty: nodes do not check for which host the certificate is that they are "
            "shown",
        )
    key_log_option, logs_keys = keys.value("ssl.keylog.enable")
    key_log = os.environ.get("SSLKEYLOGFILE", "") if logs_keys else ""
    if key_log:
        remarks += (f"{key_log_option}: whoever reads {key_log} can decrypt what goes over {keys.listener}",)
    elif logs_keys:
        remarks += (f"{key_log_option} has no effect: the variable SSLKEYLOGFILE is not set",)
    rules = TlsRules(
        protocols=spoken,
        cipher_suites=tuple(filter(None, map(str.strip, (suites or "").split(",")))),
        client_auth=ClientAuth(keys.value(CLIENT_AUTH)[1]),
        checks_names=identification != "",
        crl=Path(crl) if crl else None,
        protocols_option=protocols_option,
        suites_option=suites_option,
        crl_option=crl_option,
        key_log=Path(key_log) if key_log else None,
        key_log_option=key_log_option,
    )
    return rules, remarks


def _key_store(keys: _Keys) -> StoreSource:
    location_option, location = keys.given("ssl.keystore.location")
    key_option, key = keys.given("ssl.keystore.key")
    chain_option, chain = keys.given("ssl.keystore.certificate.chain")
    _check_alone(location_option, location, key_option, key)
    _check_alone(location_option, location, chain_option, chain)
    if bool(key) != bool(chain):
        raise ConfigError(f"{key_option} and {chain_option} go together, and one of them is not given")
    if not (location or key):
        raise ConfigError(
            f"the listener {keys.listener} speaks TLS and has no certificate: give "
            f"{keys.own_name('ssl.keystore.location')}{keys.for_all('ssl.keystore.location')}"
        )
    return StoreSource(
        option=location_option if location else chain_option,
        path=Path(location) if location else None,
        declared=_declared(keys, "ssl.keystore.type"),
        password=keys.text("ssl.keystore.password"),
        password_option=keys.given("ssl.keystore.password")[0],
        key_password=keys.text("ssl.key.password"),
        key_password_option=keys.given("ssl.key.password")[0],
        certificates=chain or "",
        key=key or "",
        key_option=key_option,
    )


def _trust_store(keys: _Keys) -> StoreSource | None:
    location_option, location = keys.given("ssl.truststore.location")
    text_option, text = keys.given("ssl.truststore.certificates")
    _check_alone(location_option, location, text_option, text)
    if not (location or text):
        return None
    return StoreSource(
        option=location_option if location else text_option,
        path=Path(location) if location else None,
        declared=_declared(keys, "ssl.truststore.type"),
        password=keys.text("ssl.truststore.password"),
        password_option=keys.given("ssl.truststore.password")[0],
        certificates=text or "",
    )


def _check_alone(location_option: str, location: str | None, option: str, text: str | None) -> None:
    if location and text:
        raise ConfigError(
            f"{location_option} and {option} are both given: a store is either a file or PEM text"
        )


def _declared(keys: _Keys, key: str) -> StoreType | None:
    """Return the declared type of a key store or trust store; None if it is not configured."""
    text = keys.text(key)
    return StoreType(text) if text else None
