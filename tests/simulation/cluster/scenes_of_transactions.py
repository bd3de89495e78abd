"""Short scenes of transactions, played with a real state machine of the quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path

from ottla.dataplane.log.compaction.transactions import AbortedRange, TransactionFilter
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.transaction_commands import ExpireTransactions, OpenTransaction
from tests.dataplane.transactions.broker_beside_a_quorum import Beside, beside_a_quorum
from tests.dataplane.transactions.test_markers import markers_of, written
from tests.metadata_quorum.state.test_transaction_connections import ending
from tests.metadata_quorum.state.transactional import Identity, Transactions, identity
from tests.simulation.cluster.scenes import SCENES as SCENES
from tests.simulation.cluster.scenes import Scene, shows

AsyncScene = Callable[[Beside], Awaitable[bool]]


def beside(scene: AsyncScene) -> Scene:
    """Make a scene of a coroutine that gets a broker beside a quorum."""

    async def play(folder: Path) -> bool:
        async with beside_a_quorum(folder) as broker:
            return await scene(broker)

    @wraps(scene)
    def played(folder: Path) -> bool:
        return asyncio.run(play(folder))

    return played


def led_again(broker: Beside) -> None:
    """Let the broker lead again, in the next leader epoch."""
    broker.quorum.fence(1)
    broker.catch_up()
    broker.quorum.unfence(1)
    broker.catch_up()


@shows("new-leader-presumes-abort")
@beside
async def a_commit_becomes_an_abort(broker: Beside) -> bool:
    who = await written(broker, "x", 0)
    broker.quorum.fence(1)
    broker.quorum.end(who)
    broker.quorum.unfence(1)
    broker.catch_up()
    log = broker.partition().log
    return log.transactions.aborted(0, log.log_end_offset) != []


@shows("new-leader-writes-markers-again")
@beside
async def a_marker_is_there_twice(broker: Beside) -> bool:
    who = await written(broker, "x", 0)
    broker.quorum.answers = False
    broker.quorum.end(who)
    broker.catch_up()
    led_again(broker)
    return len(markers_of(broker)) != 1


async def with_a_marker_that_one_has(broker: Beside) -> Identity:
    who = broker.quorum.begin()
    broker.quorum.add(who, broker.quorum.places(0, topic="pair"))
    broker.catch_up()
    await broker.produce(who, 0, topic="pair")
    broker.quorum.end(who)
    broker.catch_up()
    return who


@shows("marker-reported-at-append")
@beside
async def it_is_complete_before_anybody_has_copied_the_marker(broker: Beside) -> bool:
    await with_a_marker_that_one_has(broker)
    for _ in range(20):
        await asyncio.sleep(0)
    return broker.quorum.state().phase.is_over


@shows("ended-before-it-is-seen")
@beside
async def its_client_is_told_before_readers_see_it(broker: Beside) -> bool:
    await with_a_marker_that_one_has(broker)
    try:
        await broker.completion_waits.over("x", broker.quorum.state().number, 0.01)
    except KafkaError:
        return False
    return True


@shows("markers-in-any-order")
@beside
async def who_was_decided_first_stands_behind(broker: Beside) -> bool:
    first, second = await written(broker, "x", 0), await written(broker, "y", 0)
    broker.quorum.end(first, name="x")
    broker.quorum.end(second, name="y")
    broker.catch_up()
    return markers_of(broker) != [first[0], second[0]]


@shows("any-batch-accepted")
@beside
async def a_batch_opens_what_nobody_knows(broker: Beside) -> bool:
    who = await written(broker, "x", 0)
    broker.quorum.end(who, commits=False, bumps=False)
    broker.catch_up()
    try:
        await broker.produce(who, 1)
    except KafkaError:
        return False
    return True


@shows("leader-forgets-open-transactions")
@beside
async def what_is_open_is_shown(broker: Beside) -> bool:
    who = await written(broker, "x", 0)
    led_again(broker)
    await broker.produce(who, 1)
    partition = broker.partition()
    return partition.log.transactions.last_stable_offset(partition.high_watermark) > 0


@shows("delayed-end-taken")
def a_request_of_an_older_connection_ends_it(_folder: Path) -> bool:
    cluster = Transactions()
    older = cluster.origin(1)
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    return ending(cluster, who, older) is ErrorCode.NONE


@shows("timeout-keeps-epoch")
def a_producer_goes_on_after_its_timeout(_folder: Path) -> bool:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0))
    number = cluster.state().number
    late = ExpireTransactions(transactions=[OpenTransaction(transactional_id="x", number=number)])
    cluster.do(late, PlainResult)
    cluster.write_markers()
    return cluster.add(who, cluster.places(1)).error_code == ErrorCode.NONE


@shows("every-writer-committed")
def who_was_not_chosen_counts(_folder: Path) -> bool:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, ())
    writer = identity(cluster.join(owner))
    cluster.add(writer, cluster.places(0))
    cluster.end(owner)
    return cluster.state().writers[writer[0]].committed


@shows("version-committed-again")
def a_version_is_committed_again(_folder: Path) -> bool:
    cluster = Transactions()
    owner = cluster.begin()
    cluster.add(owner, cluster.places(0))
    owner = identity(cluster.end(owner, version=7))
    cluster.write_markers()
    cluster.add(owner, cluster.places(0))
    return not cluster.end(owner, version=7).was_committed


@shows("compaction-counts-aborted")
def what_was_aborted_is_the_last_of_its_key(_folder: Path) -> bool:
    aborted = AbortedRange(producer_id=1, first_offset=4, marker_offset=6)
    return not TransactionFilter([aborted]).discards_data(1, 5)
