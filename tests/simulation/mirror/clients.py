"""Clients of the two clusters: operators, groups whose offsets are copied, and producers to copies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from ottla.client.admin import Admin, NewTopic
from ottla.client.admin.records import TO_THE_END
from ottla.client.failures import RequestTimedOut
from ottla.client.producer import Producer
from ottla.client.records import TopicPartition
from ottla.protocol.cluster.mirror_table import MirrorPhase
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.histories.operations import ALL_IN_SYNC, Outcome, Send
from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.cluster.workload import (
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    Workload,
    create_topics,
    delivered,
    started,
)
from tests.simulation.machine.chance import exponential

MIRROR = "copy"
GROUP = "movers"
PLAIN, EXACT, COMPACTED, BOLD, TRIMMED, ANEW = "plain", "exact", "compacted", "bold", "trimmed", "anew"
TOPICS = {PLAIN: 1, EXACT: 2, COMPACTED: 1, BOLD: 1, TRIMMED: 1, ANEW: 1}
CALL_MAX_S = 15.0
TRIES_PER_S = 5.0
OPERATIONS_PER_S = 2.0
RENEWALS_PER_S = 30.0
WRITER = b"writer"
"""Name prefix of transactional producers, and of their values."""
REFUSALS_MAX = 10
"""Number of refusals after which an operator stops requesting a promotion at a cut."""


@dataclass(slots=True)
class Doings:
    """The operators' actions, and the outcomes of sends to the target."""

    counts: Counter[str] = field(default_factory=Counter)
    asked_s: float | None = None
    """Time of the first promotion request."""
    answered_s: float | None = None
    """Time at which an operator learned that the mirror is promoted."""
    calm: bool = False
    """True if operators only do requested actions from now on."""

    def noted(self, action: str) -> None:
        self.counts[f"operator: {action}"] += 1


async def prepare(source: Workload, target: Workload, configs: dict[str, str], mirror_first: bool) -> None:
    """Make the topics and their mirror, in either order."""
    if not mirror_first:
        await create_topics(source, configs, len(source.cluster.brokers))
    while not _has_all_brokers(target.cluster):
        await asyncio.sleep(0.05)  # A copy gets as many replicas as there are brokers at its creation.
    async with Admin(bootstrap_servers=target.cluster.bootstrap) as admin:
        while True:
            try:
                await admin.create_mirror(
                    MIRROR, source=source.cluster.bootstrap, topics=".*", groups=f"{GROUP}.*"
                )
            except KafkaError as error:
                if error.code is not ErrorCode.DUPLICATE_RESOURCE:
                    await asyncio.sleep(0.05)
                    continue
            break
    if mirror_first:
        await create_topics(source, configs, len(source.cluster.brokers))


def _has_all_brokers(cluster: SimulatedCluster) -> bool:
    image = cluster.newest_image()
    return image is not None and len(image.brokers) == len(cluster.brokers)


def _admin(workload: Workload) -> Admin:
    return Admin(bootstrap_servers=workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)


async def _tried(doings: Doings, name: str, call: Callable[[], Awaitable[object]]) -> bool:
    """Try a call, and return whether it succeeded."""
    try:
        await asyncio.wait_for(call(), CALL_MAX_S)
    except (KafkaError, TimeoutError):
        return False
    doings.noted(name)
    return True


async def operate_source(workload: Workload, doings: Doings, configs: dict[str, str], anew: bool) -> None:
    """Delete records, and delete and recreate a topic. Fault plans are responsible for changes of leader."""
    chance = workload.chance()
    admin = await started(lambda: _admin(workload))
    while not doings.calm:
        await workload.idle(exponential(chance, OPERATIONS_PER_S))
        if doings.calm:
            break
        if anew and chance.random() < 0.4:
            if await _tried(doings, "topic deleted", lambda: admin.delete_topics([ANEW])):
                await _make_again(workload, admin, doings, configs)
            continue
        place = TopicPartition(TRIMMED, 0)
        with suppress(KafkaError):
            end = (await admin.list_offsets({place: -1}))[place]
            if isinstance(end, int):
                behind = 0 if chance.random() < 0.5 else chance.randint(0, 20)
                await _tried(
                    doings, "records deleted", partial(admin.delete_records, {place: max(0, end - behind)})
                )
    await admin.stop()


class KeyedWorkload(Workload):
    """A workload whose transactions write to compacted topics under unique keys, so that an aborted record supersedes
    no other.
    """

    def key(self, topic: str, value: bytes) -> bytes | None:
        key = super().key(topic, value)
        return value if key is not None and value.startswith(WRITER) else key


async def renew_keys(workload: Workload) -> None:
    """Write few keys of the compacted topic repeatedly, until the workload is over."""
    chance, sequence = workload.chance(), 0
    producer = await started(
        lambda: Producer(
            bootstrap_servers=workload.cluster.bootstrap,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=2000,
        )
    )
    while not workload.over:
        await workload.idle(exponential(chance, RENEWALS_PER_S))
        sequence += 1
        with suppress(KafkaError):
            await producer.send(COMPACTED, b"renewed:%d" % sequence, b"renewed %d" % chance.randrange(3))
    await producer.stop()


async def delete_records(workload: Workload, doings: Doings) -> None:
    """Delete all current records of a partition at once."""
    admin = await started(lambda: _admin(workload))
    place = TopicPartition(TRIMMED, 0)
    await _tried(doings, "all records deleted", partial(admin.delete_records, {place: TO_THE_END}))
    await admin.stop()


