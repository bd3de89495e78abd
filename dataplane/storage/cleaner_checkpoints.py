"""The offsets up to which logs are compacted: `cleaner-offset-checkpoint` of each data folder, in Kafka's format."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from ...protocol.errors import KafkaError
from ..log import PartitionLog
from ..log.checkpoints import PARTITION_METADATA, read_offsets, write_offsets
from ..log.storage_errors import disk_error
from ..runtime.threads import in_thread

CLEANER_OFFSETS = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    """The offsets up to which logs are compacted, by data folder and partition, as in the checkpoint files. A log's
    offset is dropped with the log, even if a new log takes the same name.
    """

    def __init__(self) -> None:
        self._rows: dict[Path, dict[TopicPartition, int]] = {}
        self._owners: dict[Path, PartitionLog] = {}
        # Folders whose files contain rows of lost logs, or offsets that are too high.
        self._outdated: set[Path] = set()
        self._writing = threading.Lock()

    async def load(self, folders: Iterable[Path]) -> bool:
        """Read the checkpoint files of folders that were not read before. Returns whether there were any. For a damaged
        file all logs count as never compacted.
        """
        new = [folder for folder in folders if folder not in self._rows]
        for folder in new:
            self._rows[folder] = {}
            try:
                self._rows[folder] = await asyncio.to_thread(_read, folder)
            except KafkaError as error:
                logger.error("logs in %s are compacted from their start: %s", folder, error.message)
        return bool(new)

    def get(self, key: TopicPartition, partition_log: PartitionLog) -> int | None:
        """Return the offset up to which the log is compacted, or where the log was cut since if that is lower; None if
        unknown.
        """
        directory = partition_log.directory
        owner = self._owners.setdefault(directory, partition_log)
        rows = self._rows.get(directory.parent, {})
        if owner is not partition_log:
            self._owners[directory] = partition_log
            if rows.pop(key, None) is not None:
                self._outdated.add(directory.parent)
        cut = partition_log.durability.take_lowest_cut()
        if rows.get(key, 0) > cut:
            rows[key] = cut
            self._outdated.add(directory.parent)
        known = rows.get(key)
        if known is not None:
            self._watch(key, partition_log, known)
        return known

    def set(self, key: TopicPartition, partition_log: PartitionLog, offset: int) -> None:
        """Note that the log is compacted up to `offset`."""
        self._owners[partition_log.directory] = partition_log
        self._rows.setdefault(partition_log.directory.parent, {})[key] = offset
        self._watch(key, partition_log, offset)

    def _watch(self, key: TopicPartition, partition_log: PartitionLog, offset: int) -> None:
        durability = partition_log.durability
        durability.compacted_upto = offset
        durability.before_compacted_goes = partial(self._cut, key, partition_log)

    def _cut(self, key: TopicPartition, partition_log: PartitionLog, offset: int) -> None:
        """Lower the checkpoint of a log that is about to be cut at `offset`, and write it to disk.

        This blocks, as every cut does, and is rare, since compacted records are committed. A later write may come too
        late: the process could be killed before it, when the log has already grown again.
        """
        directory = partition_log.directory
        if self._owners.get(directory) is partition_log:
            self._rows[directory.parent][key] = partition_log.durability.compacted_upto = offset
            self._outdated.add(directory.parent)
            self._write(directory.parent)

    def keep_only(self, logs: Iterable[PartitionLog]) -> None:
        """Forget the checkpoints of all logs except `logs`."""
        directories = {partition_log.directory for partition_log in logs}
        self._owners = {path: owner for path, owner in self._owners.items() if path in directories}
        for folder, rows in self._rows.items():
            for topic, index in list(rows):
                if folder / f"{topic}-{index}" not in directories:
                    del rows[topic, index]
                    self._outdated.add(folder)

    async def write_losses(self) -> bool:
        """Write the files of folders in which checkpoints were dropped or lowered. Returns whether there were any.

        Otherwise, after a start, a new log with the same name would count as clean although keys occur in it more than
        once. A deleted key's tombstone would then be removed, and an older value would stay.
        """
        outdated = list(self._outdated)
        for folder in outdated:
            await self.write(folder)
        return bool(outdated)

    async def write(self, folder: Path) -> None:
        """Write the checkpoint file of a folder durably. A failure is logged: compacting a range twice does no harm,
        and dropped checkpoints are written at the next attempt.
        """
        await in_thread(partial(self._write, folder))

    def _write(self, folder: Path) -> None:
        with self._writing:
            was_outdated = folder in self._outdated
            self._outdated.discard(folder)
            try:
                write_offsets(folder / CLEANER_OFFSETS, dict(self._rows.get(folder, {})))
            except KafkaError as error:
                if was_outdated:
                    self._outdated.add(folder)
                logger.error("up to where logs are compacted is not kept: %s", error.message)


def _read(folder: Path) -> dict[TopicPartition, int]:
    """Return the compacted offsets of logs that may have existed when the file was written.

    The process may have been killed after it created a log with another's name, and before it had written that the
    other's row is lost. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    rows = read_offsets(folder / CLEANER_OFFSETS)
    if not rows:
        return rows
    try:
        written_ns = os.stat(folder / CLEANER_OFFSETS).st_mtime_ns
    except OSError as error:
        raise disk_error("read", folder / CLEANER_OFFSETS, error) from error
    return {key: offset for key, offset in rows.items() if _made_ns(folder, key) < written_ns}


def _made_ns(folder: Path, key: TopicPartition) -> int:
    """Return the creation time of a log in ns since 1970, which is the time of the file with its topic id; 0 if
    unknown.
    """
    topic, index = key
    try:
        return os.stat(folder / f"{topic}-{index}" / PARTITION_METADATA).st_mtime_ns
    except OSError:
        return 0
