"""Cuts compared with a complete scan of the quorum's decisions and of each batch in the logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ottla.client.connections.connection import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.dataplane.handlers.api_versions import ApiVersionsHandlers
from ottla.dataplane.handlers.cuts import CutHandlers
from ottla.dataplane.log.producers import recent_markers
from ottla.dataplane.quorum.shared_catch_up import SharedCatchUp
from ottla.dataplane.quorum.transaction_questions import TransactionCut
from ottla.dataplane.security.authorization.access import EVERYTHING, Access
from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.server.server import Server
from ottla.metadata_quorum.transaction_questions import largest_cut
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.transaction_table import Place
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.cuts import (
    CutTopic,
    FindCutRequest,
    FindCutResponse,
    ListCutOffsetsRequest,
)
from ottla.protocol.records.record import encode_batch, read_control_record
from ottla.protocol.records.record_batch import BatchHeader, parse_header
from tests.metadata_quorum.state.harness import assigned
from tests.metadata_quorum.state.transactional import Identity, identity

from .broker_beside_a_quorum import Beside, beside_a_quorum
from .test_markers import until

_TOPIC = AclResourceType.TOPIC
NO_REQUEST: Any = SimpleNamespace(access=EVERYTHING)
NAMES = ("a", "b", "c")


class Finder:
    """A local quorum leader."""

    def __init__(self, broker: Beside) -> None:
        self.broker = broker
        self.answers = True

    async def cut(self, places: Collection[Place], timeout_s: float) -> TransactionCut | None:
        image = self.broker.quorum.machine.image
        return TransactionCut(largest_cut(image.transactions, places), image.offset) if self.answers else None


class Cutting(NamedTuple):
    broker: Beside
    finder: Finder
    handlers: CutHandlers

    async def find(self, places: Collection[Place]) -> FindCutResponse:
        return await self.handlers.find(NO_REQUEST, FindCutRequest(topics=topics(places)))

    async def offsets(
        self, cut: int, places: Collection[Place], metadata_offset: int = 0
    ) -> dict[Place, int | ErrorCode]:
        answer = await self.handlers.list_offsets(
            NO_REQUEST,
            ListCutOffsetsRequest(cut=cut, metadata_offset=metadata_offset, topics=topics(places)),
        )
        return {
            (topic.topic_id, found.partition_index): (
                ErrorCode.of(found.error_code) if found.error_code else found.offset
            )
            for topic in answer.topics
            for found in topic.partitions
        }


def topics(places: Collection[Place]) -> list[CutTopic]:
    return [CutTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in sorted(places)]


@contextlib.asynccontextmanager
async def cutting(directory: Path) -> AsyncIterator[Cutting]:
    async with beside_a_quorum(directory) as broker:
        finder = Finder(broker)
        yield Cutting(broker, finder, CutHandlers(broker.replicas, broker, finder, SharedCatchUp(1, broker)))


class Marker(NamedTuple):
    offset: int
    commit_index: int


class ReadLogs:
    """The content of a broker's logs. They only grow here, so each batch is read once."""

    def __init__(self, broker: Beside) -> None:
        self._broker = broker
        self._read: dict[Place, list[tuple[BatchHeader, Marker | None]]] = defaultdict(list)

    def markers(self, place: Place) -> list[Marker]:
        return [marker for _, marker in self._batches(place) if marker is not None]

    def first_open_at(self, place: Place, below: int) -> int:
        """Return the beginning of the first transaction that is open at an offset, or that offset."""
        open_: dict[int, int] = {}
        for header, marker in self._batches(place):
            if header.base_offset >= below:
                break
            if marker is not None:
                open_.pop(header.producer_id, None)
            elif header.is_transactional:
                open_.setdefault(header.producer_id, header.base_offset)
        return min(open_.values(), default=below)

    def _batches(self, place: Place) -> list[tuple[BatchHeader, Marker | None]]:
        log, batches = self._broker.replicas.get_by_id(*place).log, self._read[place]
        offset = batches[-1][0].next_offset if batches else 0
        while offset < log.log_end_offset:
            piece = log.read(offset, 1, log.log_end_offset, at_least_one=True)
            data = piece.read()
            piece.release()
            header = parse_header(data)
            marker = None
            if header.is_control:
                record = read_control_record(data)
                assert record is not None
                marker = Marker(header.base_offset, record.commit_index)
            batches.append((header, marker))
            offset = header.next_offset
        return batches


