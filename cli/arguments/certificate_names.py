"""Values on the command line that become part of a certificate: its owner, the hosts of a node, and its days. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from ..failures import UsageError

AUTHORITY_DAYS: Final = 3650
"""Days for which the certificate of an authority is valid."""
DAYS: Final = 825
"""Days for which the certificate of a node or client is valid."""
NAME_CHARACTERS: Final = "A-Za-z0-9._-"
"""The characters of an owner's name, inside the brackets of a pattern: none of them separates parts of a subject."""
_NAME: Final = re.compile(rf"(?!\.)[{NAME_CHARACTERS}]{{1,64}}")
_OF_THE_AUTHORITY: Final = "ca"
"""The name of the authority's files."""
_LABEL: Final = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_HOST: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_HOST_CHARACTERS_MAX: Final = 253


def checked_name(name: str) -> str:
    """Return the name of a certificate's owner if a file can have it. Raises UsageError."""
    if not _NAME.fullmatch(name) or name == _OF_THE_AUTHORITY:
        raise UsageError(
            "a certificate is named by 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', does not begin with '.', and is not "
            f"called {_OF_THE_AUTHORITY!r}: {name!r} is no such name"
        )
    return name


def checked_host(host: str, option: str) -> str:
    """Return an address in its short form, or a host name, which may begin with `*.`.

    Raises UsageError, which names the `option` that gave the host.
    """
    try:
        address = ip_address(host)
    except ValueError:
        is_name = len(host) <= _HOST_CHARACTERS_MAX and _HOST.fullmatch(host) is not None
        if not is_name or host.rpartition(".")[2].isdecimal():
            raise UsageError(
                f"{option} takes a host name like kafka1.example.com, or an address like 10.0.0.1, not {host!r}"
            ) from None
        return host
    if address.is_unspecified or "%" in host:
        raise UsageError(f"{option} takes an address that clients can dial, not {host!r}")
    return str(address)
