"""Consume, transform, produce: workers of four stock clients that die in the middle; each record is copied once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import create
from tests.integration.stock_clients import ROOT
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
    """Records of which some are committed and others aborted; the committed ones."""
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
    assert sorted(one.value for one in copied) == sorted(expected)
