"""What both ends of a login by GSSAPI say once they know each other: whether they seal what follows (RFC 4752).

Kafka's connections are sealed by TLS or not at all. So a server offers no layer but "none", and a client takes no
other. Sans-IO; the messages here are those before they are wrapped.
"""

from __future__ import annotations

from typing import Final

NO_LAYER: Final = 1
"""Nothing after the login is sealed or signed by Kerberos."""
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Of tokens and of these messages, in both directions: a ticket of a user in many groups has some 10 KiB."""
_HEAD_BYTES: Final = 4
_NO_SIZE: Final = bytes(3)
"""How much may be sealed at a time."""

OFFER: Final = bytes([NO_LAYER]) + _NO_SIZE
"""What a server offers."""


class LayersRefused(Exception):
    """The login ends here. The text is for a log and never for the other end."""


def chosen(offer: bytes, authorization_id: str = "") -> bytes:
    """The client's choice: no layer. Raises LayersRefused if it is not offered."""
    if len(offer) != _HEAD_BYTES:
        raise LayersRefused(f"an offer of layers of {len(offer)} bytes, it must have {_HEAD_BYTES}")
    if not offer[0] & NO_LAYER:
        raise LayersRefused(f"the offer 0x{offer[0]:02x} demands that Kerberos signs or seals what follows")
    return bytes([NO_LAYER]) + _NO_SIZE + authorization_id.encode()


def check_choice(choice: bytes) -> str:
    """As whom the client wants to act, by its choice; mostly empty. Raises LayersRefused."""
    if len(choice) < _HEAD_BYTES:
        raise LayersRefused(f"a choice of layers of {len(choice)} bytes, it must have at least {_HEAD_BYTES}")
    if choice[0] != NO_LAYER:
        raise LayersRefused(f"the layer 0x{choice[0]:02x}, offered is none (0x{NO_LAYER:02x})")
    try:
        return choice[_HEAD_BYTES:].decode()
    except UnicodeDecodeError:
        raise LayersRefused("an authorization id that is not UTF-8") from None
