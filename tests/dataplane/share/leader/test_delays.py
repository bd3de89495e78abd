"""Released records that nobody gets before a time, also after a failover."""

from __future__ import annotations

import pytest

from ottla.dataplane.runtime.clocks import wall_ms
from ottla.dataplane.share.acknowledgements import DELAY_MAX_MS
from ottla.dataplane.share.states import DurableState
from ottla.protocol.errors import ErrorCode
from tests.dataplane.fetching.consumers import OWN_ID

from .share_broker import ACCEPT, ID, RELEASE, Member, ShareBroker, acquired, outcome

DELAY_MS = 400


async def released(broker: ShareBroker, delay_ms: int = DELAY_MS) -> Member:
    """Return a member that has taken three records, and released the second with a delay."""
    broker.write(3)
    member = Member(broker)
    assert await member.take() == [(0, 2, 1)]
    assert outcome(await member.acknowledge((1, 1, [RELEASE], delay_ms))).error_code == 0
    return member


async def test_a_record_waits_for_the_end_of_its_delay(broker: ShareBroker) -> None:
    before_ms = wall_ms()
    member = await released(broker)
    assert acquired(await member.fetch()) == []
    assert await member.take() == [(1, 1, 2)]
    assert wall_ms() >= before_ms + DELAY_MS
    state = broker.persister.state()
    assert state.states[1] == (DurableState.AVAILABLE, 1)
    assert before_ms + DELAY_MS <= state.times[1] <= wall_ms(), "the durable state has the time of day"


async def test_a_delay_holds_up_no_other_record(broker: ShareBroker) -> None:
    member = await released(broker, DELAY_MAX_MS)
    await member.acknowledge((0, 0, [RELEASE]), (2, 2, [RELEASE]))
    assert await member.take() == [(0, 0, 2), (2, 2, 2)]
    await member.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    broker.write(1)
    assert await member.take() == [(3, 3, 1)]


async def test_a_new_leader_keeps_the_delay(broker: ShareBroker) -> None:
    before_ms = wall_ms()
    await released(broker)
    broker.tell(broker.state(ID, 0, epoch=1, leader=OWN_ID))
    other = Member(broker, "other")
    assert await other.take() == [(0, 0, 1), (2, 2, 1)]
    assert await other.take() == [(1, 1, 2)]
    assert wall_ms() >= before_ms + DELAY_MS


async def test_a_stored_time_beyond_the_longest_delay_is_cut(broker: ShareBroker) -> None:
    await released(broker)
    broker.persister.state().times[1] = 2**62
    broker.tell(broker.state(ID, 0, epoch=1, leader=OWN_ID))
    await Member(broker, "other").take()
    share = broker.led().share
    assert share is not None
    due_ms = share.snapshot().batches[0].not_before_ms
    assert due_ms <= broker.replicas.monotonic_ms() + DELAY_MAX_MS


@pytest.mark.parametrize("types", [[ACCEPT], [RELEASE, ACCEPT, RELEASE]])
async def test_only_releases_have_a_delay(broker: ShareBroker, types: list[int]) -> None:
    broker.write(3)
    member = Member(broker)
    await member.take()
    answer = outcome(await member.acknowledge((0, 2, types, 1_000)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "allowed is type 2 (RELEASE)" in (answer.error_message or "")


@pytest.mark.parametrize("delay_ms", [-1, DELAY_MAX_MS + 1, 2**62])
async def test_a_delay_is_at_most_seven_days(broker: ShareBroker, delay_ms: int) -> None:
    broker.write(1)
    member = Member(broker)
    await member.take()
    answer = outcome(await member.acknowledge((0, 0, [RELEASE], delay_ms)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert f"allowed are 0 to {DELAY_MAX_MS}" in (answer.error_message or "")
