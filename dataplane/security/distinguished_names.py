"""The text of a certificate's subject, exactly as Java's `X500Principal.getName()` writes it.

Kafka uses it as the principal, so ACLs and quotas that were written for Kafka contain it. It is RFC 2253's form: the
most specific part first, no blanks after commas. Nine attributes have keywords. Every other attribute, such as an
e-mail address, is its object identifier and the value in hexadecimal DER.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...network.tls.der import DerValue, object_identifier, values_in

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_STRINGS: Final = frozenset({_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP})
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_EDGES: Final = re.compile(r"\A[ \r]+|[ \r]+\Z")
_VERSION_TAG: Final = 0xA0
_BEFORE_SUBJECT: Final = 4
"""The number of fields before the subject: serial number, algorithm, issuer and validity, and the version if
present."""


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate (DER) as Java's X500Principal.getName() writes it. Raises ValueError."""
    try:
        (whole,) = values_in(certificate)
        fields = values_in(next(values_in(whole.content)).content)
        first = next(fields)
        for _ in range(_BEFORE_SUBJECT if first.tag == _VERSION_TAG else _BEFORE_SUBJECT - 1):
            next(fields)
        return name_text(next(fields).content)
    except StopIteration:
        raise ValueError("a certificate is cut off") from None


def name_text(sequence: bytes) -> str:
    """Return the text of a name, whose parts are in `sequence` in DER. Raises ValueError."""
    parts = ["+".join(_attributes(part.content)) for part in values_in(sequence)]
    return ",".join(reversed(parts))


def _attributes(part: bytes) -> Iterator[str]:
    for attribute in values_in(part):
        kind, value = values_in(attribute.content)
        identifier = object_identifier(kind.content)
        keyword = _KEYWORDS.get(identifier)
        if keyword is None or value.tag not in _STRINGS:
            yield f"{keyword or identifier}=#{value.encoded.hex()}"
        else:
            yield f"{keyword}={_escaped(value)}"


def _escaped(value: DerValue) -> str:
    # Java reads strings of every kind as UTF-8 here.
    text = _ESCAPED.sub(r"\\\g<0>", value.content.decode("utf-8", "replace")).replace("\0", "\\00")
    return _EDGES.sub(lambda found: "".join(f"\\{each}" for each in found[0]), text)
