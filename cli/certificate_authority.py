"""The certificate authority of a cluster, and the certificates that it issues.

    FOLDER/ca.pem     the authority's certificate, which clients trust
    FOLDER/ca.key     its key
    FOLDER/NAME.pem   key and certificate of one owner, in one file

Existing files are kept. For a local cluster, a certificate that is missing, about to expire, or for other hosts is
issued again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from ..network.tls import pem
from ..network.tls.checks import alternative_names
from ..network.tls.failures import TlsUnusable
from ..network.tls.issuing import (
    AuthorityKey,
    CertificateOwner,
    Issued,
    Issuer,
    certificate_text,
    new_issuer,
)
from .arguments.certificate_names import AUTHORITY_DAYS, DAYS
from .failures import CommandFailed
from .files import write_atomically

CA_FILE: Final = "ca.pem"
KEY_FILE: Final = "ca.key"
_RENEWED_DAYS: Final = 90
"""Days before its expiry at which a certificate is renewed."""


def issue_missing(
    folder: Path, cluster: str, owners: Iterable[CertificateOwner], now: datetime
) -> list[CertificateOwner]:
    """Issue the owners' TLS certificates that are missing, about to expire, or without one of the owner's hosts.

    Returns the owners whose certificate was replaced. The first call creates the certificate authority of the cluster.
    Raises CommandFailed for unreadable files and for files that do not belong together.
    """
    authority = open_authority(folder, now) if is_used(folder) else create_authority(folder, cluster, now)
    replaced = []
    for owner in owners:
        if authority.has_issued(owner, now):
            continue
        file = owner.file(folder)
        if file.exists():
            replaced.append(owner)
        write_atomically(file, authority.issue(owner, now).text, mode=0o600)
    return replaced


def is_used(folder: Path) -> bool:
    """Return whether the folder has certificates."""
    return folder.is_dir() and any(folder.glob("*.pem"))


class Authority:
    """A certificate authority with its folder; it can issue certificates while its key is there."""

    def __init__(self, folder: Path, certificate: x509.Certificate, key: AuthorityKey | None) -> None:
        self._folder = folder
        self._certificate = certificate
        self._issuer = None if key is None else Issuer(certificate, key)

    @property
    def expires(self) -> datetime:
        """The end of the validity of the authority's certificate. No certificate outlives it."""
        return self._certificate.not_valid_after_utc

    @property
    def text(self) -> str:
        """The certificate of the authority in PEM, which clients and nodes trust."""
        return certificate_text(self._certificate)

    def has_issued(self, owner: CertificateOwner, now: datetime) -> bool:
        """Return whether the owner has a certificate that is valid for long enough.

        A certificate of another authority raises CommandFailed, unless this authority can issue a new one.
        """
        file = owner.file(self._folder)
        if not file.exists():
            return False
        certificate = _certificate_in(file)
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, ValueError, TypeError):
            if self._issuer is None:
                raise CommandFailed(
                    f"{file} was not issued by {self._folder / CA_FILE}: put the cluster's own authority back, or "
                    f"remove the folder {self._folder} to start with a new one, which clients must then trust"
                ) from None
            return False
        holds_until = certificate.not_valid_after_utc - timedelta(days=_RENEWED_DAYS)
        return now < holds_until and set(owner.hosts) <= set(alternative_names(certificate))

    def issue(self, owner: CertificateOwner, now: datetime, days: int = DAYS) -> Issued:
        """Issue a certificate for a new key. It is valid for `days`, and no longer than the authority.

        Raises CommandFailed without the authority's key.
        """
        if self._issuer is None:
            raise CommandFailed(
                f"{self._folder / KEY_FILE} is gone, and {owner.name} needs a new certificate: put the key back, or "
                f"remove the folder {self._folder} to start with a new authority, which clients must then trust"
            )
        return self._issuer.issue(owner, now, days)


def create_authority(folder: Path, cluster: str, now: datetime, days: int = AUTHORITY_DAYS) -> Authority:
    """Create the certificate authority of a cluster in a folder, and write its key and certificate."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    issuer = new_issuer(f"Ottla cluster {cluster}"[:64], now, days)
    write_atomically(folder / KEY_FILE, issuer.key_text, mode=0o600)
    write_atomically(folder / CA_FILE, issuer.text, mode=0o600)
    return Authority(folder, issuer.certificate, issuer.key)


def open_authority(folder: Path, now: datetime) -> Authority:
    """Return the certificate authority in a folder. Its key may be absent.

    Raises CommandFailed for a missing or expired certificate, and for files that are no authority.
    """
    file, key_file = folder / CA_FILE, folder / KEY_FILE
    if not file.exists():
        raise CommandFailed(
            f"{file} is gone, the authority that clients of this cluster trust: put it back, or remove the folder "
            f"{folder} to begin with a new one"
        )
    certificate = _certificate_in(file)
    if certificate.not_valid_after_utc <= now:
        raise CommandFailed(
            f"{file} has expired on {certificate.not_valid_after_utc:%Y-%m-%d}: remove the folder {folder} to begin "
            "with a new authority, which clients must then trust"
        )
    if not _is_authority(certificate):
        raise CommandFailed(
            f"{file} is no certificate of an authority: its basic constraints do not have CA:TRUE"
        )
    if certificate.issuer != certificate.subject:
        raise CommandFailed(
            f"{file} was issued by another authority, {certificate.issuer.rfc4514_string()}: only an authority that "
            "has signed its own certificate can issue certificates here"
        )
    if not key_file.exists():
        return Authority(folder, certificate, None)
    key = _key_in(key_file)
    if key.public_key() != certificate.public_key():
        raise CommandFailed(f"{key_file} is not the key of {file}: put back the key that belongs to it")
    return Authority(folder, certificate, key)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _certificate_in(file: Path) -> x509.Certificate:
    try:
        found = pem.certificates(_read(file), str(file))
    except TlsUnusable as error:
        raise CommandFailed(str(error)) from None
    if not found:
        raise CommandFailed(f"{file} holds no certificate in PEM")
    return found[0]


def _key_in(file: Path) -> AuthorityKey:
    try:
        key = pem.private_key(_read(file), None, str(file), "a password")
    except TlsUnusable as error:
        raise CommandFailed(str(error)) from None
    if not isinstance(key, AuthorityKey):
        raise CommandFailed(f"{file} is no key for ECDSA or RSA, with which certificates are signed here")
    return key


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not a text file") from None
