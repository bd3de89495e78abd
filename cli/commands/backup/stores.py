"""The store of a backup, as the command line names it."""

from __future__ import annotations

from ....client.backup.reading import backup_store
from ....client.failures import ObjectStoreFailed
from ....client.objects.store import ObjectStore
from ...failures import CommandFailed, UsageError


def opened(url: str, flag: str) -> ObjectStore:
    """Return the store of a URL, which `flag` gave. Raises UsageError and CommandFailed."""
    try:
        return backup_store(url)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None
    except (ModuleNotFoundError, ObjectStoreFailed) as error:
        raise CommandFailed(str(error)) from None
