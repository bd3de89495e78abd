"""The store of a backup, as the command line names it."""

from __future__ import annotations

from typing import Final

from ....client.failures import ObjectStoreFailed
from ....client.objects.opening import open_store
from ....client.objects.store import ObjectStore
from ...failures import CommandFailed, UsageError

PATIENCE_S: Final = 60.0
"""Seconds after which a call of the store gives up."""


def opened(url: str, flag: str) -> ObjectStore:
    """Return the store of a URL, which `flag` gave. Raises UsageError and CommandFailed."""
    try:
        return open_store(url, PATIENCE_S)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None
    except (ModuleNotFoundError, ObjectStoreFailed) as error:
        raise CommandFailed(str(error)) from None
