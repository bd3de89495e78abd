"""Reading of a backup's store: its catalog, its cuts, and the names of its segments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from ..failures import BackupUnusable, ObjectMissing
from ..objects.opening import open_store
from ..objects.store import ObjectStore
from .catalog import Catalog, EpochFile, catalog_of, read_epoch
from .cut_file import CUT_BYTES_MAX, CutFile, read
from .names import (
    CUTS,
    DATA,
    EPOCHS,
    CutName,
    SegmentName,
    cut_in,
    epoch_in,
    epoch_key,
    segment_in,
)
from .values import BackupCut

_EPOCH_BYTES_MAX: Final = 16 << 20
STORE_PATIENCE_S: Final = 60.0
"""The time in seconds after which a call of the store gives up, with all its attempts."""
NO_BACKUP: Final = "there is no backup in {}: 'ottla backup --to URL' makes one"


def backup_store(url: str) -> ObjectStore:
    """Return the store of a backup. Raises ValueError for an invalid URL, and ModuleNotFoundError and ObjectStoreFailed
    for a store that cannot be used here."""
    return open_store(url, STORE_PATIENCE_S)


async def list_cuts(store: ObjectStore) -> list[BackupCut]:
    """Return the cuts of a backup, from the oldest to the newest. Raises BackupUnusable if there is no backup, or a cut
    is damaged, and ObjectStoreFailed."""
    catalog = await read_catalog(store)
    return [(await read_cut(store, name)).described() for name in catalog.cuts]


async def read_catalog(store: ObjectStore) -> Catalog:
    """Return the catalog of a store. Raises BackupUnusable if it has no backup, and ObjectStoreFailed."""
    catalog = await find_catalog(store)
    if catalog is None:
        raise BackupUnusable(NO_BACKUP.format(store.url))
    return catalog


async def find_catalog(store: ObjectStore) -> Catalog | None:
    """Return the catalog of a store; None if no backup was ever begun there."""
    # Cuts are listed first: a run that begins meanwhile closes at least these.
    cuts = [name async for found in store.list(CUTS) if (name := cut_in(found.key)) is not None]
    epoch = await newest_epoch(store)
    return None if epoch is None else catalog_of(epoch, cuts)


async def newest_epoch(store: ObjectStore) -> EpochFile | None:
    """Return the object of the newest run; None if there was no run."""
    epochs = [epoch async for found in store.list(EPOCHS) if (epoch := epoch_in(found.key)) is not None]
    if not epochs:
        return None
    key = epoch_key(max(epochs))
    return read_epoch(await store.get(key, 0, _EPOCH_BYTES_MAX), key)


async def read_cut(store: ObjectStore, name: CutName) -> CutFile:
    """Return the content of a cut. Raises BackupUnusable for a cut that is missing or damaged."""
    try:
        cut = read(await store.get(name.key, 0, CUT_BYTES_MAX), name.key)
    except ObjectMissing:
        raise BackupUnusable(f"the cut {name.cut} is not in {store.url} any more") from None
    if cut.cut != name.cut:
        raise BackupUnusable(f"{name.key} has another cut, {cut.cut}")
    return cut


async def segments_of(
    store: ObjectStore, topic_id: bytes | None = None
) -> AsyncIterator[tuple[SegmentName, int]]:
    """Yield the segments of a topic, or of all topics, each with the size of its object in bytes."""
    async for found in store.list(DATA if topic_id is None else f"{DATA}{topic_id.hex()}/"):
        name = segment_in(found.key)
        if name is not None:
            yield name, found.size
