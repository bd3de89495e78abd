"""A share partition as a dictionary with one entry for each offset: slow, and simple enough to believe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ottla.dataplane.share.acknowledgements import AcknowledgedRange
from ottla.dataplane.share.limits import AcquireMode, ShareLimits
from ottla.dataplane.share.states import (
    ACKNOWLEDGED,
    ARCHIVED,
    UNTOUCHED,
    AcknowledgeType,
    Acquired,
    Archiving,
    Available,
    Changing,
    DeathReason,
    Delayed,
    DurableState,
    Finished,
    Pending,
    State,
)
from ottla.dataplane.share.transitions import Transition

Durable = tuple[DurableState, int, int]
"""Durable state of one offset: state, delivery count, and the end of its delay."""


def durable(state: State) -> Durable | None:
    match state:
        case Changing():
            return durable(state.before)
        case Finished():
            return state.state, 0, 0
        case Delayed():
            return DurableState.AVAILABLE, state.delivery_count, state.deadline_ms
        case Available():
            count = state.delivery_count
        case Acquired() | Pending() | Archiving():
            count = state.delivery_count - 1
    return (DurableState.AVAILABLE, count, 0) if count else None


def restored(value: Durable | None) -> State:
    match value:
        case None:
            return UNTOUCHED
        case (DurableState.ACKNOWLEDGED, _, _):
            return ACKNOWLEDGED
        case (DurableState.ARCHIVED, _, _):
            return ARCHIVED
        case (_, count, 0):
            return Available(count)
        case (_, count, not_before_ms):
            return Delayed(count, not_before_ms)


@dataclass
class Model:
    limits: ShareLimits
    start: int = 0
    end: int = 0
    states: dict[int, State] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        return sum(not isinstance(state, Finished) for state in self.states.values())

    @property
    def next_fetch_offset(self) -> int:
        return min((o for o, state in self.states.items() if isinstance(state, Available)), default=self.end)

    @property
    def next_expiry_ms(self) -> int | None:
        return min(
            (s.deadline_ms for s in self.states.values() if isinstance(s, Acquired | Delayed)), default=None
        )

    def where(self, test: Callable[[State], bool]) -> list[int]:
        return [offset for offset in sorted(self.states) if test(self.states[offset])]

    def advance(self) -> None:
        while self.start < self.end and isinstance(self.states[self.start], Finished):
            del self.states[self.start]
            self.start += 1

    # ------------------------------------------------------------ acquisition

    def acquire(
        self,
        member: str,
        fetch_offset: int,
        batches: Sequence[tuple[int, int]],
        max_records: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> dict[int, int]:
        """Return the delivery counts of the acquired offsets."""
        acquired: dict[int, int] = {}
        rank: int | None = None
        position = max(fetch_offset, self.start)
        for first, last in batches:
            if len(acquired) >= max_records:
                break
            for offset in range(position, first):
                self.pass_by(offset)
            has_room, first_new = True, max(first, self.end)
            for offset in range(max(first, self.start), last + 1):
                state = self.states.get(offset, UNTOUCHED)
                if not isinstance(state, Available):
                    continue
                is_strict = mode is AcquireMode.RECORD_LIMIT or rank is not None
                if is_strict and len(acquired) >= max_records:
                    return self.finish(acquired)
                if offset >= self.end:
                    if is_strict or offset == first_new:
                        has_room = self.unfinished < self.limits.record_locks
                    if not has_room:
                        return self.finish(acquired)
                count = state.delivery_count
                maximum = self.throttled(count, max_records)
                if not acquired and maximum is not None:
                    rank, max_records = count, maximum
                elif acquired and (maximum is not None or rank is not None) and count != rank:
                    return self.finish(acquired)
                self.states[offset] = Acquired(member, count + 1, now_ms + self.limits.lock_duration_ms)
                self.end = max(self.end, offset + 1)
                acquired[offset] = count + 1
            position = last + 1
        return self.finish(acquired)

    def throttled(self, count: int, max_records: int) -> int | None:
        """Return the maximum for records of this count: one before the last delivery, else halved once per delivery
        from half of the limit on."""
        limit = self.limits.delivery_limit
        begin = max(2, -(-limit // 2))
        if limit <= 2 or count < begin:
            return None
        return 1 if count >= limit - 1 else max(1, max_records // 2 ** (count - begin + 1))

    def finish(self, acquired: dict[int, int]) -> dict[int, int]:
        self.advance()
        return acquired

    def pass_by(self, offset: int) -> None:
        if offset >= self.end or isinstance(self.states.get(offset), Available | Delayed):
            self.states[offset] = ARCHIVED
            self.end = max(self.end, offset + 1)

    # ------------------------------------------------------------ outcomes

    def holds(self, member: str, offset: int) -> bool:
        state = self.states.get(offset)
        return offset < self.start or (isinstance(state, Acquired) and state.member_id == member)

    def dead(self, count: int, reason: DeathReason) -> State:
        return Archiving(count, reason) if self.limits.has_dead_letters else ARCHIVED

    def put_back(self, count: int, not_before_ms: int = 0) -> State:
        if count >= self.limits.delivery_limit:
            return self.dead(count, DeathReason.DELIVERY_LIMIT)
        return Delayed(count, not_before_ms) if not_before_ms else Available(count)

    def outcome(self, kind: int, count: int, not_before_ms: int = 0) -> State:
        if kind == AcknowledgeType.ACCEPT:
            return ACKNOWLEDGED
        if kind == AcknowledgeType.GAP:
            return ARCHIVED
        if kind == AcknowledgeType.REJECT:
            return self.dead(count, DeathReason.REJECTED)
        return self.put_back(count, not_before_ms)

    def change(self, offset: int, after: State, transition: Transition) -> None:
        state = self.states[offset]
        assert isinstance(state, Acquired | Pending | Archiving)
        self.states[offset] = Changing(state, after, transition)

    def acknowledge(self, ranges: Iterable[AcknowledgedRange], now_ms: int, transition: Transition) -> None:
        for first, last, types, delay_ms in ranges:
            not_before_ms = now_ms + delay_ms if delay_ms else 0
            for offset in range(max(first, self.start), last + 1):
                kind = types[offset - first] if len(types) > 1 else types[0]
                state = self.states[offset]
                assert isinstance(state, Acquired)
                if kind == AcknowledgeType.RENEW:
                    deadline_ms = now_ms + self.limits.lock_duration_ms
                    self.states[offset] = Acquired(state.member_id, state.delivery_count, deadline_ms)
                else:
                    self.change(offset, self.outcome(kind, state.delivery_count, not_before_ms), transition)

    def release(self, member: str, now_ms: int, transition: Transition) -> None:
        """Put back the records of a member. None of them is locked after a failed write."""
        for offset, state in tuple(self.states.items()):
            before = state.before if isinstance(state, Changing) else state
            if not isinstance(before, Acquired) or before.member_id != member:
                continue
            unlocked = Acquired(member, before.delivery_count, min(before.deadline_ms, now_ms))
            if isinstance(state, Changing):
                self.states[offset] = Changing(unlocked, state.after, state.transition)
            else:
                self.states[offset] = unlocked
                self.change(offset, self.put_back(before.delivery_count), transition)

    def end_transition(self, transition: Transition, *, is_committed: bool) -> None:
        for offset, state in self.states.items():
            if isinstance(state, Changing) and state.transition is transition:
                self.states[offset] = state.after if is_committed else state.before
        self.advance()
