"""Consume, transform, produce with four stock clients whose workers die midway; each record is copied once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from tests import java
from tests.integration.conftest import create
from tests.integration.stock_clients import ROOT
from tests.integration.test_confluent_kafka import produce
from tests.integration.test_transactions import NAMES
from tests.integration.transactional_clients import Confluent

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

RECORDS = 240
PARTITIONS = 2
DEATHS = ("sent", "offsets", "committing")


def work(
    client: str, bootstrap: str, source: str, target: str, *more: str
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tests.integration.transactional_copier", client, bootstrap, source, target]
    argv += ["--group", f"g-{source}", "--id", f"copier-{source}", *more]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def fill(bootstrap: str, topic: str) -> list[bytes]:
    """Write committed and aborted records, and return the committed ones."""
    client = Confluent(bootstrap)
    producer = client.producer(f"filler-{topic}")
    expected: list[bytes] = []
    for number in range(6):
        producer.begin()
        for record in range(RECORDS // 6):
            value = b"%d-%d" % (number, record)
            producer.send(topic, record % PARTITIONS, value)
            expected += [value] * (number != 3)
        producer.flush()
        (producer.abort if number == 3 else producer.commit)()
    client.close()
    return expected


@pytest.mark.parametrize("name", NAMES)
def test_each_record_is_copied_once_wherever_the_worker_dies(
    bootstrap: str, admin: AdminClient, name: str
) -> None:
    source, target = create(admin, PARTITIONS), create(admin, PARTITIONS)
    expected = fill(bootstrap, source)
    for moment in ("offsets",) if name == "java" else DEATHS:  # A JVM takes its time to start.
        done = work(name, bootstrap, source, target, "--dies", moment, "--after", "2")
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    done = work(name, bootstrap, source, target)
    assert done.returncode == 0, done.stderr
    copied = Confluent(bootstrap).read(target, committed=True)
    assert sorted(record.value for record in copied) == sorted(expected)


@java.needs_java
@pytest.mark.java
def test_the_transactions_of_kafkas_load_tool(bootstrap: str, one_partition: str) -> None:
    said = java.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", one_partition, "--num-records", str(RECORDS)),
        *("--record-size", "20", "--throughput", "1000", "--transactional-id", f"load-{one_partition}"),
        *("--transaction-duration-ms", "20"),
    )
    assert f"{RECORDS} records sent" in said
    assert len(Confluent(bootstrap).read(one_partition, committed=True)) == RECORDS


@java.needs_java
@pytest.mark.java
def test_kafkas_own_copier_is_killed_and_goes_on(bootstrap: str, admin: AdminClient) -> None:
    """The copier also aborts at random.

    Its source has no markers, since the copier would count markers as missing messages.
    """
    source, target = create(admin, 1), create(admin, 1)
    produce(bootstrap, source, [b"%d" % number for number in range(RECORDS)], **{"enable.idempotence": True})
    written = Confluent(bootstrap).read(source, committed=True)
    copier = java.command(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", f"g-{source}", "--transaction-size", "20"),
        *("--transactional-id", f"copier-{source}", "--enable-random-aborts"),
    )
    first = subprocess.Popen(copier, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert first.stdout is not None
    for line in first.stdout:
        if '"totalProcessed":' in line and '"totalProcessed":0' not in line:
            break
    first.kill()
    first.communicate()
    second = subprocess.run(copier, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    copied = Confluent(bootstrap).read(target, committed=True)
    assert [record.value for record in copied] == [record.value for record in written]
