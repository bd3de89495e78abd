"""Groups with `ottla.share.ordering=key` at the leader: the keys are read from the log, and one record of a key is in
flight."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ottla.dataplane.share.leader import key_reads
from ottla.dataplane.share.leader.key_hashes import hash_keys
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import encode_batch
from tests.dataplane.fetching.consumers import OWN_ID

from .share_broker import ACCEPT, ID, REJECT, RELEASE, Member, ShareBroker, acquired, outcome, row, until

Key = bytes | None


@pytest.fixture
def ordered(broker: ShareBroker) -> ShareBroker:
    broker.set(ottla__share__ordering="key")
    return broker


def write(broker: ShareBroker, *keys: Key, codec: Compression = Compression.NONE) -> None:
    """Write a batch of records with these keys."""
    batch = encode_batch([(key, b"v", 1_000) for key in keys], compression=codec)
    broker.replica().append(memoryview(bytearray(batch)), required_acks=1)


def offsets(ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in ranges for offset in range(first, last + 1)]


async def taken(member: Member, **fields: int) -> list[int]:
    """Return the offsets that a member takes, for which it waits."""
    return offsets(acquired(await member.fetch(**({"max_wait_ms": 20_000} | fields))))


async def settled(member: Member, offset: int, kind: int = ACCEPT, delay_ms: int = 0) -> None:
    assert outcome(await member.acknowledge((offset, offset, [kind], delay_ms))).error_code == 0


@pytest.mark.parametrize(
    "codec", [Compression.NONE, Compression.ZSTD, Compression.GZIP], ids=lambda c: c.name
)
async def test_one_record_of_a_key_is_in_flight(ordered: ShareBroker, codec: Compression) -> None:
    write(ordered, b"a", b"b", b"a", None, codec=codec)
    write(ordered, b"b", b"c", None, codec=codec)
    member, other = Member(ordered), Member(ordered, "other")
    assert await taken(member) == [0, 1, 3, 5, 6], "records without a key are free"
    assert acquired(await other.fetch()) == []
    other.send(max_wait_ms=20_000)
    await settled(member, 0)
    assert offsets(acquired(await other.answered())) == [2]
    await settled(member, 1, REJECT)
    assert await taken(other) == [4]


async def test_a_released_key_stays_blocked_and_stops_no_other(ordered: ShareBroker) -> None:
    """A trap of Pulsar (#8703, #21656): a released record of one key held up all others."""
    write(ordered, *[b"%d" % (number % 5) for number in range(30)])
    slow, member = Member(ordered, "slow"), Member(ordered)
    assert await taken(slow, max_records=1) == [0]
    await settled(slow, 0, RELEASE, delay_ms=600_000)
    others = [number for number in range(30) if number % 5]
    while others:
        got = await taken(member)
        assert got == others[: len(got)]
        assert len(got) == 4
        for offset in got:
            await settled(member, offset)
        del others[: len(got)]
    assert acquired(await member.fetch()) == [], "key 0 waits for its delayed record"


async def test_acquired_ranges_are_those_of_kafka(ordered: ShareBroker) -> None:
    """Whole batches of the log, and ranges of offsets in them: a stock client skips the offsets between."""
    write(ordered, b"a", b"a", b"b", b"a", b"c", b"c")
    write(ordered, b"a", b"d")
    member = Member(ordered, version=1)
    response = await member.fetch(max_wait_ms=20_000, max_records=3)
    assert acquired(response) == [(0, 0, 1), (2, 2, 1), (4, 4, 1)]
    whole = len(bytes(row(response).records))
    log = ordered.replica().log
    assert whole == log.read(0, 1, 6, at_least_one=True).size, "the first batch, and no part of it"
    assert acquired(await member.fetch()) == [(7, 7, 1)]


async def test_a_new_leader_keeps_the_order(ordered: ShareBroker) -> None:
    write(ordered, b"a", b"b", b"a", b"b")
    member = Member(ordered)
    assert await taken(member) == [0, 1]
    await settled(member, 1)
    await settled(member, 0, RELEASE, delay_ms=600_000)
    ordered.tell(ordered.state(ID, 0, epoch=1, leader=OWN_ID))
    other = Member(ordered, "other")
    assert await taken(other) == [3], "offset 2 waits behind the delayed offset 0"
    assert acquired(await other.fetch()) == []


async def test_the_order_is_switched_while_the_group_works(broker: ShareBroker) -> None:
    """The group begins anew from its durable state, as at a new leader: held records are delivered again."""
    write(broker, b"a", b"a", b"b")
    member = Member(broker)
    assert await taken(member) == [0, 1, 2]
    await settled(member, 0)
    broker.set(ottla__share__ordering="key")
    write(broker, b"b")
    assert row(await member.fetch(max_wait_ms=20_000)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await taken(member) == [1, 2]
    refused = await member.acknowledge((3, 3, [ACCEPT]))
    assert outcome(refused).error_code == ErrorCode.INVALID_RECORD_STATE
    broker.set(ottla__share__ordering="none")
    assert row(await member.fetch(max_wait_ms=20_000)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await taken(member) == [1, 2, 3]


async def test_the_order_waits_for_changes_on_their_way(broker: ShareBroker) -> None:
    write(broker, b"a", b"a")
    member, other = Member(broker), Member(broker, "other")
    assert await taken(member, max_records=1, share_acquire_mode=1) == [0]
    broker.persister.hold()
    accepting = asyncio.ensure_future(member.acknowledge((0, 0, [ACCEPT])))
    await until(lambda: broker.persister.held, "a write on its way")
    broker.set(ottla__share__ordering="key")
    assert acquired(await other.fetch()) == []
    broker.persister.go_on()
    assert outcome(await accepting).error_code == 0
    assert row(await other.fetch(max_wait_ms=20_000)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await taken(other) == [1]


async def test_aborted_records_block_no_key(ordered: ShareBroker) -> None:
    ordered.set(share__isolation__level="read_committed")
    batch = encode_batch(
        [(b"a", b"v", 1)] * 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    ordered.replica().append(memoryview(bytearray(batch)), required_acks=1)
    ordered.replica().append_marker(7, 0, commit=False, number=1, commit_index=1)
    write(ordered, b"a", b"a")
    member = Member(ordered)
    assert await taken(member) == [3], "the first behind two aborted records and the marker"


async def test_a_key_with_many_records_is_bounded_by_the_locks(
    ordered: ShareBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_reads, "_PIECE_BYTES", 64)
    ordered.set(share__partition__max__record__locks=100)
    for _ in range(4):
        write(ordered, *[b"hot"] * 60, b"cold", codec=Compression.LZ4)
    member = Member(ordered)
    ended: list[int] = []
    while len(ended) < 4 * 61:
        held = await taken(member)
        share = ordered.led().share
        assert share is not None
        assert share.unfinished_count <= 100
        assert share.key_count <= 200
        assert sum(offset % 61 < 60 for offset in held) <= 1
        for offset in held:
            await settled(member, offset)
        ended += held
    for keys in ([o for o in ended if o % 61 < 60], [o for o in ended if o % 61 == 60]):
        assert keys == sorted(keys)
    ordered.partitions.budget.check()


async def test_keys_that_cannot_be_read_are_an_error_of_the_storage(
    ordered: ShareBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: Iterator[bool] = iter([True, False])
    really = key_reads.hash_keys

    def failing(*arguments: object) -> object:
        if next(faults, False):
            raise ValueError("record 0 of the data is damaged")
        return really(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(key_reads, "hash_keys", failing)
    write(ordered, b"a")
    member = Member(ordered)
    assert row(await member.fetch(max_wait_ms=20_000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await taken(member) == [0], "the next fetch tries again"


async def test_a_broker_stops_while_keys_are_read(
    ordered: ShareBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow_hashes(*arguments: Any) -> Any:
        begun.set()
        goes_on.wait(60)
        return hash_keys(*arguments)

    monkeypatch.setattr(key_reads, "hash_keys", slow_hashes)
    write(ordered, *[b"%d" % number for number in range(100)])
    member = Member(ordered)
    member.send(max_wait_ms=20_000)
    try:
        await until(begun.is_set, "keys that are read")
        ordered.led().over(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert row(await member.answered()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        goes_on.set()
