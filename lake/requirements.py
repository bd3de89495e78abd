"""The Python packages that the lake needs beside Ottla, and the error for missing packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ..extras import installation_of

EXTRA: Final = ("pyiceberg", "pyarrow", "sqlalchemy")


OF_CATALOG: Final = ("starlette", "uvicorn")
"""The further packages for the catalog over HTTP."""


def require_extra(*, with_catalog: bool = False) -> None:
    """Raise ModuleNotFoundError if a package that the lake needs is missing; the message says how to install it.

    `with_catalog` also checks the packages for the catalog over HTTP.
    """
    missing = [name for name in EXTRA + (OF_CATALOG if with_catalog else ()) if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the lake needs {', '.join(missing)}: {installation_of('lake')}", name=missing[0]
        )
