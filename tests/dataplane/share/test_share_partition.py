"""Share partitions: who gets which records, what an acknowledgement changes, and what survives a failover."""

from __future__ import annotations

import cProfile

import pytest

from ottla.dataplane.share.acknowledgements import AcknowledgedRange
from ottla.dataplane.share.acquisition import AcquiredRange
from ottla.dataplane.share.limits import AcquireMode, ShareLimits
from ottla.dataplane.share.partition import SharePartition
from ottla.dataplane.share.states import DeathReason, DurableState, StateBatch
from ottla.dataplane.share.transitions import DeadRecords, Transition
from ottla.protocol.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 30_000
STRICT, OPTIMISED = AcquireMode.RECORD_LIMIT, AcquireMode.BATCH_OPTIMISED


def partition(start: int = 0, **limits: int) -> SharePartition:
    return SharePartition(ShareLimits(**limits), start)


def acquire(
    share: SharePartition,
    member: str,
    *batches: tuple[int, int],
    max_records: int = 500,
    mode: AcquireMode = OPTIMISED,
    now_ms: int = 0,
) -> list[tuple[int, int, int]]:
    fetch_offset = share.next_fetch_offset()
    acquired = share.acquire(member, fetch_offset, batches, max_records, mode, now_ms)
    share.check()
    return [tuple(found) for found in acquired]


def acknowledge(
    share: SharePartition, member: str, first: int, last: int, *types: int, now_ms: int = 0, delay_ms: int = 0
) -> Transition:
    transition = share.acknowledge(member, [AcknowledgedRange(first, last, types, delay_ms)], now_ms)
    share.commit(transition)
    share.check()
    return transition


def refusal(share: SharePartition, member: str, *ranges: tuple[int, int, tuple[int, ...]]) -> ErrorCode:
    before = share.snapshot(), share.next_fetch_offset(), share.unfinished_count
    with pytest.raises(KafkaError) as caught:
        share.acknowledge(member, [AcknowledgedRange(*found) for found in ranges], 0)
    assert (share.snapshot(), share.next_fetch_offset(), share.unfinished_count) == before
    share.check()
    return caught.value.code


def fail(share: SharePartition, offset: int, times: int) -> None:
    """Deliver and release one record."""
    for _ in range(times):
        assert acquire(share, "m", (offset, offset))
        acknowledge(share, "m", offset, offset, RELEASE)


# ---------------------------------------------------------------- acquisition


def test_members_share_a_batch_and_each_record_goes_to_one_member() -> None:
    share = partition()
    assert acquire(share, "a", (0, 9), max_records=4, mode=STRICT) == [(0, 3, 1)]
    assert share.next_fetch_offset() == 4
    assert acquire(share, "b", (0, 9), max_records=100, mode=STRICT) == [(4, 9, 1)]
    assert acquire(share, "c", (0, 9)) == []


def test_a_batch_optimised_fetch_ends_with_a_batch() -> None:
    share = partition()
    assert acquire(share, "a", (0, 9), (10, 19), (20, 29), max_records=11) == [(0, 19, 1)]
    assert acquire(share, "a", (20, 29), max_records=1) == [(20, 29, 1)]


def test_a_batch_of_ten_thousand_records_is_one_run() -> None:
    share = partition()
    assert acquire(share, "a", (0, 9_999)) == [(0, 9_999, 1)]
    assert share._runs.run_count == 1
    acknowledge(share, "a", 5_000, 5_000, ACCEPT)
    assert share._runs.run_count == 3


def test_a_fetch_for_no_records_changes_nothing() -> None:
    share = partition()
    assert acquire(share, "a", (5, 9), max_records=0) == []
    assert (share.start_offset, share.end_offset) == (0, 0)


def test_a_batch_that_begins_before_the_window_is_cut() -> None:
    share = partition(start=5)
    assert acquire(share, "a", (0, 9)) == [(5, 9, 1)]


def test_batches_read_behind_the_window_are_refused() -> None:
    with pytest.raises(ValueError, match="offset 7, but the window ends at 0"):
        partition().acquire("a", 7, [(7, 9)], 10, STRICT, 0)


