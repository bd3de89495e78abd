"""Settings of key stores, trust stores and TLS contexts, with the option names that error texts mention.

Reading such settings loads no certificate library, which saves memory in processes without TLS.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The supported TLS versions by Kafka's names, oldest first."""


class ClientAuth(Enum):
    """A server's demand for client certificates, by the values of Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsRules:
    """Settings of a TLS context: versions, cipher suites and certificate checks, and the names of the options that set
    them."""

    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    cipher_suites: tuple[str, ...] = ()
    client_auth: ClientAuth = ClientAuth.NONE
    checks_names: bool = True
    """True if a client compares the name that it dials with the server's certificate."""
    crl: Path | None = None
    key_log: Path | None = None
    """File to which the keys of all connections are written, so that captured traffic can be decrypted."""
    protocols_option: str = "ssl.enabled.protocols"
    suites_option: str = "ssl.cipher.suites"
    crl_option: str = "ssl.crl.location"
    key_log_option: str = "ssl.keylog.enable"


class StoreType(Enum):
    """File formats of key and trust stores, by the values of Kafka's `ssl.keystore.type`."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Location, format and passwords of a key or trust store: a file, or PEM text in the configuration. The option
    names in error texts are the ones that the user configured."""

    option: str
    """Option that names the file or holds the certificates."""
    path: Path | None = None
    declared: StoreType | None = None
    password: str | None = field(default=None, repr=False)
    password_option: str = "the password"
    key_password: str | None = field(default=None, repr=False)
    key_password_option: str = "the password of the key"
    certificates: str = field(default="", repr=False)
    """PEM text instead of a file."""
    key: str = field(default="", repr=False)
    """PEM text of the private key that belongs to `certificates`."""
    key_option: str = ""

    def __str__(self) -> str:
        return self.option if self.path is None else f"{self.option}: {self.path}"


@dataclass(frozen=True, slots=True)
class ReachedAs:
    """The host name or address by which clients dial a server, and the origin of that name."""

    host: str
    told: str
    """Origin of the name, for messages: "which clients are told (advertised.listeners)"."""
