"""Only a connection with a broker's proof may use the brokers' APIs; all others go on as clients."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.dataplane.security.principal import USER, Principal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.headers import RequestHeader, decode_request_header, response_header
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.node_authentication import AuthenticateNodeRequest, AuthenticateNodeResponse
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.session.node_proof import (
    NONCE_BYTES,
    PROOF_BYTES,
    ClientProof,
    NodeCredentials,
    ServerProof,
)
from ottla.protocol.wire.codec import decode, encode
from tests.dataplane.replication.brokers_over_sockets import BrokersOverSockets, RawConnection, running, until
from tests.dataplane.replication.harness import TOPIC_ID, batch
from tests.node_credentials import credentials

LEADER, OTHER = 1, 3
POSING_AS = 2
INVENTED_EPOCH = 1 << 40
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[BrokersOverSockets]:
    """Run a cluster in which broker 2 is down and still in the ISR, so that only its impostor speaks as broker 2."""
    async with running(tmp_path) as cluster:
        async with RawConnection(cluster[LEADER].port) as client:
            assert (await client.produce(b"everywhere")).error_code == 0
        await cluster[POSING_AS].stop(clean=False)
        yield cluster


async def say(client: RawConnection, message: bytes) -> bytes:
    answer = await client.call(AuthenticateNodeRequest(auth_bytes=message), 0)
    answered: bytes = answer.auth_bytes
    return answered


async def prove(client: RawConnection, own: NodeCredentials, server_id: int = LEADER) -> list[bytes]:
    """Go through the exchange, message by message."""
    proof = ClientProof(own, server_id, os.urandom(NONCE_BYTES))
    said = [proof.claim]
    while not proof.done:
        said.append(await say(client, said[-1]))
        said.append(proof.receive(said[-1]))
    return said


async def fetch(
    client: RawConnection, replica_id: int, *, offset: int = 1, epoch: int = INVENTED_EPOCH, version: int = 17
) -> Any:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(partitions=[wanted])
    message = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_epoch=0, topics=[topic])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.topic = "t"
    if version >= 15:
        message.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=epoch)
    else:
        message.replica_id = replica_id
    return await client.call(message, version)


async def closed(client: RawConnection) -> bool:
    try:
        return not await asyncio.wait_for(client.read_some(), 60)
    except ConnectionError:
        return True


def in_the_isr(cluster: BrokersOverSockets) -> None:
    assert POSING_AS in cluster.quorum.state.isr


@pytest.mark.parametrize("version", [4, 11, 12, 14, 15, 17, 18])
async def test_nobody_is_a_replica_without_a_proof(cluster: BrokersOverSockets, version: int) -> None:
    async with (
        RawConnection(cluster[LEADER].port) as stranger,
        RawConnection(cluster[LEADER].port) as producer,
    ):
        producing = asyncio.create_task(producer.produce(b"on one disk", timeout_ms=150))
        await until(lambda: cluster[LEADER].partition.log.log_end_offset == 2, "the append")
        await until(lambda: cluster[OTHER].partition.log.log_end_offset == 2, "the honest follower")
        for replica_id in (POSING_AS, OTHER, LEADER, 77):
            answer = await fetch(stranger, replica_id, offset=2, version=version)
            (part,) = answer.responses[0].partitions
            assert (answer.error_code, answer.session_id) == (0, 0)
            assert (part.error_code, part.high_watermark, part.log_start_offset) == (REFUSED, -1, -1)
            assert not part.records
        in_the_isr(cluster)
        assert cluster[LEADER].partition.leader.high_watermark == 1
        assert (await producing).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (await stranger.fetch(0)).high_watermark == 1, "the connection goes on as a consumer's"


async def test_who_has_proved_it_is_that_replica_and_no_other(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[LEADER].port) as broker:
        await prove(broker, credentials(POSING_AS))
        part = (await fetch(broker, OTHER)).responses[0].partitions[0]
        assert part.error_code == REFUSED
        stale = await fetch(broker, POSING_AS, epoch=0)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        epoch = cluster.quorum.image.brokers[POSING_AS].broker_epoch
        answer = await fetch(broker, POSING_AS, epoch=epoch)
        assert answer.session_id
        assert [part.error_code for part in answer.responses[0].partitions] in ([], [0])


async def test_only_proven_replicas_are_free_of_quotas(cluster: BrokersOverSockets) -> None:
    leader = cluster[LEADER]
    leader.server.quotas.changed({(("client-id", None),): {"request_percentage": 0.001}})
    async with RawConnection(leader.port) as stranger, RawConnection(leader.port) as broker:
        await prove(broker, credentials(POSING_AS))
        for _ in range(2):
            assert (await fetch(broker, POSING_AS)).throttle_time_ms == 0
        await fetch(stranger, POSING_AS)
        assert (await fetch(stranger, POSING_AS)).throttle_time_ms > 0


async def test_quotas_ask_who_the_peer_is(cluster: BrokersOverSockets) -> None:
    leader = cluster[LEADER]
    limits = {f"{kind}_byte_rate": 1.0 for kind in ("producer", "consumer")} | {"request_percentage": 0.001}

    async def throttle_ms(user: str | None, ask: Callable[[RawConnection], Awaitable[Any]]) -> int:
        """Return the throttle time, measured on a new connection, since a throttled one is not read for a while."""
        async with RawConnection(leader.port) as client:
            if user is None:
                await prove(client, credentials(POSING_AS))
            else:
                await client.fetch(9)
                connection = list(leader.server.connections)[-1]
                connection.session = replace(connection.session, principal=Principal(USER, user))
            throttled_ms: int = (await ask(client)).throttle_time_ms
            return throttled_ms

    async def throttled(user: str | None) -> list[bool]:
        """Return whether Produce and Fetch are throttled."""
        return [await throttle_ms(user, ask) > 0 for ask in (produce_answer, fetch_answer)]

    for quota, expected in zip(limits, ([True, False], [False, True], [True, True]), strict=True):
        leader.server.quotas.changed({(("user", "ann"),): {quota: limits[quota]}})
        await throttled("ann")
        assert await throttled("ann") == expected, quota
        assert await throttled("bob") == [False, False]
        leader.server.quotas.changed({(("user", None),): {quota: limits[quota]}})
        assert await throttled(None) == [False, False], "a proven node has no quotas"
        leader.server.quotas.changed({})


async def fetch_answer(client: RawConnection) -> Any:
    return await fetch(client, -1, offset=0)


async def produce_answer(client: RawConnection) -> Any:
    data = PartitionProduceData(index=0, records=memoryview(batch(b"more")))
    message = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    return await client.call(message, 9)


@pytest.mark.parametrize("replica_id", [-2, -3, -7])
async def test_tools_that_debug_read_as_consumers(cluster: BrokersOverSockets, replica_id: int) -> None:
    """This is Kafka's behaviour except for -3, with which Kafka shows uncommitted records."""
    async with RawConnection(cluster[LEADER].port) as client, RawConnection(cluster[LEADER].port) as producer:
        await producer.produce(b"on two disks", timeout_ms=1)
        part = (await fetch(client, replica_id, offset=0)).responses[0].partitions[0]
        assert (part.error_code, part.high_watermark) == (0, 1)
        assert bytes(part.records).count(b"everywhere") == 1
        assert b"on two disks" not in bytes(part.records)


