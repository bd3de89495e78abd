"""The state of a worker: its records as tasks, the task that may start next, and the offsets to commit. Pure.

A task is queued in its lane, runs, waits for a time, or is blocked, until it is finished. The shell reports events with
their time, and gets verdicts. Records become tasks when their turn comes to enter their lanes. Records whose handlers
wait for nothing never do: they are worked on in a series.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nlargest
from itertools import count, islice
from typing import NamedTuple

from ..records import ConsumerRecord, OffsetAndMetadata, TopicPartition
from .arrivals import Arrivals, RecordSeries
from .lane_choice import AskedLanes, BrokenLane, LaneChoice
from .lanes import Lanes
from .letters import DeadLetter, LetterLimits
from .partition_tasks import PartitionTasks, Task
from .rates import Rate, StartRates
from .retries import Retry
from .retry_notes import SUFFIX, read_note
from .stats import WorkerStats

SHOWN_KEY_MAX = 100
"""The number of characters of a key that the stats show."""


@dataclass(frozen=True, slots=True)
class HeldRetry:
    """A verdict on a failed task: it starts again at a time, and holds its lane until then."""

    at_s: float


@dataclass(frozen=True, slots=True)
class DeferredRetry:
    """A verdict on a failed task: its record goes to the retry topic, for an attempt after a delay."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class LetterDue:
    """A verdict on a failed task: its record becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class Halted:
    """A verdict on a failed task: the worker stops, and the record is read again later. `limit` is the exceeded limit
    of dead letters, empty if there is no topic for letters."""

    limit: str = ""


@dataclass(frozen=True, slots=True)
class OutdatedResult:
    """A verdict on a failed task: its result does not count. Its partition was given up, or is given up before another
    attempt; the next member works on the record."""


Verdict = HeldRetry | DeferredRetry | LetterDue | Halted | OutdatedResult


class CommitDue(NamedTuple):
    """A value to commit for a partition, and the state that it describes."""

    place: OffsetAndMetadata
    tasks: PartitionTasks
    version: int
    covered: int
    """The number of finished records that the commit covers, and no commit before."""
    left_out: int
    """The number of runs of finished offsets that do not fit into the metadata."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The decisions of a program about its tasks."""

    lane_of: Callable[[ConsumerRecord], Hashable]
    """The lane of a record; None for a lane of its own."""
    retry: Retry
    retry_topic: bool
    dead_letter: DeadLetter | None
    rates: Sequence[Rate]
    max_records: int
    max_bytes: int
    lanes: LaneChoice | None = None
    """The choice behind `lane_of`, if that is no function of the program."""