async def _make_again(workload: Workload, admin: Admin, doings: Doings, configs: dict[str, str]) -> None:
    topic = NewTopic(
        ANEW, num_partitions=TOPICS[ANEW], replication_factor=len(workload.cluster.brokers), configs=configs
    )
    while True:
        try:
            await admin.create_topics([topic])
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            await asyncio.sleep(0.05)
        else:
            doings.noted("topic made anew")
            return


async def commit_offsets(workload: Workload, doings: Doings) -> None:
    """Commit a group's offsets at or before the ends of partitions."""
    chance = workload.chance()
    admin = await started(lambda: _admin(workload))
    places = [TopicPartition(PLAIN, 0), TopicPartition(EXACT, 0)]
    while not workload.over:
        await workload.idle(exponential(chance, 4.0))
        with suppress(KafkaError, TimeoutError):
            ends = await admin.list_offsets(dict.fromkeys(places, -1))
            offsets = {
                place: max(0, end - chance.choice((0, 0, 3)))
                for place, end in ends.items()
                if isinstance(end, int)
            }
            if offsets:
                await asyncio.wait_for(admin.alter_offsets(GROUP, offsets), CALL_MAX_S)
                doings.noted("offsets committed")
    await admin.stop()


async def operate_target(workload: Workload, doings: Doings, accepts: bool) -> None:
    """Pause and resume the mirror, and accept losses in some runs."""
    chance = workload.chance()
    admin = await started(lambda: _admin(workload))
    while not doings.calm:
        await workload.idle(exponential(chance, 1.5))
        if doings.calm:
            break
        if accepts and chance.random() < 0.6:
            await _tried(doings, "losses accepted", partial(admin.resume_mirror, MIRROR, accept_gap=True))
        elif chance.random() < 0.3:
            source = partial(admin.reconnect_mirror, MIRROR)
            await _tried(doings, "mirror reconnected", source)
        elif await _tried(doings, "mirror paused", partial(admin.pause_mirror, MIRROR)):
            await workload.idle(chance.uniform(0.05, 0.8))
            await _tried(doings, "mirror resumed", partial(admin.resume_mirror, MIRROR))
    await admin.stop()


async def promote(workload: Workload, doings: Doings, *, at_cut: bool) -> None:
    """Request the promotion until the cluster confirms it; repeated requests do no harm.

    Without a cut the mirror is promoted as it stands.
    """
    refused = 0
    doings.asked_s = workload.now()
    admin = await started(lambda: _admin(workload))
    while doings.answered_s is None:
        try:
            await admin.promote_mirror(MIRROR, at_cut=at_cut and refused < REFUSALS_MAX)
        except RequestTimedOut:
            await _look_whether_promoted(workload, admin, doings)
        except KafkaError as error:
            refused += error.code is ErrorCode.INVALID_REQUEST
            await asyncio.sleep(0.05)
        else:
            doings.answered_s = workload.now()
            doings.noted("promoted")
    await admin.stop()


async def _look_whether_promoted(workload: Workload, admin: Admin, doings: Doings) -> None:
    with suppress(KafkaError):
        (described,) = await admin.describe_mirrors([MIRROR])
        if described.phase is MirrorPhase.PROMOTED:
            doings.answered_s = workload.now()
            doings.noted("promoted, not all partitions led yet")


async def resume(workload: Workload, doings: Doings, *, accepting: bool) -> None:
    """Resume the mirror once, for good."""
    admin = await started(lambda: _admin(workload))
    call = partial(admin.resume_mirror, MIRROR, accept_gap=accepting)
    while not await _tried(doings, "resumed at the end", call):
        await asyncio.sleep(0.05)
    await admin.stop()


async def write_to_copies(workload: Workload, actor: str, acknowledged: Callable[[Send], None]) -> None:
    """Send records one after the other to existing topics of the mirror until the workload is over. Then send one to
    each partition until it is acknowledged.

    A producer that starts before the promotion has its producer id by then.
    """
    chance, sequence = workload.chance(), 0
    producer = await started(
        lambda: Producer(
            bootstrap_servers=workload.cluster.bootstrap,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=2000,
        )
    )
    last: list[TopicPartition] | None = None
    while last is None or last:
        if last is None and workload.over:
            last = _copies(workload)
            continue
        places = _copies(workload) if last is None else last
        if not places:
            await workload.idle(0.2)
            continue
        place = chance.choice(places) if last is None else last[-1]
        value = f"{actor}:{sequence}".encode()
        send = Send(actor, actor, *place, value, ALL_IN_SYNC, True, sequence, workload.now())
        sequence += 1
        workload.history.add(send)
        send.key = workload.key(place.topic, value)
        try:
            delivery = await producer.send(place.topic, value, send.key, partition=place.partition)
            delivery.add_done_callback(partial(delivered, workload, send))
            with suppress(KafkaError):
                await delivery
        except KafkaError as error:
            send.finish(workload.now(), error.code.name, tried_before=True)
        if send.outcome is Outcome.OK:
            acknowledged(send)
            if last:
                last.pop()
        await _wait(workload, chance, is_last=last is not None)
    await producer.stop()


async def _wait(workload: Workload, chance: Random, *, is_last: bool) -> None:
    if is_last:
        await asyncio.sleep(0.01)
    else:
        await workload.idle(exponential(chance, TRIES_PER_S))


def _copies(workload: Workload) -> list[TopicPartition]:
    image = workload.cluster.newest_image()
    if image is None:
        return []
    return sorted(
        TopicPartition(image.topics_by_id[topic_id].name, index)
        for topic_id, _ in image.mirrors.topics_of(MIRROR)
        for index in image.topics_by_id[topic_id].partitions
    )
