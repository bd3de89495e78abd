"""The parameters that two ends agree on, over real sockets, and invalid inputs of a context."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from ottla.network.tls.checks import check_server_use, check_validity
from ottla.network.tls.cipher_suites import TLS13_SUITES, openssl_ciphers
from ottla.network.tls.contexts import client_context, server_context
from ottla.network.tls.failures import TlsUnusable
from ottla.network.tls.settings import ClientAuth, ReachedAs, TlsRules
from ottla.network.tls.stores import KeyStore

from .certificates import Authority, keys_of, trusting

AUTHORITY, STRANGERS = Authority(), Authority()


OWN = keys_of(AUTHORITY.issue("localhost"))
CA = trusting(AUTHORITY.pem)


def meet(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    """Return the client's end after both have shaken hands and a byte has come back.

    Raises OSError, the server's first.
    """
    client_end, other = socket.socketpair()
    failures: list[OSError] = []
    versions: list[str | None] = []

    def serve() -> None:
        try:
            with server.wrap_socket(client_end, server_side=True) as end:
                versions.append(end.version())
                end.send(end.recv(1))
        except OSError as error:
            failures.append(error)
            client_end.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        end = client.wrap_socket(other, server_hostname=name)
        end.send(b"x")
        assert end.recv(1) == b"x" or failures
    except OSError as error:
        other.close()
        thread.join()
        raise (failures or [error])[0] from None
    thread.join()
    if failures:
        raise failures[0]
    return end


def test_both_versions_are_spoken_and_nothing_older() -> None:
    for versions, expected in (
        (("TLSv1.2",), "TLSv1.2"),
        (("TLSv1.3",), "TLSv1.3"),
        (("TLSv1.2", "TLSv1.3"), "TLSv1.3"),
    ):
        with meet(
            server_context(TlsRules(tuple(versions)), OWN, None), client_context(TlsRules(), None, CA)
        ) as end:
            assert end.version() == expected
    with pytest.raises(ssl.SSLError):
        meet(
            server_context(TlsRules(("TLSv1.3",)), OWN, None),
            client_context(TlsRules(("TLSv1.2",)), None, CA),
        )


@pytest.mark.parametrize("flag", [ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION], ids=str)
def test_neither_renegotiation_nor_compression(flag: int) -> None:
    assert server_context(TlsRules(), OWN, None).options & flag
    assert client_context(TlsRules(), None, CA).options & flag


KNOWN = keys_of(AUTHORITY.issue("client"))
UNKNOWN = keys_of(STRANGERS.issue("client"))


@pytest.mark.parametrize(
    ("auth", "keys", "is_let_in"),
    [
        (ClientAuth.NONE, None, True),
        (ClientAuth.NONE, UNKNOWN, True),
        (ClientAuth.REQUESTED, None, True),
        (ClientAuth.REQUESTED, KNOWN, True),
        (ClientAuth.REQUESTED, UNKNOWN, False),
        (ClientAuth.REQUIRED, None, False),
        (ClientAuth.REQUIRED, KNOWN, True),
        (ClientAuth.REQUIRED, UNKNOWN, False),
    ],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_certificates(auth: ClientAuth, keys: KeyStore | None, is_let_in: bool, version: str) -> None:
    server = server_context(TlsRules((version,), client_auth=auth), OWN, CA)
    client = client_context(TlsRules(), keys, CA)
    if is_let_in:
        meet(server, client).close()
    else:
        with pytest.raises(ssl.SSLError):
            meet(server, client)


def test_keys_of_connections_are_logged_where_the_rules_say_so_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_variable, by_rules = tmp_path / "by-variable", tmp_path / "by-rules"
    monkeypatch.setenv("SSLKEYLOGFILE", str(by_variable))
    meet(server_context(TlsRules(), OWN, None), client_context(TlsRules(), None, CA)).close()
    assert not by_variable.exists()
    meet(server_context(TlsRules(key_log=by_rules), OWN, None), client_context(TlsRules(), None, CA)).close()
    assert "CLIENT_TRAFFIC_SECRET_0" in by_rules.read_text()
    with pytest.raises(
        TlsUnusable, match=rf"ssl.keylog.enable: {tmp_path} cannot be written: Is a directory"
    ):
        server_context(TlsRules(key_log=tmp_path), OWN, None)


def test_without_a_trust_store_no_client_certificate_is_believed() -> None:
    server = server_context(TlsRules(client_auth=ClientAuth.REQUIRED), OWN, None)
    with pytest.raises(ssl.SSLError):
        meet(server, client_context(TlsRules(), KNOWN, CA))


def test_the_name_that_was_dialled_is_checked_unless_that_is_off() -> None:
    server = server_context(TlsRules(), OWN, None)
    with pytest.raises(ssl.SSLError, match=r"[Hh]ostname mismatch|alert"):
        meet(server, client_context(TlsRules(), None, CA), "elsewhere")
    meet(server, client_context(TlsRules(checks_names=False), None, CA), "elsewhere").close()


def test_a_certificate_in_the_trust_store_is_believed_by_itself_as_in_java() -> None:
    middle = Authority(AUTHORITY)
    server = server_context(TlsRules(), keys_of(middle.issue("localhost")), None)
    meet(server, client_context(TlsRules(), None, trusting(middle.pem))).close()


def test_a_certificate_that_only_openssl_refuses_is_named() -> None:
    """The organisation's name has a type that no text has, and that is not checked before."""
    der = x509.load_pem_x509_certificate(AUTHORITY.pem.encode()).public_bytes(Encoding.DER)
    text, no_text = b"\x55\x04\x0a\x0c", b"\x55\x04\x0a\x06"
    assert text in der
    wrong = x509.load_der_x509_certificate(der.replace(text, no_text)).public_bytes(Encoding.PEM).decode()
    for make in (server_context, client_context):
        with pytest.raises(TlsUnusable, match=r"^ssl\.truststore: OpenSSL refuses a certificate in it"):
            make(TlsRules(), OWN, trusting(wrong))


