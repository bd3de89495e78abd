"""The opening of a partition's folder: it finds the segments, repairs what a crash left, and rebuilds state that was
only in memory.

After a clean stop all files are trusted. Otherwise only records below the recovery point are trusted, except for the
last batch there. From that batch on every batch is read and its CRC checked. The log ends before the first batch that
is not whole, or whose leader epoch other batches contradict. Damage below the recovery point is an error, never
repaired silently: those records had been flushed, so they may have been acknowledged, and another replica has them.

If only the process died, the page cache still has all that was written, and only the last write may be short. Then the
headers alone are read. The CRC is checked of the last batch below the recovery point, of control batches, and of the
last batches of each segment. A log in which anything is not as it was written is recovered once more, by all of its
bytes. Both recoveries find the same state, and neither raises the recovery point.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ....protocol.errors import ErrorCode, KafkaError
from ..checkpoints import LEADER_EPOCHS, read_leader_epochs
from ..config import OFFSETS_MAX, LogConfig
from ..durable_files import TEMPORARY_SUFFIX
from ..leader_epochs import LeaderEpochs
from ..producers.producer_loading import load_producers, rebuild_transaction_indexes
from ..producers.producer_snapshot import snapshot_offsets_among
from ..producers.producer_state import ProducerStates
from ..segments.descriptors import FileCache
from ..segments.doomed_files import DOOMED_SUFFIX
from ..segments.gaps import GAPS_MARK, has_gaps, noted_gaps
from ..segments.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from ..segments.segment_swap import are_unfinished, finish_swaps
from ..storage_errors import BrokenBatch, damage, disk_error
from .clean_log_state import CleanLogState
from .recovered_epochs import EpochFell, RecoveredEpochs
from .segment_scan import Findings, NotAsWritten, Scan, rebuild

_INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OpenedLog:
    """The content of an opened partition folder: segments, leader epochs and producer state. The last segment is not
    active yet."""

    segments: list[Segment]
    next_offset: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    has_gaps: bool
    """True if there may be gaps between the offsets of batches."""
    is_settled: bool
    """True if the files are in the state that a clean stop leaves."""
    is_named: bool
    """True if the names of the files are durable, too."""
    doomed: list[Path] = field(default_factory=list)
    """Files that a process before had renamed for deletion. Unlinking gigabytes takes seconds, so it waits until the
    broker serves."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request to open a partition's folder as a log; `recovery_point` is the offset below which all records had been
    flushed."""

    directory: Path
    config: LogConfig
    files: FileCache
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    settled: CleanLogState | None = None
    """The state of these very files that a clean stop recorded."""
    only_process_died: bool = False
    """True if the page cache still has all that was written to the folder's files."""

    @property
    def contiguous(self) -> bool:
        """True if each batch must start where the batch before ended. Otherwise this holds only between segments."""
        return not (self.config.compacted or has_gaps(self.directory))


def open_folder(request: OpenRequest) -> OpenedLog:
    """Load and, if necessary, recover a partition. Blocking.

    Raises KafkaError: KAFKA_STORAGE_ERROR if the folder cannot be read or is damaged below the recovery point.
    """
    if request.settled is not None:
        return _reopened(request, request.settled)
    names = _names_in(request.directory)
    if names is None:
        _make(request.directory)
        if request.recovery_point <= request.log_start_offset:
            return _new_log(request)
        names = frozenset()
    segments = _find_segments(request, names)
    epochs = LeaderEpochs(read_leader_epochs(request.directory) if LEADER_EPOCHS in names else ())
    has_segments = bool(segments)
    if not has_segments:
        if request.recovery_point > request.log_start_offset:
            raise damage(
                request.directory, 0, f"no segment is left, offset {request.recovery_point} was flushed"
            )
        segments = [_new_segment(request, request.log_start_offset)]
        segments[0].open(creates=True)
    next_offset = _load_clean(segments, request, names) if request.clean_shutdown else None
    is_settled = next_offset is not None
    without_producers: Collection[Segment] = ()
    if next_offset is None:
        gaps = noted_gaps(request.directory)
        segments, next_offset, findings = _recovered(segments, request, names, epochs, gaps)
        epochs, without_producers = findings.epochs.epochs, findings.without_producers
        next_offset = _end_behind_gap(segments, request, gaps, next_offset)
    _check_end(request, segments, next_offset, epochs)
    rebuild_transaction_indexes(request.directory, segments)
    producers = load_producers(
        request.directory,
        segments,
        snapshot_offsets_among(names),
        next_offset,
        request.config,
        request.now_ms,
        without_producers,
    )
    is_named = is_settled and has_segments
    doomed = [request.directory / name for name in names if name.endswith(DOOMED_SUFFIX)]
    return OpenedLog(
        segments, next_offset, epochs, producers, GAPS_MARK in names, is_settled, is_named, doomed
    )


