"""The options of a worker, in groups, and their division between its consumer, its producer and its own parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Required, TypedDict

from ..connections.options import CLIENT_ID_MEANING
from ..consuming.deserialization import Deserializer
from ..consuming.options import (
    CONSUMER_GROUPS,
    CONSUMER_OPTIONS,
    ConsumerConnection,
    FetchingOptions,
    ReadingOptions,
)
from ..declared_options import declared_options, optional, required
from ..options import group_of
from ..producing.options import WRITER_GROUPS, WRITER_OPTIONS
from ..producing.partitioner import Partitioner
from ..records import ConsumerRecord
from ..security.options import SecurityKeywords, SecurityOptions
from ..sharing.options import SHARE_OPTIONS
from ..tracing.options import TracingOptions
from .letters import DeadLetter
from .rates import Rate
from .retries import Retry
from .retry_notes import SUFFIX
from .share_options import check_delays, check_share_options
from .tasks import Policy

if TYPE_CHECKING:
    from ..tracing.attempts import AttemptTraces

SHARE_RECORDS: Final = 2_000
"""The most records of a share group in memory: brokers lock as many records of a partition by default."""
CONCURRENCY: Final = 64
"""The default number of records in handlers at a time."""
Lane = Callable[[ConsumerRecord], Hashable]
_KEY = attrgetter("key")


class WorkerSending(TypedDict, total=False):
    """The options of a producer that a worker takes, for type checkers."""

    compression_type: str | None
    linger_ms: float
    batch_size: int
    max_request_size: int
    buffer_memory: int
    delivery_timeout_ms: int
    max_block_ms: int
    partitioner: Partitioner


class WorkerOptions(ReadingOptions, WorkerSending, SecurityKeywords, total=False):
    """The options of a worker, for type checkers. The groups below, and those of clients, have defaults and
    meanings."""

    group_id: Required[str]
    source: Literal["group", "share"]
    ordering: Literal["key", "partition", "none"]
    lane: Lane | None
    null_keys: Literal["partition", "free"]
    concurrency: int | None
    executor: Literal["threads", "processes"]
    timeout_s: float | None
    drain_s: float
    retry: Retry
    retry_topic: bool
    dead_letter: str | DeadLetter | None
    rate: Rate | Sequence[Rate] | None
    max_records: int
    max_bytes: int
    idle_timeout_ms: int | None
    transactional: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    commit_every_s: float
    max_batch_records: int
    bootstrap_servers: str | Sequence[str]
    client_id: str
    isolation_level: Literal["read_uncommitted", "read_committed"]
    request_timeout_ms: int
    retry_backoff_max_ms: int
    tracing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """Options of the work."""

    group_id: str = required("Group whose members share the work. The group keeps the offsets to go on at.")
    source: Literal["group", "share"] = optional(
        "group",
        'Type of the group: a consumer group, whose members have partitions, or `"share"`, a share group (KIP-932). '
        "Members of a share group take records one by one, without an order. The group delivers a failed record again, "
        "and has the settings of dead letters.",
    )
    ordering: Literal["key", "partition", "none"] = optional(
        "key",
        "Records that are worked on one at a time, in their order: those of a key of a topic, those of a partition, or "
        '`"none"`.',
    )
    lane: Lane | None = optional(
        None,
        "Function of a record that returns its lane, in place of `ordering`. Records of equal lanes are worked on one "
        "at a time. None as a result: the record waits for no other. Its argument has bytes: deserializers come later.",
    )
    null_keys: Literal["partition", "free"] = optional(
        "partition",
        'Order of records without key, for `ordering="key"`: by partition, or with `"free"` none.',
    )
    concurrency: int | None = optional(
        None,
        "Records in handlers at a time. None: 64, or the number of processors for processes.",
        unit="records",
    )
    executor: Literal["threads", "processes"] = optional(
        "threads",
        "Place of a handler that is a plain function, `def`: as many threads, or processes, as `concurrency`.",
    )
    timeout_s: float | None = optional(
        None, "Time for an attempt. A longer attempt is cancelled, and has failed. None: no limit.", unit="s"
    )
    drain_s: float = optional(
        20.0,
        "Time for which handlers may go on when the worker stops, or when the group takes their partitions away. Then "
        "they are cancelled.",
        unit="s",
    )
    idle_timeout_ms: int | None = optional(
        None, "Time without new and unfinished records after which `run` ends. None: it goes on."
    )
    max_records: int = optional(
        10_000, "Records in memory, finished records without a commit included.", unit="records"
    )
    max_bytes: int = optional(
        64 * 1024 * 1024, "Keys, values and headers of the records in memory.", unit="bytes"
    )
    rate: Rate | Sequence[Rate] | None = optional(
        None, "Limit of the records that start in a time, or several limits. None: no limit."
    )

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value or combination."""
        if not self.group_id:
            raise ValueError("group_id is a text that is not empty: the group keeps where to go on")
        _check_choice("source", self.source, ("group", "share"))
        _check_choice("ordering", self.ordering, ("key", "partition", "none"))
        _check_choice("null_keys", self.null_keys, ("partition", "free"))
        _check_choice("executor", self.executor, ("threads", "processes"))
        if self.lane is not None and not callable(self.lane):
            raise TypeError(f"lane is a function of a record, or None, not {self.lane!r}")
        if self.lane is not None and self.ordering != "key":
            raise ValueError(f"lane takes the place of ordering, which is {self.ordering!r}")
        several = self.rate if isinstance(self.rate, list | tuple) else (self.rate,)
        if not all(isinstance(rate, Rate | None) for rate in several):
            raise TypeError(f"rate is a Rate, several of them, or None, as in Rate(100), not {self.rate!r}")

    @property
    def rates(self) -> Sequence[Rate]:
        """The limits of rates."""
        if self.rate is None:
            return ()
        return (self.rate,) if isinstance(self.rate, Rate) else tuple(self.rate)

    @property
    def most_at_once(self) -> int:
        """The number of records in handlers at a time."""
        if self.concurrency is not None:
            return self.concurrency
        return (os.cpu_count() or 1) if self.executor == "processes" else CONCURRENCY

    def lane_of(self, record: ConsumerRecord) -> Hashable:
        """Return the lane of a record, None for a lane of its own. Raises the errors of the function `lane`."""
        if self.lane is not None:
            return self.lane(record)
        if self.ordering == "none":
            return None
        if self.ordering == "partition":
            return record.topic, record.partition
        if record.key is None:
            return None if self.null_keys == "free" else (record.topic, record.partition)
        # A record of a retry topic has the lane of its origin, so that they never overlap.
        return record.topic.removesuffix(SUFFIX), record.key

    def lanes_of(self, records: Sequence[ConsumerRecord]) -> Sequence[Hashable]:
        """Return the lanes of records of one partition, as `lane_of` does, if there is no function `lane`."""
        if self.ordering == "none":
            return [None] * len(records)
        if self.ordering == "key" and all(map(_KEY, records)):
            return list(zip(repeat(records[0].topic.removesuffix(SUFFIX)), map(_KEY, records), strict=False))
        return [self.lane_of(record) for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOptions:
    """Options of failures."""

    retry: Retry = optional(
        Retry(), "Schedule of the attempts with a record, and of the delays between them."
    )
    retry_topic: bool = optional(
        False,
        "Whether delays above `retry.most_held_s` are waited for in the topic `<topic>.retry`, which the worker reads, "
        "too. Its records give up the order of their keys.",
    )
    dead_letter: str | DeadLetter | None = optional(
        None,
        "Topic of records that failed in all attempts, or that the handler rejected. None: the worker stops with the "
        "error of such a record.",
    )

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value or combination."""
        if not isinstance(self.retry, Retry):
            raise TypeError(f"retry is a Retry, as in Retry(attempts=5), not {self.retry!r}")
        if not isinstance(self.dead_letter, str | DeadLetter | None):
            raise TypeError(f"dead_letter is a topic, a DeadLetter or None, not {self.dead_letter!r}")
        if self.letters is not None and self.letters.topic.endswith(SUFFIX):
            raise ValueError(
                f"dead_letter is no retry topic, which ends with {SUFFIX!r}: {self.letters.topic!r}"
            )

    def check_held(self) -> None:
        """Raise ValueError if a worker of a consumer group has a place for none of the delays."""
        if self.retry.longest_s > self.retry.most_held_s and not self.retry_topic:
            raise ValueError(
                f"retry has delays of {self.retry.longest_s:g} s, which is above most_held_s "
                f"({self.retry.most_held_s:g}): such delays need retry_topic=True"
            )

    @property
    def letters(self) -> DeadLetter | None:
        """The topic of dead letters, and its limits."""
        return DeadLetter(self.dead_letter) if isinstance(self.dead_letter, str) else self.dead_letter


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlingOptions:
    """Options of commits and transactions."""

    commit_every_s: float = optional(
        0.2,
        "Time after which finished records are committed. Without transactions a commit also follows after "
        "`concurrency` finished records, and a share group has no commits.",
        unit="s",
    )
    transactional: bool = optional(
        False,
        "Whether the records that handlers send, the dead letters and the offsets are one transaction, so that each "
        "record counts exactly once. In a share group: the records that handlers send, and the acknowledgements of "
        "their tasks.",
    )
    transactional_id: str | None = optional(
        None,
        "Transactional id of the worker's producer, which no other process may have. None: unique to this worker, or "
        "made of `group_id` and `group_instance_id` if the latter is given.",
    )
    transaction_timeout_ms: int = optional(
        10_000,
        "Time after which the cluster aborts a transaction. A member that takes over from a killed process may wait as "
        "long.",
    )
    max_batch_records: int = optional(500, "Finished records in one transaction.", unit="records")

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value or combination."""
        if self.transactional_id == "":
            raise ValueError("transactional_id is a text that is not empty, or None")
        if self.transactional_id is not None and not self.transactional:
            raise ValueError("transactional_id needs transactional=True")
        if self.commit_every_s * 1000 >= self.transaction_timeout_ms:
            raise ValueError(
                f"commit_every_s is below transaction_timeout_ms ({self.transaction_timeout_ms}), not "
                f"{self.commit_every_s:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConnection(ConsumerConnection):
    """Options of connections."""

    client_id: str = optional("ottla-worker", CLIENT_ID_MEANING)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFetching(FetchingOptions):
    """Options of fetches."""

    auto_offset_reset: Literal["earliest", "latest", "none"] = optional(
        "earliest", 'Place to begin without a committed offset. With `"none"` the work raises an error there.'
    )


WORKER_OPTIONS = tuple(
    option
    for option in declared_options(
        WorkOptions,
        FailureOptions,
        SettlingOptions,
        WorkerConnection,
        WorkerFetching,
        *CONSUMER_GROUPS[2:-2],
        *WRITER_GROUPS[1:-2],
        TracingOptions,
        SecurityOptions,
    )
    if option.name in WorkerOptions.__required_keys__ | WorkerOptions.__optional_keys__
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The values of a worker's own option groups, and the options of its clients."""

    work: WorkOptions
    failures: FailureOptions
    settling: SettlingOptions
    tracing: TracingOptions
    given: Mapping[str, Any]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> WorkerSettings:
        """Return the settings for a worker's keyword arguments. Raises TypeError and ValueError."""
        if options.get("lane") is not None and "ordering" in options:
            raise ValueError(f"lane takes the place of ordering, which is {options['ordering']!r}")
        failures = group_of(FailureOptions, options)
        if options.get("source") == "share":
            check_share_options(options)
            check_delays(failures.retry)
        else:
            failures.check_held()
        return cls(
            work=group_of(WorkOptions, options),
            failures=failures,
            settling=group_of(SettlingOptions, options),
            tracing=group_of(TracingOptions, options),
            given=options,
        )

    @property
    def policy(self) -> Policy:
        """The decisions about tasks."""
        return Policy(
            lane_of=self.work.lane_of,
            lanes=self.work if self.work.lane is None else None,
            retry=self.failures.retry,
            retry_topic=self.failures.retry_topic,
            dead_letter=self.failures.letters,
            rates=self.work.rates,
            max_records=self.work.max_records,
            max_bytes=self.work.max_bytes,
        )

    @property
    def deserializers(self) -> tuple[Deserializer | None, Deserializer | None]:
        """The functions for keys and for values. The consumer has none, so that a record that fails can become a
        letter with its bytes."""
        return self.given.get("key_deserializer"), self.given.get("value_deserializer")

    @property
    def max_poll_s(self) -> float:
        """The time for which the group waits for a member that gives partitions up."""
        return float(self.given.get("max_poll_interval_ms", 300_000)) / 1000

    def traces(self) -> AttemptTraces | None:
        """Return the spans of attempts, None without traces. Raises ModuleNotFoundError without opentelemetry-api."""
        return self.tracing.attempts(self._with_defaults()["client_id"], self.work.group_id)

    def of_consumer(self) -> dict[str, Any]:
        """Return the options of the consumer."""
        known = {option.name for option in CONSUMER_OPTIONS}
        theirs = {name: value for name, value in self._with_defaults().items() if name in known}
        for name in ("key_deserializer", "value_deserializer", "tracing"):
            theirs.pop(name, None)
        # Fetched records wait beside those that are worked on, and take memory, too.
        theirs.setdefault("fetch_max_bytes", max(1, min(50 * 1024 * 1024, self.work.max_bytes // 4)))
        if self.settling.transactional:
            theirs["isolation_level"] = "read_committed"
        return theirs

    def of_share_consumer(self) -> dict[str, Any]:
        """Return the options of the consumer of a share group."""
        known = {option.name for option in SHARE_OPTIONS}
        theirs = {name: value for name, value in self._with_defaults().items() if name in known}
        for name in ("key_deserializer", "value_deserializer", "tracing"):
            theirs.pop(name, None)
        most = min(self.work.max_records, max(self.work.most_at_once, SHARE_RECORDS))
        return theirs | {"max_in_flight": most, "unreadable": "reject"}

    def of_producer(self) -> dict[str, Any]:
        """Return the options of the producer, without those of its transactions.

        It has no traces: a record gets its context from the handler that sends it, and a letter keeps its context.
        """
        known = {option.name for option in WRITER_OPTIONS} - {"tracing"}
        return {name: value for name, value in self._with_defaults().items() if name in known}

    def _with_defaults(self) -> dict[str, Any]:
        own = {"client_id": "ottla-worker", "auto_offset_reset": "earliest"}
        return own | dict(self.given)


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")