async def end_of_epoch_asked_as(client: RawConnection, replica_id: int) -> int:
    asked = [OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)])]
    ended = await client.call(OffsetForLeaderEpochRequest(replica_id=replica_id, topics=asked), 4)
    return ended.topics[0].partitions[0].error_code


async def test_ends_of_epochs_are_told_to_consumers_and_to_proven_brokers(
    cluster: BrokersOverSockets,
) -> None:
    async with RawConnection(cluster[LEADER].port) as client:
        for consumer in (-1, -2):
            assert await end_of_epoch_asked_as(client, consumer) == 0
        assert await end_of_epoch_asked_as(client, POSING_AS) == REFUSED
        await prove(client, credentials(POSING_AS))
        assert await end_of_epoch_asked_as(client, POSING_AS) == 0
        assert await end_of_epoch_asked_as(client, OTHER) == REFUSED


async def latest_asked_as(client: RawConnection, replica_id: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
    listed = await client.call(ListOffsetsRequest(replica_id=replica_id, topics=topics), 7)
    (answer,) = listed.topics[0].partitions
    return answer.error_code, answer.offset


async def test_who_has_not_proved_its_replica_id_is_told_the_offsets_of_a_consumer(
    cluster: BrokersOverSockets, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumers of kafka-python 3 send replica id 0."""
    high_watermark, log_end = (0, 1), (0, 2)
    async with RawConnection(cluster[LEADER].port) as client:
        assert (await client.produce(b"on one disk", acks=1)).error_code == 0
        for replica_id in (-1, 0, POSING_AS):
            assert await latest_asked_as(client, replica_id) == high_watermark
        assert "refused" not in caplog.text
        await prove(client, credentials(POSING_AS))
        assert await latest_asked_as(client, POSING_AS) == log_end
        assert await latest_asked_as(client, OTHER) == high_watermark


async def test_a_recorded_exchange_opens_no_second_connection(
    cluster: BrokersOverSockets, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawConnection(cluster[LEADER].port) as broker:
        claim, _, proof, *_ = await prove(broker, credentials(POSING_AS))
    async with RawConnection(cluster[LEADER].port) as stranger:
        await say(stranger, claim)
        stranger.send(AuthenticateNodeRequest(auth_bytes=proof), 0)
        await fetch_is_not_answered(stranger)
    assert "broker 2: the proof is wrong" in caplog.text


async def fetch_is_not_answered(client: RawConnection) -> None:
    """Check a fetch that is sent after a wrong proof, before the refusal arrives."""
    client.send(FetchRequest(session_epoch=0, replica_state=ReplicaState(replica_id=POSING_AS)), 17)
    assert await closed(client)


async def test_a_refusal_names_the_peer_and_what_it_claims(
    cluster: BrokersOverSockets, caplog: pytest.LogCaptureFixture
) -> None:
    unauthenticated = {
        "broker 2: the proof is wrong. Has it the same cluster.secret.file": credentials(
            POSING_AS, secret=b"guessed, and guessed wrongly"
        ),
        "broker 2 of cluster 'another'": credentials(POSING_AS, cluster_id="another"),
        "broker 1, which is this broker itself": credentials(LEADER),
    }
    for said, own in unauthenticated.items():
        caplog.clear()
        async with RawConnection(cluster[LEADER].port) as stranger:
            host, port = stranger.local_address
            proof = ClientProof(own, LEADER, os.urandom(NONCE_BYTES))
            stranger.send(AuthenticateNodeRequest(auth_bytes=proof.claim), 0)
            if "the proof" in said:
                nonce = (await stranger.receive(AuthenticateNodeRequest, 0)).auth_bytes
                stranger.send(AuthenticateNodeRequest(auth_bytes=proof.receive(nonce)), 0)
            assert await closed(stranger)
        (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert f"{host}:{port}" in warning.getMessage()
        assert said in warning.getMessage()


async def test_garbage_closes_the_connection(cluster: BrokersOverSockets) -> None:
    for message in (b"", b"garbage", bytes(61), bytes(190), bytes(1 << 20)):
        async with RawConnection(cluster[LEADER].port) as stranger:
            stranger.send(AuthenticateNodeRequest(auth_bytes=message), 0)
            assert await closed(stranger), f"{len(message)} bytes of garbage"


async def test_a_second_attempt_closes_the_connection(cluster: BrokersOverSockets) -> None:
    async with RawConnection(cluster[LEADER].port) as broker:
        await prove(broker, credentials(POSING_AS))
        again = ClientProof(credentials(OTHER), LEADER, os.urandom(NONCE_BYTES))
        broker.send(AuthenticateNodeRequest(auth_bytes=again.claim), 0)
        await fetch_is_not_answered(broker)


async def test_what_is_told_to_one_broker_proves_nothing_to_another(cluster: BrokersOverSockets) -> None:
    """Broker 2 connects to an attacker that poses as broker 3 and relays every message to broker 1, and back."""
    dialling = ClientProof(credentials(POSING_AS), OTHER, os.urandom(NONCE_BYTES))
    async with RawConnection(cluster[LEADER].port) as relay:
        relay.send(AuthenticateNodeRequest(auth_bytes=dialling.claim), 0)
        assert await closed(relay)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def in_place_of_the_leader(cluster: BrokersOverSockets, serve: Serve) -> AsyncIterator[None]:
    """Run another server at broker 1's address, where followers connect."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    async with await asyncio.start_server(served, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        epoch = cluster.quorum.image.brokers[LEADER].broker_epoch
        await cluster[LEADER].stop(clean=False)
        cluster.quorum.tell(cluster.quorum.broker_record(LEADER, epoch, port))
        yield


async def read_request(reader: asyncio.StreamReader) -> tuple[RequestHeader, bytes]:
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    header, position = decode_request_header(frame)
    return header, frame[position:]


def answer_request(writer: asyncio.StreamWriter, header: RequestHeader, auth_bytes: bytes) -> None:
    body = response_header(header.api_key, 0, header.correlation_id)
    body += encode(AuthenticateNodeResponse(auth_bytes=auth_bytes), 0)
    writer.write(len(body).to_bytes(4, "big") + body)


async def test_the_proof_costs_a_new_connection_one_round_trip(cluster: BrokersOverSockets) -> None:
    """The first fetch follows right after the proof. Its answer counts once the leader's proof has come, too."""
    arrived: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proof = ServerProof(credentials(LEADER), os.urandom(NONCE_BYTES))
        claimed, body = await read_request(reader)
        claim = decode(AuthenticateNodeRequest, memoryview(body), 0).auth_bytes
        answer_request(writer, claimed, proof.receive(claim))
        unanswered = [(await read_request(reader))[0].api_key for _ in range(2)]
        if not arrived.done():
            arrived.set_result([claimed.api_key, *unanswered])
        await reader.read()

    async with in_place_of_the_leader(cluster, lead):
        seen = await asyncio.wait_for(arrived, 60)
    assert seen == [AuthenticateNodeRequest.api_key, AuthenticateNodeRequest.api_key, FetchRequest.api_key]


async def test_a_follower_takes_nothing_from_a_leader_that_proves_nothing(
    cluster: BrokersOverSockets, caplog: pytest.LogCaptureFixture
) -> None:
    """A server at the leader's address answers everything, and does not have the secret."""

    async def pose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (os.urandom(NONCE_BYTES), os.urandom(PROOF_BYTES)):
            request, _ = await read_request(reader)
            answer_request(writer, request, answer)
        await reader.read()

    async with in_place_of_the_leader(cluster, pose):
        await until(lambda: "does not hold this cluster's secret" in caplog.text, "the follower to notice")
        await until(
            lambda: "broker 1 cannot be followed" in caplog.text, "the follower to say what to look at"
        )
        assert cluster[OTHER].partition.log.log_end_offset == 1
