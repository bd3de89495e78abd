"""Scenes of the mutants in `mutants_of_duplicates`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ottla.protocol.errors import ErrorCode, KafkaError
from tests.dataplane.replication.harness import ReplicasByHand
from tests.dataplane.transactions.broker_beside_a_quorum import Beside
from tests.metadata_quorum.state.transactional import Identity
from tests.simulation.cluster.scenes import shows
from tests.simulation.cluster.scenes_of_endings import SCENES as SCENES
from tests.simulation.cluster.scenes_of_transactions import beside


def too_few_in_sync(folder: Path) -> tuple[ReplicasByHand, ErrorCode | None]:
    """Append a batch, then make the ISR too small; return the cluster and the producer's answer."""
    cluster = ReplicasByHand(folder, min_in_sync=2)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    sent = cluster[1].produce(b"a", producer=(7, 0, 0))
    epoch = cluster.state.partition_epoch + 1
    cluster.state = replace(cluster.state, isr=frozenset({1}), partition_epoch=epoch)
    cluster[1].hear()
    return cluster, sent.outcome


@shows("appended-batch-refused")
def what_is_in_the_log_is_said_to_be_missing(folder: Path) -> bool:
    cluster, _ = too_few_in_sync(folder)
    try:
        cluster[1].produce(b"a", producer=(7, 0, 0))
    except KafkaError as error:
        return error.code is ErrorCode.NOT_ENOUGH_REPLICAS
    return False


@shows("waiting-given-up-below-min-isr")
def who_waits_is_sent_away(folder: Path) -> bool:
    _, code = too_few_in_sync(folder)
    return code is not None


@shows("duplicate-of-a-former-epoch")
def a_new_epoch_counts_from_0_and_is_not_listened_to(folder: Path) -> bool:
    cluster = ReplicasByHand(folder)
    cluster.elect(1)
    cluster.sync(1, 2, 3)
    cluster[1].produce(b"a", producer=(7, 0, 0))
    return cluster[1].produce(b"b", producer=(7, 1, 0)).duplicate


async def with_an_aborted_batch(broker: Beside) -> Identity:
    """Abort a batch in the quorum before the broker learns of it."""
    who = broker.quorum.begin()
    broker.quorum.add(who, broker.solo(0))
    broker.catch_up()
    await broker.produce(who, 0)
    broker.quorum.end(who, commits=False, bumps=False)
    return who


async def is_acknowledged(broker: Beside, who: Identity) -> bool:
    try:
        await broker.produce(who, 0)
    except KafkaError:
        return False
    return True


@shows("duplicate-of-an-ended-transaction")
@beside
async def a_record_that_is_nowhere_is_acknowledged(broker: Beside) -> bool:
    who = await with_an_aborted_batch(broker)
    broker.catch_up()
    return await is_acknowledged(broker, who)


@shows("duplicate-of-a-deposed-leader")
@beside
async def who_has_not_heard_of_the_marker_acknowledges(broker: Beside) -> bool:
    return await is_acknowledged(broker, await with_an_aborted_batch(broker))
