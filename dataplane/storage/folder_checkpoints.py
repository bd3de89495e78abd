"""The checkpoint files of one data folder: recovery points, high watermarks and log start offsets of its logs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ..log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from ..log.partition_log import PartitionLog


class Checkpointed(NamedTuple):
    """The recovery points and log start offsets in the checkpoint files when the data folder was opened."""

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]


class FolderCheckpoints:
    """The writer of a folder's checkpoint files from the present state of its logs. Each method blocks and may be
    called in any thread.

    All methods raise KafkaError, KAFKA_STORAGE_ERROR, if a file cannot be read or written.
    """

    def __init__(
        self, path: Path, logs: Mapping[TopicPartition, PartitionLog], failed: Collection[TopicPartition] = ()
    ) -> None:
        """`logs` is the folder's table of open logs, and `failed` has the logs that are here and not open. Both change.

        The rows of failed logs stay unchanged in the files. Without its recovery point the next start would take a
        damaged log for a log that was never flushed, and cut it. A log that fails is in `failed` before it leaves
        `logs`.
        """
        self._path = path
        self._logs = logs
        self._failed = failed
        self._writing = threading.Lock()
        # The logs that have rows in each file; the files have no topic ids. A set is replaced whenever its file is,
        # since logs are added and removed.
        self._rows: dict[str, frozenset[TopicPartition]] = {}
        # The content of each file, as it was read or written last.
        self._said: dict[str, Mapping[TopicPartition, int]] = {}
        # Names of files that this process wrote, so that an idle broker writes no file twice.
        self._written: set[str] = set()

    @property
    def named(self) -> frozenset[TopicPartition]:
        """The partitions that have a row in any checkpoint file of the folder."""
        return frozenset().union(*self._rows.values())

    def read(self) -> Checkpointed:
        """Read the checkpoint files that an earlier process left in the folder."""
        recovery_points = read_offsets(self._path / RECOVERY_POINTS)
        log_starts = read_offsets(self._path / LOG_START_OFFSETS)
        self._said = {
            RECOVERY_POINTS: recovery_points,
            LOG_START_OFFSETS: log_starts,
            HIGH_WATERMARKS: self.read_high_watermarks(),
        }
        self._rows = {name: frozenset(offsets) for name, offsets in self._said.items()}
        return Checkpointed(recovery_points, log_starts)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks in the checkpoint file, as they were last written."""
        return read_offsets(self._path / HIGH_WATERMARKS)

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of the logs that are in this folder; others are left out."""
        with self._writing:
            here = self._logs
            present = {key: offset for key, offset in high_watermarks.items() if key in here}
            self._write(HIGH_WATERMARKS, present)

    def write_log_starts(self) -> None:
        """Write the present log start offsets to the checkpoint file."""
        with self._writing:
            starts = {key: log.log_start_offset for key, log in list(self._logs.items())}
            self._write(LOG_START_OFFSETS, {key: start for key, start in starts.items() if start > 0})

    def write_recovery_points(self, lowered: Mapping[TopicPartition, int]) -> None:
        """Write the recovery points, up to which the logs are flushed. Logs in `lowered` get the lower value given
        there."""
        with self._writing:
            points = {key: log.recovery_point for key, log in list(self._logs.items())}
            self._write(RECOVERY_POINTS, {**points, **lowered})

    def make_room_for(self, key: TopicPartition) -> None:
        """Drop the rows of logs that are gone, if the log that is about to be created has the name of one of them.

        The old log's recovery point or log start would condemn or hide records of the new log.
        """
        if not any(key in rows for rows in self._rows.values()):
            return
        self.write_recovery_points({})
        with self._writing:
            for name in (LOG_START_OFFSETS, HIGH_WATERMARKS):
                rows = read_offsets(self._path / name)
                self._write(name, {key: rows[key] for key in rows.keys() & self._logs.keys()})

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Replace the checkpoint file `name`, unless its content stays the same. The caller must not change `offsets`
        afterwards.
        """
        said = self._said.get(name, {})
        for key in list(self._failed):
            if key in said:
                offsets.setdefault(key, said[key])
        if name in self._written and said == offsets:
            return
        self._written.discard(name)
        # If the write fails, the file has either the old rows or the new ones.
        self._rows[name] = self._rows.get(name, frozenset()).union(offsets)
        write_offsets(self._path / name, offsets)
        self._rows[name] = frozenset(offsets)
        self._said[name] = offsets
        self._written.add(name)
