"""Members of a share group over a real log: as many as there are, each record is finished once, or delivered up to the
limit."""

from __future__ import annotations

import asyncio
from collections import Counter

from .share_broker import (
    ACCEPT,
    ID,
    RELEASE,
    RENEW,
    TOPIC,
    Member,
    ShareBroker,
    acquired,
    outcome,
    row,
    until,
)


async def test_members_at_once_finish_each_record_once(broker: ShareBroker) -> None:
    seen: Counter[int] = Counter()

    async def work(member: Member) -> None:
        while seen.total() < 400:
            taken = await member.take(max_records=7, share_acquire_mode=1, max_wait_ms=50)
            for first, last, count in taken:
                assert count == 1
                seen.update(range(first, last + 1))
            ranges = [(first, last, [ACCEPT]) for first, last, _ in taken]
            if ranges:
                assert outcome(await member.acknowledge(*ranges)).error_code == 0

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(work(Member(broker, f"m{number}")))
        for _ in range(20):
            broker.write(4, batches=5)
            await asyncio.sleep(0)
    assert seen == Counter(range(400))
    stored = broker.persister.state()
    # The last write has the start of the window before it, and the finished records behind this start.
    assert stored.start_offset + stored.delivery_complete == 400


async def test_a_member_gets_its_released_records_up_to_the_limit(broker: ShareBroker) -> None:
    broker.write(5)
    member = Member(broker)
    seen: Counter[int] = Counter()
    while broker.persister.state().start_offset < 5:
        taken = await member.take(max_wait_ms=1_000)
        for first, last, count in taken:
            seen.update(range(first, last + 1))
            assert {seen[offset] for offset in range(first, last + 1)} == {count}
        await member.acknowledge(*[(first, last, [RELEASE]) for first, last, _ in taken])
    assert seen == Counter(dict.fromkeys(range(5), 5))
    assert acquired(await member.fetch()) == []


async def test_one_request_renews_some_locks_and_ends_others(broker: ShareBroker) -> None:
    broker.set(share__record__lock__duration__ms=300)
    broker.write(3)
    member, other = Member(broker), Member(broker, "n")
    assert await member.take() == [(0, 2, 1)]
    await asyncio.sleep(0.2)
    answer = await member.acknowledge((0, 0, [ACCEPT]), (1, 1, [RENEW]), (2, 2, [RELEASE]), is_renew_ack=True)
    assert outcome(answer).error_code == 0
    assert await other.take() == [(2, 2, 2)]
    await asyncio.sleep(0.2)
    assert acquired(await other.fetch()) == [], "the renewed lock lasts longer than the first lock"
    assert outcome(await member.acknowledge((1, 1, [ACCEPT]))).error_code == 0
    assert broker.persister.state().start_offset == 2


async def test_a_fetch_that_acknowledges_adds_the_partition_to_its_session(broker: ShareBroker) -> None:
    broker.delete(ID)
    broker.create(TOPIC, ID, 2)
    broker.write(1)
    member = Member(broker)
    assert acquired(await member.fetch(partitions=[0, 1], max_wait_ms=20_000)) == [(0, 0, 1)]
    await member.fetch(forgotten=[0])
    broker.write(1)
    assert acquired(await member.fetch()) == [], "the partition is forgotten"
    response = await member.fetch([(0, 0, [ACCEPT])], max_wait_ms=20_000)
    assert (row(response).acknowledge_error_code, acquired(response)) == (0, [(1, 1, 1)])
    broker.write(1)
    assert acquired(await member.fetch(max_wait_ms=20_000)) == [(2, 2, 1)]


async def test_the_end_of_a_session_frees_its_records_for_a_fetch_that_waits(broker: ShareBroker) -> None:
    broker.write(3)
    leaving, other = Member(broker), Member(broker, "n")
    assert await leaving.take() == [(0, 2, 1)]
    other.send(max_wait_ms=20_000)
    await until(lambda: broker.led().waiting_count, "a waiting fetch")
    leaving.epoch = -1
    assert outcome(await leaving.acknowledge((1, 1, [ACCEPT]))).error_code == 0
    assert acquired(await other.answered()) == [(0, 0, 2), (2, 2, 2)]
