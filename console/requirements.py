"""What the console needs beside Ottla, and what somebody without it is told."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

EXTRA: Final = ("starlette", "uvicorn", "jinja2")


def require_extra() -> None:
    """Raises ModuleNotFoundError that says how to install what is missing."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the console needs {', '.join(missing)}: pip install 'ottla[console]'", name=missing[0]
        )
