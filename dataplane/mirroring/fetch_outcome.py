"""What the leader of a copy concludes from the answers of its source. Pure.

Whatever would lose records without a word is a fault, and stops the copy until a person has decided.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.cluster.mirror_table import FaultKind, MirrorFault, MirrorPartition
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record_batch import MAGIC, walk_batches

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Begin:
    """The copy has nothing yet, and begins at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """Whole batches that a source sent."""

    size: int
    """Bytes of them; what is behind is the beginning of another batch."""
    next_offset: int
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch of the source, its first offset here), where the epoch is new."""


def out_of_range(
    copy: MirrorPartition, log_start: int, log_end: int, source_start: int, source_end: int
) -> Begin | MirrorFault | None:
    """What it means that the source has nothing at the end of the copy; None if it has by now."""
    if log_end < source_start:
        if not copy.lineage and log_start == log_end:
            return Begin(source_start)
        return MirrorFault(
            FaultKind.GAP,
            log_end,
            source_start,
            f"the source has dropped the records at offsets {log_end} to {source_start - 1} before they were copied",
        )
    if log_end > source_end:
        return _diverged(
            source_end, log_end, f"the source ends at offset {source_end}, below the end of its copy"
        )
    return None


def epoch_end(
    copy: MirrorPartition, log_end: int, asked_epoch: int, epoch: int, end_offset: int
) -> MirrorFault | None:
    """What it means that, in the log of the source, `asked_epoch` ends so: `epoch` is the largest one there that is not
    above it. None if all that was copied is there."""
    if end_offset == UNKNOWN or epoch == UNKNOWN:
        return None
    ours = next((start for known, start in copy.lineage if known > epoch), log_end)
    common = min(end_offset, ours)
    if common >= log_end:
        return None
    return _diverged(
        common,
        log_end,
        f"the source's leader epoch {epoch} ends at offset {end_offset}, epoch {asked_epoch} was copied beyond it",
    )


def asked_next(copy: MirrorPartition, asked_epoch: int, epoch: int) -> int | None:
    """The epoch to ask for before anything is concluded, where the source has told of an `epoch` that the copy does not
    have: the copy's last one before that. Their logs part there, or earlier. None if it is known where."""
    ours = next((known for known, _ in reversed(copy.lineage) if known <= epoch), epoch)
    return ours if ours < epoch < asked_epoch else None


def agrees_to(copy: MirrorPartition, first: int, end: int, batches: memoryview) -> int | None:
    """Up to where the source, from `first` on, has nothing but what was copied below `end`: whoever writes in a leader
    epoch has one log. `batches` are the next that it has. None if one of them is of another epoch than the copy there.
    """
    for _, header in walk_batches(batches, partial_tail=True):
        if header.base_offset >= end:
            return end
        copied = copy.source_epoch_below(max(first, header.base_offset) + 1)
        if header.next_offset > first and header.partition_leader_epoch != copied:
            return None
        first = max(first, header.next_offset)
    return first


def kept(copy: MirrorPartition, log_end: int) -> MirrorFault | None:
    """What it means for the first look at the source after a failback that was not to cut anything off: None if nothing
    was written here after its count."""
    resumption = copy.resumption
    if resumption is None or not copy.keeps_tail or log_end <= resumption.offset:
        return None
    first = resumption.offset
    return MirrorFault(
        FaultKind.DIVERGED,
        first,
        log_end,
        f"the records at offsets {first} to {log_end - 1} were written here, and are not in the source",
    )


def _diverged(first: int, end: int, reason: str) -> MirrorFault:
    told = f"{reason}: the records at offsets {first} to {end - 1} were copied, and are not in the source any more"
    return MirrorFault(FaultKind.DIVERGED, first, end, told)


def arrived(copy: MirrorPartition, batches: memoryview) -> Arrived:
    """Which batches of an answer are whole, and which leader epochs begin in them.

    Raises KafkaError: CORRUPT_MESSAGE for sizes that cannot be, UNSUPPORTED_FOR_MESSAGE_FORMAT for a format before 2.
    """
    size = next_offset = 0
    epochs: list[tuple[int, int]] = []
    latest = copy.lineage[-1][0] if copy.lineage else UNKNOWN
    for position, header in walk_batches(batches, partial_tail=True):
        if header.magic != MAGIC:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"the record at offset {header.base_offset} is in format {header.magic}: only format 2 can be copied",
            )
        size, next_offset = position + header.size, header.next_offset
        if header.partition_leader_epoch > latest:
            latest = header.partition_leader_epoch
            epochs.append((latest, header.base_offset))
    return Arrived(size, next_offset, tuple(epochs))