class Tasks:
    """The tasks of one worker."""

    def __init__(self, policy: Policy) -> None:
        self.in_flight = 0
        """The number of tasks that run."""
        self.uncommitted = 0
        """The number of finished records that no commit has covered yet."""
        self._policy = policy
        self._partitions: dict[TopicPartition, PartitionTasks] = {}
        self._lane_choice = policy.lanes or AskedLanes(policy.lane_of)
        self._arrivals: deque[Arrivals] = deque()
        """The records that have no tasks yet, in the order in which they were read."""
        self._series: RecordSeries | None = None
        """The series that is worked on."""
        self._lanes: Lanes[Task] = Lanes()
        self._rates = StartRates(policy.rates) if policy.rates else None
        letters = policy.dead_letter
        self._limits = None if letters is None else LetterLimits(letters.most_ratio, letters.most_in_a_row)
        self._numbers = count()
        self._waiting: list[tuple[float, int, Task]] = []
        """The tasks that wait for a time, as a heap."""
        self._settling = 0
        """The number of tasks whose handler has ended, and whose results are not in the cluster yet."""
        self._common_due_s: float | None = None
        self._succeeded = self._failed = self._retried = self._letters = 0

    # partitions

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionTasks]:
        """The assigned partitions."""
        return self._partitions

    def assign(self, partition: TopicPartition) -> PartitionTasks:
        """Begin with a partition, and forget an earlier state of it."""
        self.forget([partition])
        self._partitions[partition] = made = PartitionTasks(partition)
        return made

    def leave(self, partitions: Iterable[TopicPartition]) -> list[Task]:
        """Drop the tasks of these partitions that do not run. Return the tasks that still run, or whose results are
        being settled."""
        staying: list[Task] = []
        for partition in partitions:
            if (tasks := self._partitions.get(partition)) is not None:
                staying += self._drop(tasks)
        self._waiting = [waiting for waiting in self._waiting if not waiting[2].dropped]
        heapify(self._waiting)
        return staying

    def forget(self, partitions: Iterable[TopicPartition]) -> list[Task]:
        """Forget these partitions: the results of their tasks no longer count. Return the tasks that still run."""
        going = [partition for partition in partitions if partition in self._partitions]
        staying = self.leave(going)
        for partition in going:
            tasks = self._partitions.pop(partition)
            tasks.gone = True
            self.uncommitted -= tasks.uncommitted
        return [task for task in staying if task.running]

    def _drop(self, tasks: PartitionTasks) -> list[Task]:
        tasks.leaving = True
        tasks.blocked.clear()
        self._arrivals = deque(arrivals for arrivals in self._arrivals if arrivals.tasks is not tasks)
        idle = [
            task for task in tasks.unfinished.values() if not (task.running or task.settling or task.dropped)
        ]
        self._lanes.drop([task for task in idle if not task.deferred])
        for task in idle:
            task.dropped = True
        return [task for task in tasks.unfinished.values() if not task.dropped]

    # records

    def offer(
        self, partition: TopicPartition, records: Sequence[ConsumerRecord], now_s: float, wall_ms: float
    ) -> list[str]:
        """Add records of a partition, in the order of their offsets. Return warnings for the log."""
        tasks = self._partitions.get(partition)
        if tasks is None or tasks.leaving or not records:
            return []
        warnings: list[str] = []
        if tasks.has_position and records[0].offset < tasks.position:
            warnings.append(
                f"{partition.topic}-{partition.partition} is read from offset {records[0].offset} again, before "
                f"{tasks.position}: it was made anew, or its log was cut; results of its former records do not count"
            )
            tasks = self.assign(partition)
        if new := tasks.take(records, warnings):
            arrivals = Arrivals(tasks, new, self._lane_choice, now_s)
            tasks.arrive(arrivals.sizes)
            self._arrivals.append(arrivals)
            # A function of the program is asked at once, and only once: later other threads may need the lanes.
            is_broken = self._policy.lanes is None and arrivals.has_broken_lanes
            if is_broken or partition.topic.endswith(SUFFIX):
                self._enter_all(now_s, wall_ms)
        return warnings

    def _enter_all(self, now_s: float, wall_ms: float) -> None:
        """Let all records enter their lanes, except those of retry topics that have to wait."""
        while self._arrivals:
            task = self._next_arrival()
            note = read_note(task.record)
            if note is not None:
                task.failures = note.failures
                # The clock may have been set back since: no wait is longer than the longest delay of the schedule.
                retry = self._policy.retry
                wait_s = min((note.at_ms - wall_ms) / 1000, retry.most * (1 + retry.jitter))
                if wait_s > 0:
                    task.deferred = True
                    self._wait(task, now_s + wait_s)
                    continue
            self._lanes.add(task)

    def _next_arrival(self) -> Task:
        """Return a task for the next record that has arrived."""
        arrivals = self._arrivals[0]
        task = arrivals.next_task()
        if arrivals.is_over:
            self._arrivals.popleft()
        return task

    # starting

    def next(self, now_s: float) -> Task | None:
        """Start the next task, None if no task may start now. `due_s` tells when to ask again."""
        if self._waiting:
            self._wake(now_s)
        rates = self._rates
        self._common_due_s = None
        if rates is not None and (wait_s := rates.common_wait_s(now_s)) > 0:
            self._common_due_s = now_s + wait_s
            return None
        while (task := self._next_head()) is not None:
            if not task.was_started and not task.tasks.has_room_for(task.record.offset):
                task.tasks.blocked.append(task)
            elif rates is not None and (wait_s := rates.key_wait_s(task.lane, now_s)) > 0:
                self._wait(task, now_s + wait_s)
            else:
                return self._start(task, now_s)
        return self._forced(now_s)

    def _next_head(self) -> Task | None:
        """Take the next task that is the first of its lane. Records enter their lanes until there is such a task."""
        while (task := self._lanes.take()) is None and self._arrivals:
            self._lanes.add(self._next_arrival())
        return task

    def due_s(self) -> float | None:
        """Return the time at which a task may start although nothing else happens; None if there is no such time."""
        if self._common_due_s is not None:
            return self._common_due_s
        return self._waiting[0][0] if self._waiting else None

    def _start(self, task: Task, now_s: float) -> Task:
        if self._rates is not None:
            self._rates.take(task.lane, now_s)
        task.running = True
        task.tasks.started(task)
        self.in_flight += 1
        return task

    def _forced(self, now_s: float) -> Task | None:
        """Start a blocked task if nothing else can go on. Lanes that several partitions share can block each other."""
        if self.in_flight or self._settling or self._waiting:
            return None
        for tasks in self._partitions.values():
            if tasks.blocked:
                return self._start(tasks.blocked.pop(0), now_s)
        return None

    def _wait(self, task: Task, at_s: float) -> None:
        heappush(self._waiting, (at_s, next(self._numbers), task))

    def _wake(self, now_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, task = heappop(self._waiting)
            if task.deferred:
                task.deferred = False
                self._lanes.add(task)
            else:
                self._lanes.put_back(task)

    # series

    def series(self) -> RecordSeries | None:
        """Begin a series of the next records; None if `next` decides about them one by one.

        The shell works on one record after the other. It calls `ended`, after `interrupted` if the handler of the last
        record did not end at once or did more than to end. Until then it calls nothing else.
        """
        if self._rates is not None or self._lanes.has_ready or not self._arrivals:
            return None
        arrivals, held = self._arrivals[0], self._lanes.names
        if held and arrivals.next_lane in held:
            return None
        if not arrivals.tasks.has_room_for(arrivals.records[arrivals.at].offset):
            return None
        self._series = series = RecordSeries(arrivals, held)
        return series

    def interrupted(self, series: RecordSeries, now_s: float) -> Task:
        """Take the record that was begun last out of a series, as a task that runs."""
        assert series, "no record of the series was begun"
        series.end -= 1
        self._leave_series(series)
        task = self._next_arrival()
        self._lanes.add(task)
        head = self._lanes.take()
        assert head is task, "a record of a series was begun while its lane was held"
        return self._start(task, now_s)

    def ended(self, series: RecordSeries) -> None:
        """Count the records of a series as finished by their handlers, without results."""
        if self._series is series:
            self._leave_series(series)
        if count := len(series):
            series.finish()
            self._succeeded += count
            if self._limits is not None:
                self._limits.succeeded(count)
            self.uncommitted += count
            self._unblock(series.arrivals.tasks)

    def _leave_series(self, series: RecordSeries) -> None:
        self._series = None
        series.arrivals.at = series.end
        if series.arrivals.is_over:
            self._arrivals.popleft()

    # ends

    def succeeded(self, task: Task) -> None:
        """Note that the handler has finished a task. Follow with `release` and `finish`."""
        self._succeeded += 1
        if self._limits is not None:
            self._limits.succeeded()
        self._end(task)

    def failed(self, task: Task, now_s: float, chance: float, *, is_final: bool) -> Verdict:
        """Note that an attempt has failed, and return the verdict. `is_final`: a further attempt would fail, too.

        `release` and `finish` follow if the record is settled elsewhere; HeldRetry needs neither.
        """
        task.failures += 1
        self._failed += 1
        self._end(task)
        if task.tasks.gone:
            return OutdatedResult()
        delay_s = None if is_final else self._policy.retry.delay_s(task.failures, chance)
        if delay_s is not None:
            is_deferred = self._policy.retry_topic and delay_s > self._policy.retry.most_held_s
            if task.tasks.leaving and not is_deferred:
                return OutdatedResult()
            self._retried += 1
            if is_deferred:
                return DeferredRetry(delay_s)
            task.settling = False
            self._settling -= 1
            self._wait(task, now_s + delay_s)
            return HeldRetry(now_s + delay_s)
        if self._limits is None:
            return Halted()
        if limit := self._limits.excess():
            return Halted(limit)
        self._letters += 1
        return LetterDue()

    def cancelled(self, task: Task) -> None:
        """Note that a task was cancelled, without a result. It is not finished, and starts no more."""
        self.release(task)

    def halt(self, task: Task) -> None:
        """Give up a task at which the worker stops: neither this task nor another of its lane starts any more."""
        if task.running:
            self._end(task)
        if task.settling:
            task.settling = False
            self._settling -= 1
        task.dropped = True

    def release(self, task: Task) -> None:
        """Let the next task of the lane start. No result of the task can come any more, or `finish` follows."""
        self.halt(task)
        self._lanes.leave(task)

    def finish(self, task: Task) -> None:
        """Count a task's offset as finished. Has no effect for partitions that were given up meanwhile."""
        tasks = task.tasks
        if tasks.gone:
            return
        tasks.finish(task)
        self.uncommitted += 1
        self._unblock(tasks)

    def _unblock(self, tasks: PartitionTasks) -> None:
        if tasks.blocked:
            for blocked in reversed(tasks.blocked):
                self._lanes.put_back(blocked)
            tasks.blocked.clear()

    def _end(self, task: Task) -> None:
        task.running = False
        task.settling = True
        self._settling += 1
        self.in_flight -= 1

    # commits

    @property
    def is_idle(self) -> bool:
        """True if no record is held, and nothing is to be committed."""
        return not any(tasks.held or tasks.is_dirty for tasks in self._partitions.values())

    @property
    def is_dirty(self) -> bool:
        """True if there is something to commit."""
        return any(tasks.is_dirty for tasks in self._partitions.values())

    def commits(
        self, committable: Callable[[TopicPartition, int], OffsetAndMetadata]
    ) -> dict[TopicPartition, CommitDue]:
        """Return the values to commit, for the partitions with news.

        `committable` returns the offset at which a reader must resume to get a given offset: that of the first segment,
        for large messages.
        """
        due: dict[TopicPartition, CommitDue] = {}
        for partition, tasks in self._partitions.items():
            if tasks.is_dirty:
                begin = committable(partition, tasks.watermark).offset
                text, left_out = tasks.metadata(begin)
                due[partition] = CommitDue(
                    OffsetAndMetadata(begin, text), tasks, tasks.version, tasks.uncommitted, left_out
                )
        return due

    def committed(self, due: Iterable[CommitDue]) -> None:
        """Note that values were committed."""
        for commit in due:
            commit.tasks.committed(commit.version, commit.covered)
            if not commit.tasks.gone:
                self.uncommitted -= commit.covered

    # memory

    def room(self) -> int:
        """Return the number of records that may be read now, by their number and their usual size."""
        records = self._policy.max_records - self._records
        largest = max((tasks.largest for tasks in self._partitions.values()), default=0)
        left_bytes = self._policy.max_bytes - self._bytes
        least = 0 if self._records else 1  # A record that is larger than the bound is read alone.
        return max(least, min(records, left_bytes // max(largest, 1)))

    def to_pause(self) -> Iterator[TopicPartition]:
        """Yield the partitions that are to be read no more: all if the worker holds too much, else the partitions that
        hold more than their share."""
        full, half = self.room() == 0, self._fill(1 / 2)
        for partition, tasks in self._partitions.items():
            if full or (half and self._is_over_share(tasks, 1 / 2)):
                yield partition

    def to_resume(self) -> Iterator[TopicPartition]:
        """Yield the partitions that may be read again, at two thirds of the bounds of `to_pause`."""
        if self._fill(2 / 3) or self.room() == 0:
            return
        third = self._fill(1 / 3)
        for partition, tasks in self._partitions.items():
            if not (third and self._is_over_share(tasks, 1 / 3)):
                yield partition

    def _fill(self, part: float) -> bool:
        """Return whether the worker holds this part of its bounds, or more."""
        return (
            self._records >= part * self._policy.max_records or self._bytes >= part * self._policy.max_bytes
        )

    def _is_over_share(self, tasks: PartitionTasks, part: float) -> bool:
        share = part / len(self._partitions)
        return (
            tasks.records > share * self._policy.max_records
            or tasks.held_bytes > share * self._policy.max_bytes
        )

    @property
    def _records(self) -> int:
        return sum(tasks.records for tasks in self._partitions.values())

    @property
    def _bytes(self) -> int:
        return sum(tasks.held_bytes for tasks in self._partitions.values())

    # health

    def running(self, partitions: Collection[TopicPartition] | None = None) -> list[Task]:
        """Return the tasks of these partitions, or of all, that run or whose results are being settled."""
        chosen = self._partitions if partitions is None else partitions
        return [
            task
            for partition in chosen
            if partition in self._partitions
            for task in self._partitions[partition].unfinished.values()
            if task.running or task.settling
        ]

    def held_back(self) -> Iterator[PartitionTasks]:
        """Yield the partitions that start no new keys, as the metadata of their commits is full."""
        return (tasks for tasks in self._partitions.values() if tasks.blocked)

    def stats(self, now_s: float) -> WorkerStats:
        """Return the state in numbers. Any thread may call it: the loop changes the state meanwhile."""
        partitions, arrivals = list(self._partitions.values()), list(self._arrivals)
        taken_s = [at_s for tasks in partitions if (at_s := tasks.oldest_s) is not None]
        oldest_s = min(taken_s + [each.taken_s for each in arrivals[:1]], default=now_s)
        lengths = self._lane_lengths(arrivals)
        return WorkerStats(
            partitions=len(partitions),
            in_flight=self.in_flight + (self._series is not None),
            held=sum(tasks.held for tasks in partitions),
            held_bytes=sum(tasks.held_bytes for tasks in partitions),
            uncommitted=self.uncommitted,
            waiting=len(self._waiting),
            oldest_s=max(0.0, now_s - oldest_s),
            lanes=len(lengths),
            longest_lanes=tuple(
                (_shown(lane), length)
                for lane, length in nlargest(10, lengths.items(), key=lambda pair: pair[1])
            ),
            succeeded=self._succeeded,
            failed=self._failed,
            retried=self._retried,
            letters=self._letters,
        )

    def _lane_lengths(self, arrivals: Iterable[Arrivals]) -> dict[Hashable, int]:
        """Return the numbers of records by lane, of those in lanes and those that have arrived."""
        lengths = Counter(dict(self._lanes.lengths()))
        for each in arrivals:
            for record, lane in islice(zip(each.records, each.lanes, strict=True), each.at, None):
                if lane is None or isinstance(lane, BrokenLane):
                    lane = Task(record, each.tasks, lane, 0, each.taken_s)
                lengths[lane] += 1
        return lengths


def _shown(lane: Hashable) -> str:
    """Return the name of a lane for readers, with at most SHOWN_KEY_MAX characters of its key."""
    match lane:
        case Task(record=record):
            return f"{record.topic}-{record.partition}, offset {record.offset}"
        case (str(topic), bytes(key)):
            return f"{topic}, key {_shortened(_printable(key))}"
        case (str(topic), int(partition)):
            return f"{topic}-{partition}"
    try:
        return _shortened(repr(lane))
    except Exception:  # Objects of the program may fail to make a text.
        return type(lane).__name__


def _printable(key: bytes) -> str:
    # A key may have a megabyte.
    return repr(key[: 4 * SHOWN_KEY_MAX + 1].decode("utf-8", "backslashreplace"))[1:-1]


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_KEY_MAX else f"{text[:SHOWN_KEY_MAX]}..."