def test_a_fetch_fills_holes_before_it_takes_new_records() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 3, 4, RELEASE)
    assert share.next_fetch_offset() == 3
    assert acquire(share, "b", (0, 9), (10, 11)) == [(3, 4, 2), (10, 11, 1)]


def test_gaps_between_batches_become_finished() -> None:
    share = partition()
    assert acquire(share, "a", (2, 3), (6, 7)) == [(2, 3, 1), (6, 7, 1)]
    assert share.start_offset == 2
    acknowledge(share, "a", 2, 3, ACCEPT)
    assert share.start_offset == 6


def test_a_released_record_that_compaction_removes_becomes_finished() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 0, 3, RELEASE)
    assert acquire(share, "b", (4, 9), (10, 10)) == [(10, 10, 1)]
    assert (share.start_offset, share.next_fetch_offset()) == (4, 11)


def test_a_gap_behind_the_maximum_is_left_for_the_next_fetch() -> None:
    share = partition()
    assert acquire(share, "a", (0, 4), (8, 9), max_records=3, mode=STRICT) == [(0, 2, 1)]
    assert (share.end_offset, share.next_fetch_offset()) == (3, 3)


def test_aborted_records_are_archived_and_the_next_fetch_begins_behind_them() -> None:
    share = partition()
    acquire(share, "a", (0, 4))
    share.archive([(5, 9), (20, 29)])
    assert share.next_fetch_offset() == 10
    acknowledge(share, "a", 0, 4, ACCEPT)
    assert (share.start_offset, share.end_offset) == (10, 10)


# ---------------------------------------------------------------- the limit of locks


def test_at_the_limit_of_locks_only_holes_are_filled() -> None:
    share = partition(record_locks=5)
    assert acquire(share, "a", (0, 9), mode=STRICT) == [(0, 4, 1)]
    assert not share.can_acquire
    assert acquire(share, "b", (0, 9), mode=STRICT) == []
    acknowledge(share, "a", 2, 2, RELEASE)
    assert share.can_acquire
    assert acquire(share, "b", (0, 9), mode=STRICT) == [(2, 2, 2)]


def test_a_record_that_is_never_acknowledged_does_not_stop_the_others() -> None:
    share = partition(record_locks=5)
    acquire(share, "a", (0, 4), mode=STRICT)
    acknowledge(share, "a", 1, 4, ACCEPT)
    assert share.can_acquire
    assert acquire(share, "a", (5, 9), mode=STRICT) == [(5, 8, 1)]
    assert (share.start_offset, share.unfinished_count, share.delivery_complete_count) == (0, 5, 4)


def test_a_batch_optimised_fetch_may_exceed_the_limit_of_locks_by_its_last_batch() -> None:
    share = partition(record_locks=5)
    assert acquire(share, "a", (0, 3), (4, 9), (10, 19)) == [(0, 9, 1)]
    assert not share.can_acquire


# ---------------------------------------------------------------- acknowledgements


def test_the_start_offset_stays_before_a_hole() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    assert acknowledge(share, "a", 1, 9, ACCEPT).start_offset is None
    assert share.start_offset == 0
    transition = acknowledge(share, "a", 0, 0, ACCEPT)
    assert (share.start_offset, share.end_offset, transition.start_offset) == (10, 10, 10)
    assert transition.batches == (StateBatch(0, 0, DurableState.ACKNOWLEDGED),)


def test_each_offset_may_have_its_own_type() -> None:
    share = partition()
    acquire(share, "a", (0, 5))
    transition = acknowledge(share, "a", 0, 5, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW, GAP)
    assert transition.batches == (
        StateBatch(0, 1, DurableState.ACKNOWLEDGED),
        StateBatch(2, 2, DurableState.AVAILABLE, 1),
        StateBatch(3, 3, DurableState.ARCHIVED),
        StateBatch(5, 5, DurableState.ARCHIVED),
    )
    assert (share.start_offset, share.next_fetch_offset(), share.unfinished_count) == (2, 2, 2)


