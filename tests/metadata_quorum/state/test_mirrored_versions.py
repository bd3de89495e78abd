"""Application versions of a source: announced with rounds of its mirror, and adopted by a promotion at a cut."""

from __future__ import annotations

import pytest

from ottla.protocol.cluster.mirror_versions import mirrored_versions
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.transaction_commands import (
    EndTransaction,
    EndTransactionResult,
    InitTransactionalId,
    InitTransactionalIdResult,
)

from .harness import assigned
from .mirrored import Mirrors, at_source, failback_of


@pytest.fixture
def cluster() -> Mirrors:
    """Return a cluster with mirror "m" and the copy t-0, at two rounds, of which the second is not reached."""
    cluster = Mirrors()
    assert not cluster.create_mirror().error_code
    cluster.follow(at_source(partitions=1, factor=3))
    cluster.announce(
        5, next_offset=50, versions_are_whole=True, versions=mirrored_versions([("job", 7), ("other", 1)])
    )
    cluster.reach(0, 100)
    cluster.announce(
        9, told_offset=50, next_offset=90, versions=mirrored_versions([("job", 8), ("other", -1), ("new", 0)])
    )
    return cluster


def versions(cluster: Mirrors) -> dict[str, int]:
    return {
        name: transaction.app_version
        for name, transaction in cluster.machine.image.transactions.by_id.items()
    }


def init(cluster: Mirrors, name: str) -> InitTransactionalIdResult:
    return cluster.do(InitTransactionalId(transactional_id=name, timeout_ms=1000), InitTransactionalIdResult)


def test_a_promotion_takes_the_versions_of_its_cut(cluster: Mirrors) -> None:
    assert versions(cluster) == {}
    assert cluster.promote_at_cut().cut == 5
    assert versions(cluster) == {"job": 7, "other": 1}
    cluster.machine.check()
    assert cluster.restored().image.transactions == cluster.machine.image.transactions
    begun = init(cluster, "job")
    assert (begun.error_code, begun.app_version) == (0, 7)
    ended = cluster.do(
        EndTransaction(
            transactional_id="job",
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            commits=True,
            bumps_epoch=True,
            app_version=7,
        ),
        EndTransactionResult,
    )
    assert (ended.error_code, ended.was_committed) == (0, True), "batch 7 is there"


def test_a_later_round_has_what_has_changed_until_then(cluster: Mirrors) -> None:
    cluster.reach(1, 200)
    assert cluster.promote_at_cut().cut == 9
    assert versions(cluster) == {"job": 8, "new": 0}


def test_an_id_that_is_further_here_stays_so(cluster: Mirrors) -> None:
    begun = init(cluster, "job")
    commit = EndTransaction(
        transactional_id="job",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        commits=True,
        bumps_epoch=True,
        app_version=20,
    )
    assert not cluster.do(commit, EndTransactionResult).error_code
    cluster.promote_at_cut()
    assert versions(cluster) == {"job": 20, "other": 1}
    assert cluster.machine.image.transactions.by_id["other"].phase is Phase.EMPTY


def test_after_a_failback_the_version_of_the_source_counts() -> None:
    """Batches 8 to 20 were discarded here; the source has committed others up to 9."""
    cluster = Mirrors()
    cluster.create(assigned("t", [1]))
    begun = init(cluster, "job")
    commit = EndTransaction(
        transactional_id="job",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        commits=True,
        bumps_epoch=True,
        app_version=20,
    )
    assert not cluster.do(commit, EndTransactionResult).error_code
    assert not cluster.do(failback_of(cluster, ("t",), 7, "back", discards=True), PlainResult).error_code
    cluster.announce(
        5, "back", next_offset=50, versions_are_whole=True, versions=mirrored_versions([("job", 9)])
    )
    cluster.reach(0, 100)
    assert not cluster.promote_at_cut("back").error_code
    assert versions(cluster) == {"job": 9}


def test_who_was_told_of_other_changes_begins_no_round(cluster: Mirrors) -> None:
    before = cluster.cuts()
    for told_offset in (-1, 50, 91):
        assert not cluster.announce(11, told_offset=told_offset, next_offset=110).error_code
        assert len(cluster.cuts().rounds) == len(before.rounds)
    assert not cluster.announce(8, told_offset=90, next_offset=90).error_code, "an older cut"
    assert len(cluster.cuts().rounds) == len(before.rounds)
    cluster.announce(11, told_offset=90, next_offset=90)
    assert [mirror_round.cut for mirror_round in cluster.cuts().rounds] == [5, 9, 11]


def test_a_snapshot_has_them(cluster: Mirrors) -> None:
    restored = cluster.restored()
    assert restored.image.mirror_cuts == cluster.machine.image.mirror_cuts
    assert restored.image.mirror_cuts.of("m").versions.at_cut(5) == {"job": 7, "other": 1}


def test_without_a_cut_none_is_taken(cluster: Mirrors) -> None:
    cluster.promote()
    assert versions(cluster) == {}
