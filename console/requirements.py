"""The Python packages that the console needs beside Ottla, and the error for missing packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ..extras import installation_of

EXTRA: Final = ("starlette", "uvicorn", "jinja2")
OF_SCHEMAS: Final = ("avro", "google.protobuf")
"""The further dependencies for values with schemas."""


def require_extra(*, with_schemas: bool = False) -> None:
    """Raise ModuleNotFoundError if a package that the console needs is missing; the message says how to install it.

    `with_schemas` also checks the packages for a schema registry.
    """
    missing = [name for name in EXTRA + (OF_SCHEMAS if with_schemas else ()) if not _is_there(name)]
    if missing:
        raise ModuleNotFoundError(
            f"the console needs {', '.join(missing)}: {installation_of('console')}", name=missing[0]
        )


def _is_there(name: str) -> bool:
    package, _, rest = name.partition(".")
    return find_spec(package) is not None and (not rest or find_spec(name) is not None)