class Everything:
    """Random transactions of three producers, and non-transactional producers, in all partitions; every cut that was
    ever found must stay one.
    """

    def __init__(self, cutting: Cutting, rng: Random) -> None:
        self.cutting, self.broker, self.rng = cutting, cutting.broker, rng
        self.logs = ReadLogs(self.broker)
        self.quorum = self.broker.quorum
        self.quorum.create(assigned("more", [1, 2], [1]))
        self.broker.catch_up()
        names = ("solo", "pair", "more")
        self.places = sorted(
            (topic.id, index)
            for topic in self.broker.image.topics.values()
            if topic.name in names
            for index in topic.partitions
        )
        self.who = {name: self.quorum.begin(name) for name in NAMES}
        self.sequences: dict[tuple[Identity, Place], int] = {}
        self.written: dict[int, frozenset[Place]] = {}
        self.cuts: set[int] = set()

    async def step(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 20))):
            await asyncio.sleep(0)  # Markers that are below the high watermark are reported meanwhile.
        name = rng.choice(NAMES)
        phase = self.quorum.state(name).phase
        what = rng.random()
        if what < 0.1:
            self.produce_without()
        elif what < 0.3:
            self.replicate()
        elif what < 0.35:
            for partition in self.broker.replicas:
                partition.log.roll(0)
        elif phase.is_decided:
            self.broker.catch_up()
        elif what < 0.6 or phase.is_over:
            await self.write(name)
        else:
            self.end(name)

    async def write(self, name: str) -> None:
        places = self.rng.sample(self.places, self.rng.randint(1, 3))
        if self.quorum.add(self.who[name], places, name=name).error_code:
            return
        self.broker.catch_up()
        for place in places:
            key = (self.who[name], place)
            sequence = self.sequences.get(key, 0)
            topic = self.broker.image.topics_by_id[place[0]].name
            await self.broker.produce(self.who[name], sequence, topic=topic, index=place[1])
            self.sequences[key] = sequence + 1

    def end(self, name: str) -> None:
        places = frozenset(place for _, place in self.quorum.state(name).outstanding)
        ended = self.quorum.end(self.who[name], commits=self.rng.random() < 0.7, name=name)
        self.who[name] = identity(ended)
        self.written[ended.commit_index] = places
        if self.rng.random() < 0.7:
            self.broker.catch_up()

    def produce_without(self) -> None:
        partition = self.broker.replicas.get_by_id(*self.rng.choice(self.places))
        partition.append(memoryview(bytearray(encode_batch([(None, b"x", 0)]))), required_acks=-1)

    def replicate(self) -> None:
        """Let broker 2 fetch some of the records."""
        for place in self.places:
            partition = self.broker.replicas.get_by_id(*place)
            if 2 in self.broker.image.topics_by_id[place[0]].partitions[place[1]].replicas:
                watermark = partition.high_watermark
                end = partition.log.log_end_offset
                to = self.rng.choice((end, self.rng.randint(watermark, end)))
                partition.fetched_by(2, self.quorum.epoch(2), to)

    async def check(self) -> None:
        some = self.rng.sample(self.places, self.rng.randint(1, len(self.places)))
        found = await self.cutting.find(some)
        for cut in (found.cut, self.rng.randint(-1, max(self.written, default=0))):
            await self.check_cut(cut, some, whole=cut == found.cut)
        for cut in self.cuts:
            await self.check_cut(cut, self.places, whole=True)
        everywhere = await self.cutting.find(self.places)
        self.cuts.add(everywhere.cut)

    async def check_cut(self, cut: int, places: list[Place], *, whole: bool) -> None:
        offsets = await self.cutting.offsets(cut, places)
        for place in places:
            watermark = self.broker.replicas.get_by_id(*place).high_watermark
            markers = self.logs.markers(place)
            behind = [
                marker.offset for marker in markers if marker.commit_index > cut and marker.offset < watermark
            ]
            offset = offsets[place]
            assert offset == min(behind, default=watermark)
            answer = await self.cutting.handlers.list_offsets(
                NO_REQUEST, ListCutOffsetsRequest(cut=cut, metadata_offset=0, topics=topics([place]))
            )
            (at,) = answer.topics[0].partitions
            assert not [
                marker
                for marker in markers
                if at.least_offset <= marker.offset < offset and marker.commit_index > cut
            ]
            assert at.least_offset <= offset
            assert at.open_from == self.logs.first_open_at(place, offset)
            below = {marker.commit_index for marker in markers if marker.offset < offset}
            assert max(below, default=-1) <= cut
            due = {index for index, wrote in self.written.items() if index <= cut and place in wrote}
            if whole:
                assert due == below, f"{place} lacks transactions of cut {cut}"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("listed", [4, recent_markers.LISTED_MAX])
