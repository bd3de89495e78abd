"""The checkpoint files of one data folder: how far its logs are flushed and committed, and where they start."""

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
    """What the files said when the folder was opened."""

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]


class FolderCheckpoints:
    """Writes the files from the logs as they stand; each method blocks and may be called in any thread.

    All raise KafkaError, KAFKA_STORAGE_ERROR, if a file cannot be read or written.
    """

    def __init__(
        self, path: Path, logs: Mapping[TopicPartition, PartitionLog], failed: Collection[TopicPartition] = ()
    ) -> None:
        """`logs` is the folder's own table, which changes, and so is `failed`: the logs that are here and not open.
        What the files say of these stays as it is. Without its recovery point the next start would take a damaged log
        for one that was never flushed, and cut it. A log that fails is among `failed` before it leaves `logs`."""
        self._path = path
        self._logs = logs
        self._failed = failed
        self._writing = threading.Lock()
        # Who has rows in each of the files, which know no topic ids. Replaced whenever the file is: logs come and go.
        self._rows: dict[str, frozenset[TopicPartition]] = {}
        # What each file says, as it was read or written last.
        self._said: dict[str, Mapping[TopicPartition, int]] = {}
        # Those that this process wrote: a broker with nothing to do writes nothing.
        self._written: set[str] = set()

    @property
    def named(self) -> frozenset[TopicPartition]:
        """The logs that have a row in any of the files."""
        return frozenset().union(*self._rows.values())

    def read(self) -> Checkpointed:
        """What an earlier process left."""
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
        """As last written."""
        return read_offsets(self._path / HIGH_WATERMARKS)

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Those of logs that are here."""
        with self._writing:
            here = self._logs
            present = {key: offset for key, offset in high_watermarks.items() if key in here}
            self._write(HIGH_WATERMARKS, present)

    def write_log_starts(self) -> None:
        """Where the logs start now."""
        with self._writing:
            starts = {key: log.log_start_offset for key, log in list(self._logs.items())}
            self._write(LOG_START_OFFSETS, {key: start for key, start in starts.items() if start > 0})

    def write_recovery_points(self, lowered: Mapping[TopicPartition, int]) -> None:
        """How far the logs are flushed now, those in `lowered` only so far."""
        with self._writing:
            points = {key: log.recovery_point for key, log in list(self._logs.items())}
            self._write(RECOVERY_POINTS, {**points, **lowered})

    def make_room_for(self, key: TopicPartition) -> None:
        """A log is about to be made: drop the rows of logs that are gone, if it has the name of one. A recovery
        point or a log start of the old one would condemn or hide what the new one holds.
        """
        if not any(key in rows for rows in self._rows.values()):
            return
        self.write_recovery_points({})
        with self._writing:
            for name in (LOG_START_OFFSETS, HIGH_WATERMARKS):
                rows = read_offsets(self._path / name)
                self._write(name, {key: rows[key] for key in rows.keys() & self._logs.keys()})

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Replace one of the files, unless it says the same already. `offsets` belong to this object from now on."""
        said = self._said.get(name, {})
        for key in list(self._failed):
            if key in said:
                offsets.setdefault(key, said[key])
        if name in self._written and said == offsets:
            return
        self._written.discard(name)
        # Should the file not be written, it has old rows or new ones.
        self._rows[name] = self._rows.get(name, frozenset()).union(offsets)
        write_offsets(self._path / name, offsets)
        self._rows[name] = frozenset(offsets)
        self._said[name] = offsets
        self._written.add(name)
