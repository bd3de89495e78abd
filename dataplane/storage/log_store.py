"""The partition logs of one broker in all its data folders (`log.dirs`), and their upkeep off the event loop.

A folder that fails goes offline with its logs; the other folders continue (KIP-112). If a folder cannot be opened at
all, its partitions are unknown. Then every partition without a log is assumed to be in it, and no new log is created
for it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from ...protocol.errors import ErrorCode, KafkaError
from ..log import LogConfig, PartitionLog
from ..log.storage_errors import may_pass
from ..runtime.time_slices import in_time_slices
from .directory import LogDirectory

logger = logging.getLogger(__name__)

_NOT_OURS = "is not this broker's any more"

TopicPartition = tuple[str, int]


class LogStore:
    """The store of logs that `Replicas` uses. The event loop is its only writer; blocking upkeep has a dedicated
    thread."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        wall_ms: Callable[[], int],
        unopened: Mapping[Path, KafkaError] | None = None,
    ) -> None:
        self.directories = list(directories)
        """Data folders that are in use, or that have failed since the start."""
        self.unopened = dict(unopened or {})
        """Folders that failed before they could be opened, each with the reason."""
        self.wishes: dict[TopicPartition, LogDirectory] = {}
        """The folders chosen for partitions that have no log here yet (KIP-113)."""
        self.cordoned: frozenset[Path] = frozenset()
        """Folders that get no new logs while another folder can take them (KIP-1066)."""
        self._lost: dict[TopicPartition, bytes | None] = {}
        # The partitions whose logs were lost with failed folders, with the topic ids where they are known.
        self._wall_ms = wall_ms
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="log-upkeep")
        self._checkpoint: Future[None] | None = None
        self._is_checkpoint_behind = False
        """True if the high watermarks have changed since they were written, or could not be written."""
        self.on_failure: Callable[[KafkaError], None] | None = None
        """A function that is called when a folder failed, in the thread that noticed the failure."""
        self.on_lack: Callable[[LogDirectory, KafkaError], None] | None = None
        """A function that is called whenever a write failed for lack of room, in the thread that noticed it."""
        for directory in self.directories:
            directory.on_failure = self._failed
            directory.on_lack = self._lacks

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

        A folder that the disk refuses is left out, unless the disk refuses all of them. A folder that is in use, or
        that belongs to another node, is a configuration error in any case.

        Raises KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_CLUSTER_ID.
        """
        directories: list[LogDirectory] = []
        unopened: dict[Path, KafkaError] = {}
        try:
            for path in paths:
                try:
                    directories.append(_opened(path, cluster_id, node_id, wall_ms(), threads))
                except KafkaError as error:
                    if not isinstance(error.__cause__, OSError):
                        raise
                    unopened[path] = error
            if not directories:
                raise next(iter(unopened.values()))
            for path, reason in unopened.items():
                logger.critical(
                    "data folder %s is offline, this broker goes on without it: %s", path, reason.message
                )
            store = cls(directories, wall_ms, unopened)
            for directory in directories:
                store._high_watermarks |= directory.checkpoints.read_high_watermarks()
            store._settle_duplicates()
            store._take_up_wishes()
        except BaseException:
            for directory in directories:
                directory.close(clean=False)
            raise
        return store

    def _settle_duplicates(self) -> None:
        """Keep one log of each partition that has logs in two folders, and set the other aside.

        A move between folders that a crash interrupted leaves two logs; so does a folder that was taken out of
        `log.dirs` and put back. The log that is further along contains all records of the other.
        """
        found: dict[TopicPartition, LogDirectory] = {}
        for directory in self.directories:
            for key in list(directory.logs):
                other = found.get(key)
                if other is None:
                    found[key] = directory
                    continue
                if directory.topic_id(*key) != other.topic_id(*key):
                    continue  # Both topics have this name; which one exists now is not known yet.
                best, worse = (
                    (directory, other) if _end(directory, key) > _end(other, key) else (other, directory)
                )
                found[key] = best
                best_log, worse_log = best.logs[key], worse.logs[key]
                # Records that were deleted from one of the logs must not come back with the other.
                best_log.advance_log_start_offset(min(worse_log.log_start_offset, best_log.log_end_offset))
                kept = worse.set_aside(*key)
                logger.warning("%s-%d is in %s: the one kept as %s is not used", *key, best.path, kept)

    def _take_up_wishes(self) -> None:
        for directory in self.directories:
            for key in directory.interrupted_moves:
                if key not in directory.logs:
                    self.wishes[key] = directory
            self._upkeep.submit(directory.remove_deleted)

    @property
    def usable(self) -> list[LogDirectory]:
        """The data folders that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def directory_ids(self) -> tuple[bytes, ...]:
        """The 16-byte ids of the data folders in use."""
        return tuple(directory.meta.directory_id for directory in self.directories)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the registration that stopped cleanly here; -1 if any folder was not closed cleanly."""
        epochs = {directory.last_clean_broker_epoch for directory in self.directories}
        (epoch,) = epochs if len(epochs) == 1 and not self.unopened else (None,)
        return -1 if epoch is None else epoch

    def get(self, topic: str, topic_id: bytes, index: int) -> PartitionLog | None:
        """Return the log of this topic's partition, if there is one. A log of an older topic with the same name is set
        aside.

        Raises KafkaError: KAFKA_STORAGE_ERROR if there is a log that cannot be opened, or if its folder has just
        failed.
        """
        key = (topic, index)
        for directory in self.directories:
            if directory.failure is not None:
                held = key in directory.logs or key in directory.failed
                if held and directory.topic_id(*key) in (None, topic_id):
                    raise directory.failure
                continue
            known = directory.topic_id(topic, index)
            if known is not None and known != topic_id:
                self._set_aside(directory, topic, index, _NOT_OURS)
            found = directory.get(topic, index)
            if found is None:
                continue
            if directory.topic_id(topic, index) is None:
                try:
                    return directory.create(topic, index, topic_id, found.config, now_ms=self._wall_ms())
                except KafkaError as error:
                    self.disk_refused(directory, error)
                    raise
            return found
        return None

    def create(self, topic: str, topic_id: bytes, index: int, config: LogConfig) -> PartitionLog:
        """Create an empty log in the folder that was chosen for it, or else in the folder with the fewest logs.

        Raises KafkaError: KAFKA_STORAGE_ERROR if no folder can take the log; OSError if no folder can take it now.
        """
        while True:
            directory = self._place(topic, index)
            try:
                created = directory.create(topic, index, topic_id, config, now_ms=self._wall_ms())
            except KafkaError as error:
                self.disk_refused(directory, error)
                if directory.failure is None:
                    raise
                continue
            self.wishes.pop((topic, index), None)
            return created

    def _place(self, topic: str, index: int) -> LogDirectory:
        key = (topic, index)
        usable = [
            directory
            for directory in self.usable
            if key not in directory.futures
            and key not in directory.retired
            and not directory.is_being_left(*key)
        ]
        if not self.usable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no data folder is left")
        if not usable:
            # This state passes: a topic of the same name was deleted during a move or a flush of its log.
            raise OSError(errno.EBUSY, f"a log of another {topic}-{index} is still there")
        wish = self.wishes.get((topic, index))
        if wish is not None and wish in usable:
            return wish
        with_room = [directory for directory in usable if directory.lack is None] or usable
        open_ones = [directory for directory in with_room if directory.path not in self.cordoned]
        return min(open_ones or with_room, key=lambda directory: len(directory.logs))

    def delete(self, topic: str, topic_id: bytes, index: int) -> None:
        """Rename the log's folder at once, so that the log is gone, and free its space later."""
        self.wishes.pop((topic, index), None)
        for directory in self.usable:
            if directory.topic_id(topic, index) == topic_id:
                self._delete_from(directory, topic, index)

    def set_strays_aside(
        self, belongs: Callable[[bytes, int], bool], is_needed: Callable[[str, int], bool]
    ) -> None:
        """Rename the logs whose (topic id, partition) does not belong here.

        They are not deleted, since they are the last copies if the quorum has lost its data.

        After a power failure before the first flush, a log may have no topic id. It may belong to an older topic with
        the same name. So it stays only if the partition of that name `is_needed` here.
        """
        for directory in self.directories:
            for topic, index in [*directory.logs, *directory.failed]:
                topic_id = directory.topic_id(topic, index)
                if topic_id is None:
                    if not is_needed(topic, index):
                        self._set_aside(directory, topic, index, "does not tell which topic it is of")
                elif not belongs(topic_id, index):
                    self._set_aside(directory, topic, index, _NOT_OURS)

    def condemn(self, topic: str, topic_id: bytes, index: int, error: KafkaError) -> None:
        """Close a log that proved to be damaged. From then on `get` raises `error`."""
        for directory in self.usable:
            if (topic, index) in directory.logs and directory.topic_id(topic, index) == topic_id:
                directory.condemn(topic, index, error)

    def set_damaged_aside(self, topic: str, topic_id: bytes, index: int) -> None:
        """Rename the folder of a damaged log, so that a new log can be created. The folder is not deleted: its readable
        part is an operator's last resort.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        for directory in self.usable:
            if (topic, index) in directory.failed and directory.topic_id(topic, index) in (None, topic_id):
                kept = directory.set_aside(topic, index)
                self._forget_high_watermark(topic, index)
                logger.warning(
                    "%s-%d is copied anew: its damaged log is kept as %s until you delete it",
                    topic,
                    index,
                    kept,
                )

    def _set_aside(self, directory: LogDirectory, topic: str, index: int, reason: str) -> None:
        try:
            kept = directory.set_aside(topic, index)
        except KafkaError as error:
            logger.error("%s-%d %s and cannot be set aside: %s", topic, index, reason, error.message)
            return
        self._forget_high_watermark(topic, index)
        logger.warning("%s-%d %s: kept as %s until you delete it", topic, index, reason, kept)

    def _delete_from(self, directory: LogDirectory, topic: str, index: int) -> None:
        directory.delete(topic, index)
        self._forget_high_watermark(topic, index)
        self._upkeep.submit(directory.remove_deleted)

    # Folders

    def directory_of(self, topic: str, index: int) -> LogDirectory | None:
        """Return the data folder with the partition's log; None if no folder has it open."""
        return next((d for d in self.directories if (topic, index) in d.logs), None)

    def missing(self, assigned: Mapping[TopicPartition, bytes]) -> list[TopicPartition]:
        """Return the assigned partitions whose logs are lost: they were in a failed folder, or must be in a folder that
        could not be opened. `assigned` has the topic ids."""
        known = {
            key: directory.topic_id(*key)
            for directory in self.directories
            for key in (*directory.logs, *directory.failed)
        }

        def went(key: TopicPartition, topic_id: bytes) -> bool:
            is_here = key in known and known[key] in (None, topic_id)
            return not is_here and key in self._lost and self._lost[key] in (None, topic_id)

        return [
            key
            for key, topic_id in assigned.items()
            if (self.unopened and key not in known) or went(key, topic_id)
        ]

    def without_room(self) -> list[tuple[bytes, int]]:
        """Return the partitions, by topic id and index, whose logs are in folders that cannot be written for now."""
        return [
            (topic_id, key[1])
            for directory in self.usable
            if directory.lack is not None
            for key in directory.logs
            if (topic_id := directory.topic_id(*key)) is not None
        ]

    def let_failed_go(self) -> list[TopicPartition]:
        """Close all logs in data folders that have failed since the last call, and return their partitions."""
        gone: list[TopicPartition] = []
        for directory in self.directories:
            if directory.failure is not None:
                owners = directory.let_go()
                self._lost |= owners
                gone.extend(owners)
        return gone

    def disk_refused(self, directory: LogDirectory, error: KafkaError) -> None:
        """Handle a failed write to a data folder that belongs to no log: the folder fails, unless the cause may
        pass.
        """
        if not isinstance(error.__cause__, OSError):
            return
        if may_pass(error):
            directory.lacks(error)
        else:
            directory.fail(error)

    def free_later(self, directory: LogDirectory) -> None:
        """Delete, off the event loop, the folders that were renamed for deletion."""
        self._upkeep.submit(directory.remove_deleted)

    # Upkeep

    async def expire_producers(self) -> None:
        """Forget the producers that have been silent for producer.id.expiration.ms."""
        logs = [partition_log for directory in self.directories for partition_log in directory.logs.values()]
        async for partition_log in in_time_slices(logs):
            expiration_ms = partition_log.config.producer_id_expiration_ms
            partition_log.producers.expire(self._wall_ms(), expiration_ms)

    def high_watermark(self, topic: str, index: int) -> int:
        """Return the high watermark that was checkpointed last, by this process or an earlier one; 0 if there
        is none."""
        return self._high_watermarks.get((topic, index), 0)

    def checkpoint_high_watermarks(self, moved: Mapping[TopicPartition, int]) -> None:
        """Write all high watermarks off the event loop, if any has changed; `moved` are those that may have changed.
        During a write, changes wait for the next call.

        Values that an earlier process wrote stay for logs that have no replica here yet.
        """
        if moved:
            self._high_watermarks |= moved
            self._is_checkpoint_behind = True
        if self._is_checkpoint_behind and (self._checkpoint is None or self._checkpoint.done()):
            self._is_checkpoint_behind = False
            self._checkpoint = self._upkeep.submit(self._write_high_watermarks, self._high_watermarks.copy())

    def _forget_high_watermark(self, topic: str, index: int) -> None:
        if self._high_watermarks.pop((topic, index), None) is not None:
            self._is_checkpoint_behind = True

    def _write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for directory in self.usable:
            try:
                directory.checkpoints.write_high_watermarks(high_watermarks)
            except KafkaError as error:
                self._is_checkpoint_behind = True
                logger.error("cannot write the high watermarks of %s: %s", directory.path, error.message)
                self.disk_refused(directory, error)

    def checkpoint(self) -> Future[None]:
        """Flush rolled segments and write recovery points, off the event loop."""
        return self._upkeep.submit(self._checkpoint_all)

    def checkpoint_log_starts(self) -> Future[None]:
        """Write log start offsets, off the event loop, so that a deletion of records is durable."""
        return self._upkeep.submit(self._write_log_starts)

    def _write_log_starts(self) -> None:
        for directory in self.usable:
            try:
                directory.checkpoints.write_log_starts()
            except KafkaError as error:
                logger.error("cannot write the log start offsets of %s: %s", directory.path, error.message)
                self.disk_refused(directory, error)

    def _checkpoint_all(self) -> None:
        for directory in self.usable:
            try:
                directory.checkpoint()
                directory.remove_deleted()
            except KafkaError as error:
                logger.error("cannot checkpoint %s: %s", directory.path, error.message)
                self.disk_refused(directory, error)

    def _failed(self, error: KafkaError) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def _lacks(self, directory: LogDirectory, error: KafkaError) -> None:
        if self.on_lack is not None:
            self.on_lack(directory, error)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close every log (blocking). `clean` flushes them and leaves the mark of a clean stop, except in folders that
        have failed."""
        self._upkeep.shutdown(wait=True)
        if self._is_checkpoint_behind:
            self._write_high_watermarks(self._high_watermarks)
        for directory in self.directories:
            try:
                directory.close(clean=clean, broker_epoch=broker_epoch)
            except KafkaError as error:
                logger.error("%s was not closed cleanly: %s", directory.path, error.message)


def _opened(path: Path, cluster_id: str, node_id: int, now_ms: int, threads: int) -> LogDirectory:
    directory = LogDirectory.open(path, cluster_id, node_id, new_directory_id=os.urandom(16))
    try:
        directory.load({}, LogConfig(), now_ms=now_ms, threads=threads)
    except BaseException:
        directory.close(clean=False)
        raise
    return directory


def _end(directory: LogDirectory, key: TopicPartition) -> tuple[int, int]:
    """Return the position by which elections compare logs: the last leader epoch and the log end offset."""
    found = directory.logs[key]
    return found.leader_epochs.last_written(found.log_end_offset), found.log_end_offset
