"""Auditing with a real cluster: counts are exact despite failures, and omitted records of a consumer are named."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.sync
from ottla.cli.commands.audit.reading import Audit, AuditQuestion, audit
from ottla.cli.main import main
from ottla.client.admin import Admin, NewTopic
from ottla.client.auditing.comparison import AuditWindow
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.producing.report_sender import ReportSender
from ottla.client.records import TopicPartition
from ottla.client.transactions.writer import TransactionWriter
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.cluster import RunningCluster, running_cluster

pytestmark = pytest.mark.cluster

NOON_MS = 1_769_860_800_000
"""2026-01-31T12:00Z."""
TEN_MINUTES = 600_000
EVERYTHING = AuditWindow(0, 1 << 62, 1 << 62)
AT_ONCE = {"audit_interval_ms": 50}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "1000",
        "log.retention.ms": "-1",
    }
    directory = tmp_path_factory.mktemp("auditing")
    with running_cluster(directory, quorum=1, brokers=3, settings=settings) as running:
        yield running


async def create(cluster: RunningCluster, *names: str, **configs: str) -> None:
    topics = [NewTopic(name, 3, 3, configs={"min.insync.replicas": "2"} | configs) for name in names]
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics(topics)


async def compared(cluster: RunningCluster, of: str, *tiers: str, log: bool = False) -> Audit:
    """Return the audit of topic `of`, whose reports are in the topic `of`-audit."""
    return await audit(
        AuditQuestion({"bootstrap_servers": cluster.bootstrap}, f"{of}-audit", [of], tiers, log, EVERYTHING)
    )


def records(found: Audit) -> dict[str, list[int]]:
    """Return the record counts of each tier, one for each bucket."""
    tiers = found.rows[0].amounts
    return {tier: [row.amounts[tier].records for row in found.rows] for tier in tiers}


async def produce(
    cluster: RunningCluster, topic: str, count: int, partition: int | None = None, **options: object
) -> None:
    """Produce six records a minute from noon on, so 60 in a bucket."""
    auditing = {"audit_topic": f"{topic}-audit", **options}
    async with Producer(bootstrap_servers=cluster.bootstrap, **auditing) as producer:  # type: ignore[arg-type]
        for number in range(count):
            stamp = NOON_MS + 10_000 * number
            await producer.send(topic, b"v%d" % number, partition=partition, timestamp_ms=stamp)


async def test_what_a_consumer_skips_is_named(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await create(cluster, "skipped")
    await produce(cluster, "skipped", 180, partition=0)
    here = TopicPartition("skipped", 0)
    async with Consumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", audit_topic="skipped-audit"
    ) as consumer:
        consumer.assign([here])
        async for record in consumer:
            if record.offset == 69:
                consumer.seek(here, 82)
            elif record.offset == 109:
                consumer.seek(here, 130)
            elif record.offset == 179:
                break
    found = await compared(cluster, "skipped")
    assert records(found) == {"producer": [60, 60, 60], "consumer": [60, 38, 50]}
    assert [row.state for row in found.rows] == ["ok", "gap", "gap"]

    words = ["audit", "-b", cluster.bootstrap, "--audit-topic", "skipped-audit"]
    assert await asyncio.to_thread(main, words) == 1
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC\tBUCKET\tPRODUCER\tCONSUMER\tDIFFERENCE\tPERCENT\tSTATE",
        "skipped\t2026-01-31T12:00-12:10Z\t60\t60\t0\t0%\tok",
        "skipped\t2026-01-31T12:10-12:20Z\t60\t38\t-22\t-36.67%\tgap",
        "skipped\t2026-01-31T12:20-12:30Z\t60\t50\t-10\t-16.67%\tgap",
        "2 buckets have gaps: skipped 2026-01-31T12:10-12:20Z lacks 22 records in tier consumer (of 60); "
        "skipped 2026-01-31T12:20-12:30Z lacks 10 records in tier consumer (of 60)",
    ]
    window = ["--from", "2026-01-31T12:00:00Z", "--to", "2026-01-31T12:10:00Z"]
    assert await asyncio.to_thread(main, [*words, *window, "--log"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "complete"


async def test_records_that_are_no_reports_are_told_of(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await create(cluster, "mixed", "mixed-audit")
    await produce(cluster, "mixed", 60)
    async with Producer(bootstrap_servers=cluster.bootstrap) as stranger:
        await stranger.send_and_wait("mixed-audit", b'{"version":9}', partition=1)
    words = ["audit", "-b", cluster.bootstrap, "--audit-topic", "mixed-audit", "--log", "-o", "json"]
    assert await asyncio.to_thread(main, words) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["complete"] is True
    assert (
        "records of 'mixed-audit' that are no reports: 1 (the first: partition 1, offset 0: version 9"
        in output.err
    )


async def test_the_log_is_not_blamed_for_what_was_deleted(cluster: RunningCluster) -> None:
    await create(cluster, "trimmed")
    await produce(cluster, "trimmed", 180, partition=0)
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.delete_records({TopicPartition("trimmed", 0): 100})
    found = await compared(cluster, "trimmed", log=True)
    assert records(found) == {"producer": [60, 60, 60], "log": [0, 20, 60]}
    assert [row.state for row in found.rows] == ["expired", "expired", "ok"]


async def test_each_record_counts_once_and_only_once_it_was_given(cluster: RunningCluster) -> None:
    await create(cluster, "given")
    await produce(cluster, "given", 60)
    here = TopicPartition("given", 0)
    async with Producer(bootstrap_servers=cluster.bootstrap, audit_topic="given-audit") as producer:
        for number in range(40):
            await producer.send("given", b"v", partition=0, timestamp_ms=NOON_MS + TEN_MINUTES + number)
    options = {"bootstrap_servers": cluster.bootstrap, "audit_topic": "given-audit", **AT_ONCE}
    async with Consumer(auto_offset_reset="earliest", group_id="slow", **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["given"])
        async for record in consumer:
            if record.timestamp_ms == NOON_MS + TEN_MINUTES + 19:
                break  # the remaining fetched records are not given out
        position = await consumer.position(here)
        for _ in range(3):
            consumer.seek(here, position - 15)
            for _ in range(15):
                await consumer.getone()
        others = {
            partition: await consumer.position(partition) for partition in consumer.assignment() - {here}
        }
    given = position + sum(others.values())
    assert sum(records(await compared(cluster, "given"))["consumer:slow"]) == given

    async with Consumer(auto_offset_reset="earliest", group_id="slow", **options) as again:  # type: ignore[arg-type]
        again.subscribe(["given"])  # nothing was committed: another instance reads it all once more
        for _ in range(100):
            await again.getone()
    found = await compared(cluster, "given")
    assert sum(records(found)["consumer:slow"]) == given + 100
    assert "surplus" in {row.state for row in found.rows}


async def test_rows_of_columns_count_as_records_do(cluster: RunningCluster) -> None:
    """Rows count by bucket and bytes, once however often they are read, besides single reads."""
    pytest.importorskip("pyarrow")
    await create(cluster, "columns")
    here = TopicPartition("columns", 0)
    async with Producer(bootstrap_servers=cluster.bootstrap, audit_topic="columns-audit") as producer:
        for number in range(180):
            key = None if number % 3 else b"key"
            stamp = NOON_MS + 10_000 * number
            await producer.send("columns", b"v" * number, key=key, partition=0, timestamp_ms=stamp)
    options = {"bootstrap_servers": cluster.bootstrap, "audit_topic": "columns-audit", **AT_ONCE}
    async with Consumer(auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([here])
        for _ in range(20):
            await consumer.getone()
        rows = 0
        while rows < 100:
            rows += (await consumer.fetch_arrow(timeout_ms=5_000, max_records=33)).num_rows
        consumer.seek(here, 10)
        while await consumer.position(here) < 150:
            await consumer.fetch_arrow(timeout_ms=5_000, max_records=7)
        for _ in range(10):
            await consumer.getone()
    found = await compared(cluster, "columns")
    assert records(found) == {"producer": [60, 60, 60], "consumer": [60, 60, 40]}
    first, _, last = (row.amounts for row in found.rows)
    assert first["consumer"] == first["producer"]
    assert last["consumer"].bytes == sum(number + (0 if number % 3 else 3) for number in range(120, 160))


async def test_what_is_aborted_does_not_count(cluster: RunningCluster) -> None:
    await create(cluster, "decided")
    auditing = {"audit_topic": "decided-audit", **AT_ONCE}
    async with Producer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id="decides",
        **auditing,  # type: ignore[arg-type]
    ) as producer:

        async def write(count: int) -> None:
            for _ in range(count):
                await producer.send_and_wait("decided", b"v", timestamp_ms=NOON_MS)

        async with producer.transaction():
            await write(3)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await write(5)
                raise ZeroDivisionError
        async with producer.transaction(app_version=1):
            await write(7)
        async with producer.transaction(app_version=1) as again:
            await write(11)
        assert again.result is not None
        assert again.result.was_committed
        shared = await producer.begin()
        await write(1)
        for count, finishes in ((2, True), (4, True), (8, False)):
            async with TransactionWriter.join(
                shared.token, bootstrap_servers=cluster.bootstrap, audit_topic="decided-audit"
            ) as writer:
                for _ in range(count):
                    await writer.send("decided", b"v", timestamp_ms=NOON_MS)
                receipt = await writer.finish() if finishes else None
            if receipt is not None and count == 2:
                shared.include(receipt)
        await shared.commit()
        await producer.begin_transaction()
        await write(13)  # open when the producer stops, which aborts it
    found = await compared(cluster, "decided", log=True)
    assert records(found) == {"producer": [3 + 7 + 1 + 2], "log": [3 + 7 + 1 + 2]}

    async with Consumer(
        "decided",
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        audit_topic="decided-audit",
    ) as consumer:
        seen = 0
        async for transaction in consumer.transactions():
            seen += sum(map(len, transaction.records.values()))
            if seen == 13:
                break
    assert records(await compared(cluster, "decided"))["consumer"] == [13]


async def test_counts_are_exact_while_brokers_die(cluster: RunningCluster) -> None:
    await create(cluster, "survived", "survived-audit")
    options = {"bootstrap_servers": cluster.bootstrap, "audit_topic": "survived-audit", **AT_ONCE}
    total = 3_000
    async with Consumer(auto_offset_reset="earliest", group_id="reads", **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["survived"])

        async def read() -> None:
            got = 0
            async with asyncio.timeout(60):
                while got < total:
                    got += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))

        reading = asyncio.create_task(read())
        async with Producer(linger_ms=1, **options) as producer:  # type: ignore[arg-type]
            for number in range(total):
                stamp = NOON_MS + number * 1_000
                await producer.send("survived", b"%d" % number, partition=number % 3, timestamp_ms=stamp)
                if number % 100 == 0:
                    await asyncio.sleep(0.02)  # so that reports are in progress as well
                if number in (1_000, 2_000):
                    topic = "survived" if number == 1_000 else "survived-audit"
                    leader = await asyncio.to_thread(cluster.leader, topic, 0)
                    assert leader is not None
                    victim = cluster.broker(leader)
                    await asyncio.to_thread(victim.kill9)
                    if number == 1_000:
                        await asyncio.to_thread(victim.restart)
                        await asyncio.to_thread(cluster.wait_until_in_sync, "survived")
                        await asyncio.to_thread(cluster.wait_until_in_sync, "survived-audit")
        await reading
    victim.restart()
    await asyncio.to_thread(cluster.wait_until_in_sync, "survived")
    found = await compared(cluster, "survived", log=True)
    assert records(found) == dict.fromkeys(("producer", "log", "consumer:reads"), [600] * 5)
    assert {row.state for row in found.rows} == {"ok"}


async def test_counts_that_cannot_be_reported_are_named(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await create(cluster, "unreported")
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("unreported-audit", configs={"max.message.bytes": "100"})])
    with caplog.at_level(logging.WARNING):
        await produce(cluster, "unreported", 7)
    assert "the counts of 7 records are lost to the audit" in caplog.text
    assert "MESSAGE_TOO_LARGE" in caplog.text
    async with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        here = [TopicPartition("unreported", index) for index in range(3)]
        assert sum((await consumer.end_offsets(here)).values()) == 7, "the records themselves are there"


async def test_a_writer_whose_counts_cannot_be_reported_still_counts(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(_: ReportSender) -> list[int]:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you")

    monkeypatch.setattr(ReportSender, "partitions", none)
    await create(cluster, "joined")
    async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="joins") as owner:
        shared = await owner.begin()
        options = {"bootstrap_servers": cluster.bootstrap, "audit_topic": "joined-audit"}
        async with TransactionWriter.join(shared.token, **options) as writer:  # type: ignore[arg-type]
            await writer.send("joined", b"v", partition=0)
            receipt = await writer.finish()
        assert caplog.messages == [
            "the counts of 1 records are lost to the audit: the last reports to 'joined-audit' were not acknowledged "
            "(TOPIC_AUTHORIZATION_FAILED: not for you)"
        ]
        await shared.commit([receipt])
    here = TopicPartition("joined", 0)
    async with Consumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([here])
        consumer.seek(here, 0)
        assert (await consumer.getone()).value == b"v"


async def test_the_brokers_time_is_the_records_time(cluster: RunningCluster) -> None:
    await create(cluster, "stamped", **{"message.timestamp.type": "LogAppendTime"})
    await produce(cluster, "stamped", 20, compression_type="lz4", linger_ms=5)
    found = await compared(cluster, "stamped", log=True)
    assert {row.state for row in found.rows} == {"ok"}
    assert sum(records(found)["log"]) == 20


def test_blocking_clients_are_audited(cluster: RunningCluster) -> None:
    asyncio.run(create(cluster, "blocking"))
    with ottla.sync.Producer(bootstrap_servers=cluster.bootstrap, audit_topic="blocking-audit") as producer:
        for number in range(50):
            producer.send("blocking", b"%d" % number, timestamp_ms=NOON_MS)
    with ottla.sync.Consumer(
        "blocking",
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        audit_topic="blocking-audit",
        audit_tier="half",
    ) as consumer:
        for _ in range(25):
            consumer.getone(timeout_ms=10_000)
    found = asyncio.run(compared(cluster, "blocking", "producer", "half"))
    assert records(found) == {"producer": [50], "half": [25]}


async def test_what_went_through_a_spool_counts_once_it_is_delivered(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    await create(cluster, "spooled", "spooled-audit")
    await produce(cluster, "spooled", 65, spool_dir=tmp_path)
    found = await compared(cluster, "spooled", log=True)
    assert records(found) == {"producer": [60, 5], "log": [60, 5]}
