"""The certificate authority of a local cluster, and the certificates that it issues.

    FOLDER/ca.pem     the authority's certificate, which clients trust
    FOLDER/ca.key     its key
    FOLDER/NAME.pem   key and certificate of one owner, in one file

Existing files are kept. A certificate that is missing, about to expire, or for other hosts is issued again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...network.tls import pem
from ...network.tls.checks import alternative_names
from ...network.tls.failures import TlsUnusable
from ..failures import CommandFailed
from ..files import write_atomically

CA_FILE: Final = "ca.pem"
_KEY_FILE: Final = "ca.key"
_CA_DAYS: Final = 3650
_DAYS: Final = 825
_RENEWED_DAYS: Final = 90
"""Days before its expiry at which a certificate is renewed."""
_CLOCKS_DIFFER: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CertificateOwner:
    """The owner of a TLS certificate: a server that is reached under the names `hosts`, or a client without hosts."""

    name: str
    hosts: tuple[str, ...] = ()

    def file(self, folder: Path) -> Path:
        """Return the path of the file with the owner's private key and certificate."""
        return folder / f"{self.name}.pem"


def issue_missing(folder: Path, cluster: str, owners: Iterable[CertificateOwner], now: datetime) -> None:
    """Issue the owners' TLS certificates that are missing, about to expire, or without one of the owner's hosts.

    The first call creates the certificate authority of the cluster. Raises CommandFailed for unreadable files and for
    files that do not belong together.
    """
    authority = _opened(folder, now) if _is_used(folder) else _made(folder, cluster, now)
    for owner in owners:
        if not authority.has_issued(owner, now):
            authority.issue(owner, now)


def _is_used(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.pem"))


class _Authority:
    def __init__(
        self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | None
    ) -> None:
        self._folder = folder
        self._certificate = certificate
        self._key = key

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
            if self._key is None:
                raise CommandFailed(
                    f"{file} was not issued by {self._folder / CA_FILE}: put the cluster's own authority back, or "
                    f"remove the folder {self._folder} to start with a new one, which clients must then trust"
                ) from None
            return False
        holds_until = certificate.not_valid_after_utc - timedelta(days=_RENEWED_DAYS)
        return now < holds_until and set(owner.hosts) <= set(alternative_names(certificate))

    def issue(self, owner: CertificateOwner, now: datetime) -> None:
        """Write a new key and certificate. Raises CommandFailed without the authority's key."""
        if self._key is None:
            raise CommandFailed(
                f"{self._folder / _KEY_FILE} is gone, and {owner.name} needs a new certificate: put the key back, or "
                f"remove the folder {self._folder} to start with a new authority, which clients must then trust"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if owner.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        usages = [usage, ExtendedKeyUsageOID.CLIENT_AUTH] if owner.hosts else [usage]
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(owner.name))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS_DIFFER)
            .not_valid_after(min(now + timedelta(days=_DAYS), self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if owner.hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in owner.hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, SHA256())
        write_atomically(owner.file(self._folder), _key_text(key) + _text(certificate), mode=0o600)


def _made(folder: Path, cluster: str, now: datetime) -> _Authority:
    folder.mkdir(mode=0o700, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Ottla cluster {cluster}"[:64])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_FOR_SIGNING, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    write_atomically(folder / _KEY_FILE, _key_text(key), mode=0o600)
    write_atomically(folder / CA_FILE, _text(certificate), mode=0o600)
    return _Authority(folder, certificate, key)


_FOR_SIGNING: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _opened(folder: Path, now: datetime) -> _Authority:
    file, key_file = folder / CA_FILE, folder / _KEY_FILE
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
    if not key_file.exists():
        return _Authority(folder, certificate, None)
    key = _key_in(key_file)
    if key.public_key() != certificate.public_key():
        raise CommandFailed(f"{key_file} is not the key of {file}: put back the one that belongs to it")
    return _Authority(folder, certificate, key)


def _certificate_in(file: Path) -> x509.Certificate:
    try:
        found = pem.certificates(_read(file), str(file))
    except TlsUnusable as error:
        raise CommandFailed(str(error)) from None
    if not found:
        raise CommandFailed(f"{file} holds no certificate in PEM")
    return found[0]


def _key_in(file: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = pem.private_key(_read(file), None, str(file), "a password")
    except TlsUnusable as error:
        raise CommandFailed(str(error)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CommandFailed(f"{file} is no key on an elliptic curve, as 'ottla up' makes them")
    return key


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not a text file") from None


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
