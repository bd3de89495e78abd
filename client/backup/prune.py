"""Pruning of a backup: old cuts are deleted, and then the segments that no remaining cut needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ..objects.store import ObjectStore
from .lanes import in_lanes
from .names import CutName, SegmentName
from .plans import NeededSegments, cuts_to_prune
from .reading import read_catalog, read_cut, segments_of
from .values import BackupPruning

_DELETED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Pruning:
    """The objects that a pruning deletes."""

    cuts: tuple[CutName, ...]
    kept: tuple[CutName, ...]
    """The cuts that remain."""
    segments: dict[SegmentName, int]
    """The segments with their sizes in bytes."""

    @property
    def objects(self) -> int:
        """The number of objects to delete."""
        return len(self.cuts) + len(self.segments)

    @property
    def result(self) -> BackupPruning:
        """The result for programs."""
        return BackupPruning(
            tuple(str(name.cut) for name in self.cuts),
            tuple(str(name.cut) for name in self.kept),
            len(self.segments),
            sum(self.segments.values()),
        )


async def plan_pruning(store: ObjectStore, *, keep: int | None, older_than_ms: int | None) -> Pruning:
    """Return the objects to delete so that the newest `keep` cuts remain, and all from `older_than_ms` on.

    Segments that interrupted runs have left behind are among them. Raises BackupUnusable and ObjectStoreFailed.
    """
    catalog = await read_catalog(store)
    doomed = cuts_to_prune(catalog.cuts, keep, older_than_ms)
    kept = tuple(name for name in catalog.cuts if name not in doomed)
    # Segments are listed first, so that each of them is older than the newest cut, or stays.
    sizes = {name: size async for name, size in segments_of(store)}
    needed = NeededSegments(catalog)
    for name in kept:
        needed.add(await read_cut(store, name))
    return Pruning(doomed, kept, {name: size for name, size in sizes.items() if needed.may_go(name)})


async def prune(store: ObjectStore, pruning: Pruning, progress: Callable[[int], None]) -> None:
    """Delete the objects of a pruning, cuts first. `progress` is called with the number of deleted objects.

    A pruning that ends early leaves segments that no cut needs; the next pruning deletes them.
    """
    done = 0

    async def delete_all(keys: Iterator[str]) -> None:
        async def delete(lane: int) -> None:
            nonlocal done
            for key in keys:
                await store.delete(key)
                done += 1
                progress(done)

        await in_lanes(_DELETED_AT_ONCE, delete)

    await delete_all(name.key for name in pruning.cuts)
    await delete_all(name.key for name in pruning.segments)
