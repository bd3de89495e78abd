"""The error for keys, certificates and settings of TLS that cannot be used."""

from __future__ import annotations


class TlsUnusable(ValueError):
    """A store or a setting of TLS cannot be used. The text names the option, the file and the cause."""
