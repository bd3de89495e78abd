"""Records with the same key in a share partition are delivered one after the other, and other records beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.dataplane.share.acknowledgements import AcknowledgedRange
from ottla.dataplane.share.key_order import ReadKeys
from ottla.dataplane.share.limits import AcquireMode, ShareLimits
from ottla.dataplane.share.partition import SharePartition
from ottla.dataplane.share.states import Acquired, Available, Blocked, State
from ottla.dataplane.share.transitions import Transition

ACCEPT, RELEASE, REJECT = (1,), (2,), (3,)
LOCK_MS = 100


def ordered(record_locks: int = 100, delivery_limit: int = 5) -> SharePartition:
    return SharePartition(ShareLimits(LOCK_MS, delivery_limit, record_locks, is_ordered=True), 0)


def learn(share: SharePartition, keys: Mapping[int, int], behind: int) -> None:
    """Read the keys of a log up to an offset, unless they are read."""
    first = share.keys_from
    if first is not None and first < behind:
        read = [(offset, key) for offset, key in sorted(keys.items()) if first <= offset < behind]
        share.learn_keys(ReadKeys(first, behind, [offset for offset, _ in read], [key for _, key in read]))


def acquire(
    share: SharePartition,
    keys: dict[int, int],
    last: int,
    member: str = "a",
    max_records: int = 100,
    now_ms: int = 0,
) -> list[int]:
    """Read keys if that is needed, and return the offsets that a member acquires of one batch of the log."""
    learn(share, keys, last + 1)
    first = share.next_fetch_offset()
    if first > last:
        return []
    acquired = share.acquire(member, first, [(first, last)], max_records, AcquireMode.BATCH_OPTIMISED, now_ms)
    return [offset for found in acquired for offset in range(found.first, found.last + 1)]


def settle(
    share: SharePartition, offset: int, types: tuple[int, ...], member: str = "a", delay_ms: int = 0
) -> None:
    share.commit(share.acknowledge(member, [AcknowledgedRange(offset, offset, types, delay_ms)], 0))
    share.check()


def test_no_record_is_delivered_before_its_key_is_read() -> None:
    share = ordered()
    assert share.keys_from == 0
    assert not share.acquire("a", 0, [(0, 9)], 100, AcquireMode.RECORD_LIMIT, 0)
    learn(share, {0: 7, 2: 8}, 3)
    assert share.keys_from is None
    taken = share.acquire("a", 0, [(0, 9)], 100, AcquireMode.RECORD_LIMIT, 0)
    assert [found[:2] for found in taken] == [(0, 2)]
    assert share.keys_from == 3
    share.learn_keys(ReadKeys(5, 10, [5], [7]))
    assert share.keys_from == 3, "offsets 3 and 4 were not read"
    share.archive_below(4)
    share.learn_keys(ReadKeys(3, 10, [3, 4], [9, 7]))
    assert share.keys_from is None, "the log lost records meanwhile"
    taken = share.acquire("a", 4, [(4, 9)], 100, AcquireMode.RECORD_LIMIT, 0)
    assert [found[:2] for found in taken] == [(4, 9)], "offset 0 is removed, so nothing precedes offset 4"


def test_a_sparse_batch_takes_no_more_work_than_its_records() -> None:
    """Compaction leaves batches that reach over 2^31 offsets."""
    share, last = ordered(), 2**31
    learn(share, {0: 7, last: 7}, last + 1)
    taken = share.acquire("a", 0, [(0, last)], 50, AcquireMode.RECORD_LIMIT, 0)
    assert [found[:2] for found in taken] == [(0, 49)]
    assert share.end_offset == 100


def test_a_key_is_blocked_until_its_first_record_ends() -> None:
    share, keys = ordered(), {0: 7, 1: 8, 2: 7, 3: 7}
    assert acquire(share, keys, 4) == [0, 1, 4], "offset 4 has no key"
    assert acquire(share, keys, 4) == []
    settle(share, 0, RELEASE)
    assert acquire(share, keys, 4) == [0], "the released record comes first again"
    settle(share, 0, ACCEPT)
    assert acquire(share, keys, 4) == [2]
    settle(share, 2, REJECT)
    assert acquire(share, keys, 4) == [3]


def test_one_released_key_stops_no_others() -> None:
    """A trap of Pulsar (#8703, #21656): a released or delayed record of one key held up all members."""
    share = ordered()
    keys = {offset: offset % 10 for offset in range(60)}
    assert acquire(share, keys, 29) == list(range(10))
    settle(share, 0, RELEASE, delay_ms=10_000)
    for offset in range(1, 10):
        settle(share, offset, ACCEPT)
    assert acquire(share, keys, 29, "b") == list(range(11, 20))
    for offset in range(11, 20):
        settle(share, offset, ACCEPT, "b")
    assert acquire(share, keys, 59, "b", max_records=9) == list(range(21, 30))
    for offset in range(21, 30):
        settle(share, offset, ACCEPT, "b")
    share.commit(share.expire(10_000))
    assert acquire(share, keys, 59, max_records=1) == [0]
    settle(share, 0, ACCEPT)
    assert acquire(share, keys, 59, max_records=1) == [10]


def test_a_delay_keeps_the_key_blocked() -> None:
    share, keys = ordered(), {0: 7, 1: 7}
    assert acquire(share, keys, 1) == [0]
    settle(share, 0, RELEASE, delay_ms=500)
    assert acquire(share, keys, 1) == []
    share.commit(share.expire(500))
    assert acquire(share, keys, 1) == [0]


def test_a_lost_lock_and_a_failed_write_keep_the_key_blocked() -> None:
    share, keys = ordered(), {0: 7, 1: 7}
    assert acquire(share, keys, 1) == [0]
    writing = share.acknowledge("a", [AcknowledgedRange(0, 0, ACCEPT)], 0)
    assert acquire(share, keys, 1) == [], "the end of the first record is not durable yet"
    share.roll_back(writing)
    share.commit(share.expire(LOCK_MS))
    assert acquire(share, keys, 1) == [0]


def test_the_limit_of_locks_counts_blocked_records() -> None:
    share = ordered(record_locks=3)
    keys = dict.fromkeys(range(10), 7)
    assert acquire(share, keys, 9) == [0]
    assert share.unfinished_count == 3
    assert not share.can_acquire
    settle(share, 0, ACCEPT)
    assert share.can_acquire
    assert acquire(share, keys, 9) == [1]


def test_a_new_leader_walks_the_window_before_it_delivers_records() -> None:
    share, keys = ordered(), {0: 7, 1: 8, 2: 7, 3: 8}
    assert acquire(share, keys, 3) == [0, 1]
    settle(share, 0, RELEASE, delay_ms=1_000)
    settle(share, 1, ACCEPT)
    restored = SharePartition.restore(share.limits, *share.snapshot())
    assert restored.keys_from == restored.start_offset == 0
    assert acquire(restored, keys, 3) == [3], "offset 2 waits behind the delayed record"
    settle(restored, 3, ACCEPT)
    restored.commit(restored.expire(1_000))
    assert acquire(restored, keys, 3) == [0]


def test_a_group_may_get_the_setting_while_it_has_records() -> None:
    """A record that was released with a delay before may then be behind an earlier record of its key."""
    keys, limits = {0: 7, 1: 7}, ShareLimits(LOCK_MS)
    before = SharePartition(limits, 0)
    assert acquire(before, {}, 1) == [0, 1]
    settle(before, 0, RELEASE)
    settle(before, 1, RELEASE, delay_ms=50)
    share = SharePartition.restore(replace(limits, is_ordered=True), *before.snapshot())
    assert acquire(share, keys, 1) == [0]
    share.commit(share.expire(50))
    assert acquire(share, keys, 1) == []
    settle(share, 0, ACCEPT)
    assert acquire(share, keys, 1) == [1]


class OrderedHistory(RuleBasedStateMachine):
    """An ordered share partition against one entry for each offset."""

    @initialize(
        keys=st.lists(st.sampled_from((None, 1, 1, 2, 3)), min_size=20, max_size=40),
        record_locks=st.integers(2, 12),
        has_letters=st.booleans(),
        delivery_limit=st.integers(3, 6),
        was_ordered=st.booleans(),
    )
    def begin(
        self,
        keys: list[int | None],
        record_locks: int,
        has_letters: bool,
        delivery_limit: int,
        was_ordered: bool,
    ) -> None:
        limits = ShareLimits(LOCK_MS, delivery_limit, record_locks, has_letters, is_ordered=True)
        self.keys = {offset: key for offset, key in enumerate(keys) if key is not None}
        self.log_end, self.now_ms = len(keys), 0
        self.absent: set[int] = set()
        # A group may get the setting after its first records.
        self.limits = limits
        self.share = SharePartition(limits if was_ordered else replace(limits, is_ordered=False), 0)
        self.open: list[Transition] = []

    def states(self) -> dict[int, State]:
        return {
            offset: state
            for first, last, state in self.share._runs.all_runs()
            for offset in range(first, last + 1)
        }

    def unfinished_before(self, offset: int) -> list[int]:
        """Return the unfinished records of the same key before a record."""
        states = self.states()
        return [
            other
            for other in range(self.share.start_offset, offset)
            if self.keys.get(other, -1) == self.keys.get(offset, -2)
            and (other in states and not states[other].is_finished)
        ]

    def batches(self, first: int) -> list[tuple[int, int]]:
        """Return the batches of the log, of which compaction has removed some."""
        found: list[tuple[int, int]] = []
        for offset in range(first, self.log_end):
            if offset in self.absent:
                continue
            if found and found[-1][1] == offset - 1 and offset % 4:
                found[-1] = (found[-1][0], offset)
            else:
                found.append((offset, offset))
        return found

    def learn(self, count: int) -> None:
        """Read the keys of a number of offsets, unless keys are read."""
        if (first := self.share.keys_from) is not None:
            there = {offset: key for offset, key in self.keys.items() if offset not in self.absent}
            learn(self.share, there, min(first + count, self.log_end))

    @rule(
        member=st.sampled_from("ab"),
        max_records=st.integers(1, 12),
        count=st.integers(1, 12),
        read=st.sampled_from((0, 1, 3, 10, 40)),
    )
    def acquire(self, member: str, max_records: int, count: int, read: int) -> None:
        share = self.share
        self.learn(read)
        first = share.next_fetch_offset()
        batches = self.batches(first)[:count]
        before = self.states()
        acquired = share.acquire(member, first, batches, max_records, AcquireMode.RECORD_LIMIT, self.now_ms)
        offsets = [offset for found in acquired for offset in range(found.first, found.last + 1)]
        assert len(offsets) <= max_records
        for offset in offsets:
            assert not share.is_ordered or not self.unfinished_before(offset)
            assert isinstance(before.get(offset, Available()), Available | Blocked)

    @precondition(lambda self: any(isinstance(s, Acquired) for s in self.states().values()))
    @rule(data=st.data(), kind=st.sampled_from((1, 1, 1, 2, 2, 3)), delay_ms=st.sampled_from((0, 0, 150)))
    def acknowledge(self, data: st.DataObject, kind: int, delay_ms: int) -> None:
        held = [(o, s.member_id) for o, s in self.states().items() if isinstance(s, Acquired)]
        offset, member = data.draw(st.sampled_from(held))
        found = AcknowledgedRange(offset, offset, (kind,), delay_ms if kind == 2 else 0)
        self.open.append(self.share.acknowledge(member, [found], self.now_ms))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_committed=st.sampled_from((True, True, True, False)))
    def end(self, data: st.DataObject, is_committed: bool) -> None:
        transition = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        (self.share.commit if is_committed else self.share.roll_back)(transition)

    @rule(passed_ms=st.sampled_from((1, 60, 200)))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.open.append(self.share.expire(self.now_ms))

    @rule(member=st.sampled_from("ab"))
    def release(self, member: str) -> None:
        self.open.append(self.share.release(member, self.now_ms))

    @precondition(lambda self: self.share.dead_letters())
    @rule()
    def write_letters(self) -> None:
        spans = [(dead.first, dead.last) for dead in self.share.dead_letters()]
        self.open.append(self.share.dead_letter_written(spans))

    @rule(offset=st.integers(0, 39), length=st.integers(1, 3))
    def compact(self, offset: int, length: int) -> None:
        self.absent |= set(range(offset, offset + length)) & set(range(self.log_end - 1))

    @rule(distance=st.sampled_from((0, 0, 0, 1, 4)))
    def delete_records(self, distance: int) -> None:
        self.share.archive_below(min(self.share.start_offset + distance, self.log_end))

    @rule(length=st.integers(1, 3), has_come=st.sampled_from((False, False, False, True)))
    def abort(self, length: int, has_come: bool) -> None:
        first = self.share.next_fetch_offset()
        if has_come and first < self.log_end:
            self.share.archive([(first, min(first + length, self.log_end) - 1)])

    @rule(has_come=st.sampled_from((False, False, True)))
    def fail_over(self, has_come: bool) -> None:
        if has_come:
            self.share = SharePartition.restore(self.limits, *self.share.snapshot())
            self.open.clear()

    @invariant()
    def one_record_of_a_key(self) -> None:
        share, states = self.share, self.states()
        share.check()
        if share._order is None:
            return
        assert share.key_count <= 2 * self.log_end
        held = [
            self.keys[offset]
            for offset, state in states.items()
            if isinstance(state, Acquired) and offset in self.keys
        ]
        assert len(held) == len(set(held)), "two records of a key are in flight"
        walked_to = share._order.walked_to
        for offset, state in states.items():
            if offset >= walked_to:
                assert not isinstance(state, Acquired | Blocked)
                continue
            earlier = self.unfinished_before(offset)
            if isinstance(state, Blocked):
                assert earlier, f"nothing precedes offset {offset}, and nobody may acquire it"
            elif isinstance(state, Available):
                assert not earlier, f"offset {offset} overtakes {earlier}"

    def teardown(self) -> None:
        """Work off all records: none is left behind."""
        if not hasattr(self, "share"):
            return
        share = self.share
        for transition in self.open:
            share.commit(transition)
        for _ in range(500):
            self.now_ms += 1_000
            share.commit(share.expire(self.now_ms))
            dead = [(found.first, found.last) for found in share.dead_letters()]
            share.commit(share.dead_letter_written(dead))
            self.learn(5)
            first = share.next_fetch_offset()
            share.acquire("z", first, self.batches(first), 100, AcquireMode.RECORD_LIMIT, self.now_ms)
            held = [o for o, s in self.states().items() if isinstance(s, Acquired)]
            share.commit(share.acknowledge("z", [AcknowledgedRange(o, o, ACCEPT) for o in held], self.now_ms))
            if share.start_offset >= self.log_end:
                return
        raise AssertionError(
            f"the window {share.start_offset} to {share.end_offset} does not move: {self.states()}"
        )


TestOrderedHistory = OrderedHistory.TestCase
TestOrderedHistory.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
