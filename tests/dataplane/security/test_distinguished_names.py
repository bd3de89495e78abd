"""Subjects of certificates read as Java writes them: an ACL made for Kafka would silently miss otherwise."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ottla.dataplane.security.distinguished_names import name_text, subject_name
from ottla.network.tls.der import values_in
from tests.java import QUICK, jdk_tool
from tests.network.tls.certificates import Authority

NAMES = 10_000
KINDS = {
    "2.5.4.3": 5, "2.5.4.6": 1, "2.5.4.7": 2, "2.5.4.8": 2, "2.5.4.9": 1, "2.5.4.10": 3, "2.5.4.11": 3,
    "0.9.2342.19200300.100.1.25": 2, "0.9.2342.19200300.100.1.1": 2, "1.2.840.113549.1.9.1": 2, "2.5.4.5": 1,
    "2.5.4.12": 1, "2.5.4.4": 1, "2.5.4.46": 1, "1.3.6.1.4.1.311.60.2.1.3": 1, "2.999.1": 1,
}  # fmt: skip
LETTERS = "abcXYZ019 .-/:'()?,=+<>#;\"\\ *@_&!|\r\n\t\x00äßéŁ日本€😀"
STRINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
ODD = {0x1C: b"\0\0\0a", 0x04: b"octets", 0x02: b"\x05", 0x05: b"", 0x30: b"\x0c\x01a"}

PROGRAM = """
import java.io.*;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

public class Names {
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String hex = "refused";
            try {
                String name = new X500Principal(HexFormat.of().parseHex(line)).getName();
                hex = HexFormat.of().formatHex(name.getBytes("UTF-8"));
            } catch (IllegalArgumentException e) {
                // It is no name.
            }
            out.println(hex);
        }
        out.flush();
    }
}
"""


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = bytes([size]) if size < 0x80 else bytes([0x80 | len(octets)]) + octets
    return bytes([tag]) + length + content


def identifier(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = bytearray()
    for number in (40 * first + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return tlv(0x06, bytes(content))


def value(chance: random.Random) -> bytes:
    if chance.random() < 0.04:
        return tlv(*chance.choice(list(ODD.items())))
    tag = chance.choice([0x0C, 0x0C, 0x13, *STRINGS])
    text = "".join(chance.choices(LETTERS, k=chance.choice([0, 1, 2, 3, 8, 20, 150])))
    if chance.random() < 0.3:
        text = chance.choice([" ", "  ", "#", "\r"]) + text + chance.choice([" ", "\r", ""])
    return tlv(tag, text.encode(STRINGS[tag], "ignore"))


def name(chance: random.Random) -> bytes:
    parts = b""
    for _ in range(chance.choice([0, 1, 1, 2, 3, 5])):
        kinds = chance.choices(list(KINDS), list(KINDS.values()), k=chance.choice([1, 1, 1, 2, 3]))
        parts += tlv(0x31, b"".join(tlv(0x30, identifier(kind) + value(chance)) for kind in kinds))
    return tlv(0x30, parts)


@pytest.mark.java
@pytest.mark.skipif(not shutil.which("javac"), reason="there is no Java compiler")
def test_names_are_written_as_java_writes_them(tmp_path: Path) -> None:
    (tmp_path / "Names.java").write_text(PROGRAM)
    subprocess.run(jdk_tool("javac", "-d", tmp_path, tmp_path / "Names.java"), check=True, timeout=100)
    chance = random.Random(23)
    names = [name(chance) for _ in range(NAMES)]
    done = subprocess.run(
        ["java", *QUICK, "-cp", tmp_path, "Names"],
        input="\n".join(der_name.hex() for der_name in names) + "\n",
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    written = done.stdout.splitlines()
    assert len(written) == NAMES
    assert sum(text == "refused" for text in written) < NAMES / 10
    for der, text in zip(names, written, strict=True):
        if text != "refused":
            (whole,) = values_in(der)
            assert name_text(whole.content) == bytes.fromhex(text).decode(), der.hex()


def test_the_subject_is_found_in_a_certificate() -> None:
    issued = Authority().issue("localhost", common_name="Ann, the first", organization="A+B")
    der = issued.certificate.public_bytes(Encoding.DER)
    assert subject_name(der).startswith("CN=Ann\\, the first,")
    assert "O=A\\+B" in subject_name(der)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([], ""),
        ([(NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "ann")], "CN=ann,C=DE"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.COMMON_NAME, " #a ")], "CN=\\ \\#a\\ "),
    ],
)
def test_the_form(attributes: list[tuple[x509.ObjectIdentifier, str]], text: str) -> None:
    made = x509.Name([x509.NameAttribute(kind, given) for kind, given in attributes])
    (whole,) = values_in(made.public_bytes())
    assert name_text(whole.content) == text


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x05a", b"\x30\x80", b"\x30\x02\x30\x00", bytes(40)])
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"DER|cut off|values|usable"):
        subject_name(data)