async def test_a_cut_has_all_of_what_was_decided_up_to_it_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, listed: int
) -> None:
    monkeypatch.setattr(recent_markers, "LISTED_MAX", listed)
    async with cutting(tmp_path) as here:
        everything = Everything(here, Random(seed))
        for _ in range(50):
            await everything.step()
            await everything.check()
        assert max(everything.cuts) > 0


async def written(broker: Beside, name: str = "x", *, topic: str = "solo") -> None:
    who = broker.quorum.begin(name)
    broker.quorum.add(who, broker.quorum.places(0, topic=topic), name=name)
    broker.catch_up()
    await broker.produce(who, 0, topic=topic)
    broker.quorum.end(who, name=name)
    broker.catch_up()
    if topic == "solo":
        await until(lambda: broker.quorum.state(name).phase.is_over)


async def test_an_older_transaction_that_stays_open_holds_nobody_up(tmp_path: Path) -> None:
    async with cutting(tmp_path) as here:
        broker = here.broker
        open_for_long = broker.quorum.begin("long")
        broker.quorum.add(open_for_long, broker.solo(0), name="long")
        broker.catch_up()
        await broker.produce(open_for_long, 0)
        await written(broker)
        partition = broker.partition()
        assert partition.log.transactions.last_stable_offset(partition.high_watermark) == 0
        found = await here.find(broker.solo(0))
        assert found.cut == 0
        assert await here.offsets(found.cut, broker.solo(0), found.metadata_offset) == {
            broker.solo(0).pop(): 3
        }
        await written(broker, "y")
        answer = await here.handlers.list_offsets(
            NO_REQUEST,
            ListCutOffsetsRequest(cut=found.cut, metadata_offset=0, topics=topics(broker.solo(0))),
        )
        (at,) = answer.topics[0].partitions
        assert (at.least_offset, at.offset, at.open_from) == (3, 4, 0), (
            "the cut may lie before y's record, too"
        )


async def test_a_marker_that_is_not_replicated_holds_up_only_those_who_ask_for_its_partition(
    tmp_path: Path,
) -> None:
    async with cutting(tmp_path) as here:
        broker = here.broker
        await written(broker, "x", topic="pair")
        await written(broker, "y")
        pair = broker.quorum.places(0, topic="pair")
        assert (await here.find(pair)).cut == -1
        assert (await here.find(pair | broker.solo(0))).cut == -1
        assert (await here.find(())).cut == -1
        assert (await here.find(broker.solo(0))).cut == 1


