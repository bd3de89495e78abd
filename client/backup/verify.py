"""Verification of a backup: every cut and every segment is read, and compared with what its name says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ...network.threads import in_thread
from ...protocol.errors import KafkaError
from ...protocol.records.record_batch import check_integrity, walk_batches
from ..failures import BackupUnusable, ObjectDamaged, ObjectMissing
from ..objects.store import ObjectStore
from .catalog import Catalog
from .chains import chain_of
from .cut_file import CutFile
from .loaded_segments import read_segment
from .names import CutId, PartitionFolder, SegmentName
from .reading import read_catalog, read_cut, segments_of
from .values import BackupVerification

Progress = Callable[[int, int], None]


async def verify(store: ObjectStore, progress: Progress = lambda done, total: None) -> BackupVerification:
    """Read every object of a backup, and return the damages.

    `progress` is called with the bytes that were read so far, and the bytes of all segments. Raises BackupUnusable if
    there is no backup, and ObjectStoreFailed.
    """
    catalog = await read_catalog(store)
    sizes = {name: size async for name, size in segments_of(store) if not catalog.is_garbage(name)}
    damages: list[str] = []
    damaged: set[SegmentName] = set()
    done, total = 0, sum(sizes.values())
    for name, size in sorted(sizes.items()):
        fault = await segment_fault(store, name, size)
        if fault is not None:
            damaged.add(name)
            damages.append(fault)
        done += size
        progress(done, total)
    by_place: dict[PartitionFolder, list[SegmentName]] = {}
    for name in sizes:
        by_place.setdefault(name.place, []).append(name)
    broken: list[CutId] = []
    for cut_name in catalog.cuts:
        try:
            cut = await read_cut(store, cut_name)
        except BackupUnusable as error:
            damages.append(error.message)
            broken.append(cut_name.cut)
            continue
        holes, uses_damaged = _faults(catalog, cut, by_place, damaged)
        damages += holes
        if holes or uses_damaged:
            broken.append(cut_name.cut)
    return BackupVerification(len(catalog.cuts), len(sizes), total, tuple(damages), tuple(map(str, broken)))


def _faults(
    catalog: Catalog,
    cut: CutFile,
    found: Mapping[PartitionFolder, Sequence[SegmentName]],
    damaged: Collection[SegmentName],
) -> tuple[list[str], bool]:
    """Return the offsets of a cut that no segment has, in words, and whether a segment of the cut is damaged."""
    holes: list[str] = []
    uses_damaged = False
    for topic, partition in cut.places:
        chain = chain_of(partition, catalog.segments_at(cut.cut, found.get(topic.folder(partition), ())))
        holes += [
            f"cut {cut.cut}: no segment has the offsets {first} to {end - 1} of {topic.name}-{partition.index}"
            for first, end in chain.holes
        ]
        uses_damaged = uses_damaged or any(segment in damaged for segment in chain.segments)
    return holes, uses_damaged


async def segment_fault(store: ObjectStore, name: SegmentName, size: int) -> str | None:
    """Return the damage of a segment: the difference to its name, or the damage of a batch in it. None is for a sound
    segment.

    Raises ObjectStoreFailed.
    """
    try:
        data = await read_segment(store, name, size)
    except ObjectDamaged as error:
        return error.message
    except ObjectMissing:
        return f"the object {name.key} is missing"
    fault = await in_thread(_fault_of, name, data)
    return None if fault is None else f"the object {name.key} is wrong: {fault}"


def _fault_of(name: SegmentName, data: bytes) -> str | None:
    end = -1
    try:
        for position, header in walk_batches(data):
            check_integrity(data, position, header)
            if header.base_offset < end:
                return (
                    f"the batch at offset {header.base_offset} is before the end of the previous batch, {end}"
                )
            end = header.next_offset
    except KafkaError as error:
        return error.message
    return None if end == name.end else f"its records end at offset {end}, and not at {name.end}"
