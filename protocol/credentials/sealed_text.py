"""Text form of a secret setting in the quorum, encrypted by a broker. Only brokers hold the key that decrypts it."""

from __future__ import annotations

import base64
import binascii
from typing import Final

_PREFIX: Final = "sealed:"


def as_text(sealed: bytes) -> str:
    """Return the encrypted bytes of a secret as text, for use as the value of a setting."""
    return _PREFIX + base64.b64encode(sealed).decode()


def sealed_bytes(text: str) -> bytes | None:
    """Return the encrypted bytes in a setting's value that `as_text` made; None for any other text."""
    if not text.startswith(_PREFIX):
        return None
    try:
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True) or None
    except binascii.Error:
        return None
