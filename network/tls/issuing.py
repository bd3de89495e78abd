"""Certificates that are issued here, for nodes and clients, by an authority that has signed its own certificate.

Nothing is written: callers decide where keys and certificates are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NODE_UNIT: Final = "Ottla node"
"""The organisational unit in the subject of each node's certificate. Clients' certificates have none."""
_CLOCKS_DIFFER: Final = timedelta(hours=1)
AuthorityKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class CertificateOwner:
    """The owner of a TLS certificate: a node that is reached under the names `hosts`, or a client without hosts."""

    name: str
    hosts: tuple[str, ...] = ()

    def file(self, folder: Path) -> Path:
        """Return the path of the file with the owner's private key and certificate."""
        return folder / f"{self.name}.pem"

    @property
    def subject(self) -> x509.Name:
        """The subject of the owner's certificate. Its common name is the owner's name."""
        return _name(self.name, NODE_UNIT if self.hosts else None)

    @property
    def principal(self) -> str:
        """The name of the owner's user on a listener that maps no names: the subject of the certificate."""
        return self.subject.rfc4514_string()


@dataclass(frozen=True, slots=True)
class Issued:
    """A new private key with its certificate, both as text in PEM, and the end of the certificate's validity."""

    key: str = field(repr=False)
    certificate: str
    expires: datetime

    @property
    def text(self) -> str:
        """The key and the certificate in one text."""
        return self.key + self.certificate


@dataclass(frozen=True, slots=True)
class Issuer:
    """A certificate authority that can issue certificates: its own certificate, and the key that belongs to it."""

    certificate: x509.Certificate
    key: AuthorityKey = field(repr=False)

    @property
    def text(self) -> str:
        """The certificate of the authority in PEM, which clients and nodes trust."""
        return certificate_text(self.certificate)

    @property
    def key_text(self) -> str:
        """The key of the authority in PEM."""
        return _key_text(self.key)

    def issue(self, owner: CertificateOwner, now: datetime, days: int) -> Issued:
        """Issue a certificate for a new key. It is valid for `days`, and no longer than the authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if owner.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        usages = [usage, ExtendedKeyUsageOID.CLIENT_AUTH] if owner.hosts else [usage]
        expires = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(owner.subject)
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS_DIFFER)
            .not_valid_after(expires)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_authority_key(self.certificate), critical=False)
        )
        if owner.hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in owner.hosts])
            builder = builder.add_extension(names, critical=False)
        return Issued(_key_text(key), certificate_text(builder.sign(self.key, SHA256())), expires)


def new_issuer(name: str, now: datetime, days: int) -> Issuer:
    """Return a new certificate authority, whose certificate has this common name and is valid for `days`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_FOR_SIGNING, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return Issuer(certificate, key)


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


def certificate_text(certificate: x509.Certificate) -> str:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM).decode()


def _authority_key(certificate: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the identifier of the authority's key, as the authority's own certificate has it."""
    try:
        own = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        own = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _name(common_name: str, unit: str | None = None) -> x509.Name:
    units = [] if unit is None else [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
    return x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_text(key: AuthorityKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
