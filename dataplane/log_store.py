"""The partition logs of one broker, over all its data folders (`log.dirs`), and their upkeep off the loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from ..protocol.errors import KafkaError
from .log import LogConfig, LogDirectory, PartitionLog
from .log.storage_errors import may_pass

log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
_HighWatermarks = Sequence[tuple[LogDirectory, Mapping[TopicPartition, int]]]


class LogStore:
    """What `Replicas` needs of the disks. Its one writer is the loop; blocking upkeep has its own thread."""

    def __init__(self, directories: Sequence[LogDirectory], wall_ms: Callable[[], int]) -> None:
        self._directories = list(directories)
        self._wall_ms = wall_ms
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="log-upkeep")
        self._checkpoint: Future[None] | None = None
        self._unwritten: _HighWatermarks | None = None
        self.on_failure: Callable[[KafkaError], None] | None = None
        """Called, in whichever thread found out, when the disk failed under a log or a checkpoint."""
        for directory in self._directories:
            directory.on_failure = self._failed

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        cluster_id: str,
        node_id: int,
        wall_ms: Callable[[], int],
        threads: int = 1,
    ) -> Self:
        """Lock the data folders and load every log in them (blocking).

        Raises KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_CLUSTER_ID.
        """
        directories: list[LogDirectory] = []
        try:
            for path in paths:
                directories.append(
                    LogDirectory.open(path, cluster_id, node_id, new_directory_id=os.urandom(16))
                )
                directories[-1].load({}, LogConfig(), now_ms=wall_ms(), threads=threads)
            store = cls(directories, wall_ms)
            for directory in directories:
                store._high_watermarks |= directory.read_high_watermarks()
        except BaseException:
            for directory in directories:
                directory.close(clean=False)
            raise
        return store

    @property
    def directory_ids(self) -> tuple[bytes, ...]:
        """16-byte ids, one for each data folder."""
        return tuple(directory.meta.directory_id for directory in self._directories)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the registration that stopped cleanly here; -1 if any folder was not closed so."""
        epochs = {directory.last_clean_broker_epoch for directory in self._directories}
        (epoch,) = epochs if len(epochs) == 1 else (None,)
        return -1 if epoch is None else epoch

    def get(self, topic: str, topic_id: bytes, index: int) -> PartitionLog | None:
        """The log of this very topic, if there is one. A log of an older topic of the same name is set aside.

        Raises KafkaError: KAFKA_STORAGE_ERROR if it is there and cannot be opened.
        """
        for directory in self._directories:
            known = directory.topic_id(topic, index)
            if known is not None and known != topic_id:
                self._set_aside(directory, topic, index)
            found = directory.get(topic, index)
            if found is None:
                continue
            if directory.topic_id(topic, index) is None:
                return directory.create(topic, index, topic_id, found.config, now_ms=self._wall_ms())
            return found
        return None

    def create(self, topic: str, topic_id: bytes, index: int, config: LogConfig) -> PartitionLog:
        """An empty log in the folder that has the fewest. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        directory = min(self._directories, key=lambda d: len(d.logs))
        return directory.create(topic, index, topic_id, config, now_ms=self._wall_ms())

    def delete(self, topic: str, topic_id: bytes, index: int) -> None:
        """Rename the log's folder away at once, and free its space later."""
        for directory in self._directories:
            if directory.topic_id(topic, index) == topic_id:
                self._delete_from(directory, topic, index)

    def set_strays_aside(self, belongs: Callable[[bytes, int], bool]) -> None:
        """Rename the logs whose (topic id, partition) does not belong here. They are not deleted: were the
        quorum's data lost, they would be all that is left. Logs whose topic id is not known stay as they are."""
        for directory in self._directories:
            for topic, index in [*directory.logs, *directory.failed]:
                topic_id = directory.topic_id(topic, index)
                if topic_id is not None and not belongs(topic_id, index):
                    self._set_aside(directory, topic, index)

    def _set_aside(self, directory: LogDirectory, topic: str, index: int) -> None:
        try:
            kept = directory.set_aside(topic, index)
        except KafkaError as error:
            log.error(
                "%s-%d is not this broker's any more and cannot be set aside: %s", topic, index, error.message
            )
            return
        self._high_watermarks.pop((topic, index), None)
        log.warning("%s-%d is not this broker's any more: kept as %s until you delete it", topic, index, kept)

    def _delete_from(self, directory: LogDirectory, topic: str, index: int) -> None:
        directory.delete(topic, index)
        self._high_watermarks.pop((topic, index), None)
        self._upkeep.submit(directory.remove_deleted)

    def expire_producers(self) -> None:
        """Forget the producers that have been silent for producer.id.expiration.ms."""
        now_ms = self._wall_ms()
        for directory in self._directories:
            for partition_log in directory.logs.values():
                partition_log.producers.expire(now_ms, partition_log.config.producer_id_expiration_ms)

    def high_watermark(self, topic: str, index: int) -> int:
        """As checkpointed before this start; 0 if it was not."""
        return self._high_watermarks.get((topic, index), 0)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the offsets down, off the loop; while the last write still runs they wait for the next one.

        What an earlier process wrote stays for logs that have no replica here yet.
        """
        known = {**self._high_watermarks, **offsets}
        self._unwritten = [
            (d, {key: known[key] for key in known.keys() & d.logs.keys()}) for d in self._directories
        ]
        if self._checkpoint is None or self._checkpoint.done():
            self._checkpoint = self._upkeep.submit(self._write_high_watermarks)

    def _write_high_watermarks(self) -> None:
        by_directory, self._unwritten = self._unwritten, None
        for directory, offsets in by_directory or ():
            try:
                directory.write_high_watermarks(offsets)
            except KafkaError as error:
                log.error("cannot write the high watermarks of %s: %s", directory.path, error.message)
                self._checkpoint_failed(error)

    def checkpoint(self) -> Future[None]:
        """Flush rolled segments and write recovery points, off the loop."""
        return self._upkeep.submit(self._checkpoint_all)

    def _checkpoint_all(self) -> None:
        for directory in self._directories:
            try:
                directory.checkpoint()
                directory.remove_deleted()
            except KafkaError as error:
                log.error("cannot checkpoint %s: %s", directory.path, error.message)
                self._checkpoint_failed(error)

    def _checkpoint_failed(self, error: KafkaError) -> None:
        if not may_pass(error):
            self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close every log (blocking); `clean` flushes them and leaves the mark of a clean stop."""
        self._upkeep.shutdown(wait=True)
        self._write_high_watermarks()
        for directory in self._directories:
            try:
                directory.close(clean=clean, broker_epoch=broker_epoch)
            except KafkaError as error:
                log.error("%s was not closed cleanly: %s", directory.path, error.message)
