"""The lease of a store: only one run at a time makes backups into it.

A run takes the next epoch by creating its object, which closes earlier epochs, and then renews a sign of life. A run
that finds a sign of life watches whether it is renewed: store and machine need no common clock.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ..failures import BackupRefused, ObjectExists, ObjectStoreFailed
from ..objects.store import ObjectStore
from .catalog import Catalog, EpochFile, catalog_of
from .names import ALIVE, CutName, alive_in, alive_key, epoch_key
from .reading import find_catalog, newest_epoch

RENEWED_EVERY_S: Final = 5.0
WATCHED_S: Final = 20.0
"""The time without a renewal after which a run counts as dead."""
RELEASED_WITHIN_S: Final = 5.0
"""The time that a run takes to remove its sign of life. Without that, the next run watches the sign."""
_LOOK_EVERY_S: Final = 1.0
Waiting = Callable[[str], None]


class Lease:
    """The lease of one run. One writer: the event loop. Ends with `release`."""

    def __init__(self, store: ObjectStore, epoch: EpochFile) -> None:
        self.epoch = epoch.epoch
        self._store = store
        self._holder = epoch.holder
        self._shown = -1
        """The number of the newest sign of life that the store has."""
        self._failure: ObjectStoreFailed | None = None
        """The failure of the last renewal; None if it succeeded."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="lease of a backup")

    async def check(self) -> None:
        """Raise BackupRefused if another run has taken over, and ObjectStoreFailed if the lease cannot be renewed now.

        Renewals go on after a failure, since a store may come back.
        """
        if self._failure is not None:
            raise self._failure
        newest = await newest_epoch(self._store)
        if newest is None or newest.epoch != self.epoch or newest.holder != self._holder:
            by = "another run" if newest is None else newest.holder
            raise BackupRefused(f"{by} has taken over the backup in {self._store.url}")

    async def release(self) -> None:
        """Stop the renewals, and remove the sign of life, so that the next run need not watch it.

        A store that does not answer, or fails, keeps the sign. It must not hide the failure that ended the run.
        """
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        with suppress(TimeoutError, ObjectStoreFailed):
            async with asyncio.timeout(RELEASED_WITHIN_S):
                signs = range(max(0, self._shown - 1), self._shown + 2)
                await asyncio.gather(*(self._store.delete(alive_key(self.epoch, sign)) for sign in signs))

    async def _renew(self) -> None:
        while True:
            try:
                await self._show_life()
                self._failure = None
            except ObjectStoreFailed as error:
                self._failure = error
            await asyncio.sleep(RENEWED_EVERY_S)

    async def _show_life(self) -> None:
        """Create the next sign of life, and delete the previous one."""
        # An earlier attempt may have created the sign, although its answer was lost.
        with suppress(ObjectExists):
            sign = alive_key(self.epoch, self._shown + 1)
            await self._store.put_new(sign, self._holder.encode("ascii", "replace"))
        self._shown += 1
        if self._shown:
            await self._store.delete(alive_key(self.epoch, self._shown - 1))


async def take_lease(
    store: ObjectStore, waiting: Waiting, watched_s: float = WATCHED_S
) -> tuple[Lease, Catalog]:
    """Take the lease of a store. Returns it with the catalog, in which earlier runs are closed.

    `waiting` is called with a text while the sign of life of another run is watched, for `watched_s` seconds. Raises
    BackupRefused if another run is alive.
    """
    catalog = await find_catalog(store)
    if catalog is not None:
        await _check_is_dead(store, catalog.epoch, waiting, watched_s)
        catalog = await find_catalog(store)
    epoch = EpochFile(
        1 if catalog is None else catalog.epoch.epoch + 1,
        f"{socket.gethostname()}, process {os.getpid()}, {secrets.token_hex(8)}",
        {} if catalog is None else catalog.closed(),
    )
    try:
        await store.put_new(epoch_key(epoch.epoch), epoch.written())
    except ObjectExists:
        raise BackupRefused(f"another backup into {store.url} has begun at this moment") from None
    cuts: tuple[CutName, ...] = () if catalog is None else catalog.cuts
    await _clear_signs(store, epoch.epoch)
    return Lease(store, epoch), catalog_of(epoch, cuts)


async def _check_is_dead(store: ObjectStore, epoch: EpochFile, waiting: Waiting, watched_s: float) -> None:
    """Raise BackupRefused if a run renews its sign of life."""
    first = await _signs(store, epoch.epoch)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + watched_s
    while first and loop.time() < deadline:
        left_s = deadline - loop.time()
        waiting(f"waiting {left_s:.0f} s to see whether the backup by {epoch.holder} is still alive")
        await asyncio.sleep(min(_LOOK_EVERY_S, watched_s / 4))
        now = await _signs(store, epoch.epoch)
        if not now:
            return
        if now - first:
            raise BackupRefused(
                f"another backup into {store.url} is running: {epoch.holder}. Two backups need two URLs"
            )


async def _signs(store: ObjectStore, epoch: int) -> set[int]:
    return {
        sign[1]
        async for found in store.list(ALIVE)
        if (sign := alive_in(found.key)) is not None and sign[0] == epoch
    }


async def _clear_signs(store: ObjectStore, epoch: int) -> None:
    """Delete the signs of life of earlier runs."""
    signs = [sign async for found in store.list(ALIVE) if (sign := alive_in(found.key)) is not None]
    for sign in signs:
        if sign[0] < epoch:
            await store.delete(alive_key(*sign))
