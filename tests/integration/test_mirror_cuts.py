"""A mirror of an Ottla cluster is promoted at a cut, after its source was killed during transactions: each transaction
is in all of its partitions, or in none.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from ottla import Admin, KafkaError, MirrorDescription, NewTopic, Producer
from ottla.protocol.errors import ErrorCode
from tests.cluster import RunningCluster, running_cluster
from tests.integration.mirroring import records_of, until

pytestmark = pytest.mark.xdist_group("mirrors")

WRITERS = 4
ABORTS_OF_TEN = 1
TOPICS = {"cut.a": 3, "cut.b": 2}
PLACES = [(topic, index) for topic, partitions in TOPICS.items() for index in range(partitions)]
LEADS_SOMETHING = ("cut.a", 0)
BEHIND_S = 0.5
GONE_AFTER_MS = 10_000

Place = tuple[str, int]


@dataclass
class History:
    """The knowledge of the source's clients."""

    places: dict[bytes, list[Place]] = field(default_factory=dict)
    """Partitions to which each begun transaction writes its value."""
    offsets: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Values that the source has acknowledged, by offset."""
    committed: dict[bytes, int] = field(default_factory=dict)
    """Commit indexes of answered commits, by value."""
    aborted: set[bytes] = field(default_factory=set)


async def write(bootstrap: str, name: str, history: History, chance: random.Random) -> None:
    """Run transactions that write one value each to several partitions, until the source is gone."""
    with suppress(KafkaError):
        async with Producer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            linger_ms=0,
            max_block_ms=GONE_AFTER_MS,
            delivery_timeout_ms=GONE_AFTER_MS,
            request_timeout_ms=GONE_AFTER_MS // 2,
        ) as producer:
            for number in itertools.count():
                await write_one(producer, b"%s %d" % (name.encode(), number), history, chance)


async def write_one(producer: Producer, value: bytes, history: History, chance: random.Random) -> None:
    places = history.places[value] = chance.sample(PLACES, chance.randint(2, len(PLACES)))
    transaction = await producer.begin()
    sent = [await producer.send(topic, value, partition=index) for topic, index in places]
    for place, metadata in zip(places, await asyncio.gather(*sent), strict=True):
        history.offsets[place][metadata.offset] = value
    if chance.randrange(10) < ABORTS_OF_TEN:
        await transaction.abort()
        history.aborted.add(value)
    else:
        history.committed[value] = (await transaction.commit()).commit_index


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("source"), quorum=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("target"), quorum=1, brokers=3) as cluster:
        yield cluster


async def test_no_transaction_is_torn_where_the_source_dies_and_the_mirror_is_promoted_at_a_cut(
    source: RunningCluster, target: RunningCluster
) -> None:
    history, chance = History(), random.Random(30)
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 3) for topic, partitions in TOPICS.items()])
    async with Admin(bootstrap_servers=target.bootstrap, request_timeout_ms=60_000) as operator:
        await operator.create_mirror("cut", source=source.bootstrap, topics=r"cut\..*")
        writers = [
            asyncio.create_task(
                write(source.bootstrap, f"w{number}", history, random.Random(chance.random()))
            )
            for number in range(WRITERS)
        ]

        async def cut_among_transactions() -> MirrorDescription | None:
            (mirror,) = await operator.describe_mirrors(["cut"])
            is_later = mirror.cut is not None and mirror.cut.commit_index > 100
            return mirror if is_later and len(mirror.topics) == len(TOPICS) else None

        await until(cut_among_transactions, "a cut that all copies have reached")
        await kill_source(source, target)
        promoted = await promote_while_a_leader_dies(operator, target)
        await asyncio.gather(*writers)
    assert promoted.is_promoted_at_cut
    assert promoted.cut is not None
    await check(target, history, promoted.cut.commit_index)
    await write_here(target)


async def kill_source(source: RunningCluster, target: RunningCluster) -> None:
    """Kill all brokers of the source while one of the target's lags."""
    leader = await asyncio.to_thread(target.leader, *LEADS_SOMETHING)
    assert leader is not None
    behind = target.broker(leader)
    behind.pause()
    try:
        await asyncio.sleep(BEHIND_S)  # So long the copies of the others are ahead.
        for node in source.brokers:
            node.kill9()
    finally:
        behind.resume()


async def promote_while_a_leader_dies(operator: Admin, target: RunningCluster) -> MirrorDescription:
    leader = await asyncio.to_thread(target.leader, *LEADS_SOMETHING)
    assert leader is not None
    victim = target.broker(leader)

    def kill(_: MirrorDescription) -> None:
        if victim.alive:
            victim.kill9()

    return await operator.promote_mirror("cut", at_cut=True, progress=kill)


async def check(target: RunningCluster, history: History, cut: int) -> None:
    found: dict[bytes, set[Place]] = defaultdict(set)
    for topic in TOPICS:
        for index, records in (await records_of(target.bootstrap, topic, "read_committed")).items():
            place = (topic, index)
            here = {record[0]: record[3] for record in records}
            for value in here.values():
                found[value].add(place)
            source_has = history.offsets[place]
            assert {offset: source_has.get(offset, value) for offset, value in here.items()} == here
            last = max(here, default=-1)
            ought = {
                offset: value
                for offset, value in source_has.items()
                # A transaction that was decided behind the cut may have written before one that was not.
                if offset <= last and history.committed.get(value, cut + 1) <= cut
            }
            missing = ought.items() - here.items()
            assert not missing, f"{place}: {sorted(missing)[:5]} lie below offset {last}, and are not there"
    torn = {value: sorted(there) for value, there in found.items() if there != set(history.places[value])}
    assert not torn, f"{len(torn)} transactions are torn, as {sorted(torn.items())[:3]}"
    assert not found.keys() & history.aborted
    lost = {value for value, index in history.committed.items() if index <= cut} - found.keys()
    assert not lost, f"{len(lost)} transactions up to the cut {cut} are lost, as {sorted(lost)[:5]}"
    later = {value for value, index in history.committed.items() if index > cut} & found.keys()
    assert not later, f"{sorted(later)[:5]} were decided after the cut {cut}"
    assert found, "nothing was copied"


async def write_here(target: RunningCluster) -> None:
    async with Producer(bootstrap_servers=target.bootstrap, transactional_id="here") as producer:
        transaction = await producer.begin()
        for topic, index in PLACES:
            await producer.send(topic, b"here", partition=index)
        ours = await transaction.commit()
    for topic in TOPICS:
        for records in (await records_of(target.bootstrap, topic, "read_committed")).values():
            assert records[-1][3] == b"here"
    assert ours.commit_index >= 0


async def test_what_has_no_cut_is_not_promoted_at_one(source: RunningCluster, target: RunningCluster) -> None:
    async with (
        Admin(bootstrap_servers=source.bootstrap) as admin,
        Admin(bootstrap_servers=target.bootstrap) as operator,
    ):
        await admin.create_topics([NewTopic("none", 1, 3)])
        await operator.create_mirror("none", source=source.bootstrap, topics="none")
        with pytest.raises(KafkaError, match="has no cut") as refusal:
            await operator.promote_mirror("none", at_cut=True)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST

        async def is_whole() -> bool:
            (mirror,) = await operator.describe_mirrors(["none"])
            return mirror.cut is not None

        await until(is_whole, "a cut of a source without transactions")
        assert (await operator.promote_mirror("none", at_cut=True)).is_promoted_at_cut
