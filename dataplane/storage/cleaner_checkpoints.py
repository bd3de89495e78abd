"""Up to where each log was compacted: `cleaner-offset-checkpoint` of each data folder, in Kafka's format."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from ...protocol.errors import KafkaError
from ..log import PartitionLog
from ..log.checkpoints import read_offsets, write_offsets
from ..runtime.threads import in_thread

CLEANER_OFFSETS = "cleaner-offset-checkpoint"

TopicPartition = tuple[str, int]

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    """Rows by data folder and partition. A row is lost with its log, also where a new one takes the name."""

    def __init__(self) -> None:
        self._rows: dict[Path, dict[TopicPartition, int]] = {}
        self._owners: dict[Path, PartitionLog] = {}
        # Folders whose files have rows that are lost.
        self._outdated: set[Path] = set()

    async def load(self, folders: Iterable[Path]) -> bool:
        """Read the files of folders that are new here; whether there were any. One that is damaged means that nothing
        is clean."""
        new = [folder for folder in folders if folder not in self._rows]
        for folder in new:
            self._rows[folder] = {}
            try:
                self._rows[folder] = await asyncio.to_thread(read_offsets, folder / CLEANER_OFFSETS)
            except KafkaError as error:
                logger.error("logs in %s are compacted from their start: %s", folder, error.message)
        return bool(new)

    def get(self, key: TopicPartition, partition_log: PartitionLog) -> int | None:
        """Up to where the log is clean, which is not above where it was cut since; None if that is not known."""
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
        return rows.get(key)

    def set(self, key: TopicPartition, partition_log: PartitionLog, offset: int) -> None:
        """The log is clean up to `offset`."""
        self._owners[partition_log.directory] = partition_log
        self._rows.setdefault(partition_log.directory.parent, {})[key] = offset

    def keep_only(self, logs: Iterable[PartitionLog]) -> None:
        """Forget the logs that are gone."""
        directories = {partition_log.directory for partition_log in logs}
        self._owners = {path: owner for path, owner in self._owners.items() if path in directories}
        for folder, rows in self._rows.items():
            for topic, index in list(rows):
                if folder / f"{topic}-{index}" not in directories:
                    del rows[topic, index]
                    self._outdated.add(folder)

    async def write_losses(self) -> bool:
        """Make durable that rows are lost; whether there were any. In a log that takes the name, and is there after a
        start, keys that occur more than once would count as clean: of a deleted one the tombstone would go, and an
        older value stay."""
        outdated, self._outdated = self._outdated, set()
        for folder in outdated:
            await self.write(folder)
        return bool(outdated)

    async def write(self, folder: Path) -> None:
        """Make the rows of a folder durable; a failure is logged, since cleaning anew does no harm."""
        try:
            await in_thread(
                partial(write_offsets, folder / CLEANER_OFFSETS, dict(self._rows.get(folder, {})))
            )
        except KafkaError as error:
            logger.error("up to where logs are compacted is not kept: %s", error.message)
