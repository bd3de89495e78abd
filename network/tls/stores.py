"""Key stores and trust stores, in PEM, PKCS12 or JKS.

The content of a file decides its type. `keytool` has written PKCS12 into files called `.jks` since Java 9, and users
declare such files as JKS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from . import jks, pem
from .failures import TlsUnusable
from .settings import StoreSource, StoreType
from .unreadable import UNREADABLE

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_DER_SEQUENCE: Final = 0x30


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificate chain: the key's own certificate first, then each signer below the root.
    `remarks` are warnings for the log."""

    key: PrivateKeyTypes = field(repr=False)
    chain: tuple[x509.Certificate, ...]
    source: StoreSource
    remarks: tuple[str, ...] = ()

    @property
    def certificate(self) -> x509.Certificate:
        """Certificate of the private key."""
        return self.chain[0]


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The certificates of authorities that this process trusts. `remarks` are warnings for the log."""

    certificates: tuple[x509.Certificate, ...]
    source: StoreSource
    remarks: tuple[str, ...] = ()


def load_key_store(source: StoreSource) -> KeyStore:
    """Read a private key and its certificate chain from a file or PEM text. Raises TlsUnusable."""
    with _naming_source(source):
        return _read_keys(source)


def _read_keys(source: StoreSource) -> KeyStore:
    if source.path is None:
        key = pem.private_key(
            source.key, source.key_password, source.key_option or source.option, source.key_password_option
        )
        return _matched(source, key, pem.certificates(source.certificates, source.option), ())
    data = _content(source)
    found, remarks = _kind(source, data)
    if found is StoreType.PEM:
        text = _text(source, data)
        key = pem.private_key(text, source.key_password, str(source), source.key_password_option)
        return _matched(source, key, pem.certificates(text, str(source)), remarks)
    read = _pkcs12_key if found is StoreType.PKCS12 else _jks_key
    key, certificates = read(source, data)
    return _matched(source, key, certificates, remarks)


def load_trust_store(source: StoreSource) -> TrustStore:
    """Read the trusted certificates from a file or PEM text. Raises TlsUnusable."""
    with _naming_source(source):
        return _read_trusted(source)


def _read_trusted(source: StoreSource) -> TrustStore:
    remarks: tuple[str, ...] = ()
    if source.path is None:
        found = pem.certificates(source.certificates, source.option)
    else:
        data = _content(source)
        kind, remarks = _kind(source, data)
        if kind is StoreType.PEM:
            found = pem.certificates(_text(source, data), str(source))
        elif kind is StoreType.PKCS12:
            found = _pkcs12_certificates(source, data)
        else:
            store = _jks(source, data)
            found = [x509.load_der_x509_certificate(encoded) for encoded in store.trusted.values()]
    if not found:
        raise TlsUnusable(f"{source}: there is no certificate in it to trust")
    return TrustStore(tuple(dict.fromkeys(found)), source, remarks)


@contextmanager
def _naming_source(source: StoreSource) -> Iterator[None]:
    """Turn errors of the certificate library into TlsUnusable: it parses lazily, so many faults are found late."""
    try:
        yield
    except TlsUnusable:
        raise
    except UNREADABLE as error:
        raise TlsUnusable(
            f"{source}: a key or a certificate in it cannot be used: {_first_line(error)}"
        ) from None


def public_bytes(holder: x509.Certificate | PrivateKeyTypes) -> bytes:
    """Return the public key of a certificate or of a private key, for comparison."""
    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _content(source: StoreSource) -> bytes:
    assert source.path is not None
    try:
        with source.path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsUnusable(f"{source}: cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise TlsUnusable(f"{source}: is larger than {FILE_BYTES_MAX} bytes")
    return data


def _text(source: StoreSource, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TlsUnusable(f"{source}: is PEM with bytes in it that are no text") from None


def _kind(source: StoreSource, data: bytes) -> tuple[StoreType, tuple[str, ...]]:
    """Return the store's type by its content, and a warning for the log if another type was declared."""
    if pem.is_pem(data):
        kind = StoreType.PEM
    elif data[:4] == jks.MAGIC:
        kind = StoreType.JKS
    elif data[:4] == jks.JCEKS_MAGIC:
        raise TlsUnusable(
            f"{source}: is a JCEKS store, which cannot be read. Convert it: keytool -importkeystore -srckeystore FILE "
            "-srcstoretype JCEKS -destkeystore NEW.p12 -deststoretype PKCS12"
        )
    elif data[:1] == bytes([_DER_SEQUENCE]):
        kind = StoreType.PKCS12
    else:
        raise TlsUnusable(f"{source}: is neither PEM nor PKCS12 nor JKS")
    if source.declared not in (None, kind):
        assert source.declared is not None
        return kind, (f"{source}: is {kind.value}, though it is declared as {source.declared.value}",)
    return kind, ()