def _check_end(request: OpenRequest, segments: list[Segment], next_offset: int, epochs: LeaderEpochs) -> None:
    """Cut leader epochs to the recovered log. Raises KafkaError, KAFKA_STORAGE_ERROR, if the log is shorter than what
    was flushed."""
    if next_offset < request.recovery_point:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{request.directory} ends at offset {next_offset}, but all up to {request.recovery_point} "
            "had been flushed: the disk lost records. Delete the folder to copy them from another replica",
        )
    epochs.truncate_from_end(next_offset + 1)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset)
    epochs.truncate_from_start(min(log_start_offset, next_offset))


def _reopened(request: OpenRequest, known: CleanLogState) -> OpenedLog:
    """Return the content of the folder from its recorded state, without reading the folder."""
    segments = known.open_segments(request.directory, request.files, request.now_ms)
    epochs = LeaderEpochs(known.epochs)
    _check_end(request, segments, known.end_offset, epochs)
    producers = known.open_producers()
    producers.expire(request.now_ms, request.config.producer_id_expiration_ms)
    return OpenedLog(
        segments, known.end_offset, epochs, producers, known.has_gaps, is_settled=True, is_named=True
    )


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise disk_error("create", directory, error) from error


def _new_log(request: OpenRequest) -> OpenedLog:
    """Return the content of a folder that was just made. It must be empty: a check would take longer than making the
    whole log, and thousands of logs may be made at once."""
    segment = _new_segment(request, request.log_start_offset)
    segment.open(creates=True)
    return OpenedLog(
        [segment],
        segment.base_offset,
        LeaderEpochs(),
        ProducerStates(),
        has_gaps=False,
        is_settled=True,
        is_named=False,
    )


def _new_segment(request: OpenRequest, base_offset: int) -> Segment:
    return Segment(request.directory, base_offset, request.files, now_ms=request.now_ms)


def _find_segments(request: OpenRequest, names: Collection[str]) -> list[Segment]:
    segments = []
    folder = os.fspath(request.directory)
    try:
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if name.endswith(TEMPORARY_SUFFIX):
                os.unlink(f"{folder}/{name}")
            elif dot + suffix == LOG_SUFFIX and stem.isdigit():
                segment = _new_segment(request, int(stem))
                segment.size = os.stat(f"{folder}/{name}").st_size
                segments.append(segment)
            elif dot + suffix in _INDEXES and stem + LOG_SUFFIX not in names:
                os.unlink(f"{folder}/{name}")  # The process died after it had renamed the log for deletion.
    except OSError as error:
        raise disk_error("read", request.directory, error) from error
    return sorted(segments, key=lambda segment: segment.base_offset)


