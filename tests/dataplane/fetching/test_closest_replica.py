"""Reading from followers (KIP-392): whom the leader names, and what a follower answers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.fetching.replica_selection import SELECTORS, ReplicaView, closest_replica, selector_named
from ottla.dataplane.handlers.fetch import FetchSettings
from ottla.protocol.errors import ErrorCode

from ..replication.harness import batch
from .consumers import OTHER_ID, OWN_ID, Consumer, Shelf, offsets, parts_of, wanted

ID = b"t" * 16
RACK_AWARE, LEADER_ONLY = SELECTORS

VIEWS = st.builds(
    ReplicaView, st.integers(1, 5), st.sampled_from([None, "a", "b"]), st.integers(0, 3), st.integers(0, 3)
)


@given(st.sampled_from(["", "a", "b", "c"]), VIEWS, st.lists(VIEWS, max_size=5))
def test_the_closest_replica(rack: str, leader: ReplicaView, followers: list[ReplicaView]) -> None:
    chosen = closest_replica(rack, leader, followers)
    near = [follower for follower in followers if rack and follower.rack == rack]
    if leader.rack == rack or not near:
        assert chosen is None
        return
    (first, *_) = [replica for replica in near if replica.broker_id == chosen]
    candidates = [replica for replica in near if replica.broker_id == chosen]
    assert first in near
    for other in near:
        assert any(
            candidate.log_end_offset > other.log_end_offset
            or (
                candidate.log_end_offset == other.log_end_offset
                and (candidate.behind_ms, -candidate.broker_id) <= (other.behind_ms, -other.broker_id)
            )
            for candidate in candidates
        )


def test_selectors_by_name() -> None:
    assert selector_named(RACK_AWARE) is closest_replica
    assert selector_named("") is selector_named(LEADER_ONLY) is None
    with pytest.raises(ValueError, match=f"{RACK_AWARE}, {LEADER_ONLY}"):
        selector_named("com.example.MySelector")


def run(test: Callable[[Shelf], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        with tempfile.TemporaryDirectory() as name:
            shelf = Shelf(Path(name), FetchSettings(selector=closest_replica))
            try:
                shelf.create("t", ID, 1)
                await test(shelf)
            finally:
                await shelf.close()

    asyncio.run(body())


def lead_with_follower(shelf: Shelf, records: int) -> None:
    """Append records that the other broker, in the ISR, has too."""
    shelf.tell(shelf.state(ID, 0, epoch=1, isr=[OWN_ID, OTHER_ID]))
    for _ in range(records):
        shelf.append("t")
    shelf.replica("t").fetched_by(OTHER_ID, OTHER_ID, records)


def test_the_leader_names_a_follower_in_the_consumers_rack() -> None:
    async def body(shelf: Shelf) -> None:
        lead_with_follower(shelf, 2)
        near = Consumer(shelf, rack="b")
        near.send([wanted(ID, (0, 0))], max_wait_ms=60_000)
        part = parts_of(near.take())[ID, 0]
        assert (part.preferred_read_replica, part.records, part.high_watermark) == (OTHER_ID, b"", 2)
        # At the high watermark too, and at once.
        near.send([wanted(ID, (0, 2))], max_wait_ms=60_000)
        assert parts_of(near.take())[ID, 0].preferred_read_replica == OTHER_ID

        def reads_here(consumer: Consumer, offset: int = 0) -> bool:
            part = parts_of(consumer.fetch([wanted(ID, (0, offset), name="t")]))[ID, 0]
            return part.preferred_read_replica == -1 and bool(part.records)

        assert reads_here(Consumer(shelf, rack="a")), "the leader's own rack"
        assert reads_here(Consumer(shelf, rack="c")), "nobody's rack"
        assert reads_here(Consumer(shelf))
        old = Consumer(shelf, 10, rack="b")
        assert parts_of(old.fetch([wanted(bytes(16), (0, 0), name="t")]))["t", 0].records
        shelf.append("t")
        shelf.tell(shelf.state(ID, 0, epoch=2, isr=[OWN_ID]))
        assert reads_here(near), "out of the ISR"
        lead_with_follower(shelf, 0)
        shelf.replica("t").fetched_by(OTHER_ID, OTHER_ID, 3)

    run(body)


def test_a_fenced_follower_is_not_named() -> None:
    async def body(shelf: Shelf) -> None:
        lead_with_follower(shelf, 1)
        shelf.broker(OTHER_ID, rack="b", fenced=True)
        part = parts_of(Consumer(shelf, rack="b").fetch([wanted(ID, (0, 0))]))[ID, 0]
        assert (part.preferred_read_replica, offsets(part)) == (-1, [0])

    run(body)


def test_what_a_follower_answers() -> None:
    async def body(shelf: Shelf) -> None:
        lead_with_follower(shelf, 2)
        shelf.tell(shelf.state(ID, 0, leader=OTHER_ID, epoch=3, isr=[OTHER_ID, OWN_ID]))
        replica = shelf.replica("t")
        consumer = Consumer(shelf, rack="a")

        def part(offset: int, **fields: int) -> Any:
            return parts_of(consumer.fetch([wanted(ID, (0, offset), **fields)]))[ID, 0]

        assert offsets(part(0, current_leader_epoch=3)) == [0, 1]
        assert part(0, current_leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert part(0, current_leader_epoch=2).current_leader.leader_id == OTHER_ID
        assert part(0, current_leader_epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        by_name = Consumer(shelf, 10).fetch([wanted(bytes(16), (0, 0), name="t")])
        assert parts_of(by_name)["t", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Its records beyond its high watermark are hidden, but not out of range.
        third = batch(b"third")
        third[0:8] = (2).to_bytes(8, "big")
        third[12:16] = (3).to_bytes(4, "big")
        replica.following.append_fetched(memoryview(third), 2, 0)
        uncommitted = part(2)
        assert (uncommitted.error_code, uncommitted.records, uncommitted.high_watermark) == (0, b"", 2)
        # Whether the log ends below an offset is for the leader to say: clients that are refused here ask for it.
        beyond = part(4)
        assert beyond.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (beyond.current_leader.leader_id, beyond.current_leader.leader_epoch) == (OTHER_ID, 3)
        assert part(4, current_leader_epoch=3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        lagging = part(4, last_fetched_epoch=3)
        assert lagging.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "no divergence from a log that lags"
        # A parked fetch wakes when the leader says that it is committed.
        consumer.send([wanted(ID, (0, 2))], max_wait_ms=60_000)
        assert not consumer.adapter.answers
        replica.following.append_fetched(None, 3, 0)
        assert offsets(parts_of(await consumer.answered())[ID, 0]) == [2]
        replica.following.append_fetched(None, 3, 1)
        assert part(0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "the log begins at 1"

    run(body)
