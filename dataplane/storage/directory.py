"""A data folder: its lock, its identity, its checkpoints, and all logs in it."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from ...network.garbage_collection import only_new_garbage_collected
from ...protocol.errors import ErrorCode, KafkaError
from ..log.checkpoints import (
    TopicPartition,
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_topic_id,
)
from ..log.clean_shutdown import clean_log_state
from ..log.config import LogConfig
from ..log.durable_files import sync_directory
from ..log.partition_log import PartitionLog
from ..log.segments.descriptors import FileCache
from ..log.storage_errors import disk_error, is_unreadable, lacks_resources
from ..runtime.threads import spread
from . import clean_shutdown
from .folder_checkpoints import FolderCheckpoints
from .folder_claim import claim_folder
from .log_closing import close_logs
from .meta_properties import MetaProperties
from .page_cache_note import PageCacheNote
from .random_reads import are_quick

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
"""The suffix of folders that were set aside: Kafka's name for logs that the cluster does not know."""
_NAME_MAX = 255
_MANY = 1_000
"""The number of logs from which their objects are frozen, so that the garbage collector does not scan them."""
_HEADER_READERS = 16
"""Threads that read headers after the death of a process, unless the disk is slow at random places. Each waits for the
disk most of the time."""
_PARTITION_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_FUTURE_FOLDER = re.compile(_PARTITION_FOLDER.pattern + r"\.[0-9a-f]{32}" + FUTURE_SUFFIX)

logger = logging.getLogger(__name__)


