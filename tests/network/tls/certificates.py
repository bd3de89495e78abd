"""An authority for tests, and stores written by other programs."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.network.tls.settings import StoreSource
from ottla.network.tls.stores import KeyStore, TrustStore, load_key_store, load_trust_store
from tests.java import jdk_tool

PASSWORD, KEY_PASSWORD = "store-secret", "key-secret"


class Issued:
    """A certificate with its key and chain, in PEM."""

    def __init__(self, cert: trustme.LeafCert) -> None:
        self.chain = [blob.bytes().decode() for blob in cert.cert_chain_pems]
        self.key = load_pem_private_key(cert.private_key_pem.bytes(), None)

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.chain[0].encode())

    def key_pem(self, password: str = "", form: PrivateFormat = PrivateFormat.PKCS8) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, form, encryption).decode()

    def pem_file(self, path: Path, password: str = "") -> Path:
        path.write_text(self.key_pem(password) + "".join(self.chain))
        return path


class Authority:
    """An issuer of certificates."""

    def __init__(self, parent: Authority | None = None) -> None:
        self.ca = parent.ca.create_child_ca() if parent else trustme.CA()

    @property
    def pem(self) -> str:
        return self.ca.cert_pem.bytes().decode()

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        not_after: datetime | None = None,
        organization: str | None = None,
        organization_unit: str | None = None,
        rsa: bool = False,
    ) -> Issued:
        kind = trustme.KeyType.RSA if rsa else trustme.KeyType.ECDSA
        return Issued(
            self.ca.issue_cert(
                *(names or ("127.0.0.1", "localhost")),
                common_name=common_name,
                organization_name=organization,
                organization_unit_name=organization_unit,
                not_after=not_after,
                key_type=kind,
            )
        )

    def trust_file(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path


def run(*argv: object) -> None:
    """Run another program that writes a store."""
    done = subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{argv[0]} {argv[1]}: {done.stdout}{done.stderr}"


def pkcs12_file(issued: Issued, path: Path, *options: str, password: str = PASSWORD) -> Path:
    """Write a store by `openssl pkcs12 -export`."""
    pem = issued.pem_file(path.with_suffix(".source.pem"))
    secret = f"pass:{password}"
    run(
        "openssl", "pkcs12", "-export", "-in", pem, "-out", path, "-passout", secret, "-name", "own", *options
    )
    return path


def java_key_store(
    issued: Issued, path: Path, kind: str, password: str = PASSWORD, key_password: str | None = None
) -> Path:
    """Write a key store by `keytool`."""
    source = pkcs12_file(issued, path.with_suffix(".p12"), password=PASSWORD)
    run(
        *jdk_tool("keytool"), "-importkeystore", "-noprompt",
        "-srckeystore", source, "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD, "-srcalias", "own",
        "-destkeystore", path, "-deststoretype", kind, "-deststorepass", password,
        "-destkeypass", key_password or password, "-destalias", "own",
    )  # fmt: skip
    return path


def java_trust_store(path: Path, kind: str, *certificates: str, password: str = PASSWORD) -> Path:
    """Write a trust store by `keytool`."""
    for number, certificate in enumerate(certificates):
        source = path.with_suffix(f".{number}.pem")
        source.write_text(certificate)
        run(
            *jdk_tool("keytool"), "-importcert", "-noprompt", "-alias", f"ca{number}", "-file", source,
            "-keystore", path, "-storetype", kind, "-storepass", password,
        )  # fmt: skip
    return path


def keys_of(issued: Issued) -> KeyStore:
    return load_key_store(
        StoreSource("ssl.keystore", certificates="".join(issued.chain), key=issued.key_pem())
    )


def trusting(*pems: str) -> TrustStore:
    return load_trust_store(StoreSource("ssl.truststore", certificates="".join(pems)))
