"""Conclusions of a copy's leader from the answers of its source. Pure.

An answer that would silently lose records is a fault, which stops the copy until an operator decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.cluster.mirror_table import FaultKind, MirrorFault, MirrorPartition
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record_batch import MAGIC, walk_batches

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Begin:
    """A decision that an empty copy begins at an offset of the source's log."""

    offset: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """The whole batches in a source's fetch answer: their size, the offset after them, and their new leader epochs."""

    size: int
    """Size of the whole batches in bytes. The bytes after them are an incomplete batch."""
    next_offset: int
    epochs: tuple[tuple[int, int], ...]
    """New leader epochs of the source in the batches: (epoch, first offset)."""


def out_of_range(
    copy: MirrorPartition, log_start: int, log_end: int, source_start: int, source_end: int
) -> Begin | MirrorFault | None:
    """Return the consequence of OFFSET_OUT_OF_RANGE: the source has no record at the end of the copy. The consequence
    is: a new beginning for an empty copy, or a fault. None if the source has the offset by now.
    """
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
    """Return the fault that follows from an answer of OffsetForLeaderEpoch; None if the source has all copied records.

    The answer says that in the source's log `epoch` is the largest epoch that is not above `asked_epoch`, and ends at
    `end_offset`.
    """
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
    """Return the leader epoch to ask the source for next; None if the point of divergence is known already.

    If the source answers with an `epoch` that the copy does not have, the copy asks about its own last epoch before
    `epoch`. The logs diverge in that epoch or earlier.
    """
    ours = next((known for known, _ in reversed(copy.lineage) if known <= epoch), epoch)
    return ours if ours < epoch < asked_epoch else None


def agrees_to(copy: MirrorPartition, first: int, end: int, batches: memoryview) -> int | None:
    """Return the offset below `end` up to which the source, from `first` on, has only records that were copied; None if
    they differ.

    `batches`: the source's next batches. They differ if the leader epoch of a batch is not that of the copy at its
    offset, because all writers of a leader epoch write the same log.
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
    """Return the fault for records that were written here after a failback had counted them, if the failback must not
    cut off records; None if there are no such records. It is checked at the first contact with the source."""
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
    message = f"{reason}: the records at offsets {first} to {end - 1} were copied, and are not in the source any more"
    return MirrorFault(FaultKind.DIVERGED, first, end, message)


def arrived(copy: MirrorPartition, batches: memoryview) -> Arrived:
    """Return the whole batches of an answer, and the leader epochs that begin in them.

    Raises KafkaError: CORRUPT_MESSAGE for impossible sizes, UNSUPPORTED_FOR_MESSAGE_FORMAT for a format before 2.
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
