"""The times of flushes by flush.messages and flush.ms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.replication.replica.flush_schedule import NEVER, Flush, FlushSchedule


def test_nothing_is_due_by_default() -> None:
    schedule = FlushSchedule()
    assert schedule.settings(NEVER, NEVER, 0, 1_000_000) is Flush.NOT_YET
    assert schedule.look_at > 1 << 60


def test_every_third_record_begins_a_flush() -> None:
    schedule = FlushSchedule()
    assert schedule.settings(3, NEVER, 0, 0) is Flush.NOT_YET
    assert schedule.look_at == 3
    assert schedule.grown(0, 4) is Flush.NOW
    assert schedule.look_at == 7, "records that come meanwhile count towards the next flush"
    assert schedule.flushed(4, 5) is Flush.NOT_YET
    assert schedule.look_at == 7


def test_the_first_record_behind_a_flush_starts_the_time() -> None:
    schedule = FlushSchedule()
    assert schedule.settings(NEVER, 100, 5, 5) is Flush.NOT_YET
    assert schedule.look_at == 6
    assert schedule.grown(5, 6) is Flush.LATER
    assert schedule.look_at > 1 << 60, "the others share it"
    assert schedule.time_over(5, 9) is Flush.NOW
    assert schedule.flushed(9, 9) is Flush.NOT_YET
    assert schedule.look_at == 10
    assert schedule.grown(9, 10) is Flush.LATER
    assert schedule.time_over(10, 10) is Flush.NOT_YET, "something else flushed it"


def test_what_is_unflushed_when_settings_change_counts() -> None:
    schedule = FlushSchedule()
    assert schedule.settings(3, NEVER, 0, 5) is Flush.NOW
    assert FlushSchedule().settings(NEVER, 100, 0, 5) is Flush.LATER


@given(
    st.integers(2, 6),
    st.sampled_from([NEVER, 100]),
    st.lists(st.sampled_from(["append", "flushed", "time", "cut"]), max_size=60),
)
def test_nothing_is_left_unflushed(messages: int, ms: int, events: list[str]) -> None:
    schedule = FlushSchedule()
    flushed = end = 0
    under_way: list[int] = []
    timers = 0

    def act(flush: Flush) -> None:
        nonlocal timers
        if flush is Flush.NOW:
            under_way.append(end)
        elif flush is Flush.LATER:
            timers += 1

    act(schedule.settings(messages, ms, flushed, end))
    for event in events:
        if event == "append":
            end += 1
            if end >= schedule.look_at:
                act(schedule.grown(flushed, end))
        elif event == "flushed" and under_way:
            flushed = max(flushed, min(under_way.pop(0), end))
            act(schedule.flushed(flushed, end))
        elif event == "time" and timers:
            timers -= 1
            act(schedule.time_over(flushed, end))
        elif event == "cut":
            end = max(0, end - 2)
            flushed = min(flushed, end)
            act(schedule.flushed(flushed, end))
        assert timers <= 1
        if end - flushed >= messages:
            assert under_way
        if ms < NEVER and end > flushed:
            assert under_way or timers
