"""WriteTxnMarkers, as `kafka-transactions.sh abort` sends it: its effects, and the cases left to the quorum."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.dataplane.handlers import write_txn_markers
from ottla.dataplane.handlers.write_txn_markers import WriteTxnMarkersHandlers
from ottla.dataplane.security.authorization.access import EVERYTHING
from ottla.dataplane.security.peer_session import PeerSession
from ottla.dataplane.security.principal import ANONYMOUS
from ottla.dataplane.server.handler import ClientRequest
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records.record import encode_batch
from ottla.protocol.session.node_proof import NO_NODE, NodeRole, ProvenNode
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.state.transactional import Identity

from .broker_beside_a_quorum import Beside, beside_a_quorum

HANGING = (77, 3)
"""A producer that is unknown to the quorum."""


async def open_in_solo(broker: Beside) -> Identity:
    who = broker.quorum.begin()
    broker.quorum.add(who, broker.solo(0, 1))
    broker.catch_up()
    await broker.produce(who, 0)
    return who


def hang(broker: Beside) -> None:
    """Append a batch that no leader accepts (rule T2) to the log by hand."""
    batch = encode_batch(
        [(None, b"", 0)],
        producer_id=HANGING[0],
        producer_epoch=HANGING[1],
        base_sequence=0,
        transactional=True,
    )
    broker.partition().append(memoryview(bytearray(batch)), required_acks=-1)


async def abort(
    broker: Beside,
    who: Identity,
    *,
    topic: str = "solo",
    index: int = 0,
    commits: bool = False,
    coordinator_epoch: int = 0,
) -> int:
    """Send the marker, and return the error code."""
    handlers = WriteTxnMarkersHandlers(broker.replicas, broker, broker.markers, broker.completion_waits)
    marker = WritableTxnMarker(
        producer_id=who[0],
        producer_epoch=who[1],
        transaction_result=commits,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
    )
    session = PeerSession(ANONYMOUS, "127.0.0.1", "PLAINTEXT").of_node(ProvenNode(NodeRole.OPERATOR, NO_NODE))
    request = cast(ClientRequest, SimpleNamespace(access=EVERYTHING, api_version=1, session=session))
    answer = await handlers.write(request, WriteTxnMarkersRequest(markers=[marker]))
    (result,) = answer.markers
    assert (result.producer_id, result.topics[0].name) == (who[0], topic)
    return result.topics[0].partitions[0].error_code


async def test_what_the_quorum_has_open_it_aborts_everywhere(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await open_in_solo(broker)
        assert await abort(broker, who) == ErrorCode.NONE
        assert broker.quorum.state().phase is Phase.COMPLETE_ABORT
        assert [broker.partition(index=index).log.log_end_offset for index in (0, 1)] == [2, 1]
        assert not broker.partition().log.transactions.open
        assert broker.quorum.end(who).error_code == ErrorCode.TRANSACTION_ABORTABLE


async def test_what_hangs_is_ended_where_it_does(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        hang(broker)
        assert broker.partition().log.transactions.open
        assert await abort(broker, HANGING) == ErrorCode.NONE
        log = broker.partition().log
        assert (log.log_end_offset, dict(log.transactions.open)) == (2, {})
        assert log.transactions.aborted(0, 2)
        assert await abort(broker, HANGING) == ErrorCode.NONE, "asked again, as its answer was lost"
        assert log.log_end_offset == 2


async def test_what_is_being_committed_stays_so(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await open_in_solo(broker)
        broker.quorum.answers = False
        broker.quorum.end(who)
        broker.catch_up()
        assert await abort(broker, who) == ErrorCode.INVALID_TXN_STATE
        assert broker.quorum.state().phase is Phase.PREPARE_COMMIT


async def test_what_was_committed_before_the_quorum_heard_of_the_abort_stays_so(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await open_in_solo(broker)
        aborting = asyncio.create_task(abort(broker, who))
        await asyncio.sleep(0)
        broker.quorum.end(who)
        assert await aborting == ErrorCode.INVALID_TXN_STATE


async def test_what_is_being_aborted_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_txn_markers, "END_TIMEOUT_S", 0.05)
    async with beside_a_quorum(tmp_path) as broker:
        who = broker.quorum.begin()
        broker.quorum.add(who, broker.quorum.places(0, topic="pair"))
        broker.catch_up()
        broker.quorum.end(who, commits=False)
        broker.catch_up()
        pair = broker.partition("pair")
        assert await abort(broker, who, topic="pair") == ErrorCode.REQUEST_TIMED_OUT
        pair.fetched_by(2, broker.quorum.epoch(2), pair.log.log_end_offset)
        assert await abort(broker, who, topic="pair") == ErrorCode.NONE


async def test_of_other_brokers_partitions_nothing_is_waited_for(tmp_path: Path) -> None:
    """This broker does not hear when those have their markers, unless the client uses it."""
    async with asyncio.timeout(20), beside_a_quorum(tmp_path) as broker:
        broker.quorum.create(assigned("away", [2]))
        who = broker.quorum.begin(broker=2)
        broker.quorum.add(who, broker.solo(0) | broker.quorum.places(0, topic="away"), broker=2)
        broker.catch_up()
        await broker.produce(who, 0)
        assert await abort(broker, who) == ErrorCode.NONE
        assert broker.quorum.state().phase is Phase.PREPARE_ABORT
        assert not broker.partition().log.transactions.open


@pytest.mark.parametrize("hangs", [True, False])
async def test_the_epoch_must_be_that_of_the_transaction(tmp_path: Path, *, hangs: bool) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        if hangs:
            hang(broker)
        producer_id, epoch = HANGING if hangs else await open_in_solo(broker)
        for other in (epoch - 1, epoch + 1):
            assert await abort(broker, (producer_id, other)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.partition().log.transactions.open


async def test_whoever_looked_at_the_transaction_before_aborts_nothing(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await open_in_solo(broker)
        number = broker.quorum.end(who, bumps=False).number
        broker.catch_up()
        while not broker.quorum.state().phase.is_over:
            await asyncio.sleep(0.001)
        broker.quorum.add(who, broker.solo(0))
        broker.catch_up()
        await broker.produce(who, 1)
        assert await abort(broker, who, coordinator_epoch=0) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert broker.quorum.state().phase is Phase.ONGOING
        assert await abort(broker, who, coordinator_epoch=number) == ErrorCode.NONE
        assert broker.quorum.state().phase is Phase.COMPLETE_ABORT


async def test_what_is_refused_at_once(tmp_path: Path) -> None:
    async with beside_a_quorum(tmp_path) as broker:
        who = await open_in_solo(broker)
        assert await abort(broker, who, commits=True) == ErrorCode.INVALID_REQUEST
        assert await abort(broker, HANGING) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await abort(broker, who, topic="no") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.quorum.fence(1)
        broker.catch_up()
        assert await abort(broker, who) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.quorum.state().phase is Phase.ONGOING