def _matched(
    source: StoreSource,
    key: PrivateKeyTypes,
    certificates: Sequence[x509.Certificate],
    remarks: tuple[str, ...],
) -> KeyStore:
    """Return the key store with its chain in order: the key's own certificate, then each time the signer of the
    previous certificate."""
    own = public_bytes(key)
    leaf = next((certificate for certificate in certificates if public_bytes(certificate) == own), None)
    if leaf is None:
        subjects = "; ".join(
            certificate.subject.rfc4514_string() or "an empty name" for certificate in certificates
        )
        raise TlsUnusable(
            f"{source}: no certificate in it belongs to its private key ({subjects or 'there is none at all'})"
        )
    for certificate in certificates:
        list(certificate.extensions)  # parsed only now
    chain, left = [leaf], [certificate for certificate in dict.fromkeys(certificates) if certificate != leaf]
    while (
        signer := next((certificate for certificate in left if _has_signed(certificate, chain[-1])), None)
    ) is not None:
        chain.append(signer)
        left.remove(signer)
    if left:
        names = "; ".join(certificate.subject.rfc4514_string() for certificate in left)
        remarks = (*remarks, f"{source}: certificates that do not belong to the chain are left out: {names}")
    return KeyStore(key, tuple(chain), source, remarks)


def _has_signed(signer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)  # every algorithm raises another kind
    except Exception:  # as many kinds as there are algorithms
        return False
    return True


def _pkcs12(source: StoreSource, data: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    password = None if source.password is None else source.password.encode()
    try:
        return pkcs12.load_pkcs12(data, password)
    except ValueError as error:
        if "unsupported" in str(error).lower() or "not supported" in str(error).lower():
            raise _outdated(source, error) from None
        hint = "is not given" if password is None else "may be wrong"
        raise TlsUnusable(
            f"{source}: this PKCS12 file cannot be opened ({_first_line(error)}): {source.password_option} {hint}"
        ) from None
    except Exception as error:  # UnsupportedAlgorithm, or an error of OpenSSL without its legacy provider
        raise _outdated(source, error) from None


def _outdated(source: StoreSource, error: Exception) -> TlsUnusable:
    return TlsUnusable(
        f"{source}: this PKCS12 file is encrypted in a way that is too old ({_first_line(error)}): re-export with "
        "modern algorithms, like keytool -importkeystore of Java 17 does, or openssl pkcs12 -export of OpenSSL 3"
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _pkcs12_key(source: StoreSource, data: bytes) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    content = _pkcs12(source, data)
    if content.key is None:
        raise TlsUnusable(f"{source}: there is no private key in it")
    return content.key, _certificates_of(content)


def _pkcs12_certificates(source: StoreSource, data: bytes) -> list[x509.Certificate]:
    return _certificates_of(_pkcs12(source, data))


def _certificates_of(content: pkcs12.PKCS12KeyAndCertificates) -> list[x509.Certificate]:
    own = [] if content.cert is None else [content.cert.certificate]
    return [*own, *(found.certificate for found in content.additional_certs)]


def _jks(source: StoreSource, data: bytes) -> jks.JavaKeyStore:
    try:
        return jks.read(data, source.password)
    except jks.WrongPassword as error:
        raise TlsUnusable(f"{source}: {error} ({source.password_option})") from None
    except ValueError as error:
        raise TlsUnusable(f"{source}: this JKS file cannot be read: {error}") from None


def _jks_key(source: StoreSource, data: bytes) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    if source.password is None:
        raise TlsUnusable(f"{source}: {source.password_option} is not given")
    store = _jks(source, data)
    if len(store.keys) != 1:
        aliases = ", ".join(sorted(store.keys)) or "none"
        raise TlsUnusable(
            f"{source}: has {len(store.keys)} private keys, and one is needed (aliases: {aliases})"
        )
    ((alias, entry),) = store.keys.items()
    own = source.key_password is not None
    password = source.key_password if source.key_password is not None else source.password
    try:
        key = load_der_private_key(jks.unprotected(entry, password), None)
    except jks.WrongPassword as error:
        option = source.key_password_option
        hint = option if own else f"{option} is not given, and {source.password_option} is another"
        raise TlsUnusable(f"{source}: the entry {alias!r}: {error} ({hint})") from None
    except ValueError as error:
        raise TlsUnusable(f"{source}: the entry {alias!r} cannot be read: {error}") from None
    return key, [x509.load_der_x509_certificate(encoded) for encoded in entry.chain]
