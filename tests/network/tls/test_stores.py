"""Stores of openssl and keytool are read, and unusable ones are named with their option and file."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat

from ottla.network.tls import jks
from ottla.network.tls.failures import TlsUnusable
from ottla.network.tls.settings import StoreSource, StoreType
from ottla.network.tls.stores import KeyStore, load_key_store, load_trust_store, public_bytes

from .certificates import (
    KEY_PASSWORD,
    PASSWORD,
    Authority,
    Issued,
    java_key_store,
    java_trust_store,
    pkcs12_file,
)

AUTHORITY = Authority()
MIDDLE = Authority(AUTHORITY)
ISSUED = MIDDLE.issue("localhost", "127.0.0.1")


def source(path: Path | None = None, **fields: object) -> StoreSource:
    named = {
        "password_option": "ssl.keystore.password",
        "key_password_option": "ssl.key.password",
    }
    return StoreSource("ssl.keystore.location", path, **(named | fields))  # type: ignore[arg-type]


def is_whole(store: KeyStore, issued: Issued = ISSUED) -> bool:
    subjects = [x509.load_pem_x509_certificate(pem.encode()).subject for pem in issued.chain]
    return (
        public_bytes(store.key) == public_bytes(issued.key)
        and [certificate.subject for certificate in store.chain][: len(subjects)] == subjects
        and store.chain[0] == issued.certificate
    )


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=str)
@pytest.mark.parametrize("rsa", [False, True], ids=["EC", "RSA"])
def test_pem_in_any_order_and_form(tmp_path: Path, form: PrivateFormat, rsa: bool) -> None:
    issued = MIDDLE.issue("localhost", rsa=rsa)
    path = tmp_path / "own.pem"
    path.write_text(
        "\n".join(["a remark", AUTHORITY.pem, *reversed(issued.chain), issued.key_pem(form=form)])
    )
    store = load_key_store(source(path))
    assert is_whole(store, issued)
    assert [certificate.subject for certificate in store.chain][-1] == x509.load_pem_x509_certificate(
        AUTHORITY.pem.encode()
    ).subject
    assert not store.remarks


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=str)
def test_pem_with_a_password(tmp_path: Path, form: PrivateFormat) -> None:
    path = tmp_path / "own.pem"
    path.write_text(ISSUED.key_pem(KEY_PASSWORD, form) + "".join(ISSUED.chain))
    assert is_whole(load_key_store(source(path, key_password=KEY_PASSWORD)))
    with pytest.raises(
        TlsUnusable, match=f"ssl.keystore.location: {path}: .*encrypted.*ssl.key.password is not given"
    ):
        load_key_store(source(path))
    with pytest.raises(TlsUnusable, match=f"{path}: .*cannot be read.*Is ssl.key.password right"):
        load_key_store(source(path, key_password="wrong"))


def test_pem_in_a_setting_may_stand_in_one_line() -> None:
    key, chain = (
        " ".join(text.split("\n")) for text in (ISSUED.key_pem(KEY_PASSWORD), "".join(ISSUED.chain))
    )
    given = source(certificates=chain, key=key, key_password=KEY_PASSWORD, key_option="ssl.keystore.key")
    assert is_whole(load_key_store(given))
    assert KEY_PASSWORD not in repr(given)
    assert "PRIVATE KEY" not in repr(given)


def test_certificates_that_do_not_belong_are_left_out_with_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "own.pem"
    other = Authority().issue("elsewhere", organization="another firm")
    path.write_text(ISSUED.key_pem() + other.chain[0] + "".join(ISSUED.chain))
    store = load_key_store(source(path))
    assert is_whole(store)
    assert "another firm" in store.remarks[0]


MODERN: tuple[str, ...] = ()
AGED = ("-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-3DES", "-macalg", "sha1")
RC2 = ("-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-RC2-40", "-macalg", "sha1", "-legacy")


@pytest.mark.parametrize("options", [MODERN, AGED], ids=["modern", "3DES"])
def test_pkcs12_of_openssl(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = pkcs12_file(ISSUED, tmp_path / "own.p12", *options)
    assert is_whole(load_key_store(source(path, password=PASSWORD)))
    with pytest.raises(TlsUnusable, match=f"{path}: .*ssl.keystore.password may be wrong"):
        load_key_store(source(path, password="wrong"))
    with pytest.raises(TlsUnusable, match=f"{path}: .*ssl.keystore.password is not given"):
        load_key_store(source(path))


def test_pkcs12_of_long_ago_is_read_or_says_what_to_do(tmp_path: Path) -> None:
    """The build of OpenSSL decides whether RC2 can be read."""
    path = pkcs12_file(ISSUED, tmp_path / "own.p12", *RC2)
    try:
        assert is_whole(load_key_store(source(path, password=PASSWORD)))
    except TlsUnusable as error:
        assert "re-export with modern algorithms" in str(error)  # noqa: PT017


@pytest.mark.java
@pytest.mark.skipif(not shutil.which("keytool"), reason="keytool is not installed")
class TestKeytool:
    @pytest.mark.parametrize("declared", [None, *StoreType], ids=str)
    @pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
    def test_what_keytool_writes_is_known_by_its_content(
        self, tmp_path: Path, kind: str, declared: StoreType | None
    ) -> None:
        path = java_key_store(ISSUED, tmp_path / "own.jks", kind)
        store = load_key_store(source(path, password=PASSWORD, declared=declared))
        assert is_whole(store)
        assert bool(store.remarks) == (declared not in (None, StoreType(kind)))

    def test_a_key_with_a_password_of_its_own(self, tmp_path: Path) -> None:
        path = java_key_store(ISSUED, tmp_path / "own.jks", "JKS", key_password=KEY_PASSWORD)
        assert is_whole(load_key_store(source(path, password=PASSWORD, key_password=KEY_PASSWORD)))
        with pytest.raises(TlsUnusable, match=r"'own': .*ssl.key.password is not given"):
            load_key_store(source(path, password=PASSWORD))
        with pytest.raises(TlsUnusable, match="'own': the password of the private key is wrong"):
            load_key_store(source(path, password=PASSWORD, key_password="wrong"))
        with pytest.raises(
            TlsUnusable, match=r"password is wrong, or the file is damaged .ssl.keystore.password"
        ):
            load_key_store(source(path, password="wrong", key_password=KEY_PASSWORD))

    @pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
    def test_trust_stores(self, tmp_path: Path, kind: str) -> None:
        other = Authority()
        path = java_trust_store(tmp_path / "trust.jks", kind, AUTHORITY.pem, other.pem)
        trusted = load_trust_store(source(path, password=PASSWORD))
        expected = {
            x509.load_pem_x509_certificate(authority.pem.encode()) for authority in (AUTHORITY, other)
        }
        assert set(trusted.certificates) == expected
        if kind == "JKS":
            assert set(load_trust_store(source(path)).certificates) == expected, (
                "without a password, as in Java"
            )

    def test_jceks_is_refused_by_name(self, tmp_path: Path) -> None:
        path = java_key_store(ISSUED, tmp_path / "own.jceks", "JCEKS")
        with pytest.raises(TlsUnusable, match="JCEKS"):
            load_key_store(source(path, password=PASSWORD))

    def test_a_damaged_store_is_never_taken(self, tmp_path: Path) -> None:
        path = java_key_store(ISSUED, tmp_path / "own.jks", "JKS")
        data = path.read_bytes()
        for at in range(0, len(data), 37):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            with pytest.raises(TlsUnusable, match=str(path)):
                load_key_store(source(path, password=PASSWORD))
            path.write_bytes(data[:at])
            with pytest.raises(TlsUnusable, match=str(path)):
                load_key_store(source(path, password=PASSWORD))


def key_only(path: Path) -> None:
    path.write_text(ISSUED.key_pem())


def chain_only(path: Path) -> None:
    path.write_text("".join(ISSUED.chain))


def of_another(path: Path) -> None:
    path.write_text(MIDDLE.issue("localhost").key_pem() + "".join(ISSUED.chain))


def two_keys(path: Path) -> None:
    path.write_text(ISSUED.key_pem() * 2 + "".join(ISSUED.chain))


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(100)[1:] + b"!")


def broken_base64(path: Path) -> None:
    path.write_text(ISSUED.key_pem() + "".join(ISSUED.chain).replace("M", "!", 1))


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (key_only, "no certificate in it belongs to its private key .there is none"),
        (chain_only, "no private key .found: CERTIFICATE"),
        (of_another, "no certificate in it belongs to its private key"),
        (two_keys, "2 private keys, and one is needed"),
        (garbage, "is neither PEM nor PKCS12 nor JKS"),
        (broken_base64, "certificate 1 cannot be read"),
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, write: Callable[[Path], None], complaint: str) -> None:
    path = tmp_path / "own.pem"
    write(path)
    if path.is_file() and not path.read_bytes().startswith(b"-----"):
        path.write_bytes(b"\x01" + path.read_bytes())
    with pytest.raises(TlsUnusable, match=f"ssl.keystore.location: {path}: {complaint}"):
        load_key_store(source(path))


def test_a_java_key_that_names_no_protector_is_refused() -> None:
    protected = bytes.fromhex("30043000") + b"\x04\x00"
    with pytest.raises(ValueError, match="does not say how it is protected"):
        jks.unprotected(jks.ProtectedKey(protected, ()), PASSWORD)


def pem_of(der: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----{base64.b64encode(der).decode()}-----END CERTIFICATE-----"


def with_another_key(der: bytes) -> bytes:
    point = ISSUED.certificate.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return der.replace(point, b"\4" + bytes(len(point) - 1))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(with_another_key, "a key or a certificate in it cannot be used", id="key"),
        pytest.param(
            lambda der: der.replace(b"\xa0\3\2\1\2", b"\xa0\3\2\1\x42", 1), "66 is not a valid", id="version"
        ),
        pytest.param(
            lambda der: der.replace(b"\6\3\x55\x1d\x23", b"\6\3\x55\x1d\x11"),
            "Duplicate",
            id="extension twice",
        ),
    ],
)
def test_a_certificate_that_cannot_be_used_is_named(change: Callable[[bytes], bytes], complaint: str) -> None:
    """Much of it is parsed only on demand, and still reported at loading."""
    der = ISSUED.certificate.public_bytes(Encoding.DER)
    assert change(der) != der
    with pytest.raises(TlsUnusable, match=f"ssl.keystore.location: .*{complaint}"):
        load_key_store(source(certificates=pem_of(change(der)), key=ISSUED.key_pem()))


def test_a_trust_store_without_certificates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trust.pem"
    path.write_text(ISSUED.key_pem())
    with pytest.raises(TlsUnusable, match="no certificate in it to trust"):
        load_trust_store(source(path))


def test_what_is_decrypted_touches_no_disk(tmp_path: Path) -> None:
    """No file with a path is opened for writing while a context is made of a decrypted key."""
    path = pkcs12_file(ISSUED, tmp_path / "own.p12")
    script = (
        "import sys, os, pathlib\n"
        "from ottla.network.tls.stores import load_key_store\n"
        "from ottla.network.tls.settings import StoreSource, TlsRules\n"
        "from ottla.network.tls.contexts import server_context\n"
        "written = []\n"
        "def note(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):\n"
        "        if not isinstance(arguments[0], int): written.append(arguments[0])\n"
        "store = load_key_store(StoreSource('k', pathlib.Path(sys.argv[1]), password=sys.argv[2]))\n"
        "sys.addaudithook(note)\n"
        "server_context(TlsRules(), store, None)\n"
        "print(written)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), PASSWORD],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
