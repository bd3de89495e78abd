"""The command that installs an extra of this package, for errors about missing packages."""

from __future__ import annotations


def installation_of(extra: str) -> str:
    """Return the command that installs an extra, and the place to run it.

    No release is on PyPI yet, so the package comes from a checkout.
    """
    return f"pip install '.[{extra}]' in a checkout of Ottla"