class LogDirectory:
    """A data folder in use by this process.

    `open` locks it and checks its owner; `load` opens its logs. Blocking calls (`load`, `checkpoint`, `remove_deleted`,
    `close`) belong in a thread; the others are for the event loop.
    """

    def __init__(self, path: Path, lock_fd: int, meta: MetaProperties) -> None:
        self.path = path
        self.meta = meta
        self.last_clean_broker_epoch: int | None = None
        """Broker epoch of the last clean stop (-1 if not recorded); None if the last stop was unclean."""
        self.failed: dict[TopicPartition, KafkaError] = {}
        """Logs that are damaged or could not be opened, each with the reason."""
        self.on_failure: Callable[[KafkaError], None] | None = None
        """A function that is called once when this folder failed, in the thread that noticed the failure."""
        self.failure: KafkaError | None = None
        """The reason why the folder is offline. One failed log is enough, since nothing on this disk is certain
        then."""
        self.lack: KafkaError | None = None
        """The reason why nothing can be written here for now; None while writes succeed. The event loop sets it."""
        self.on_lack: Callable[[LogDirectory, KafkaError], None] | None = None
        """A function that is called whenever a write failed for lack of room, in the thread that noticed it."""
        self.futures: dict[TopicPartition, PartitionLog] = {}
        """Future logs: they grow here to replace the logs of the same partitions in other folders."""
        self.retired: set[TopicPartition] = set()
        """Partitions whose former logs still have their folders here, so that their names are not free for
        other logs."""
        self.interrupted_moves: set[TopicPartition] = set()
        """Partitions whose future logs an earlier process left here. These logs are dropped, and the moves
        begin again."""
        self._lock_fd = lock_fd
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self._files = FileCache()
        self._doomed_folders: list[Path] = []
        self._closed: dict[TopicPartition, PartitionLog] = {}
        # Logs that were closed here, while a thread may still flush them.
        self._left_folders: set[Path] = set()
        # Folders of unused logs that were not flushed and could not be renamed, so that the next start finds them.
        self.checkpoints = FolderCheckpoints(path, self._logs, self.failed)
        self._page_cache_note = PageCacheNote(path, meta.directory_id)

    # Opening

    @classmethod
    def open(cls, path: Path, cluster_id: str, node_id: int, *, new_directory_id: bytes) -> LogDirectory:
        """Create or lock a data folder; a new folder gets `new_directory_id` (16 bytes).

        Raises KafkaError: KAFKA_STORAGE_ERROR if the folder cannot be used or another process has it,
        INCONSISTENT_CLUSTER_ID if it belongs to another node or cluster.
        """
        fd, meta = claim_folder(path, cluster_id, node_id, new_directory_id=new_directory_id)
        return cls(path, fd, meta)

    def load(
        self, configs: Mapping[str, LogConfig], default: LogConfig, *, now_ms: int, threads: int = 4
    ) -> None:
        """Open every log in the folder. Blocking.

        `configs` has the configuration of topics that differ from `default`. Damaged logs are left out and listed in
        `failed`. If the disk refuses more than reading a log, the whole folder is refused, since a later start may find
        it in a better state.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the folder or its checkpoints cannot be read, or if a log cannot be
        opened because the disk has no room or is read-only, or no descriptor or memory is left.
        """
        recovery_points, log_starts = self.checkpoints.read()
        found = self._scan()
        machine_died = self._page_cache_note.take()
        settled = clean_shutdown.take(self.path, self.meta.directory_id)
        self.last_clean_broker_epoch = take_clean_shutdown(self.path)
        clean = self.last_clean_broker_epoch is not None
        if found and not clean:
            self._tell_recovery(machine_died)
        reads_headers = machine_died is None and not clean
        if reads_headers and threads < _HEADER_READERS and are_quick(list(found.values())):
            threads = _HEADER_READERS

        def open_one(key: TopicPartition, folder: Path) -> None:
            topic_id: bytes | None = None
            known = settled.get(key) if clean else None
            if known is not None and not known.fingerprint.fits(os.fspath(folder)):
                known = None
            try:
                topic_id = read_topic_id(folder) if known is None else known.topic_id
                log = PartitionLog.open(
                    folder,
                    configs.get(key[0], default),
                    clean_shutdown=clean,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_starts.get(key, 0),
                    now_ms=now_ms,
                    files=self._files,
                    settled=known,
                    only_process_died=machine_died is None and _is_on_same_device(folder, self.path),
                )
            except KafkaError as error:
                logger.error("%s-%d is offline: %s", key[0], key[1], error.message)
                self.failed[key] = error
                if topic_id is not None:
                    self._topic_ids[key] = topic_id
                return
            self._adopt(key, log, topic_id)

        with only_new_garbage_collected(freezes=len(found) >= _MANY):
            spread("load-logs", lambda item: open_one(*item), list(found.items()), threads)
        for key, error in self.failed.items():
            if isinstance(error.__cause__, OSError):
                if not is_unreadable(error):
                    raise error
                # A log that the disk cannot read is damaged for good, unlike a log for which there is no room now.
                self.failed[key] = KafkaError(error.code, error.message)
        if not self.failed:
            self._page_cache_note.write()

    def _tell_recovery(self, machine_died: str | None) -> None:
        """Log how the logs are recovered after an unclean stop, and why."""
        if machine_died is None:
            logger.warning(
                "data folder %s was not closed cleanly, and the machine has not restarted since: "
                "of records above the recovery points, only the headers are read",
                self.path,
            )
        else:
            logger.warning(
                "data folder %s was not closed cleanly, and %s: all records above the recovery points are read",
                self.path,
                machine_died,
            )

    def _scan(self) -> dict[TopicPartition, Path]:
        found: dict[TopicPartition, Path] = {}
        try:
            for entry in os.scandir(self.path):
                if not entry.is_dir():
                    continue
                folder = Path(entry.path)
                if entry.name.endswith(DELETE_SUFFIX):
                    self._doomed_folders.append(folder)
                    continue
                future = _FUTURE_FOLDER.fullmatch(entry.name)
                if future is not None:
                    self._doomed_folders.append(folder)
                    self.interrupted_moves.add((future["topic"], int(future["partition"])))
                    continue
                match = _PARTITION_FOLDER.fullmatch(entry.name)
                if match is not None:
                    found[match["topic"], int(match["partition"])] = folder
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        return found

    def _adopt(self, key: TopicPartition, log: PartitionLog, topic_id: bytes | None) -> None:
        def before_fall(offset: int) -> None:
            try:
                self.checkpoints.write_recovery_points({key: offset})
            except KafkaError as error:
                log.refused(error)
                raise

        log.durability.before_recovery_point_falls = before_fall
        log.on_failure = self._failed
        log.on_lack = self.lacks
        if topic_id is not None:
            self._topic_ids[key] = topic_id
        self._logs[key] = log

    def _failed(self, error: KafkaError) -> None:
        self._page_cache_note.void()
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)

    def fail(self, error: KafkaError) -> None:
        """Take the data folder offline, since the disk refused an operation that belongs to no log."""
        self._failed(error)

    def lacks(self, error: KafkaError) -> None:
        """Report that a write to the folder failed for lack of disk space, descriptors or memory."""
        if lacks_resources(error):
            self._page_cache_note.void()  # The write may have been a flush, which does not report its failure twice.
        if self.failure is None and self.on_lack is not None:
            self.on_lack(self, error)

    def condemn(self, topic: str, partition: int, error: KafkaError) -> None:
        """Close a log that proved to be damaged, and add it to `failed`."""
        self._page_cache_note.void()
        self.failed[topic, partition] = error
        self._close((topic, partition), self._logs.pop((topic, partition)))

    def _close(self, key: TopicPartition, log: PartitionLog) -> None:
        log.close(clean=False)
        self._closed = {**self._closed, key: log}
        self._closed = {name: closed for name, closed in self._closed.items() if closed.is_being_flushed}

    def is_being_left(self, topic: str, partition: int) -> bool:
        """Return whether a thread still flushes a closed log of this partition. That thread writes by name, so it would
        overwrite the leader epochs of a new log with this name.
        """
        former = self._closed.get((topic, partition))
        return former is not None and former.is_being_flushed

    def let_go(self) -> dict[TopicPartition, bytes | None]:
        """Close all logs of this failed folder, and return their partitions with the topic ids."""
        failure = self.failure
        assert failure is not None, f"{self.path} is in use"
        owners = {key: self._topic_ids.get(key) for key in [*self._logs, *self.failed]}
        for log in [*self._logs.values(), *self.futures.values()]:
            if log.failure is None:
                log.failure = failure
            log.close(clean=False)
        self._logs.clear()
        self.failed.clear()
        self.futures.clear()
        return owners

    # Logs

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All open logs."""
        return MappingProxyType(self._logs)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log if this folder has it open.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the folder has the log, but could not open it.
        """
        failure = self.failed.get((topic, partition))
        if failure is not None:
            raise failure
        return self._logs.get((topic, partition))

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """Return the topic id that the partition was created for; None if it is unknown."""
        return self._topic_ids.get((topic, partition))

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int
    ) -> PartitionLog:
        """Create an empty log in a new folder, or return the log that is open already.

        Raises KafkaError: KAFKA_STORAGE_ERROR; INCONSISTENT_TOPIC_ID if a log of an older topic with the same name is
        still here.
        """
        key = (topic, partition)
        existing = self.get(topic, partition)
        if existing is not None:
            known = self._topic_ids.get(key)
            if known is None:
                write_topic_id(existing.directory, topic_id, sync=True)
                self._topic_ids[key] = topic_id
            elif known != topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{existing.directory} belongs to another topic of that name",
                )
            return existing
        self.checkpoints.make_room_for(key)
        folder = self._free_folder(key)
        log = PartitionLog.open(
            folder, config, clean_shutdown=False, recovery_point=0, now_ms=now_ms, files=self._files
        )
        write_topic_id(folder, topic_id)
        self._adopt(key, log, topic_id)
        return log

    def _free_folder(self, key: TopicPartition) -> Path:
        """Return the path for a new log's folder. A former log's folder that has this name, because it could not be
        renamed, is renamed and kept. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        folder = self.path / f"{key[0]}-{key[1]}"
        if not os.path.lexists(folder):
            return folder
        left_by = read_topic_id(folder)
        if left_by is not None and key not in self._logs:
            self._renamed(folder, left_by, STRAY_SUFFIX)
        return folder

    # Moves between folders

    @staticmethod
    def future_name(topic: str, partition: int) -> str:
        """Return a name for the folder of a future log: a log that is to replace the partition's log in another data
        folder. Raises KafkaError: INVALID_TOPIC_EXCEPTION if the name is too long.
        """
        name = f"{topic}-{partition}.{os.urandom(16).hex()}{FUTURE_SUFFIX}"
        if len(name) > _NAME_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of {topic} is too long to move it")
        return name

    def create_future(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int
    ) -> PartitionLog:
        """Create a future log: an empty log that is to replace the partition's log in another data folder. Blocking.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR.
        """
        folder = self.path / self.future_name(topic, partition)
        self.checkpoints.make_room_for((topic, partition))
        log = PartitionLog.open(
            folder, config, clean_shutdown=False, recovery_point=0, now_ms=now_ms, files=self._files
        )
        log.on_failure = self._failed
        log.on_lack = self.lacks
        self.futures[topic, partition] = log
        write_topic_id(folder, topic_id)
        return log

    def settle_future(self, topic: str, partition: int, config: LogConfig, *, now_ms: int) -> PartitionLog:
        """Flush the partition's future log, which is to replace its log in another data folder, and give it its lasting
        name. Blocking. The log is not in use before `adopt_future`.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        key = (topic, partition)
        future = self.futures[key]
        end_offset, start_offset = future.log_end_offset, future.log_start_offset
        future.close(clean=True)
        former = self._closed.get(key)
        if former is not None:
            former.wait_for_flush()
        folder = self._free_folder(key)
        try:
            future.directory.rename(folder)
        except OSError as error:
            raise disk_error("rename", future.directory, error) from error
        sync_directory(self.path)
        settled = PartitionLog.open(
            folder,
            config,
            clean_shutdown=True,
            recovery_point=end_offset,
            log_start_offset=start_offset,
            now_ms=now_ms,
            files=self._files,
        )
        settled.on_failure = self._failed
        settled.on_lack = self.lacks
        self.futures[key] = settled
        return settled

    def adopt_future(self, topic: str, partition: int, topic_id: bytes) -> PartitionLog:
        """Use the future log, which `settle_future` has renamed, as this folder's log of the partition. Returns the
        log.
        """
        log = self.futures.pop((topic, partition))
        self._adopt((topic, partition), log, topic_id)
        return log

    def retire(self, topic: str, partition: int) -> PartitionLog:
        """Stop using the partition's log in this folder, since a log in another folder replaced it. The log's folder
        stays until `discard`.
        """
        self._topic_ids.pop((topic, partition), None)
        self.retired.add((topic, partition))
        log = self._logs.pop((topic, partition))
        self._left_folders.add(log.directory)
        return log

    def discard(self, retired: PartitionLog) -> None:
        """Rename a retired log's folder for deletion, since the log in the other folder is durable.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        named = _PARTITION_FOLDER.fullmatch(retired.directory.name)
        assert named is not None, retired.directory
        self._close((named["topic"], int(named["partition"])), retired)
        self._doomed_folders.append(self._renamed(retired.directory, os.urandom(16), DELETE_SUFFIX))

    def drop_future(self, topic: str, partition: int) -> None:
        """Abandon a move: rename the future log's folder for deletion; `remove_deleted` frees the space later.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = self.futures.pop((topic, partition), None)
        if log is not None:
            log.close(clean=False)
            self._doomed_folders.append(self._renamed(log.directory, os.urandom(16), DELETE_SUFFIX))

    def delete(self, topic: str, partition: int) -> None:
        """Rename the log's folder so that the log is gone at once; `remove_deleted` frees the space later.

        Does nothing if there is no such log. A log that could not be opened is deleted, too.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        target = self._rename_away(topic, partition, DELETE_SUFFIX)
        if target is not None:
            self._doomed_folders.append(target)

    def set_aside(self, topic: str, partition: int) -> Path | None:
        """Rename the folder of a log, and keep its files: no broker uses a folder of the new name.

        Returns the new path, or None if there is no log of this partition. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self._rename_away(topic, partition, STRAY_SUFFIX)

    def _rename_away(self, topic: str, partition: int, suffix: str) -> Path | None:
        key = (topic, partition)
        log = self._logs.pop(key, None)
        if log is None and key not in self.failed:
            return None
        topic_id = self._topic_ids.get(key, bytes(16))
        if log is not None:
            self._topic_ids.pop(key, None)
            self._close(key, log)
        target = self._renamed(self.path / f"{topic}-{partition}", topic_id, suffix)
        # A damaged log that cannot be renamed stays in `failed`, with its recovery point.
        self.failed.pop(key, None)
        self._topic_ids.pop(key, None)
        return target

    def _renamed(self, folder: Path, topic_id: bytes, suffix: str) -> Path:
        unique = f".{topic_id.hex()}{time.monotonic_ns():x}{suffix}"
        target = folder.with_name(folder.name[: _NAME_MAX - len(unique)] + unique)
        try:
            folder.rename(target)
        except OSError as error:
            self._left_folders.add(folder)
            raise disk_error("rename", folder, error) from error
        self._left_folders.discard(folder)
        return target

    def remove_deleted(self) -> None:
        """Remove the folders that were renamed for deletion. Blocking. Failures are logged and tried again at the next
        start."""
        while self._doomed_folders:
            folder = self._doomed_folders.pop()
            _remove(folder)

    # Checkpoints

    def checkpoint(self) -> None:
        """Flush rolled segments, then write recovery points and log start offsets. Blocking.

        Raises KafkaError: KAFKA_STORAGE_ERROR if a checkpoint cannot be written. A log that cannot be flushed goes
        offline by itself.
        """
        for key, log in list(self._logs.items()):
            if log.failure is None and log.needs_flush:
                try:
                    log.flush()
                except KafkaError as error:
                    if self._logs.get(key) is log:  # Otherwise the log and its files were deleted meanwhile.
                        logger.error("%s cannot be flushed: %s", log.directory.name, error.message)
        self.checkpoints.write_recovery_points({})
        self.checkpoints.write_log_starts()

    # Closing

    def close(self, *, clean: bool, broker_epoch: int = -1, threads: int = 4) -> None:
        """Close all logs; `clean` flushes them and leaves the clean-shutdown marker. Blocking.

        No marker is left if any log that the next start finds was not flushed. The folder is unlocked in any case.
        """
        try:
            logs = list(self._logs.values())
            for future in self.futures.values():
                if future.directory.name.endswith(FUTURE_SUFFIX):
                    future.close(clean=False)  # The next start drops it.
                else:
                    logs.append(future)
            all_closed = close_logs(logs, self.path, self._lock_fd, clean=clean, threads=threads)
            if clean and self.failure is None:
                self.checkpoints.write_recovery_points({})
                self.checkpoints.write_log_starts()
                if all_closed and not self.failed and not self._left_folders:
                    write_clean_shutdown(self.path, broker_epoch)
                    self._write_settled_logs()
                sync_directory(self.path)
        finally:
            self._logs.clear()
            self._files.close()
            os.close(self._lock_fd)

    def _write_settled_logs(self) -> None:
        """Write the states of all logs into a file, so that the next start need not open each log. The next start can
        do without, so an error here is only logged.
        """
        try:
            known = {
                key: settled
                for key, log in self._logs.items()
                if (settled := clean_log_state(log, self._topic_ids.get(key))) is not None
            }
            clean_shutdown.write(self.path, self.meta.directory_id, known)
        except KafkaError as error:
            logger.warning("%s", error.message)
        except OSError as error:
            logger.warning("%s: %s", self.path, error)


def _is_on_same_device(folder: Path, other: Path) -> bool:
    try:
        return os.stat(folder).st_dev == os.stat(other).st_dev
    except OSError:
        return False


def _remove(folder: Path) -> None:
    from shutil import rmtree  # Imported only here, since it loads the compression modules.

    rmtree(folder, ignore_errors=True)
    if folder.exists():
        logger.warning("cannot delete %s", folder)
