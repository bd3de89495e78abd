"""The path to share states: on the same broker and on another broker, before and after the coordinator moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from ottla.dataplane.share.persister import StatePersister
from ottla.dataplane.share.state.stored_state import StoredShareState
from ottla.dataplane.share.states import DurableState, StateBatch
from ottla.protocol import features
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import SHARE
from ottla.protocol.messages.metadata_records import TopicRemovedRecord
from ottla.protocol.messages.share_group_state import (
    ReadShareGroupStateRequest,
    WantedState,
    WantedTopicStates,
    WriteShareGroupStateRequest,
    WrittenState,
    WrittenTopicStates,
)
from ottla.protocol.messages.share_state_records import StateBatch as WireBatch
from ottla.protocol.session.node_proof import NodeRole
from tests.dataplane.handlers.test_node_authentication import prove
from tests.dataplane.replication.brokers_over_sockets import RawConnection
from tests.dataplane.share.state.state_cluster import TOPIC, StateCluster
from tests.node_credentials import credentials

ACKED = StateBatch(3, 5, DurableState.ACKNOWLEDGED)


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StateCluster]:
    monkeypatch.setitem(
        features.FEATURES,  # type: ignore[arg-type]
        SHARE,
        features.Feature(SHARE, 0, 1, 0),
    )
    cluster = StateCluster()
    yield cluster
    cluster.close()


async def write(persister: StatePersister, partition: int = 0, **changed: Any) -> None:
    values: dict[str, Any] = {
        "state_epoch": 0, "leader_epoch": 4, "start_offset": 2, "delivery_complete": 3, "batches": [ACKED],
    }  # fmt: skip
    await persister.write("g", TOPIC, partition, **(values | changed))


async def initialized(persister: StatePersister, partition: int = 0) -> None:
    await persister.initialize("g", TOPIC, partition, state_epoch=0, start_offset=2)
    assert await persister.read("g", TOPIC, partition, 4) == StoredShareState(0, 4, 2, -1)


async def refusal(operation: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await operation
    return refused.value.code


@pytest.mark.parametrize("broker_id", [1, 2])
async def test_a_state_is_the_same_from_each_broker(cluster: StateCluster, broker_id: int) -> None:
    persister = cluster.brokers[broker_id].persister
    await initialized(persister)
    assert cluster.created == 1
    await write(persister)
    for reader in cluster.brokers.values():
        assert await reader.persister.read("g", TOPIC, 0, 4) == StoredShareState(0, 4, 2, -1, (ACKED,))
        assert await reader.persister.summary("g", TOPIC, 0) == StoredShareState(0, 4, 2, 3)
    assert await refusal(write(persister, leader_epoch=3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert await refusal(persister.read("g", TOPIC, 0, 3)) is ErrorCode.FENCED_LEADER_EPOCH
    await persister.initialize("g", TOPIC, 0, state_epoch=1, start_offset=9)
    assert await refusal(write(persister)) is ErrorCode.FENCED_STATE_EPOCH
    await persister.delete("g", TOPIC, 0)
    await persister.delete("g", TOPIC, 0)
    assert await refusal(persister.read("g", TOPIC, 0, 5)) is ErrorCode.INVALID_REQUEST


async def test_many_changes_at_once_each_have_their_outcome(cluster: StateCluster) -> None:
    persister = cluster.brokers[2].persister
    await asyncio.gather(*(initialized(persister, partition) for partition in range(4)))
    written = [(partition, offset) for offset in range(50) for partition in range(4)]
    outcomes = await asyncio.gather(
        *(
            write(
                persister,
                partition,
                batches=[StateBatch(2 * offset + 2, 2 * offset + 2, DurableState.ARCHIVED)],
            )
            for partition, offset in written
        ),
        write(persister, leader_epoch=1),
        return_exceptions=True,
    )
    assert outcomes[:-1] == [None] * len(written)
    assert isinstance(outcomes[-1], KafkaError)
    assert outcomes[-1].code is ErrorCode.FENCED_LEADER_EPOCH
    for partition in range(4):
        state = await persister.read("g", TOPIC, partition, 4)
        assert isinstance(state, StoredShareState)
        assert len(state.batches) == 50


@pytest.mark.parametrize("leader", [1, 2])
async def test_changes_go_on_at_a_new_coordinator(cluster: StateCluster, leader: int) -> None:
    persister = cluster.brokers[2].persister
    await initialized(persister)
    cluster.lead(3 - leader)
    cluster.log.automatic = False
    writing = asyncio.create_task(write(persister))
    async with asyncio.timeout(60):
        while not cluster.log.waiting:
            await asyncio.sleep(0.001)
    cluster.log.automatic = True
    cluster.lead(leader)
    await writing
    assert await persister.read("g", TOPIC, 0, 4) == StoredShareState(0, 4, 2, -1, (ACKED,))


async def test_changes_wait_while_nobody_leads(cluster: StateCluster) -> None:
    persister = cluster.brokers[2].persister
    await initialized(persister)
    cluster.lead(-1)
    writing = asyncio.create_task(write(persister))
    await asyncio.sleep(0.05)
    assert not writing.done()
    cluster.lead(2)
    await writing


async def test_a_broken_connection_is_opened_again(cluster: StateCluster) -> None:
    persister = cluster.brokers[2].persister
    await initialized(persister)
    cluster.brokers[1].stop_serving()
    writing = asyncio.create_task(write(persister))
    await asyncio.sleep(0.05)
    assert not writing.done()
    cluster.brokers[1].serve()
    await writing


async def test_a_removed_partition_is_no_reason_to_wait(cluster: StateCluster) -> None:
    persister = cluster.brokers[2].persister
    await initialized(persister)
    cluster.tell(TopicRemovedRecord(topic_id=TOPIC))
    assert await refusal(write(persister)) is ErrorCode.INVALID_REQUEST
    assert await refusal(persister.summary("g", TOPIC, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_without_the_feature_nothing_is_created(cluster: StateCluster) -> None:
    cluster.image.features[SHARE] = 0
    reading = cluster.brokers[2].persister.read("g", TOPIC, 0, 0)
    assert await refusal(reading) is ErrorCode.UNSUPPORTED_VERSION
    assert cluster.created == 0


async def test_only_brokers_may_ask(cluster: StateCluster) -> None:
    await initialized(cluster.brokers[1].persister)
    request = ReadShareGroupStateRequest(
        group_id="g",
        topics=[WantedTopicStates(topic_id=TOPIC, partitions=[WantedState(partition=0, leader_epoch=9)])],
    )
    for own, expected in (
        (None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (credentials(-1, role=NodeRole.OPERATOR), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (credentials(7), ErrorCode.NONE),
    ):
        async with RawConnection(cluster.addresses[1][1]) as peer:
            if own is not None:
                await prove(peer, own, server_id=1)
            answer = await peer.call(request, 0)
        ((row,),) = [topic.partitions for topic in answer.results]
        assert (row.partition, row.error_code) == (0, expected)
    assert await cluster.brokers[1].persister.summary("g", TOPIC, 0) == StoredShareState(0, 9, 2, 0)


async def test_a_state_that_is_never_stored_is_refused(cluster: StateCluster) -> None:
    await initialized(cluster.brokers[1].persister)
    batch = WireBatch(first_offset=3, last_offset=3, delivery_state=1, delivery_count=1)
    written = WrittenState(partition=0, state_epoch=0, leader_epoch=4, start_offset=-1, state_batches=[batch])
    request = WriteShareGroupStateRequest(
        group_id="g", topics=[WrittenTopicStates(topic_id=TOPIC, partitions=[written])]
    )
    async with RawConnection(cluster.addresses[1][1]) as peer:
        await prove(peer, credentials(7), server_id=1)
        answer = await peer.call(request, 1)
    assert answer.results[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("coordinator", [1, 2])
async def test_the_end_of_a_delay_is_stored(coordinator: int) -> None:
    cluster = StateCluster()
    try:
        persister = cluster.brokers[1].persister
        key = ("g", TOPIC, 0)
        await persister.initialize(*key, state_epoch=0, start_offset=0)
        cluster.lead(coordinator)
        delayed = StateBatch(3, 4, DurableState.AVAILABLE, 2, 1_700_000_000_000)
        await persister.read(*key, leader_epoch=1)
        await persister.write(
            *key, state_epoch=0, leader_epoch=1, start_offset=0, delivery_complete=0, batches=[delayed]
        )
        cluster.lead(3 - coordinator)
        assert (await persister.read(*key, leader_epoch=2)).batches == (delayed,)
    finally:
        cluster.close()
