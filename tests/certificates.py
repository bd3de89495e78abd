"""Certificates for tests, of a CA that is made on the spot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as PEM files."""

    certificate: Path
    """The certificate followed by its chain."""
    key: Path
    """The private key in PKCS#8 form, as Java reads it."""
    both: Path


class Authority:
    """A certificate authority that keeps its files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.authority = trustme.CA()
        self.file = folder / "ca.pem"
        self.file.write_bytes(self.authority.cert_pem.bytes())

    def issue(
        self,
        name: str,
        *identities: str,
        common_name: str | None = None,
        days: float = 30,
        begins_days_ago: float = 1,
        unit: str | None = None,
    ) -> Issued:
        """Issue a certificate for these hosts and addresses, valid for `days` from now; a negative number makes it
        expired.

        `unit` becomes the organisational unit of the subject; without it each certificate gets a new one.
        """
        now = datetime.now(UTC)
        issued = self.authority.issue_cert(
            *identities,
            common_name=common_name,
            organization_name=None if unit is None else "Ottla",
            organization_unit_name=unit,
            not_before=now - timedelta(days=begins_days_ago),
            not_after=now + timedelta(days=days),
        )
        key = load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        paths = [self._folder / f"{name}{suffix}" for suffix in (".pem", ".key", ".both.pem")]
        for path, content in zip(paths, (chain, key, key + chain), strict=True):
            path.write_bytes(content)
        return Issued(*paths)
