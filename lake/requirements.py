"""The Python packages that the lake needs beside Ottla, and the error for missing packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ..extras import installation_of

EXTRA: Final = ("pyiceberg", "pyarrow", "sqlalchemy")


def require_extra() -> None:
    """Raise ModuleNotFoundError if a package that the lake needs is missing; the message says how to install it."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the lake needs {', '.join(missing)}: {installation_of('lake')}", name=missing[0]
        )
