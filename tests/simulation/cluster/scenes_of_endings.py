"""Scenes of the mutants in `mutants_of_endings`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.metadata_quorum.transaction_questions import TransactionAnswers
from ottla.protocol.cluster.transaction_table import by_topic
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.transaction_questions import AskCut, CutTold
from ottla.protocol.records.record_batch import TRANSACTIONAL_FLAG
from tests.dataplane.log.batches import make_batch
from tests.dataplane.transactions.broker_beside_a_quorum import Beside
from tests.dataplane.transactions.test_cuts import cutting
from tests.metadata_quorum.state.transactional import Transactions, identity
from tests.metadata_quorum.test_marker_reports import Reporting
from tests.simulation.cluster.scenes import SCENES as SCENES
from tests.simulation.cluster.scenes import shows
from tests.simulation.cluster.scenes_of_transactions import beside


@shows("end-told-before-all-markers")
def it_is_settled_with_the_first_report(_folder: Path) -> bool:
    reporting = Reporting()
    who = reporting.begin()
    reporting.add(who, reporting.places(0, 1))
    number = reporting.end(who).number
    return reporting.note(reporting.report(0, who[0], number)) != []


@shows("cut-of-an-old-image")
def who_leads_no_more_says_where_to_cut(folder: Path) -> bool:
    """Return whether a deposed leader names a cut below the next leader's records, which count for the cut."""

    async def play() -> bool:
        async with cutting(folder) as here:
            quorum = here.broker.quorum
            places = quorum.places(0, topic="pair")
            who = quorum.begin()
            quorum.add(who, places)
            here.broker.catch_up()
            quorum.fence(1)
            quorum.end(who)
            quorum.write_markers(places)
            found = await here.find(places)
            (offset,) = (await here.offsets(found.cut, places, found.metadata_offset)).values()
            return found.cut == 0 and not isinstance(offset, ErrorCode)

    return asyncio.run(play())


@shows("cut-counts-what-is-not-marked")
def a_cut_is_told_that_has_no_marker_yet(_folder: Path) -> bool:
    cluster = Transactions()
    who = cluster.begin()
    cluster.add(who, cluster.places(0, 1))
    decided = cluster.end(who).commit_index
    cluster.write_markers(cluster.places(0))
    image = cluster.machine.image
    question = AskCut(question=1, topics=by_topic(cluster.places(0, 1)))
    answer = TransactionAnswers().answer(1, question, image.transactions, image.offset)
    assert isinstance(answer, CutTold)
    return answer.commit_index >= decided


@shows("writer-epoch-not-raised")
@beside
async def a_late_batch_passes_for_one_of_the_next_writer(broker: Beside) -> bool:
    owner = broker.quorum.begin()
    for commits in (False, True):
        broker.quorum.add(owner, broker.solo(1))
        writer = identity(broker.quorum.join(owner))
        broker.quorum.add(writer, broker.solo(0))
        broker.catch_up()
        if commits:
            break
        await broker.produce(writer, 0)
        late = writer
        owner = identity(broker.quorum.end(owner, commits=False))
        broker.quorum.write_markers()
        broker.catch_up()
    try:
        await broker.produce(late, 1)
    except KafkaError:
        return False
    return True


@shows("own-commit-torn-by-unclean-election")
@beside
async def who_was_elected_uncleanly_aborts_a_commit(broker: Beside) -> bool:
    who, places = broker.quorum.begin(), broker.quorum.places(0, topic="pair")
    broker.quorum.add(who, places)
    broker.catch_up()
    await broker.produce(who, 0, topic="pair")
    broker.quorum.fence(1)
    broker.quorum.end(who)
    broker.quorum.unfence(1)
    broker.quorum.fence(2)
    broker.quorum.elect_uncleanly("pair")
    broker.catch_up()
    log = broker.partition("pair").log
    return log.transactions.aborted(0, log.log_end_offset) != []


@shows("retention-takes-open-transactions")
def what_is_open_grows_too_old(folder: Path) -> bool:
    log = PartitionLog.open(
        folder / "t-0",
        LogConfig(segment_bytes=150, retention_ms=1000),
        clean_shutdown=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=0,
    )
    for sequence in range(4):
        batch = make_batch(timestamp=0, attributes=TRANSACTIONAL_FLAG, producer=(7, 0, sequence))
        log.produced.append(memoryview(batch), 1, 0)
    for _ in range(2):  # The known producers must be durable first.
        log.old_segments.retain(log.log_end_offset, 5000)
        log.flush()
    lost = log.log_start_offset > 0
    log.close(clean=False)
    return lost