async def test_a_leader_that_was_replaced_and_does_not_know_answers_nobody(tmp_path: Path) -> None:
    """The leader's high watermark may lie below markers that are part of the cut."""
    async with cutting(tmp_path) as here:
        broker = here.broker
        place = broker.quorum.places(0, topic="pair").pop()
        cut = await here.find([place])
        assert await here.offsets(cut.cut, [place], cut.metadata_offset) == {place: 0}
        broker.quorum.fence(1)
        newer = await here.find([place])
        broker.quorum.answers = False
        for offset in (newer.metadata_offset, -1):
            with pytest.raises(KafkaError) as refused:
                await here.offsets(newer.cut, [place], offset)
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.quorum.answers = True
        broker.catch_up()
        answered = await here.offsets(newer.cut, [place], newer.metadata_offset)
        assert answered == {place: ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_a_new_leader_waits_for_its_high_watermark(tmp_path: Path) -> None:
    async with cutting(tmp_path) as here:
        broker = here.broker
        place = broker.quorum.places(0, topic="pair").pop()
        partition = broker.partition("pair")
        partition.append(memoryview(bytearray(encode_batch([(None, b"x", 0)]))), required_acks=1)
        state = broker.image.topics["pair"].partitions[0]
        partition.become_leader(replace(state, leader_epoch=state.leader_epoch + 1))
        assert await here.offsets(-1, [place]) == {place: ErrorCode.OFFSET_NOT_AVAILABLE}
        partition.fetched_by(2, broker.quorum.epoch(2), 1)
        assert await here.offsets(-1, [place]) == {place: 1}


async def test_requests_and_their_errors(tmp_path: Path) -> None:
    async with cutting(tmp_path) as here:
        broker = here.broker
        table = HandlerTable(here.handlers)
        table.add(ApiVersionsHandlers(table, broker, 1))  # type: ignore[arg-type]
        server = Server(table)
        server.metadata_offset = lambda: broker.image.offset
        port = server.listen("TEST", "127.0.0.1", 0).port
        server.start()
        try:
            client = await connect(BrokerAddress(1, "127.0.0.1", port))
            await written(broker)
            solo = broker.solo(0).pop()[0]
            found = await client.request(FindCutRequest(topics=[CutTopic(topic_id=solo, partitions=[0, 1])]))
            assert (found.error_code, found.cut) == (ErrorCode.NONE, 0)
            asked = ListCutOffsetsRequest(
                cut=found.cut,
                metadata_offset=found.metadata_offset,
                topics=[
                    CutTopic(topic_id=solo, partitions=[0, 9, 1, 0]),
                    CutTopic(topic_id=b"n" * 16, partitions=[0]),
                ],
            )
            answer = await client.request(asked)
            assert [
                (topic.topic_id, partition.partition_index, partition.error_code, partition.offset)
                for topic in answer.topics
                for partition in topic.partitions
            ] == [
                (solo, 0, ErrorCode.NONE, 2),
                (solo, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
                (solo, 1, ErrorCode.NONE, 0),
                (solo, 0, ErrorCode.NONE, 2),
                (b"n" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID, -1),
            ]
            asked.cut = -2
            refused = await client.request(asked)
            codes = {partition.error_code for topic in refused.topics for partition in topic.partitions}
            assert codes == {ErrorCode.INVALID_REQUEST}
            here.finder.answers = False
            late = await client.request(FindCutRequest())
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
            client.close()
        finally:
            server.close()


class Rights:
    """The rights of a user who may describe some topics."""

    def __init__(self, *topics: str) -> None:
        index = Authorizer()
        acls = [
            Acl(_TOPIC, name, PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermission.ALLOW)
            for name in topics
        ]
        index.change((acl, True) for acl in acls)
        self.request: Any = SimpleNamespace(access=Access(index.grants("User:ann", "10.0.0.1"), None, None))


@pytest.mark.parametrize("topic_id", [None, bytes(16)])
async def test_whoever_may_see_nothing_has_the_quorum_asked_nothing(
    tmp_path: Path, topic_id: bytes | None
) -> None:
    async with cutting(tmp_path) as cutter:
        (solo,) = cutter.broker.solo(0)
        asked = ListCutOffsetsRequest(
            cut=-1, metadata_offset=-1, topics=topics([(topic_id or solo[0], solo[1])])
        )
        cutter.broker.submit = refused_to_ask  # type: ignore[method-assign]
        rights = Rights("others") if topic_id is None else Rights()
        answer = await cutter.handlers.list_offsets(rights.request, asked)
        code = answer.topics[0].partitions[0].error_code
        assert code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)


async def refused_to_ask(*_: Any) -> Any:
    raise AssertionError("the quorum is asked")


async def test_whoever_may_read_a_topic_is_told_of_it(tmp_path: Path) -> None:
    """READ implies DESCRIBE, also where no topic is named."""
    async with cutting(tmp_path) as cutter:
        (place,) = cutter.broker.solo(0)
        request = Rights("solo").request
        asked = ListCutOffsetsRequest(cut=-1, metadata_offset=-1, topics=topics([place]))
        answer = await cutter.handlers.list_offsets(request, asked)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert (await cutter.handlers.find(request, FindCutRequest())).error_code == ErrorCode.NONE


async def test_requests_that_come_together_ask_the_quorum_once_or_twice(tmp_path: Path) -> None:
    """The question in progress may not cover the later requests, so one more follows."""
    async with cutting(tmp_path) as cutter:
        questions = 0
        submit = cutter.broker.submit

        async def counted(command: Any, timeout_ms: int | None = None) -> Any:
            nonlocal questions
            questions += 1
            return await submit(command, timeout_ms)

        cutter.broker.submit = counted  # type: ignore[method-assign]
        (place,) = cutter.broker.solo(0)
        found = await asyncio.gather(*(cutter.offsets(-1, [place], metadata_offset=-1) for _ in range(50)))
        assert all(isinstance(offsets[place], int) for offsets in found)
        assert 1 <= questions <= 2
        await cutter.offsets(-1, [place], metadata_offset=-1)
        assert 2 <= questions <= 3, "a later request asks again"
