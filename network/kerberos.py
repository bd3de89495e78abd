"""Access to the Kerberos library for clients and servers: its optional import, contexts, names and error texts.

The library is loaded at the first use, so processes without Kerberos neither need it nor wait for it.
"""

from __future__ import annotations

from typing import Any, Final

from ..extras import installation_of

_PROTOCOL_ERRORS: Final = 2529638912
"""Number from which MIT's library counts the errors of the protocol (RFC 4120, section 7.5.9)."""


class KerberosMissing(Exception):
    """The Kerberos library is not installed or cannot be loaded. The text tells how to install it."""


def library() -> Any:
    """Return the package `gssapi`. Raises KerberosMissing."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise KerberosMissing(
            f"GSSAPI (Kerberos) needs the extra gssapi: {installation_of('gssapi')}. It is built with the headers of "
            f"MIT Kerberos (Debian's libkrb5-dev); {error}"
        ) from None
    return gssapi


def open_context(**options: Any) -> Any:
    """Return a new `gssapi.SecurityContext` for one login. Each of its steps raises its own errors; by default the
    library raises them in the following call."""
    context = library().SecurityContext(**options)
    context.__DEFER_STEP_ERRORS__ = False
    return context


def kerberos_principal(name: str) -> Any:
    """Return the `gssapi.Name` of a Kerberos principal, such as `kafka/host@REALM`. Raises GSSError for an invalid
    name."""
    gssapi = library()
    return gssapi.Name(name, gssapi.NameType.kerberos_principal)


def reason_of(error: Exception) -> str:
    """Return the messages of a GSSError of the library, in one line."""
    given: Any = error
    messages = given.get_all_statuses(given.min_code, False) if given.min_code else []
    messages = messages or given.get_all_statuses(given.maj_code, True)
    return "; ".join(messages)[:1000]


def is_of_system(error: Exception) -> bool:
    """Return whether the cause of a GSSError is this machine, such as a file that cannot be written."""
    return 0 < int(getattr(error, "min_code", 0)) < 256


def protocol_error_of(error: Exception) -> int | None:
    """Return the Kerberos protocol's error number (RFC 4120) of a GSSError; from 128 on the numbers are those of MIT's
    library. None for other errors."""
    number = int(getattr(error, "min_code", 0)) - _PROTOCOL_ERRORS
    return number if 0 <= number < 256 else None