@pytest.mark.parametrize(
    ("ranges", "error"),
    [
        ([(0, 9, (ACCEPT,))], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 1, (ACCEPT,)), (5, 5, (ACCEPT,))], ErrorCode.INVALID_RECORD_STATE),
        ([(8, 11, (ACCEPT,))], ErrorCode.INVALID_REQUEST),
        ([(2**62, 2**63 - 1, (ACCEPT,))], ErrorCode.INVALID_REQUEST),
        ([(3, 2, (ACCEPT,))], ErrorCode.INVALID_REQUEST),
        ([(-1, 2, (ACCEPT,))], ErrorCode.INVALID_REQUEST),
        ([(2, 3, (ACCEPT,)), (0, 1, (ACCEPT,))], ErrorCode.INVALID_REQUEST),
        ([(0, 1, (ACCEPT,)), (1, 2, (ACCEPT,))], ErrorCode.INVALID_REQUEST),
        ([(0, 1, ())], ErrorCode.INVALID_REQUEST),
        ([(0, 3, (ACCEPT, ACCEPT))], ErrorCode.INVALID_REQUEST),
        ([(0, 1, (5,))], ErrorCode.INVALID_REQUEST),
        ([(0, 1, (ACCEPT, -1))], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refused_acknowledgement_changes_nothing(
    ranges: list[tuple[int, int, tuple[int, ...]]], error: ErrorCode
) -> None:
    share = partition()
    acquire(share, "a", (0, 4))
    acquire(share, "b", (5, 9))
    assert refusal(share, "a", *ranges) is error


def test_only_the_owner_acknowledges_and_only_once() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    assert refusal(share, "b", (0, 0, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE
    acknowledge(share, "a", 5, 5, ACCEPT)
    assert refusal(share, "a", (5, 5, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE
    # Offsets before the start offset are finished, and Kafka accepts acknowledgements of them.
    acknowledge(share, "a", 0, 4, ACCEPT)
    acknowledge(share, "a", 0, 4, ACCEPT)
    acknowledge(share, "b", 0, 4, RELEASE)
    assert share.start_offset == 6


def test_an_acknowledgement_in_an_empty_window_has_no_record() -> None:
    share = partition()
    acquire(share, "a", (0, 0))
    acknowledge(share, "a", 0, 0, ACCEPT)
    assert refusal(share, "a", (0, 1, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE


# ---------------------------------------------------------------- locks and deliveries


def test_a_lock_ends_and_the_record_goes_to_another_member_with_a_raised_count() -> None:
    share = partition()
    acquire(share, "a", (0, 9), now_ms=1_000)
    assert share.next_expiry_ms() == 1_000 + LOCK_MS
    assert not share.expire(1_000 + LOCK_MS - 1).needs_write
    transition = share.expire(1_000 + LOCK_MS)
    assert transition.batches == (StateBatch(0, 9, DurableState.AVAILABLE, 1),)
    assert share.next_fetch_offset() == 10
    share.commit(transition)
    assert refusal(share, "a", (0, 0, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE
    assert acquire(share, "b", (0, 9)) == [(0, 9, 2)]


def test_a_renewed_lock_lasts_longer() -> None:
    share = partition()
    acquire(share, "a", (0, 1))
    transition = acknowledge(share, "a", 0, 0, RENEW, now_ms=10_000)
    assert not transition.needs_write
    expired = share.expire(LOCK_MS)
    assert expired.batches == (StateBatch(1, 1, DurableState.AVAILABLE, 1),)
    assert share.next_expiry_ms() == 10_000 + LOCK_MS


def test_acknowledged_records_have_no_lock_to_end() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 1, 9, ACCEPT)
    assert share.next_expiry_ms() == LOCK_MS
    acknowledge(share, "a", 0, 0, ACCEPT)
    assert share.next_expiry_ms() is None


def test_outdated_deadlines_do_not_pile_up() -> None:
    share = partition()
    acquire(share, "a", (0, 0))
    for now_ms in range(2_000):
        acquire(share, "b", (now_ms + 1, now_ms + 1), now_ms=now_ms)
        acknowledge(share, "b", now_ms + 1, now_ms + 1, ACCEPT)
    assert len(share._deadlines) < 100
    assert share._runs.run_count == 2
    assert share.next_expiry_ms() == LOCK_MS


def test_a_shorter_lock_duration_holds_for_later_acquisitions() -> None:
    share = partition()
    acquire(share, "a", (0, 0))
    share.limits = ShareLimits(lock_duration_ms=15_000)
    acquire(share, "a", (1, 1))
    assert share.next_expiry_ms() == 15_000
    assert share.expire(15_000).batches == (StateBatch(1, 1, DurableState.AVAILABLE, 1),)


def test_the_last_failed_delivery_archives_the_record() -> None:
    share = partition(delivery_limit=2)
    fail(share, 0, 1)
    assert acquire(share, "a", (0, 0)) == [(0, 0, 2)]
    assert acknowledge(share, "a", 0, 0, RELEASE).batches == (StateBatch(0, 0, DurableState.ARCHIVED),)
    assert share.start_offset == 1


def test_a_record_before_its_last_delivery_is_delivered_alone() -> None:
    share = partition(delivery_limit=3)
    acquire(share, "a", (0, 4))
    acknowledge(share, "a", 0, 4, RELEASE)
    acquire(share, "a", (0, 4))
    acknowledge(share, "a", 0, 4, ACCEPT, RELEASE, RELEASE, ACCEPT, ACCEPT)
    assert acquire(share, "a", (0, 4), (5, 9)) == [(1, 1, 3)]
    assert acquire(share, "b", (0, 4), (5, 9)) == [(2, 2, 3)]
    assert acquire(share, "c", (5, 9)) == [(5, 9, 1)]


def test_records_before_a_record_of_the_last_delivery_come_first() -> None:
    share = partition(delivery_limit=3)
    fail(share, 0, 0)
    acquire(share, "a", (0, 1))
    acknowledge(share, "a", 0, 1, RELEASE)
    acquire(share, "a", (0, 1), max_records=2)
    acknowledge(share, "a", 0, 1, ACCEPT, RELEASE)
    assert share.next_fetch_offset() == 1
    # A new record before it in the log: offset 1 waits for its own fetch even if it is not the first.
    restored = SharePartition.restore(
        ShareLimits(delivery_limit=3), 0, [StateBatch(1, 1, DurableState.AVAILABLE, 2)]
    )
    assert acquire(restored, "a", (0, 5)) == [(0, 0, 1)]
    assert acquire(restored, "a", (0, 5)) == [(1, 1, 3)]
    assert acquire(restored, "a", (0, 5)) == [(2, 5, 1)]


def test_deliveries_from_half_of_the_limit_on_halve_the_fetch() -> None:
    share = partition(delivery_limit=6)
    acquire(share, "m", (0, 499))
    for _ in range(2):
        acknowledge(share, "m", 0, 499, RELEASE)
        acquire(share, "m", (0, 499))
    acknowledge(share, "m", 0, 499, RELEASE)
    assert acquire(share, "m", (0, 499)) == [(0, 249, 4)]
    acknowledge(share, "m", 0, 249, RELEASE)
    assert acquire(share, "m", (0, 499)) == [(0, 124, 5)]
    acknowledge(share, "m", 0, 124, RELEASE)
    assert acquire(share, "m", (0, 499)) == [(0, 0, 6)]


def test_with_a_limit_of_two_nothing_is_delivered_alone() -> None:
    share = partition(delivery_limit=2)
    acquire(share, "a", (0, 4))
    acknowledge(share, "a", 0, 4, RELEASE)
    assert acquire(share, "a", (0, 4)) == [(0, 4, 2)]


@pytest.mark.parametrize(
    ("types", "calls_each"),
    [((ACCEPT,), 20), ((ACCEPT, RELEASE), 60), ((RENEW, ACCEPT), 60)],
    ids=["one type", "two types", "renewals"],
)
def test_many_ranges_are_changed_together(types: tuple[int, ...], calls_each: int) -> None:
    """Each range cost 120 calls of functions, so that 24,000 ranges took 0.35 s."""
    count = 3_000
    share = partition()
    acquire(share, "a", (0, count - 1))
    ranges = [AcknowledgedRange(o, o, (types[o % len(types)],)) for o in range(count)]
    profile = cProfile.Profile()
    profile.enable()
    share.commit(share.acknowledge("a", ranges, 0))
    profile.disable()
    share.check()
    assert sum(entry.callcount for entry in profile.getstats()) < calls_each * count


def test_the_next_end_of_a_lock_is_found_without_a_walk_over_the_window() -> None:
    share = partition()
    acquire(share, "a", (0, 2_999))
    share.commit(share.acknowledge("a", [AcknowledgedRange(o, o, (ACCEPT,)) for o in range(1, 3_000, 2)], 0))
    profile = cProfile.Profile()
    profile.enable()
    found = share.next_expiry_ms()
    profile.disable()
    assert found == LOCK_MS
    assert sum(entry.callcount for entry in profile.getstats()) < 50


# ---------------------------------------------------------------- ends of sessions


def test_a_closed_session_releases_the_records_of_its_member_alone() -> None:
    share = partition()
    acquire(share, "a", (0, 4))
    acquire(share, "b", (5, 9))
    share.commit(share.release("a", 0))
    share.check()
    assert acquire(share, "c", (0, 9)) == [(0, 4, 2)]
    acknowledge(share, "b", 5, 9, ACCEPT)


def test_the_end_of_a_session_keeps_the_delivery_count() -> None:
    share = partition(delivery_limit=2)
    for count in (1, 2):
        assert acquire(share, "a", (0, 0)) == [(0, 0, count)]
        transition = share.release("a", 0)
        share.commit(transition)
    assert transition.batches == (StateBatch(0, 0, DurableState.ARCHIVED),)
    assert share.start_offset == 1


def test_the_release_of_a_member_without_records_is_empty() -> None:
    transition = partition().release("a", 0)
    assert (transition.batches, transition.spans) == ((), [])


def test_the_next_expiry_repeats_a_release_whose_write_has_failed() -> None:
    share = partition()
    acquire(share, "a", (0, 4))
    acquire(share, "b", (5, 9))
    share.roll_back(share.release("a", 10))
    assert share.next_expiry_ms() == 10
    acquire(share, "a", (10, 14), now_ms=10)
    share.commit(share.expire(10))
    share.check()
    assert acquire(share, "c", (0, 14), now_ms=10) == [(0, 4, 2)], "the member's new records keep their locks"


def test_the_next_expiry_releases_records_of_a_closed_session_whose_acknowledgement_has_failed() -> None:
    share = partition()
    acquire(share, "a", (0, 4))
    acknowledgement = share.acknowledge("a", [AcknowledgedRange(0, 4, (ACCEPT,))], 0)
    released = share.release("a", 10)
    assert released.spans == []
    share.commit(released)
    share.roll_back(acknowledgement)
    assert share.next_expiry_ms() == 10
    share.commit(share.expire(10))
    assert acquire(share, "b", (0, 4)) == [(0, 4, 2)]


# ---------------------------------------------------------------- the start of the log


def test_the_start_offset_follows_the_log() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    share.archive_below(4)
    share.check()
    assert (share.start_offset, share.unfinished_count) == (4, 6)
    transition = acknowledge(share, "a", 2, 5, ACCEPT)
    assert transition.batches == (StateBatch(4, 5, DurableState.ACKNOWLEDGED),)
    assert transition.start_offset == 6
    share.archive_below(50)
    share.check()
    assert (share.start_offset, share.end_offset, share.next_fetch_offset()) == (50, 50, 50)
    assert share.next_expiry_ms() is None


def test_a_transition_carries_a_start_offset_that_the_log_has_moved() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    share.archive_below(4)
    assert acknowledge(share, "a", 9, 9, ACCEPT).start_offset == 4
    assert acknowledge(share, "a", 8, 8, ACCEPT).start_offset is None


# ---------------------------------------------------------------- transitions


def test_records_in_transition_are_neither_acquired_nor_acknowledged() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    transition = share.acknowledge("a", [AcknowledgedRange(0, 4, (RELEASE,))], 0)
    assert share.next_fetch_offset() == 10
    assert share.snapshot().batches == ()
    assert refusal(share, "a", (4, 4, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE
    share.commit(transition)
    assert share.next_fetch_offset() == 0


def test_a_rolled_back_acknowledgement_leaves_the_record_with_its_member() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    transition = share.acknowledge("a", [AcknowledgedRange(0, 9, (ACCEPT,))], 0)
    share.roll_back(transition)
    share.check()
    assert share.start_offset == 0
    assert acknowledge(share, "a", 0, 9, ACCEPT).start_offset == 10


def test_a_lock_that_ends_during_a_failed_write_ends_after_it() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    transition = share.acknowledge("a", [AcknowledgedRange(0, 9, (ACCEPT,))], 0)
    assert not share.expire(LOCK_MS).needs_write
    share.roll_back(transition)
    assert share.next_expiry_ms() == LOCK_MS
    share.commit(share.expire(LOCK_MS))
    assert acquire(share, "b", (0, 9)) == [(0, 9, 2)]


def test_transitions_end_in_any_order_and_none_carries_the_start_of_another() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    first = share.acknowledge("a", [AcknowledgedRange(0, 4, (ACCEPT,))], 0)
    second = share.acknowledge("a", [AcknowledgedRange(5, 9, (ACCEPT,))], 0)
    assert (first.start_offset, second.start_offset) == (5, None)
    share.commit(second)
    assert share.start_offset == 0
    share.roll_back(first)
    assert share.start_offset == 0
    assert acknowledge(share, "a", 0, 4, ACCEPT).start_offset == 10
    assert share.start_offset == 10


def test_a_transition_ends_once() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    transition = acknowledge(share, "a", 0, 0, ACCEPT)
    for end in (share.commit, share.roll_back, partition().commit):
        with pytest.raises(ValueError, match="has ended"):
            end(transition)


# ---------------------------------------------------------------- dead letters


def test_a_rejected_record_waits_for_its_dead_letter() -> None:
    share = SharePartition(ShareLimits(has_dead_letters=True, delivery_limit=2), 0)
    fail(share, 0, 1)
    acquire(share, "a", (0, 1))
    transition = acknowledge(share, "a", 0, 1, RELEASE, REJECT)
    letters = (DeadRecords(0, 0, 2, DeathReason.DELIVERY_LIMIT), DeadRecords(1, 1, 1, DeathReason.REJECTED))
    assert transition.dead_letters == share.dead_letters() == letters
    assert not transition.needs_write
    assert (share.start_offset, share.next_fetch_offset(), share.unfinished_count) == (0, 2, 2)
    # A failover brings the record back: neither its death nor its last delivery is durable.
    assert share.snapshot().batches == (StateBatch(0, 0, DurableState.AVAILABLE, 1),)
    share.roll_back(share.dead_letter_written([(0, 1)]))
    assert share.dead_letters() == letters
    written = share.dead_letter_written([(0, 1)])
    assert (written.batches, written.start_offset) == ((StateBatch(0, 1, DurableState.ARCHIVED),), 2)
    share.commit(written)
    assert share.start_offset == 2


def test_a_dead_letter_of_another_record_is_an_error() -> None:
    share = SharePartition(ShareLimits(has_dead_letters=True), 0)
    acquire(share, "a", (0, 1))
    acknowledge(share, "a", 0, 0, REJECT)
    for span in ((0, 1), (0, 2)):
        with pytest.raises(ValueError, match="do not wait for a dead letter"):
            share.dead_letter_written([span])


# ---------------------------------------------------------------- transactions


def test_a_transaction_holds_records_without_a_lock_until_it_commits() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    committed = share.acknowledge_pending("t", "a", [AcknowledgedRange(0, 2, (ACCEPT, RELEASE, REJECT))])
    assert committed == (
        StateBatch(0, 0, DurableState.ACKNOWLEDGED),
        StateBatch(1, 1, DurableState.AVAILABLE, 0),
        StateBatch(2, 2, DurableState.ARCHIVED),
    )
    share.check()
    assert refusal(share, "a", (0, 0, (ACCEPT,))) is ErrorCode.INVALID_RECORD_STATE
    share.commit(share.release("a", 0))
    share.commit(share.expire(10 * LOCK_MS))
    assert share.next_fetch_offset() == 3
    transition = share.settle("t", committed)
    assert transition.batches == (
        StateBatch(0, 0, DurableState.ACKNOWLEDGED),
        StateBatch(1, 1, DurableState.AVAILABLE, 1),
        StateBatch(2, 2, DurableState.ARCHIVED),
    )
    share.commit(transition)
    share.check()
    assert share.start_offset == 1


def test_an_aborted_transaction_puts_the_records_back_with_the_raised_count() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    share.acknowledge_pending("t", "a", [AcknowledgedRange(0, 9, (ACCEPT,))])
    share.roll_back(share.settle("t", ()))
    assert share.next_fetch_offset() == 10
    share.commit(share.settle("t", ()))
    share.commit(share.settle("t", (StateBatch(0, 9, DurableState.ACKNOWLEDGED),)))
    assert acquire(share, "b", (0, 9)) == [(0, 9, 2)]


def test_a_transaction_cannot_renew_a_lock() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    with pytest.raises(KafkaError, match="type 4; allowed are 0, 1, 2, 3"):
        share.acknowledge_pending("t", "a", [AcknowledgedRange(0, 9, (RENEW,))])


def test_pending_acknowledgements_survive_a_failover() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    committed = share.acknowledge_pending("t", "a", [AcknowledgedRange(2, 3, (ACCEPT,))])
    restored = SharePartition.restore(share.limits, *share.snapshot())
    restored.restore_pending("t", committed)
    restored.check()
    assert acquire(restored, "b", (0, 9)) == [(0, 1, 1), (4, 9, 1)]
    restored.commit(restored.settle("t", committed))
    acknowledge(restored, "b", 0, 1, ACCEPT)
    assert restored.start_offset == 4


# ---------------------------------------------------------------- delays


def test_a_record_released_with_a_delay_stays_unavailable_until_then() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    transition = acknowledge(share, "a", 2, 3, RELEASE, now_ms=1_000, delay_ms=5_000)
    assert transition.batches == (StateBatch(2, 3, DurableState.AVAILABLE, 1, 6_000),)
    assert (share.next_fetch_offset(), share.next_expiry_ms()) == (10, 6_000)
    restored = SharePartition.restore(share.limits, *share.snapshot())
    for delayed in (share, restored):
        delayed.commit(delayed.expire(5_999))
        assert acquire(delayed, "b", (0, 9)) in ([], [(0, 1, 1), (4, 9, 1)])
        delayed.commit(delayed.expire(6_000))
        assert delayed.next_fetch_offset() == 2
        assert acquire(delayed, "b", (0, 9)) == [(2, 3, 2)]


# ---------------------------------------------------------------- failover


def test_a_failover_keeps_what_is_durable() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 2, 3, ACCEPT)
    acknowledge(share, "a", 4, 4, RELEASE)
    acknowledge(share, "a", 6, 6, REJECT)
    assert acquire(share, "b", (4, 4)) == [(4, 4, 2)]
    snapshot = share.snapshot()
    assert snapshot.batches == (
        StateBatch(2, 3, DurableState.ACKNOWLEDGED),
        StateBatch(4, 4, DurableState.AVAILABLE, 1),
        StateBatch(6, 6, DurableState.ARCHIVED),
    )
    restored = SharePartition.restore(share.limits, *snapshot)
    restored.check()
    assert restored.snapshot() == snapshot
    # Nothing durable tells that members had acquired the records, so Kafka counts these deliveries anew.
    assert acquire(restored, "c", (0, 9)) == [(0, 1, 1), (4, 4, 2), (5, 5, 1), (7, 9, 1)]


def test_a_finished_prefix_moves_the_restored_start_offset() -> None:
    restored = SharePartition.restore(ShareLimits(), 0, [StateBatch(0, 4, DurableState.ACKNOWLEDGED)])
    assert (restored.start_offset, restored.next_fetch_offset()) == (5, 5)


@pytest.mark.parametrize("batches", [[(0, 4), (4, 5)], [(3, 4), (0, 1)], [(2, 1)], [(-1, 0)]])
def test_a_malformed_durable_state_is_refused(batches: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="has to be"):
        SharePartition.restore(
            ShareLimits(), 0, [StateBatch(*span, DurableState.ACKNOWLEDGED) for span in batches]
        )


def test_an_acquired_range_is_a_range_of_one_delivery_count() -> None:
    share = partition()
    acquire(share, "a", (0, 4), (5, 9))
    acknowledge(share, "a", 0, 9, *[RELEASE] * 5, *[ACCEPT] * 5)
    found = share.acquire("b", 0, [(0, 9), (10, 19)], 500, OPTIMISED, 0)
    assert found == (AcquiredRange(0, 4, 2), AcquiredRange(10, 19, 1))
