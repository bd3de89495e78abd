"""The metrics of share partitions: deliveries, acknowledgements, locks, lag, and waiting fetches."""

from __future__ import annotations

from typing import Any

from ottla.dataplane.share.leader.metrics import SharePartitionMetrics

from .share_broker import ACCEPT, GROUP, REJECT, RELEASE, TOPIC, Member, ShareBroker, until


def measured(broker: ShareBroker) -> dict[str, Any]:
    """Return each metric's value, or its values by label for metrics with one label that matters."""
    metrics = SharePartitionMetrics(broker.partitions, broker.sessions, lambda: broker.fetches.waiting_count)
    found: dict[str, Any] = {}
    for family in metrics.metric_families():
        rows = dict(family.rows)
        only = rows.get((), rows.get((GROUP, TOPIC, 0)))
        found[family.metric.name] = rows if only is None else only
    return found


async def test_deliveries_acknowledgements_and_locks_are_counted(broker: ShareBroker) -> None:
    broker.write(1, batches=6)
    member = Member(broker)
    assert await member.take(max_records=4, share_acquire_mode=1) == [(0, 3, 1)]
    found = measured(broker)
    assert found["ottla_share_partition_acquired_records"] == 4
    assert found["kafka_server_sharesessioncache_sharesessionscount"] == 1
    assert found["ottla_share_partition_lag"] == 6
    await member.acknowledge((0, 0, [ACCEPT]), (1, 1, [REJECT]), (2, 2, [RELEASE]))
    assert await member.take() == [(2, 2, 2), (4, 5, 1)]
    found = measured(broker)
    assert found["ottla_share_records_acquired_total"] == 7
    assert found["ottla_share_records_redelivered_total"] == 1
    assert found["ottla_share_records_archived_total"] == 1
    assert found["ottla_share_partition_start_offset"] == 2
    assert found["ottla_share_partition_lag"] == 4, "offsets 2 to 5"
    assert found["kafka_server_sharegroupmetrics_recordacknowledgementspersec"] == {
        ("gap",): 0,
        ("accept",): 1,
        ("release",): 1,
        ("reject",): 1,
        ("renew",): 0,
    }
    assert found["kafka_server_brokertopicmetrics_totalsharefetchrequestspersec"] >= 2
    assert found["kafka_server_brokertopicmetrics_totalshareacknowledgementrequestspersec"] == 1
    member.send(max_wait_ms=20_000)
    await until(lambda: measured(broker)["ottla_share_fetches_waiting"] == 1, "a waiting fetch")


async def test_finished_records_behind_the_start_offset_are_no_lag(broker: ShareBroker) -> None:
    broker.write(1, batches=4)
    member = Member(broker)
    await member.take()
    await member.acknowledge((1, 2, [ACCEPT]))
    found = measured(broker)
    assert (found["ottla_share_partition_start_offset"], found["ottla_share_partition_lag"]) == (0, 2)