def _names_in(directory: Path) -> frozenset[str] | None:
    """Return the file names in the folder, after interrupted compactions were finished or undone; None if there is no
    folder.

    The folder is listed once, since a broker opens tens of thousands of folders at its start. Files that are not in the
    list are not searched for. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    try:
        names = os.listdir(directory)
        if are_unfinished(names):
            finish_swaps(directory)
            names = os.listdir(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error("read", directory, error) from error
    return frozenset(names)


def _load_inactive(segment: Segment, request: OpenRequest, names: Collection[str]) -> None:
    """Use a flushed segment and its indexes unchanged; rebuild indexes that are missing or have an odd size. The new
    indexes are whole and durable before they take their names, since the next start trusts them."""
    segment.synced = True
    if not _adopts_indexes(segment, names):
        logger.warning("rebuilding the indexes of %s", segment.path)
        segment.offset_index.hold_back()
        segment.time_index.hold_back()
        _, broken = rebuild(_scan_of(segment, segment.base_offset, request), None)
        if broken is not None:
            raise damage(segment.path, broken.position, broken.reason) from broken
        segment.replace_indexes()


def _adopts_indexes(segment: Segment, names: Collection[str]) -> bool:
    """Return whether the index files, as far as they are among `names`, can be what was written, and use them then."""
    if not (segment.offset_index.adopt_file() and segment.time_index.adopt_file()):
        return False
    transactions = segment.transaction_index
    name = f"{segment.base_offset:020d}{TRANSACTION_INDEX_SUFFIX}"
    if name in names and not transactions.adopt_file():
        return False
    return not _lacks_times(segment)


def _was_never_written(segment: Segment) -> bool:
    """Return whether the segment is empty and has no index files."""
    return not segment.size and not any(path.exists() for path in segment.files[1:])


def _lacks_times(segment: Segment) -> bool:
    """Return whether the time index is empty although the first batch has a timestamp. Closing a segment adds the
    largest timestamp, so entries are missing then."""
    if len(segment.time_index) or not segment.size:
        return False
    try:
        segment.load_first_timestamp()
    except BrokenBatch:
        return True
    return segment.first_timestamp is not None and segment.first_timestamp >= 0


def _load_clean(segments: list[Segment], request: OpenRequest, names: Collection[str]) -> int | None:
    """Return the log end offset, or None if the last segment is not in the state that a clean stop leaves."""
    for segment in segments[:-1]:
        _load_inactive(segment, request, names)
    last = segments[-1]
    if not (_adopts_indexes(last, names) or _was_never_written(last)):
        return None
    try:
        return last.load_end()
    except BrokenBatch as broken:
        logger.warning("%s is not as a clean stop leaves it: %s; recovering it", last.path, broken.reason)
        return None


def _recovered(
    segments: list[Segment],
    request: OpenRequest,
    names: Collection[str],
    epochs: LeaderEpochs,
    gaps: Mapping[int, int | None],
) -> tuple[list[Segment], int, Findings]:
    """Check and repair the log above the recovery point. Returns the segments that remain, the log end offset and the
    findings."""
    if request.only_process_died:
        findings = Findings(RecoveredEpochs(epochs.copy(), request.recovery_point))
        try:
            return *_recover(segments, request, names, findings, gaps, trusts_bodies=True), findings
        except NotAsWritten as reason:
            logger.warning("%s: reading all records above the recovery point: %s", request.directory, reason)
            segments = [_untouched(segment, request) for segment in segments]
    findings = Findings(RecoveredEpochs(epochs, request.recovery_point))
    return *_recover(segments, request, names, findings, gaps, trusts_bodies=False), findings


def _untouched(segment: Segment, request: OpenRequest) -> Segment:
    """Return the segment as it was before a recovery began."""
    segment.close()
    fresh = _new_segment(request, segment.base_offset)
    fresh.size = segment.size
    return fresh


def _recover(
    segments: list[Segment],
    request: OpenRequest,
    names: Collection[str],
    findings: Findings,
    gaps: Mapping[int, int | None],
    *,
    trusts_bodies: bool,
) -> tuple[list[Segment], int]:
    """Check and repair the log above the recovery point. Returns the segments that remain and the log end offset. With
    `trusts_bodies` nothing is repaired: NotAsWritten is raised if there is anything to repair.

    The segment that ends at the recovery point was flushed as the last one, so its log is durable, but its indexes may
    not be.
    """
    point = request.recovery_point
    first = len(segments) - 1
    for number, (_, following) in enumerate(pairwise(segments)):
        if following.base_offset >= point:
            first = number
            break
    for segment in segments[:first]:
        _load_inactive(segment, request, names)
    next_offset = segments[first].base_offset
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.base_offset != next_offset and segment.base_offset not in gaps:
            if trusts_bodies:
                raise NotAsWritten(f"{segment.path.name} does not continue the log at offset {next_offset}")
            if next_offset >= point:
                return _drop_from(segments, number), next_offset
            if request.contiguous:
                raise damage(
                    segment.path, 0, f"offsets {next_offset} to {segment.base_offset - 1} are missing"
                )
        upto = segments[number + 1].base_offset if number + 1 < len(segments) else None
        scan = _scan_of(segment, point, request, upto, trusts_bodies=trusts_bodies)
        next_offset, broken = rebuild(scan, findings)
        if broken is not None:
            if trusts_bodies:
                raise NotAsWritten(f"{segment.path.name} at byte {broken.position}: {broken.reason}")
            if next_offset < point:
                raise damage(segment.path, broken.position, broken.reason) from broken
            if isinstance(broken, EpochFell) and point <= broken.since < next_offset:
                return _drop_epoch(
                    segments[: number + 1], segments[number + 1 :], broken, findings.epochs.epochs
                )
            logger.warning(
                "%s: cut at byte %d of %d, offset %d: %s",
                segment.path, broken.position, segment.size, next_offset, broken.reason,
            )  # fmt: skip
            segment.truncate(broken.position, next_offset)
            return _drop_from(segments, number + 1), next_offset
        if number + 1 < len(segments):
            segment.finish()
    return segments, next_offset


def _scan_of(
    segment: Segment,
    verify_from: int,
    request: OpenRequest,
    upto: int | None = None,
    *,
    trusts_bodies: bool = False,
) -> Scan:
    """Return the scan of a segment, which ends before offset `upto`, where the next segment begins."""
    return Scan(
        segment,
        verify_from,
        segment.base_offset + OFFSETS_MAX if upto is None else upto,
        request.config.index_interval_bytes,
        contiguous=request.contiguous,
        trusts_bodies=trusts_bodies,
    )


def _end_behind_gap(
    segments: list[Segment], request: OpenRequest, gaps: Mapping[int, int | None], next_offset: int
) -> int:
    """Return the end of a log that was about to end after a gap; the segment there is added to `segments`. Otherwise
    return `next_offset`."""
    end = next((base for base, before in gaps.items() if before == next_offset < base), None)
    if end is None:
        return next_offset
    segments[-1].finish()
    segments.append(_new_segment(request, end))
    segments[-1].open(creates=True)
    return end


def _drop_epoch(
    segments: list[Segment], following: list[Segment], fell: EpochFell, epochs: LeaderEpochs
) -> tuple[list[Segment], int]:
    """Cut the log at the first batch of an epoch above the epoch of a later batch, since either batch may be the
    damaged one."""
    since = fell.since
    number = max(n for n, segment in enumerate(segments) if segment.base_offset <= since)
    segment = segments[number]
    found = segment.find(since)
    assert found is not None
    position = found[0]
    logger.warning(
        "%s: cut at byte %d of %d, offset %d: the epoch there is not that of what follows: %s",
        segment.path, position, segment.size, since, fell.reason,
    )  # fmt: skip
    segment.truncate(position, since)
    segment.load_end()
    epochs.truncate_from_end(since)
    return _drop_from([*segments, *following], number + 1), since


def _drop_from(segments: list[Segment], number: int) -> list[Segment]:
    for segment in reversed(segments[number:]):
        logger.warning("dropping %s: it does not continue the log", segment.path)
        for path in segment.doom():
            path.unlink(missing_ok=True)
    return segments[:number]
