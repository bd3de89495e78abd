"""What stores and contexts are made of, as whoever configures them says it.

Reading such settings loads no library of certificates: processes without TLS do without its memory.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The versions that are spoken, by Kafka's names, the older first."""


class ClientAuth(Enum):
    """Whether a server asks its clients for certificates, by Kafka's names."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsRules:
    """What both ends may agree on, and which options said so."""

    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    cipher_suites: tuple[str, ...] = ()
    client_auth: ClientAuth = ClientAuth.NONE
    checks_names: bool = True
    """A client compares the name that it dials with the server's certificate."""
    crl: Path | None = None
    key_log: Path | None = None
    """Where the keys of all connections are written, so that recordings of them can be decrypted."""
    protocols_option: str = "ssl.enabled.protocols"
    suites_option: str = "ssl.cipher.suites"
    crl_option: str = "ssl.crl.location"
    key_log_option: str = "ssl.keylog.enable"


class StoreType(Enum):
    """The kinds of stores, by Kafka's names."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Where a store is, and what opens it. Options are named as whoever configures them knows them."""

    option: str
    """The option that names the file, or that holds the certificates."""
    path: Path | None = None
    declared: StoreType | None = None
    password: str | None = field(default=None, repr=False)
    password_option: str = "the password"
    key_password: str | None = field(default=None, repr=False)
    key_password_option: str = "the password of the key"
    certificates: str = field(default="", repr=False)
    """PEM text in place of a file."""
    key: str = field(default="", repr=False)
    """PEM text of the private key beside it."""
    key_option: str = ""

    def __str__(self) -> str:
        return self.option if self.path is None else f"{self.option}: {self.path}"


@dataclass(frozen=True, slots=True)
class ReachedAs:
    """By which name others dial a server."""

    host: str
    told: str
    """Who knows the name from where, for messages: "which clients are told (advertised.listeners)"."""