def test_revoked_certificates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "revoked.pem"
    now = datetime.now(UTC)
    ca = x509.load_pem_x509_certificate(AUTHORITY.pem.encode())
    key = load_pem_private_key(AUTHORITY.ca.private_key_pem.bytes(), None)
    revoked = (
        x509.RevokedCertificateBuilder()
        .serial_number(KNOWN.certificate.serial_number)
        .revocation_date(now - timedelta(hours=1))
        .build()
    )
    crl = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now - timedelta(hours=1))
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(revoked)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    path.write_bytes(crl.public_bytes(Encoding.PEM))
    server = server_context(TlsRules(client_auth=ClientAuth.REQUIRED, crl=path), OWN, CA)
    meet(server, client_context(TlsRules(), keys_of(AUTHORITY.issue("another")), CA)).close()
    with pytest.raises(ssl.SSLError, match="revoked"):
        meet(server, client_context(TlsRules(), KNOWN, CA))
    path.write_text("nothing")
    with pytest.raises(TlsUnusable, match=f"ssl.crl.location: {path}"):
        server_context(TlsRules(crl=path), OWN, CA)


# Cipher suites


def test_suites_of_tls12_have_openssls_names() -> None:
    """Compared with `openssl ciphers`, which knows both names of each."""
    listed = subprocess.run(
        ["openssl", "ciphers", "-stdname", "-tls1_2", "-s", "ALL:@SECLEVEL=0"],
        capture_output=True, text=True, check=True, timeout=20,
    ).stdout  # fmt: skip
    pairs = dict(re.findall(r"^(TLS_\S+)\s+- (\S+) ", listed, re.MULTILINE))
    usual = {
        name: own
        for name, own in pairs.items()
        if re.match(r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_(AES|CHACHA20|CAMELLIA)", name)
    }
    assert len(usual) > 20
    for name, own in usual.items():
        assert openssl_ciphers([name], "ssl.cipher.suites", with_tls12=True, with_tls13=False) == own


def test_the_suite_in_the_list_is_the_one_that_is_used() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    rules = TlsRules(("TLSv1.2",), (suite,))
    with meet(server_context(rules, OWN, None), client_context(TlsRules(), None, CA)) as end:
        cipher = end.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


@pytest.mark.parametrize(
    ("versions", "suites", "complaint"),
    [
        (("TLSv1.2", "TLSv1.3"), ["TLS_AES_128_GCM_SHA256"], "leaves out TLS_AES_256_GCM_SHA384"),
        (("TLSv1.2", "TLSv1.3"), sorted(TLS13_SUITES), "names no suite of TLSv1.2, which is enabled"),
        (
            ("TLSv1.3",),
            [*TLS13_SUITES, "TLS_RSA_WITH_AES_128_GCM_SHA256"],
            "is of TLSv1.2, which is not enabled",
        ),
        (("TLSv1.2",), ["TLS_KRB5_WITH_DES_CBC_MD5"], "is no suite of TLSv1.2"),
        (("TLSv1.2",), ["ECDHE-RSA-AES256-SHA"], "is no suite of TLSv1.2"),
    ],
)
def test_lists_that_cannot_be_kept_to_are_refused(
    versions: tuple[str, ...], suites: list[str], complaint: str
) -> None:
    with pytest.raises(TlsUnusable, match=f"ssl.cipher.suites: .*{complaint}"):
        server_context(TlsRules(versions, tuple(suites)), OWN, None)


# Checks


def expiring(left: timedelta) -> KeyStore:
    return keys_of(AUTHORITY.issue("localhost", not_after=datetime.now(UTC) + left))


@pytest.mark.parametrize(
    ("left", "remark"),
    [
        (timedelta(hours=3), "less than 1 day$"),
        (timedelta(days=3), "7 days"),
        (timedelta(days=20), "30 days"),
        (timedelta(days=40), None),
    ],
)
def test_certificates_that_expire_soon_get_a_remark(left: timedelta, remark: str | None) -> None:
    remarks = list(check_validity(expiring(left), datetime.now(UTC)))
    assert len(remarks) == (remark is not None)
    assert remark is None or re.search(remark, remarks[0])


def test_an_expired_certificate_is_refused() -> None:
    with pytest.raises(TlsUnusable, match="has expired on"):
        list(check_validity(expiring(timedelta(hours=1)), datetime.now(UTC) + timedelta(hours=2)))


NAMES = keys_of(AUTHORITY.issue("*.example.com", "broker", "10.0.0.1", "::1"))


@pytest.mark.parametrize("host", ["a.example.com", "A.Example.com.", "broker", "10.0.0.1", "::1", "0:0::1"])
def test_names_that_are_covered(host: str) -> None:
    assert not list(check_server_use(NAMES, ReachedAs(host, "as all know")))


@pytest.mark.parametrize("host", ["example.com", "a.b.example.com", "10.0.0.2", "other", "1"])
def test_names_that_are_not_get_a_remark(host: str) -> None:
    (remark,) = check_server_use(NAMES, ReachedAs(host, "as all know"))
    assert f"not for {host}, as all know: whoever checks the name refuses it" in remark
    assert not list(check_server_use(NAMES, None))


def test_a_certificate_for_clients_only_is_refused() -> None:
    ca = x509.load_pem_x509_certificate(AUTHORITY.pem.encode())
    signing = load_pem_private_key(AUTHORITY.ca.private_key_pem.bytes(), None)
    issued = AUTHORITY.issue("localhost")
    made = (
        x509.CertificateBuilder()
        .subject_name(issued.certificate.subject)
        .issuer_name(ca.subject)
        .public_key(issued.key.public_key())  # type: ignore[arg-type]
        .serial_number(7)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=99))
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())  # type: ignore[arg-type]
    )
    issued.chain = [made.public_bytes(Encoding.PEM).decode()]
    with pytest.raises(TlsUnusable, match="lacks serverAuth"):
        list(check_server_use(keys_of(issued), None))
