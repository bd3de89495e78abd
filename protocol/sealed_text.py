"""How a setting that is secret stands in the quorum: encrypted by a broker, as text. What opens it is the broker's."""

from __future__ import annotations

import base64
import binascii
from typing import Final

_PREFIX: Final = "sealed:"


def as_text(sealed: bytes) -> str:
    """Encrypted bytes as the value of a setting."""
    return _PREFIX + base64.b64encode(sealed).decode()


def sealed_bytes(text: str) -> bytes | None:
    """The encrypted bytes of such a value; None for any other text."""
    if not text.startswith(_PREFIX):
        return None
    try:
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True) or None
    except binascii.Error:
        return None
