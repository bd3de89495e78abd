"""Backups and restorations, as programs ask for them. An extension of Ottla; see docs/BACKUP.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from ...backup.values import (
    BackupCut,
    BackupProgress,
    BackupPruning,
    BackupVerification,
    Restoration,
    RestoreProgress,
)
from ...bounds import Name, Within
from ...failures import ConnectionLost
from .backup import Backup
from .calls import BackupCalls

# Most programs with an admin client make no backup, so its modules are loaded by the methods that use them.
if TYPE_CHECKING:
    from ...backup.names import CutId
    from ...objects.store import ObjectStore

AsOf = str | datetime | int
Steps = Callable[[int, int], None]
"""A function that is called with the amount done and the total."""


class BackupAdmin(BackupCalls):
    """The methods that copy the cluster into an object store, and bring a cut back. The store is a URL:
    `file:///FOLDER`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`."""

    async def create_backup(
        self,
        url: Name,
        *,
        topics: str = ".*",
        groups: str = ".*",
        progress: Callable[[BackupProgress], None] | None = None,
    ) -> BackupCut:
        """Copy what is new since the newest cut of the backup at `url`, and return a new cut, which is durable.

            cut = await admin.create_backup("file:///var/spool", topics="orders.*")
            print(cut.cut, cut.offsets, cut.copied)

        `topics` and `groups` are regular expressions of whole names; with empty `groups` no committed offsets are kept.
        `progress` is called with the progress meanwhile. For a cut at each interval use `open_backup`.

        Raises KafkaError: BackupRefused if another run makes backups into `url`, or `url` has the backup of another
        cluster; ObjectStoreFailed. Raises ValueError for an invalid URL or expression.
        """
        async with await self.open_backup(url, topics=topics, groups=groups, progress=progress) as backup:
            return await backup.cut(progress=progress)

    async def open_backup(
        self,
        url: Name,
        *,
        topics: str = ".*",
        groups: str = ".*",
        progress: Callable[[BackupProgress], None] | None = None,
    ) -> Backup:
        """Return a run of backups into `url`, which makes one cut after the other and keeps other runs away.

        The parameters and errors are those of `create_backup`. An earlier run that was killed may still be alive: then
        this one waits up to 20 s, and calls `progress` meanwhile.
        """
        from .run import open_backup

        store = _store(url)
        _check_patterns(topics=topics, groups=groups)
        return await open_backup(self, store, topics=topics, groups=groups, progress=progress)

    async def list_backup(self, url: Name) -> list[BackupCut]:
        """Return the cuts of the backup at `url`, from the oldest to the newest. No cluster is needed: the client need
        not be started.

        Raises KafkaError: BackupUnusable if there is no backup, or a cut is damaged; ObjectStoreFailed.
        """
        from ...backup.reading import list_cuts

        return await list_cuts(_store(url))

    async def verify_backup(self, url: Name, *, progress: Steps | None = None) -> BackupVerification:
        """Read every object of the backup at `url`, and compare it with its digest. No cluster is needed.

        `progress` is called with the bytes that were read, and the bytes of all segments. Damages are part of the
        result. Raises KafkaError: BackupUnusable if there is no backup; ObjectStoreFailed.
        """
        from ...backup.verify import verify

        return await verify(_store(url), progress or _untold)

    async def prune_backup(
        self,
        url: Name,
        *,
        keep: Annotated[int, Within(1)] | None = None,
        older_than: datetime | int | None = None,
        validate_only: bool = False,
        progress: Steps | None = None,
    ) -> BackupPruning:
        """Delete old cuts of the backup at `url`, and the records that no remaining cut has. No cluster is needed.

        The newest `keep` cuts remain, and the cuts from the time `older_than` on: a datetime, or ms since 1970. The
        newest cut always remains. With `validate_only` nothing is deleted. `progress` is called with the number of
        deleted objects and their total.

        Raises KafkaError: BackupUnusable if there is no backup, or a remaining cut is damaged; ObjectStoreFailed.
        Raises ValueError if neither `keep` nor `older_than` is given.
        """
        from ...backup.prune import plan_pruning, prune

        if keep is None and older_than is None:
            raise ValueError("prune_backup: keep or older_than says which cuts are deleted")
        store = _store(url)
        before_ms = None if older_than is None else _milliseconds(older_than)
        planned = await plan_pruning(store, keep=keep, older_than_ms=before_ms)
        if not validate_only:
            tell = progress or _untold
            await prune(store, planned, lambda done: tell(done, planned.objects))
        return planned.result

    async def restore_backup(
        self,
        url: Name,
        *,
        as_of: AsOf | None = None,
        topics: str | None = None,
        groups: str | None = None,
        renames: Mapping[Name, Name] | None = None,
        acls: bool = False,
        quotas: bool = False,
        listen: Name | None = None,
        validate_only: bool = False,
        progress: Callable[[RestoreProgress], None] | None = None,
    ) -> Restoration:
        """Bring a cut of the backup at `url` back into this cluster. Returns once its topics accept records.

            await admin.create_backup("file:///var/spool", topics="orders")
            restored = await admin.restore_backup("file:///var/spool", renames={"orders": "orders-before"})
            print(restored.topics)

        The brokers copy the cut from this process, so all of them must reach this machine. `listen` is the HOST or
        HOST:PORT for that; without it this machine's address on the way to a broker is used.

        `as_of` is the id of a cut such as "3-17", or a time: the newest cut up to a datetime, or up to ms since 1970.
        Without it the newest cut is restored. `topics` and `groups` are regular expressions of whole names; without
        them everything in the backup is restored. `renames` has the new name of a topic, by its name in the backup.
        With `acls` and `quotas` those of the backup are created, too. With `validate_only` nothing changes. `progress`
        is called with the progress meanwhile. The same call continues a restoration that was interrupted.

        Raises KafkaError: BackupUnusable if there is no such cut or topic, or an object is missing; BackupRefused if
        the cluster has such a topic, or no progress is made; ObjectStoreFailed. Raises ValueError for an invalid URL,
        expression, `as_of` or `listen`.
        """
        from ...backup.catalog import chosen_cut
        from ...backup.plans import restore_plan
        from ...backup.reading import read_catalog, read_cut
        from .restore import Restore, prepare
        from .restore_endpoint import endpoint_for, listen_address

        store = _store(url)
        _check_patterns(topics=topics, groups=groups)
        wanted = None if as_of is None else _cut_or_time(as_of)
        address = None if listen is None else listen_address(listen)
        tell = progress or _untold
        tell(RestoreProgress("listing"))
        catalog = await read_catalog(store)
        cut = await read_cut(store, chosen_cut(catalog.cuts, wanted))
        prepared = await prepare(store, catalog, restore_plan(cut, topics, groups, renames or {}))
        restoring = Restore(self, store, prepared, acls=acls, quotas=quotas)
        await restoring.check()
        if validate_only:
            return restoring.expected
        with endpoint_for(address, await self._host_of_a_broker()) as endpoint:
            return await restoring.run(endpoint, tell)

    async def _host_of_a_broker(self) -> str:
        brokers = (await self.describe_cluster()).brokers
        if not brokers:
            raise ConnectionLost("the cluster has no broker that is not fenced")
        return brokers[0].host


def _untold(*progress: object) -> None:
    """Ignore the progress."""


def _store(url: str) -> ObjectStore:
    """Return the store of a URL. Raises ValueError that names the parameter."""
    from ...backup.reading import backup_store

    try:
        return backup_store(url)
    except ValueError as error:
        raise ValueError(f"url: {error}") from None


def _check_patterns(**patterns: str | None) -> None:
    """Raise ValueError, with the name of the parameter, for a text that is no regular expression."""
    for name, text in patterns.items():
        try:
            re.compile(text or "")
        except re.error as error:
            raise ValueError(f"{name} is a regular expression, not {text!r}: {error}") from None


def _cut_or_time(as_of: AsOf) -> CutId | int:
    from ...backup.names import cut_id

    if not isinstance(as_of, str):
        return _milliseconds(as_of)
    found = cut_id(as_of)
    if found is None:
        raise ValueError(
            f"as_of is the id of a cut such as '3-17', a datetime or milliseconds since 1970, not {as_of!r}"
        )
    return found


def _milliseconds(moment: datetime | int) -> int:
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
