"""Transaction requests that stock clients never send, or only by mistake, get Kafka's codes.

With `OTTLA_TEST_CLUSTER` they run against Apache Kafka, which passes all tests except those marked `ours`.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.client.connections.connection import BrokerAddress, Connection
from ottla.client.connections.opening import connect
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from tests.cluster import wait_until
from tests.integration.conftest import create
from tests.integration.raw_transactions import ProducerAnswer, RawTransactions, Who
from tests.integration.test_hostile_clients import MEGABYTE, unharmed
from tests.integration.transactional_clients import Confluent

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

OPEN_AT_ONCE = int(os.environ.get("OTTLA_OPEN_TRANSACTIONS", "2000"))
CONNECTIONS = 30
ELSEWHERE = 1_000_000
"""Number that turns a producer id into an unused one."""
FENCED_SINCE = 2
"""First version that answers PRODUCER_FENCED; lower versions answer INVALID_PRODUCER_EPOCH."""


@pytest.fixture(scope="module")
def raw(bootstrap: str) -> Iterator[RawTransactions]:
    with RawTransactions(bootstrap) as opened:
        yield opened


def fresh() -> str:
    return f"raw-{uuid.uuid4().hex[:10]}"


def nobody(who: Who) -> Who:
    return who.but(producer_id=who.producer_id + ELSEWHERE)


def fenced(version: int, since: int = FENCED_SINCE) -> ErrorCode:
    return ErrorCode.PRODUCER_FENCED if version >= since else ErrorCode.INVALID_PRODUCER_EPOCH


def committed(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(record.value for record in Confluent(bootstrap).read(topic, committed=True))


@pytest.mark.parametrize("version", range(6))
def test_who_may_not_initialize(raw: RawTransactions, version: int) -> None:
    def code(who: Who, timeout_ms: int = 60_000) -> ErrorCode:
        answer = raw.try_init(who, timeout_ms, version)
        if answer.code is not ErrorCode.NONE:
            assert (answer.who.producer_id, answer.who.epoch) == (-1, -1)
        return answer.code

    assert code(Who("")) is ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        assert code(Who(fresh()), timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if version < 3:
        return  # The request names the producer id only from then on.
    assert code(Who(fresh(), 5, -1)) is ErrorCode.INVALID_REQUEST
    assert code(Who(fresh(), -1, 5)) is ErrorCode.INVALID_REQUEST
    who = raw.init(fresh())
    assert code(nobody(who)) is fenced(version, 4)
    assert code(who.but(epoch=who.epoch + 1)) is fenced(version, 4)
    second = raw.try_init(who).who
    third = raw.try_init(second).who
    assert (second.epoch, third.epoch) == (1, 2)
    assert code(who) is fenced(version, 4)
    assert raw.try_init(second, version=version) == ProducerAnswer(ErrorCode.NONE, third), "asked for again"


def test_ids_of_any_length_that_the_protocol_allows(raw: RawTransactions, new_topic: str) -> None:
    for name in ("x", "ü" * 200, "x" * 30_000):
        who = raw.init(f"{name}{uuid.uuid4().hex}")
        assert raw.add(who, new_topic, [0]) == [ErrorCode.NONE]
        assert raw.end(who, commit=False).code is ErrorCode.NONE
    assert raw.try_end(Who("y" * 30_000, 1, 0), commit=True).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", range(6))
def test_who_may_not_end(raw: RawTransactions, new_topic: str, version: int) -> None:
    def code(who: Who, commit: bool = True) -> ErrorCode:
        return raw.end(who, commit=commit, version=version).code

    assert code(Who("", 1, 0)) is ErrorCode.INVALID_REQUEST
    assert code(Who(fresh(), 1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old = raw.init(fresh())
    who = raw.init(old.transactional_id)
    assert raw.add(who, new_topic, [0]) == [ErrorCode.NONE]
    for commit in (True, False):
        assert code(nobody(who), commit) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code(old, commit) is fenced(version)
        assert code(who.but(epoch=who.epoch + 1), commit) is fenced(version)
        assert code(who.but(epoch=-1), commit) is fenced(version)
    assert code(who) is ErrorCode.NONE, "nothing of that has ended it"


@pytest.mark.parametrize("version", range(5))
def test_the_end_of_nothing(raw: RawTransactions, new_topic: str, version: int) -> None:
    def code(who: Who, commit: bool) -> ErrorCode:
        return raw.end(who, commit=commit, version=version).code

    who = raw.init(fresh())
    for commit in (True, False):
        assert code(who, commit) is ErrorCode.INVALID_TXN_STATE
        assert raw.add(who, new_topic, [0]) == [ErrorCode.NONE]
        assert code(who, commit) is ErrorCode.NONE
        assert code(who, commit) is ErrorCode.NONE, "asked for again"
        assert code(who, not commit) is ErrorCode.INVALID_TXN_STATE
        who = raw.init(who.transactional_id)
        assert code(who, commit) is ErrorCode.INVALID_TXN_STATE


def test_the_end_of_nothing_with_epochs_of_its_own(raw: RawTransactions, new_topic: str) -> None:
    """Kafka lets such clients abort an empty transaction, but not commit it; `ours`: both."""
    who = raw.init(fresh())
    for commit in (False, True):
        answer = raw.end(who, commit=commit, version=5)
        assert answer == ProducerAnswer(ErrorCode.NONE, who.but(epoch=who.epoch + 1))
        assert raw.end(who, commit=commit, version=5) == answer, "asked for again"
        who = answer.who


@pytest.mark.parametrize("version", range(6))
def test_who_may_not_add_partitions(raw: RawTransactions, new_topic: str, version: int) -> None:
    def code(who: Who, topic: str = new_topic, *partitions: int) -> set[ErrorCode]:
        return set(raw.add(who, topic, partitions or [0], version))

    assert code(Who("", 1, 0)) == {ErrorCode.INVALID_REQUEST}
    assert code(Who(fresh(), 1, 0)) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    old = raw.init(fresh())
    who = raw.init(old.transactional_id)
    assert code(nobody(who)) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    for wrong in (old, who.but(epoch=who.epoch + 1), who.but(epoch=-1)):
        assert code(wrong) == {fenced(version)}
    assert code(who, "nowhere") == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert code(who, "no/where") == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    half = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED}
    assert code(who, new_topic, 0, 7, -1) == half
    assert raw.end(who, commit=True).code is ErrorCode.INVALID_TXN_STATE, "nothing was added"
    assert code(who, new_topic, 0, 0) == {ErrorCode.NONE}
    assert raw.end(who, commit=True).code is ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
def test_who_may_not_add_offsets(raw: RawTransactions, version: int) -> None:
    assert raw.add_offsets(Who("", 1, 0), "g", version) is ErrorCode.INVALID_REQUEST
    assert raw.add_offsets(Who(fresh(), 1, 0), "g", version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old = raw.init(fresh())
    who = raw.init(old.transactional_id)
    assert raw.add_offsets(nobody(who), "g", version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for wrong in (old, who.but(epoch=who.epoch + 1)):
        assert raw.add_offsets(wrong, "g", version) is fenced(version)
    assert raw.add_offsets(who, "g", version) is ErrorCode.NONE
    assert raw.end(who, commit=False).code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "not_added"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_batches_that_do_not_belong(
    raw: RawTransactions, bootstrap: str, new_topic: str, version: int, not_added: ErrorCode
) -> None:
    def code(who: Who, partition: int = 0, **more: Any) -> ErrorCode:
        return raw.produce(who, new_topic, partition, b"wrong", version=version, **more)

    who = raw.init(fresh())
    assert code(who) is not_added
    assert raw.add(who, new_topic, [0]) == [ErrorCode.NONE]
    assert code(who, 1) is not_added
    assert code(who, names_id=False) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(who.but(transactional_id="")) is ErrorCode.INVALID_REQUEST
    assert raw.produce(who, new_topic, 0, b"right", version=version) is ErrorCode.NONE
    assert code(who, sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(who.but(transactional_id=fresh()), sequence=1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code(who, sequence=1, transactional=False) is ErrorCode.INVALID_TXN_STATE
    assert raw.end(who, commit=True).code is ErrorCode.NONE
    assert code(who, sequence=1) is not_added, "it is over"
    zombie, who = who, raw.init(who.transactional_id)
    assert raw.add(who, new_topic, [0]) == [ErrorCode.NONE]
    assert raw.produce(who, new_topic, 0, b"right", version=version) is ErrorCode.NONE
    assert code(zombie, sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert raw.end(who, commit=True).code is ErrorCode.NONE
    assert committed(bootstrap, new_topic) == [b"right"] * 2


@pytest.mark.parametrize("acks", [0, 1])
def test_transactional_batches_need_all_acks(
    raw: RawTransactions, bootstrap: str, new_topic: str, acks: int
) -> None:
    """`ours`: Kafka accepts them."""
    who = raw.init(fresh())
    assert raw.add(who, new_topic, [0]) == [ErrorCode.NONE]
    if acks == 0:
        with pytest.raises(ConnectionError):
            raw.produce(who, new_topic, 0, b"lax", acks=acks)
    else:
        assert raw.produce(who, new_topic, 0, b"lax", acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS
    assert raw.end(who, commit=True).code is ErrorCode.NONE
    assert committed(bootstrap, new_topic) == []


def test_a_topic_that_is_deleted_during_a_transaction(
    raw: RawTransactions, bootstrap: str, admin: AdminClient
) -> None:
    kept, doomed = create(admin, 1), create(admin, 2)
    who = raw.init(fresh())
    for commit in (True, False):
        assert raw.add(who, kept, [0]) == [ErrorCode.NONE]
        assert raw.produce(who, kept, 0, b"%d" % commit, sequence=1 - commit) is ErrorCode.NONE
        if commit:
            assert raw.add(who, doomed, [0, 1]) == [ErrorCode.NONE] * 2
            assert raw.produce(who, doomed, 0, b"doomed") is ErrorCode.NONE
            admin.delete_topics([doomed])[doomed].result(30)
        assert raw.end(who, commit=commit).code is ErrorCode.NONE
    assert committed(bootstrap, kept) == [b"1"]


@pytest.mark.timeout(300)
def test_thousands_of_open_transactions(
    description: dict[str, Any], bootstrap: str, admin: AdminClient
) -> None:
    """`ours`, since any broker accepts all of them: brokers and quorum nodes grow by little, and other clients are not
    affected.
    """
    topic, prefix = create(admin, 10), fresh()

    def initializing(number: int) -> Any:
        return InitProducerIdRequest(transactional_id=f"{prefix}{number}", transaction_timeout_ms=600_000)

    async def run() -> None:
        connections = await _connections(bootstrap)
        try:
            answers = await _all(connections, initializing, 4)

            def adding(number: int) -> Any:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=f"{prefix}{number}",
                    v3_and_below_producer_id=answers[number].producer_id,
                    v3_and_below_producer_epoch=answers[number].producer_epoch,
                    v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[number % 10])],
                )

            def ending(number: int) -> Any:
                return EndTxnRequest(
                    transactional_id=f"{prefix}{number}",
                    producer_id=answers[number].producer_id,
                    producer_epoch=answers[number].producer_epoch,
                    committed=number % 2 == 0,
                )

            await _all(connections, adding, 3)
            await asyncio.to_thread(_somebody_else, bootstrap, topic)
            await _all(connections, ending, 4)
        finally:
            for connection in connections:
                connection.close()

    with unharmed(description, topic, 128 * MEGABYTE):
        asyncio.run(run())
    wait_until(lambda: b"somebody else" in committed(bootstrap, topic), "a commit among many")


def _somebody_else(bootstrap: str, topic: str) -> None:
    client = Confluent(bootstrap)
    producer = client.producer(fresh())
    producer.begin()
    for partition in range(10):
        producer.send(topic, partition, b"somebody else")
    producer.commit()
    client.close()


async def _connections(bootstrap: str) -> list[Connection]:
    ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
    addresses = [BrokerAddress(number, "127.0.0.1", port) for number, port in enumerate(ports)]
    return [await connect(addresses[number % len(addresses)]) for number in range(CONNECTIONS)]


async def _all(connections: list[Connection], make: Callable[[int], Any], version: int) -> list[Any]:
    """Send one pipelined request of each on its connection; repeat it while an earlier transaction is in progress."""

    async def one(number: int) -> Any:
        connection = connections[number % len(connections)]
        while True:
            asked: Awaitable[Any] = connection.request(make(number), version=version, timeout_ms=120_000)
            answer = await asked
            code = _code(answer)
            if code is ErrorCode.NONE:
                return answer
            assert code is ErrorCode.CONCURRENT_TRANSACTIONS, code
            await asyncio.sleep(0.05)

    return await asyncio.gather(*(one(number) for number in range(OPEN_AT_ONCE)))


def _code(answer: Any) -> ErrorCode:
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        return ErrorCode(topic.results_by_partition[0].partition_error_code)
    return ErrorCode(answer.error_code)
