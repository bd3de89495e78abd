"""Offsets of transactions in a replicated partition: what its log makes of them, and whom it refuses."""

from __future__ import annotations

from pathlib import Path

from ottla.dataplane.coordinated_log.replicated_log import ReplicatedLog
from ottla.dataplane.groups.commit_checks import Committer
from ottla.dataplane.groups.offsets import CommittedOffset
from ottla.dataplane.groups.shard import Shard
from ottla.protocol.errors import ErrorCode
from tests.dataplane.replication.harness import ReplicasByHand

from .test_shard import LIMITS, Clock
from .test_transactional_offsets import T0, WRITER, commit_in, seen


async def loaded(cluster: ReplicasByHand, broker_id: int) -> Shard:
    shard = Shard(ReplicatedLog(cluster[broker_id].partition), LIMITS, Clock())
    await shard.load()
    return shard


async def test_a_transaction_is_open_in_the_log_until_its_marker_is_replicated(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path)
    cluster.elect(1)
    shard, partition = await loaded(cluster, 1), cluster[1].partition
    outcomes = commit_in(shard, 5)
    assert dict(partition.log.transactions.open) == {WRITER.producer_id: 0}
    assert outcomes == []
    cluster.sync(1, 2, 3)
    assert outcomes == [ErrorCode.NONE]
    cluster.elect(2)
    shard.close()
    shard, partition = await loaded(cluster, 2), cluster[2].partition
    assert (seen(shard), shard.offsets.pending.has("g", T0)) == (None, True)
    end = partition.append_marker(*WRITER, commit=True, number=1, commit_index=1)
    codes: list[ErrorCode] = []
    partition.on_high_watermark(end, codes.append)
    assert codes == []
    cluster.sync(2, 1, 3)
    assert codes == [ErrorCode.NONE]
    shard.transaction_ended(WRITER.producer_id, end, committed=True)
    for each in (shard, await loaded(cluster, 2)):
        assert (seen(each), each.offsets.pending.has("g", T0)) == (5, False)
        each.check()


async def test_whom_the_partition_refuses(tmp_path: Path) -> None:
    cluster = ReplicasByHand(tmp_path, min_in_sync=2)
    cluster.elect(1)
    shard, partition = await loaded(cluster, 1), cluster[1].partition
    many = {("t", index): CommittedOffset(5, -1, "m" * 4096, 0) for index in range(300)}
    outcomes: list[ErrorCode] = []
    shard.commit_in_transaction("g", Committer(), WRITER, many, outcomes.append)
    cluster.elect(1, isr=(1,))
    outcomes += commit_in(shard, 5)
    cluster.elect(2, isr=(2, 3))
    outcomes += commit_in(shard, 5)
    assert outcomes == [
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ]
    assert partition.log.log_end_offset == 0
    assert not shard.offsets.pending.of_group("g")
