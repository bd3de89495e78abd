"""Moves of replicas between the data folders of a broker (KIP-113).

The log is copied into the other folder while the replica works as before. Once the copy is at the log end it replaces
the log, between two iterations of the event loop. The old folder is deleted after the new log is flushed. So at any
moment one of the two logs has all records that were ever acknowledged. A start that finds both keeps the one that
reaches further.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record_batch import parse_header
from ...log import LogSlice, PartitionLog
from ...runtime.threads import in_thread
from ...storage.directory import LogDirectory
from ...storage.log_store import LogStore, TopicPartition
from ..follower.log_copy import CopyFrom, CutTo, StartAt, next_step
from ..replica.partition import Partition
from .replicas import Replicas

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024
_COPIED_IN_A_TURN_MAX_BYTES = 64 * 1024
_LOOK_UP_INTERVAL_S = 0.1
"""Interval at which a throttled move checks whether it is still wanted, and at which rate."""
_WISHES_MAX = 100_000

_Result = TypeVar("_Result")


class _Ended(Exception):
    """An error that ends a move between folders: the move was replaced or cancelled, or the replica is gone."""


class _Unreadable(OSError):
    """An error: the log to be copied to another data folder cannot be read. The target folder is not at fault."""


class _Move:
    """One replica on its way into another data folder."""

    def __init__(self, partition: Partition, source: LogDirectory, target: LogDirectory) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.key: TopicPartition = (partition.topic, partition.index)
        self.ended = False
        self.task: asyncio.Task[None] | None = None


class FolderMoves:
    """All moves of this broker's replicas between its data folders. Owned by the event loop; files are copied in
    dedicated threads.
    """

    def __init__(
        self,
        replicas: Replicas,
        logs: LogStore,
        bytes_per_second: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._bytes_per_second = bytes_per_second
        self._wall_ms = wall_ms
        self._moves: dict[TopicPartition, _Move] = {}
        at_once = len(logs.directories)
        self._turns = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="folder-moves")
        self._resumed = self._closed = False
        replicas.on_made = self._made

    # Requests

    def alter(self, topic: str, index: int, path: str) -> None:
        """Move the replica to the folder `path`, now or once the replica exists.

        Raises KafkaError: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR if the folder or the replica is offline;
        REPLICA_NOT_AVAILABLE if there is no such replica here yet (the choice is kept); UNKNOWN_TOPIC_OR_PARTITION;
        INVALID_TOPIC_EXCEPTION if the topic's name is too long for a second folder; INVALID_REPLICA_ASSIGNMENT if the
        folder is cordoned.
        """
        target = self._folder(path)
        if target.path in self._logs.cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is in cordoned.log.dirs")
        self._move_to(target, topic, index)

    def _move_to(self, target: LogDirectory, topic: str, index: int) -> None:
        target.future_name(topic, index)
        key = (topic, index)
        if key in target.failed:
            raise target.failed[key]
        move = self._moves.get(key)
        if move is not None and move.target is not target:
            move.ended = True
        source = self._logs.directory_of(topic, index)
        if source is not target and (len(self._logs.wishes) < _WISHES_MAX or key in self._logs.wishes):
            self._logs.wishes[key] = target
        partition = self._replica(topic, index)
        self._logs.wishes.pop(key, None)
        if source is not None and source is not target and (move is None or move.ended):
            self._begin(_Move(partition, source, target), move)

    def _folder(self, path: str) -> LogDirectory:
        for directory in self._logs.directories:
            if str(directory.path.absolute()) == path:
                if directory.failure is None:
                    return directory
                raise directory.failure
        for unopened, error in self._logs.unopened.items():
            if str(unopened.absolute()) == path:
                raise error
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs of this broker")

    def _replica(self, topic: str, index: int) -> Partition:
        try:
            return self._replicas.get(topic, index)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, error.message) from None
            raise

    def resume(self) -> None:
        """Restart the moves that an earlier process did not finish, whether or not their folder was cordoned since. If
        a replica is not created yet, as one of thousands, its move begins once it is."""
        self._resumed = True
        for (topic, index), target in list(self._logs.wishes.items()):
            self._resume(target, topic, index)

    def _made(self, partition: Partition) -> None:
        target = self._logs.wishes.get((partition.topic, partition.index))
        if self._resumed and target is not None:
            self._resume(target, partition.topic, partition.index)

    def _resume(self, target: LogDirectory, topic: str, index: int) -> None:
        try:
            self._move_to(target, topic, index)
        except KafkaError as error:
            logger.info("%s-%d does not move to %s yet: %s", topic, index, target.path, error.message)

    async def close(self) -> None:
        """Stop all moves between data folders. The next start of the broker restarts them."""
        self._closed = True
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        self._threads.shutdown(wait=True)

    # One move

    def _begin(self, move: _Move, before: _Move | None) -> None:
        self._moves[move.key] = move
        name = f"{move.partition!r} to {move.target.path}"
        move.task = asyncio.create_task(self._run(move, None if before is None else before.task), name=name)

    async def _run(self, move: _Move, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            async with self._turns:
                await self._carry_out(move)
        except _Ended:
            logger.info("%r no longer moves to %s", move.partition, move.target.path)
            self._give_up(move)
        except (KafkaError, OSError, EOFError) as error:
            logger.error("%r does not move to %s: %s", move.partition, move.target.path, error)
            if isinstance(error, KafkaError):
                self._logs.disk_refused(move.target, error)
            self._give_up(move)
        finally:
            if self._moves.get(move.key) is move:
                del self._moves[move.key]

    def _give_up(self, move: _Move) -> None:
        if move.target.failure is not None or self._closed:
            return  # The next start finds the rest of the copy, and continues or deletes it.
        try:
            move.target.drop_future(*move.key)
        except KafkaError as error:
            logger.error("what was copied of %r is left behind: %s", move.partition, error.message)
        self._logs.free_later(move.target)

    async def _carry_out(self, move: _Move) -> None:
        self._check(move)
        partition, target, key = move.partition, move.target, move.key
        logger.info("%r moves from %s to %s", partition, move.source.path, target.path)
        now_ms, config = self._wall_ms(), partition.log.config
        make = partial(target.create_future, *key, partition.topic_id, config, now_ms=now_ms)
        copy = await self._in_thread(move, make)
        await self._catch_up(move, copy)
        copy = await self._in_thread(move, partial(target.settle_future, *key, config, now_ms=now_ms))
        await self._catch_up(move, copy, to_the_end=True)
        original = partition.log
        self._swap(move, copy)  # The swap happens in the loop iteration in which the copy was found complete.
        await self._let_go(move, original, copy)

    async def _in_thread(self, move: _Move, work: Callable[[], _Result]) -> _Result:
        result = await in_thread(work, self._threads)
        self._check(move)
        return result

    def _check(self, move: _Move) -> None:
        if (
            self._closed
            or move.ended
            or move.source.failure is not None
            or move.target.failure is not None
            or self._logs.directory_of(*move.key) is not move.source
            or not self._replicas.holds(move.partition)
        ):
            raise _Ended

    async def _catch_up(self, move: _Move, copy: PartitionLog, *, to_the_end: bool = False) -> None:
        """Copy until little is missing. With `to_the_end`, copy everything; the last bytes are copied within a loop
        iteration, since under load another record would always arrive."""
        failed: tuple[CopyFrom, int] | None = None
        while (step := next_step(move.partition.log, copy)) is not None:
            if not isinstance(step, CopyFrom):
                await self._in_thread(move, partial(_cut, copy, step))
                continue
            original = move.partition.log
            try:
                piece = original.read(step.offset, _CHUNK_BYTES, original.log_end_offset, at_least_one=True)
            except KafkaError as error:
                raise _Unreadable(error.message) from error
            try:
                if piece.size > _COPIED_IN_A_TURN_MAX_BYTES:
                    await self._copy(move, copy, piece)
                elif to_the_end and piece.size == 0:
                    copy.truncation.leave_out_to(original.log_end_offset)
                elif to_the_end:
                    _append(copy, piece, self._wall_ms())
                else:
                    return
            except EOFError as error:
                # The log was truncated meanwhile, which the next step notices, or its file is shorter than it was
                # written.
                if failed == (step, original.log_end_offset):
                    raise _Unreadable(f"{original.directory} ends before {failed[1]}") from error
                failed = (step, original.log_end_offset)
            finally:
                piece.release()

    async def _copy(self, move: _Move, copy: PartitionLog, piece: LogSlice) -> None:
        clock = asyncio.get_running_loop().time
        began, size = clock(), piece.size
        await self._in_thread(move, partial(_append, copy, piece, self._wall_ms()))
        # The rate is read repeatedly: at a byte per second a megabyte would otherwise take days after an operator has
        # raised the rate.
        while (left_s := began + size / self._bytes_per_second() - clock()) > 0:
            await asyncio.sleep(min(left_s, _LOOK_UP_INTERVAL_S))
            self._check(move)

    def _swap(self, move: _Move, copy: PartitionLog) -> None:
        partition = move.partition
        original = partition.log
        copy.advance_log_start_offset(original.log_start_offset)
        copy.leader_epochs.clear()
        for epoch, start_offset in original.leader_epochs.entries:
            copy.leader_epochs.assign(epoch, start_offset)  # Epochs without records are copied, too.
        copy.producers = original.producers
        copy.config = original.config
        if len(copy.producers) or not copy.producers.transactions.is_pristine:
            copy.old_segments.keep_producers(self._wall_ms())
        move.source.retire(*move.key)
        move.target.adopt_future(*move.key, partition.topic_id)
        partition.replace_log(copy)
        logger.info("%r is in %s now", partition, move.target.path)

    async def _let_go(self, move: _Move, original: PartitionLog, copy: PartitionLog) -> None:
        """Delete the partition's log in the old data folder once the log in the new folder is durable."""

        def make_durable() -> None:
            if move.target.failure is not None:
                raise move.target.failure
            if copy.failure is None:
                copy.flush()
                move.target.checkpoint()

        try:
            await in_thread(make_durable, self._threads)
            if move.source.failure is None:
                move.source.discard(original)
                self._logs.free_later(move.source)
        except KafkaError as error:
            logger.error("the old log of %r stays in %s: %s", move.partition, move.source.path, error.message)
        finally:
            original.close(clean=False)
            move.source.retired.discard(move.key)


def _append(copy: PartitionLog, piece: LogSlice, now_ms: int) -> None:
    """Append the slice to the copy. Raises EOFError if the original was truncated below the end of the slice."""
    batches = memoryview(piece.read())
    first_offset = parse_header(batches, 0).base_offset
    if first_offset < copy.log_end_offset and copy.log_start_offset == copy.log_end_offset:
        # The log starts within a batch, and a copy can only contain the whole batch.
        copy.truncation.truncate_fully_and_start_at(first_offset)
    copy.append_as_follower(batches, now_ms)


def _cut(copy: PartitionLog, step: StartAt | CutTo) -> None:
    if isinstance(step, StartAt):
        copy.truncation.truncate_fully_and_start_at(step.offset)
    else:
        copy.truncation.truncate_to(step.offset)
