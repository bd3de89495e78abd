"""One share partition at the leader of its partition: members acquire records from the log, and changes of deliveries
are committed once the durable state has them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...log import LogSlice
from ...log.segments.aborted_transaction import AbortedTransaction
from ...runtime.retained_bytes import RetainedClaim
from ..acknowledgements import AcknowledgedRange, parts_of
from ..acquisition import AcquiredRange
from ..limits import AcquireMode
from ..partition import SharePartition
from ..states import AcknowledgeType, StateBatch
from ..transitions import Transition
from .background_reads import BackgroundReads
from .batches import BatchWalk, ColdRecords
from .dead_letters import DeadLetters, LetterServices
from .dependencies import FENCED, Persister, ShareKey, StoredPending, fenced
from .group_settings import GroupSettings
from .key_reads import READ_BYTES as KEY_READ_BYTES
from .taking import Appetite, Taken
from .transactional_acks import TransactionalAcks, TransactionServices
from .write_queue import PendingChange, WriteQueue, Written, complete_after

if TYPE_CHECKING:
    from ...replication.replica.partition import Partition
    from .counters import ShareCounters

logger = logging.getLogger(__name__)

SHARE_PARTITION_BYTES = 4_000
"""Approximate memory of a share partition without its window."""
RUN_BYTES = 200
"""Approximate memory of a range of records with one state."""
KEY_BYTES = 150
"""Approximate memory of a record whose key is known."""

_GROWTH_BYTES = 32 * RUN_BYTES
"""Memory that must be free before a fetch acquires records, since its window may grow."""
_READS_MAX = 4
"""Maximum number of reads for one fetch, if reads find only control batches and aborted batches."""
_BACKOFF_MS, _BACKOFF_MAX_MS = 100, 10_000
"""Bounds of the time after which a lock whose end could not be written ends again."""


class WaitingShareFetch(Protocol):
    """A ShareFetch that waits for records of share partitions, or for free locks."""

    def look(self, partition: LedPartition) -> None:
        """Acquire records of the share partition if there are enough, or report its failure. Must not raise."""


class Services(NamedTuple):
    """The services of a broker that a share partition uses."""

    persister: Persister
    settings: Callable[[str], GroupSettings]
    """Settings of a group."""
    monotonic_ms: Callable[[], int]
    wall_ahead_ms: Callable[[], int]
    """Difference between the time since 1970 and the monotonic time."""
    counters: ShareCounters
    letters: LetterServices
    transactions: TransactionServices
    doubted: Callable[[Partition, int, int], None]
    """Check a replica for damage at an offset, in this number of bytes."""
    is_over: Callable[[LedPartition, KafkaError | None], None]
    """Drop the share partition: it is fenced, or, without an error, nobody uses it."""


class LedPartition:
    """A share partition in one leader epoch of its partition.

    It is loading until `loaded` is called, and over once `failure` is set. Nothing of it is served afterwards.
    """

    __slots__ = (
        "_backoff_ms", "_claim", "_is_due", "_is_full", "_loop", "_reads", "_retry_at_ms", "_services", "_share",
        "_timer", "_timer_at_ms", "_transactions", "_waiting", "_writes", "failure", "key", "leader_epoch", "letters",
        "replica", "state_epoch", "users",
    )  # fmt: skip

    def __init__(
        self,
        key: ShareKey,
        replica: Partition,
        leader_epoch: int,
        services: Services,
        claim: RetainedClaim,
    ) -> None:
        self.key = key
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.failure: KafkaError | None = None
        self.users = 0
        """Number of share sessions that contain the share partition."""
        self._services = services
        self._claim = claim
        self._share: SharePartition | None = None
        self.state_epoch = 0
        """Epoch of the durable state."""
        self._loop = asyncio.get_running_loop()
        self._writes = WriteQueue(self, self._write, self._written)
        self.letters = DeadLetters(self, services.letters)
        self._transactions = TransactionalAcks(self, services.transactions)
        self._waiting: dict[WaitingShareFetch, None] = {}
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._retry_at_ms = 0
        self._backoff_ms = _BACKOFF_MS
        # True once the fetches have been reported that wait although there are records.
        self._is_full = False
        self._reads = BackgroundReads(replica, self.wake, services.doubted)

    def __repr__(self) -> str:
        return f"<{self.replica.topic}-{self.key.partition} of share group {self.key.group_id}>"

    # ------------------------------------------------------------ life

    @property
    def share(self) -> SharePartition | None:
        """The state of the records; None while it is loading."""
        return self._share

    @property
    def is_idle(self) -> bool:
        """True if no session, lock or change needs the share partition."""
        share = self._share
        return (
            not self.users
            and not self._waiting
            and self._writes.is_empty
            and self.letters.is_idle
            and self._transactions.is_idle
            and (share is None or not share.acquired_count)
        )

    def loaded(self, share: SharePartition, state_epoch: int, pending: Sequence[StoredPending]) -> None:
        """Begin to serve, from a durable state. `pending` are its changes in transactions that have not ended."""
        self._share, self.state_epoch = share, state_epoch
        self._transactions.restore(pending)
        self._moved()

    def end(self, failure: KafkaError) -> None:
        """End the share partition. Its waiting fetches, and its changes that are not on their way, get the error."""
        self.failure = failure
        self._claim.count(0)
        self._disarm()
        self.replica.readers.discard(self)
        self._reads.close()
        self.letters.close()
        self._transactions.close()
        self._writes.fail(failure)
        waiting, self._waiting = self._waiting, {}
        for fetch in waiting:
            fetch.look(self)

    def close(self) -> None:
        """Stop all work, as the broker stops."""
        self._waiting.clear()
        self._disarm()
        self.replica.readers.discard(self)
        self._writes.cancel()
        self.letters.close()
        self._transactions.close()
        self._reads.close()

    # ------------------------------------------------------------ waiting fetches

    @property
    def waiting_count(self) -> int:
        """Number of fetches that wait here."""
        return len(self._waiting)

    def wait(self, fetch: WaitingShareFetch) -> None:
        """Call `fetch.look` once there may be records for it."""
        if not self._waiting:
            self.replica.readers.add(self)
        self._waiting[fetch] = None
        self._report_full()

    def forget(self, fetch: WaitingShareFetch) -> None:
        """Remove a fetch that was answered."""
        self._waiting.pop(fetch, None)
        if not self._waiting:
            self.replica.readers.discard(self)

    def wake(self) -> None:
        """Let waiting fetches look at the end of this turn of the event loop, since records, locks or the role have
        changed."""
        if self._waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._serve_waiting)

    def _serve_waiting(self) -> None:
        """Let the fetches look in the order in which they came, as long as there are records to acquire."""
        self._is_due = False
        for fetch in tuple(self._waiting):
            if self.failure is not None or not self.has_records():
                break
            fetch.look(self)
        if self._waiting:
            self.replica.readers.add(self)

    def has_records(self) -> bool:
        """Return whether a fetch may acquire records now, or learns that this broker no longer leads."""
        share, leader = self._share, self.replica.leader
        if leader is None:
            return True
        if share is None or not share.can_acquire or share.next_fetch_offset() >= self._upper_bound():
            return False
        return share.keys_from is None or not self._reads.is_busy

    def lag(self, share: SharePartition) -> int:
        """Return the number of records up to the high watermark that are not finished. `share` is the loaded state."""
        return max(0, self.replica.high_watermark - share.start_offset - share.delivery_complete_count)

    def _upper_bound(self) -> int:
        """Return the offset up to which members may acquire records."""
        watermark = self.replica.high_watermark
        if self._services.settings(self.key.group_id).is_read_committed:
            return self.replica.log.transactions.last_stable_offset(watermark)
        return watermark

    def _report_full(self) -> None:
        """Warn once if fetches wait because members hold as many records as the group may have in flight."""
        share = self._share
        is_full = share is not None and not share.can_acquire
        if is_full and not self._is_full and share is not None:
            logger.warning(
                "%r: %d records from offset %d on are not acknowledged, as many as share.partition.max.record.locks "
                "allows: members get new records once others acknowledge or release some. Member %s holds the most",
                self, share.unfinished_count, share.start_offset, share.greatest_holder or "of a closed session",
            )  # fmt: skip
        self._is_full = is_full

    # ------------------------------------------------------------ acquisition

    def available_bytes(self, at_most: int) -> int:
        """Return how many bytes of records a fetch could read now, at most `at_most`. Raises KafkaError."""
        share = self._served()
        if not self.has_records():
            return 0
        records = self._read(
            share, Appetite(at_most, 1, AcquireMode.BATCH_OPTIMISED, True), self._upper_bound()
        )
        records.release()
        return records.size

    def take(self, member_id: str, appetite: Appetite) -> Taken | None:
        """Acquire records for a member; None if there are none, or their headers or keys have to be read first.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        share = self._served()
        share.limits = self._services.settings(self.key.group_id).limits
        if share.is_ordered != share.limits.is_ordered:
            self._begin_anew()
            return None
        self._reads.check()
        if not self._claim.resize(self._retained_bytes(share) + _GROWTH_BYTES):
            return None
        taken = None
        for _ in range(_READS_MAX):
            offset = share.next_fetch_offset()
            if not share.can_acquire or offset >= self._upper_bound() or share.keys_from is not None:
                break
            taken = self._take_once(share, member_id, offset, appetite)
            if taken is not None or share.next_fetch_offset() == offset:
                break
        else:
            self._loop.call_soon(self.wake)
        if taken is None:
            self._learn_keys(share)
        self._claim.count(self._retained_bytes(share))
        self._arm()
        if taken is not None:
            self._count(taken)
        return taken

    def _begin_anew(self) -> None:
        """Begin anew from the durable state, since the group's order of keys was switched on or off. Until the changes
        on their way are durable, nothing happens. Raises KafkaError NOT_LEADER_OR_FOLLOWER, so that members ask
        again."""
        if self._writes.is_empty:
            failure = KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self!r} begins anew, since ottla.share.ordering has changed",
            )
            self.over(failure)
            raise failure

    def _learn_keys(self, share: SharePartition) -> None:
        """Read the keys of the next records in a thread, if the group keeps their order. Raises KafkaError."""
        first, upto = share.keys_from, self._upper_bound()
        if first is not None and first < upto and share.can_acquire and not self._reads.is_busy:
            appetite = Appetite(KEY_READ_BYTES, 1, AcquireMode.RECORD_LIMIT, True)
            self._read_ahead(self._read(share, appetite, upto), first)

    def _count(self, taken: Taken) -> None:
        counters = self._services.counters
        for first, last, delivery_count in taken.acquired:
            counters.acquired += last + 1 - first
            if delivery_count > 1:
                counters.redelivered += last + 1 - first

    def _served(self) -> SharePartition:
        """Return the state of the records, from which the records below the log start were removed."""
        if self.failure is not None:
            raise self.failure
        if self.replica.leading().leader_epoch != self.leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self!r} belongs to leader epoch {self.leader_epoch}"
            )
        share = self._share
        assert share is not None, "the share partition is loading"
        share.archive_below(self.replica.log.log_start_offset)
        return share

    def _read(self, share: SharePartition, appetite: Appetite, upto: int) -> LogSlice:
        offset = share.next_fetch_offset()
        try:
            return self.replica.log.read(
                offset, max(appetite.max_bytes, 0), upto, at_least_one=appetite.at_least_one
            )
        except KafkaError:
            self._services.doubted(self.replica, offset, appetite.max_bytes)
            raise

    def _take_once(
        self, share: SharePartition, member_id: str, offset: int, appetite: Appetite
    ) -> Taken | None:
        upto = self._upper_bound()
        records = self._read(share, appetite, upto)
        if records.size == 0:
            return None
        try:
            acquired = self._acquire(share, member_id, offset, records, upto, appetite)
        except ColdRecords:
            self._read_ahead(records)
            return None
        except BaseException:
            records.release()
            self._services.doubted(self.replica, offset, appetite.max_bytes)
            raise
        if not acquired:
            records.release()
            return None
        return Taken(records, acquired)

    def _acquire(
        self,
        share: SharePartition,
        member_id: str,
        offset: int,
        records: LogSlice,
        upto: int,
        appetite: Appetite,
    ) -> tuple[AcquiredRange, ...]:
        aborted: Sequence[AbortedTransaction] = ()
        if self._services.settings(self.key.group_id).is_read_committed:
            aborted = self.replica.log.transactions.aborted_among(records, offset, upto)
        walk = BatchWalk(records, aborted, may_wait=self._reads.took_warm())
        now_ms = self._services.monotonic_ms()
        acquired = share.acquire(
            member_id, offset, walk.data_batches(), appetite.max_records, appetite.mode, now_ms
        )
        share.archive(walk.left_out)
        if walk.is_damaged:
            self._services.doubted(self.replica, offset, records.size)
        if acquired:
            walk.cut(acquired[0].first, acquired[-1].last)
        return acquired

    def _read_ahead(self, records: LogSlice, keys_from: int | None = None) -> None:
        """Read the beginning of a slice into the page cache, or the keys of its records, and wake the waiting
        fetches."""
        share = self._share
        if share is None or self._reads.is_busy:
            records.release()
        elif keys_from is None:
            self._reads.warm(records)
        else:
            self._reads.learn_keys(share, records, keys_from)

    # ------------------------------------------------------------ acknowledgement, release, ends of locks

    def acknowledge(
        self, member_id: str, ranges: Sequence[AcknowledgedRange], done: Written, *, has_renewals: bool
    ) -> None:
        """Apply acknowledgements of a member. `done` is called once they are durable, perhaps within this call.

        `has_renewals`: the request says that it renews locks.

        Raises KafkaError, and changes nothing: NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, INVALID_RECORD_STATE.
        """
        share = self._served()
        settings = self._services.settings(self.key.group_id)
        share.limits = settings.limits
        if any(AcknowledgeType.RENEW in acknowledged.types for acknowledged in ranges):
            if not has_renewals:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Acknowledgement: type 4 (RENEW) in a request without IsRenewAck.",
                )
            if not settings.may_renew:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"Group {self.key.group_id} does not allow renewed locks (share.renew.acknowledge.enable).",
                )
        transition = share.acknowledge(member_id, ranges, self._services.monotonic_ms())
        self._submit(transition, partial(self._acknowledged, ranges, done))
        self._arm()

    def _acknowledged(
        self, ranges: Sequence[AcknowledgedRange], done: Written, error: KafkaError | None
    ) -> None:
        if error is None:
            counts = self._services.counters.acknowledged
            for first, last, kind, _ in parts_of(ranges):
                counts[kind] += last + 1 - first
        done(error)

    def release(self, member_id: str, done: Written) -> None:
        """Release all records that a member holds, since its share session has ended. If the write fails, `done` gets
        the error, and the write is repeated until the leadership ends. Raises KafkaError."""
        share = self._served()
        self._submit(share.release(member_id, self._services.monotonic_ms()), done)

    def _submit(self, transition: Transition, done: Written) -> None:
        share = self._share
        assert share is not None
        if transition.needs_write:
            self._writes.add(PendingChange(transition, done))
            return
        self._commit(transition)
        done(None)
        if transition.spans:
            self._moved()

    def _commit(self, transition: Transition) -> None:
        share = self._share
        assert share is not None
        share.commit(transition)
        if transition.dead_letters:
            self.letters.wake()

    async def _write(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        share = self._share
        assert share is not None
        # Always with the start offset: without it the stored count of finished offsets would stay, too.
        start_offset, ahead_ms = max(start_offset, share.start_offset), self._services.wall_ahead_ms()
        await self._services.persister.write(
            *self.key,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete=complete_after(share, start_offset, batches),
            batches=[batch.shifted(ahead_ms) for batch in batches],
        )

    def _written(self, changes: Sequence[PendingChange], error: KafkaError | None) -> None:
        share = self._share
        assert share is not None
        for change in changes:
            if error is None:
                self._commit(change.transition)
                self._services.counters.archived += change.transition.archived_count
            else:
                share.roll_back(change.transition)
        if error is not None:
            self._services.counters.failed_writes += 1
            logger.warning("%r: a change of its state was not written: %s", self, error)
            if error.code in FENCED:
                error = fenced(error)
                if self.failure is None:
                    self._services.is_over(self, error)
        for change in changes:
            change.done(error)
        if self.failure is None:
            self._moved()

    def _moved(self) -> None:
        """React to a change of the window: records may be free for waiting fetches, or nobody needs the window."""
        share = self._share
        if share is not None:
            self._claim.count(self._retained_bytes(share))
        self._arm()
        if self._waiting:
            self.wake()
        elif self.is_idle:
            self._services.is_over(self, None)

    def _retained_bytes(self, share: SharePartition) -> int:
        return SHARE_PARTITION_BYTES + RUN_BYTES * share.run_count + KEY_BYTES * share.key_count

    # ------------------------------------------------------------ transactions and dead letters

    def acknowledge_in_transaction(
        self,
        member_id: str,
        ranges: Sequence[AcknowledgedRange],
        writer: TransactionalProducer,
        done: Written,
    ) -> None:
        """Acknowledge records in a producer's transaction. `done` is called once they are part of it, or with an error.

        Raises KafkaError, and changes nothing: NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST, INVALID_RECORD_STATE.
        """
        share = self._served()
        share.limits = self._services.settings(self.key.group_id).limits
        self._transactions.acknowledge(member_id, ranges, writer, partial(self._acknowledged, ranges, done))

    def written(self, transition: Transition) -> asyncio.Future[None]:
        """Write a transition. The result is set once it is durable, or has failed."""
        written: asyncio.Future[None] = self._loop.create_future()

        def done(error: KafkaError | None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self._submit(transition, done)
        return written

    def letters_written(self) -> None:
        """React to ended records, which may have made room in the window. Their transactions have not moved the stored
        start offset, so an empty transition does."""
        share = self._share
        if share is not None:
            self._writes.add(PendingChange(share.dead_letter_written(()), lambda _error: None))
        self._moved()

    def over(self, failure: KafkaError) -> None:
        """Drop the share partition. A later fetch loads it anew."""
        if self.failure is None:
            self._services.is_over(self, failure)

    # ------------------------------------------------------------ the timer

    def _arm(self) -> None:
        """Set the timer to the earliest end of a lock. A timer that is set earlier stays, and is set anew when it
        fires."""
        share = self._share
        due_ms = None if share is None or self.failure is not None else share.next_expiry_ms()
        if due_ms is None:
            return
        due_ms = max(due_ms, self._retry_at_ms)
        if self._timer is not None:
            if self._timer_at_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = due_ms
        delay_ms = max(0, due_ms - self._services.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        share = self._share
        if share is None or self.failure is not None:
            return
        share.limits = self._services.settings(self.key.group_id).limits
        now_ms = self._services.monotonic_ms()
        if now_ms >= self._retry_at_ms:
            transition = share.expire(now_ms)
            ended = sum(last + 1 - first for first, last in transition.spans)
            self._submit(transition, partial(self._expired, ended))
            self.wake()
        self._arm()

    def _expired(self, ended: int, error: KafkaError | None) -> None:
        if error is None:
            self._backoff_ms = _BACKOFF_MS
            self._services.counters.lock_ends += ended
            return
        # The locks end again after a pause.
        self._retry_at_ms = self._services.monotonic_ms() + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, _BACKOFF_MAX_MS)
