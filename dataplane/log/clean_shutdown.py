"""A clean stop of many logs that share their flushes, and the state of a log after it.

First each log writes its files, without a flush. One flush of the file system makes them durable. Then the replacements
of old files take their names, and a second flush makes the names durable. A crash before that leaves the state of an
unclean stop: the old files, or whole new ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from .checkpoints import LEADER_EPOCHS, PARTITION_METADATA, encode_leader_epochs
from .durable_files import take_name, write_beside
from .producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from .producers.producer_snapshot import encode_snapshot, snapshot_offsets_among, snapshot_path
from .recovery.clean_log_state import CleanLogState, Fingerprint, KnownSegment
from .segments.gaps import GAPS_MARK
from .segments.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

if TYPE_CHECKING:
    from .partition_log import PartitionLog

_PRODUCERS_BYTES_MAX = 4096
_SEGMENTS_MAX = 16
"""The most segments of a recorded log; `_PRODUCERS_BYTES_MAX` bounds its producers. A log beyond either is opened from
its files."""
_KINDS = (
    *(LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX),
    *(LEADER_EPOCHS, PARTITION_METADATA, GAPS_MARK),
)
"""Names and suffixes of a log's files. Opening a log from its files deletes other leftovers."""

logger = logging.getLogger(__name__)


def shut_down_together(logs: Sequence[PartitionLog], flush: Callable[[], None]) -> None:
    """Write and flush the files of logs that have no more appends, so that the next start need not recover them.
    `flush` makes all earlier writes of the file system durable; it may raise KafkaError. Blocking.

    A log that fails stays unsettled, and closing it reports the reason. Raises KafkaError if a flush fails; then no log
    is settled.
    """
    written = [shutdown for log in logs if (shutdown := _written(log)) is not None]
    flush()
    named = [shutdown for shutdown in written if shutdown.takes_names()]
    flush()
    for shutdown in named:
        shutdown.is_durable()


def _written(log: PartitionLog) -> _Shutdown | None:
    try:
        return _Shutdown(log)
    except KafkaError as error:
        logger.warning("%s is flushed by itself: %s", log.directory.name, error.message)
        return None


class _Shutdown:
    """The clean stop of one log: its files are written, renamed and noted as flushed, in three steps."""

    __slots__ = ("_cuts", "_log", "_replaced", "_segments", "_target")

    def __init__(self, log: PartitionLog) -> None:
        """Write the log's indexes, leader epochs and producer snapshot, without a flush. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        log.check_usable()
        self._log = log
        self._cuts, self._target = log.durability.cuts, log.log_end_offset
        self._segments = log.segment_list.copy()
        self._replaced: list[str] = []
        log.segment_list.active.finish()
        epochs = log.leader_epochs
        if epochs.entries != epochs.saved:
            self._replace(os.path.join(log.directory, LEADER_EPOCHS), encode_leader_epochs(epochs.entries))
        self._replace(
            os.fspath(snapshot_path(log.directory, log.log_end_offset)), encode_snapshot(log.producers)
        )

    def _replace(self, path: str, data: bytes) -> None:
        write_beside(path, data)
        self._replaced.append(path)

    def takes_names(self) -> bool:
        """Rename files from their temporary names to the names of the files that they replace. Returns whether all
        renames succeeded."""
        try:
            for path in self._replaced:
                take_name(path)
        except KafkaError as error:
            logger.warning("%s is flushed by itself: %s", self._log.directory.name, error.message)
            return False
        return True

    def is_durable(self) -> None:
        """Note that all files of the log, and their names, were flushed."""
        log = self._log
        log.durability.flushed(self._cuts, self._target, self._segments)
        log.durability.synced_the_rest(log.segment_list, log.leader_epochs)
        log.note_settled()


def clean_log_state(log: PartitionLog, topic_id: bytes | None) -> CleanLogState | None:
    """Return the state of a log that was closed cleanly; None if it is too large, or if opening the log has work to do.
    `topic_id` is the id in the log's folder.

    Raises OSError.
    """
    producers, segments = log.producers, log.segments
    is_empty = not len(producers) and producers.transactions.is_pristine
    snapshot = b"" if is_empty else encode_snapshot(producers)
    if len(snapshot) > _PRODUCERS_BYTES_MAX or len(segments) > _SEGMENTS_MAX:
        return None
    fingerprint = log.fingerprint or _fingerprint(log)
    if fingerprint is None:
        return None
    last = segments[-1]
    return CleanLogState(
        topic_id,
        fingerprint,
        log.log_end_offset,
        log.segment_list.has_gaps,
        log.leader_epochs.saved,
        [
            KnownSegment(
                segment.base_offset,
                segment.size,
                len(segment.offset_index),
                len(segment.time_index),
                len(segment.transaction_index),
            )
            for segment in segments
        ],
        last.first_timestamp,
        last.max_timestamp,
        last.max_timestamp_offset,
        last.since_index_entry,
        snapshot,
    )


def _fingerprint(log: PartitionLog) -> Fingerprint | None:
    """Return the fingerprint of the log's files, or None if there are files that opening the log would delete.
    Superfluous snapshots are deleted here, so that they do not accumulate.

    As in opening, the snapshots at the base offsets of segments stay, and the newest. The one before it stays in case
    the newest gets damaged. Raises OSError.
    """
    folder = os.fspath(log.directory)
    names = set(os.listdir(folder))
    if not all(name.endswith(_KINDS) for name in names):
        return None
    bases = {segment.base_offset for segment in log.segments}
    passed = [offset for offset in snapshot_offsets_among(names) if offset not in bases]
    for offset in passed[:-2]:
        path = snapshot_path(log.directory, offset)
        path.unlink()
        names.discard(path.name)
    return Fingerprint.of(folder, sorted(names))
