"""Kerberos as both ends of a login have it: the library, which is an optional extra, and what its errors say.

The library is loaded when it is first asked for: nobody else waits for it, or needs it.
"""

from __future__ import annotations

from typing import Any, Final

_PROTOCOL_ERRORS: Final = 2529638912
"""In MIT's library the errors of the protocol (RFC 4120, section 7.5.9) are numbered from here on."""


class KerberosMissing(Exception):
    """The library is not installed, or cannot be loaded. The text says how to get it."""


def library() -> Any:
    """The package `gssapi`. Raises KerberosMissing."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise KerberosMissing(
            "GSSAPI (Kerberos) needs the extra gssapi: pip install 'ottla[gssapi]', which is built with the headers of "
            f"MIT Kerberos (Debian's libkrb5-dev); {error}"
        ) from None
    return gssapi


def open_context(**options: Any) -> Any:
    """A security context of the library whose steps raise what goes wrong in them, rather than the next call."""
    context = library().SecurityContext(**options)
    context.__DEFER_STEP_ERRORS__ = False
    return context


def kerberos_principal(name: str) -> Any:
    """The name of a principal as the library has it. Raises GSSError."""
    gssapi = library()
    return gssapi.Name(name, gssapi.NameType.kerberos_principal)


def reason_of(error: Exception) -> str:
    """What a GSSError of the library tells, in one line."""
    given: Any = error
    told = given.get_all_statuses(given.min_code, False) if given.min_code else []
    told = told or given.get_all_statuses(given.maj_code, True)
    return "; ".join(told)[:1000]


def is_of_system(error: Exception) -> bool:
    """Whether this machine has a fault, as a file that cannot be written."""
    return 0 < int(getattr(error, "min_code", 0)) < 256


def protocol_error_of(error: Exception) -> int | None:
    """The number of Kerberos' protocol for a GSSError, or of MIT's library from 128 on; None for others."""
    number = int(getattr(error, "min_code", 0)) - _PROTOCOL_ERRORS
    return number if 0 <= number < 256 else None
