"""Negotiation of security layers at the end of a login by GSSAPI (RFC 4752): the two ends agree whether Kerberos seals
the bytes that follow.

Kafka's connections are sealed by TLS or not at all. So a server offers no layer but "none", and a client accepts no
other. Sans-IO: messages are given here without their GSSAPI wrapping.
"""

from __future__ import annotations

from typing import Final

NO_LAYER: Final = 1
"""The layer "none": Kerberos neither seals nor signs bytes after the login."""
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Highest size of tokens and of these messages, in both directions. A ticket of a user in many groups has some 10
KiB."""
_HEAD_BYTES: Final = 4
_NO_SIZE: Final = bytes(3)
"""Highest number of bytes to seal at a time: 0, since nothing is sealed."""

OFFER: Final = bytes([NO_LAYER]) + _NO_SIZE
"""Offer of a server: no layer."""


class LayersRefused(Exception):
    """A refused negotiation of security layers, which ends the login. The text is for the log of this end and never for
    the other end."""


def chosen(offer: bytes, authorization_id: str = "") -> bytes:
    """Return the client's message that chooses no security layer, in answer to the server's offer. Raises LayersRefused
    if the server does not offer that."""
    if len(offer) != _HEAD_BYTES:
        raise LayersRefused(f"an offer of layers of {len(offer)} bytes, it must have {_HEAD_BYTES}")
    if not offer[0] & NO_LAYER:
        raise LayersRefused(f"the offer 0x{offer[0]:02x} demands that Kerberos signs or seals what follows")
    return bytes([NO_LAYER]) + _NO_SIZE + authorization_id.encode()


def check_choice(choice: bytes) -> str:
    """Check that the client has chosen no security layer, and return the user that it wants to act as, mostly empty.
    Raises LayersRefused."""
    if len(choice) < _HEAD_BYTES:
        raise LayersRefused(f"a choice of layers of {len(choice)} bytes, it must have at least {_HEAD_BYTES}")
    if choice[0] != NO_LAYER:
        raise LayersRefused(f"the layer 0x{choice[0]:02x}, offered is none (0x{NO_LAYER:02x})")
    try:
        return choice[_HEAD_BYTES:].decode()
    except UnicodeDecodeError:
        raise LayersRefused("an authorization id that is not UTF-8") from None
