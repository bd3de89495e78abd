"""The authority of a cluster: its certificates work for TLS, are kept, and are renewed in time."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from ottla.cli.certificate_authority import issue_missing
from ottla.cli.failures import CommandFailed
from ottla.network.tls.issuing import CertificateOwner

NOW = datetime.now(UTC)
BROKER = CertificateOwner("broker-1", ("127.0.0.1", "::1", "localhost"))
ADMIN = CertificateOwner("admin")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shake_hands(folder: Path, ca: Path, host: str) -> None:
    """Do a handshake in which both ends check each other's certificate. Raises SSLError."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    server_context.load_cert_chain(folder / "broker-1.pem")
    server_context.verify_mode = ssl.CERT_REQUIRED
    client_context = ssl.create_default_context(cafile=ca)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    client_context.load_cert_chain(folder / "admin.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    left = [client, server]
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(end)
    assert not left


@pytest.mark.parametrize("host", BROKER.hosts)
def test_what_is_issued_holds_for_tls(tmp_path: Path, host: str) -> None:
    folder = tmp_path / "tls"
    issue_missing(folder, "a-cluster", [BROKER, ADMIN], NOW)
    shake_hands(folder, folder / "ca.pem", host)
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_it_does_not_hold_for_other_hosts_and_other_authorities(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        issue_missing(folder, "a-cluster", [BROKER, ADMIN], NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(own, own / "ca.pem", "example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"signature|self-signed|issuer"):
        shake_hands(own, other / "ca.pem", "localhost")


def test_what_is_there_is_kept_until_it_is_about_to_expire(tmp_path: Path) -> None:
    issue_missing(tmp_path, "c", [BROKER], NOW)
    before = contents(tmp_path)
    issue_missing(tmp_path, "c", [BROKER], NOW + timedelta(days=825 - 91))
    assert contents(tmp_path) == before
    issue_missing(tmp_path, "c", [BROKER], NOW + timedelta(days=825 - 89))
    after = contents(tmp_path)
    assert after["broker-1.pem"] != before["broker-1.pem"]
    assert after["ca.pem"] == before["ca.pem"]


def test_one_for_other_hosts_is_issued_anew(tmp_path: Path) -> None:
    issue_missing(tmp_path, "c", [CertificateOwner("broker-1", ("10.0.0.1",))], NOW)
    issue_missing(tmp_path, "c", [BROKER], NOW)
    certificate = x509.load_pem_x509_certificate((tmp_path / "broker-1.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert certificate.not_valid_after_utc - NOW < timedelta(days=826)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    issue_missing(tmp_path, "c", [], NOW)
    issue_missing(tmp_path, "c", [BROKER], NOW + timedelta(days=3600))
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((tmp_path / "broker-1.pem").read_bytes())
    assert certificate.not_valid_after_utc == authority.not_valid_after_utc
    with pytest.raises(CommandFailed, match=r"ca\.pem has expired on"):
        issue_missing(tmp_path, "c", [BROKER], NOW + timedelta(days=3651))


def test_another_authority_with_its_key_takes_over(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        issue_missing(folder, "c", [BROKER, ADMIN], NOW)
    for name in ("ca.pem", "ca.key"):
        (own / name).write_bytes((other / name).read_bytes())
    issue_missing(own, "c", [BROKER, ADMIN], NOW)
    shake_hands(own, other / "ca.pem", "localhost")


def test_the_key_of_the_authority_may_be_put_away(tmp_path: Path) -> None:
    issue_missing(tmp_path, "c", [BROKER], NOW)
    (tmp_path / "ca.key").unlink()
    issue_missing(tmp_path, "c", [BROKER], NOW)
    with pytest.raises(CommandFailed, match=r"ca\.key is gone, and admin needs a new certificate"):
        issue_missing(tmp_path, "c", [BROKER, ADMIN], NOW)


def test_an_authority_that_is_gone_is_not_replaced_in_silence(tmp_path: Path) -> None:
    issue_missing(tmp_path, "c", [BROKER], NOW)
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(CommandFailed, match=r"ca\.pem is gone, the authority that clients"):
        issue_missing(tmp_path, "c", [BROKER], NOW)
