"""`ottla spark run` as users run it: ended by Ctrl-C, killed, and restarted on the same checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ottla.sync import Admin
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.pipelines.driver import Driver, wait_gone
from tests.spark_integration.pipelines.flights import (
    expected,
    in_table,
    in_topic,
    publish,
    publish_end,
    some_flights,
)

File = Callable[[Mapping[str, str]], Path]
MANY = some_flights(6000, days=40)


@pytest.mark.timeout(240)
def test_ended_by_ctrl_c_and_started_again(
    spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    file = pipeline_file({"source.maxOffsetsPerTrigger": "1500"})
    publish(servers, flights, MANY)
    with Driver(file, servers) as driver:
        driver.wait_until(lambda: driver.under_way() == 1, "the second micro-batch is under way")
        assert driver.interrupt() == 0
        first = driver.told
    assert in_topic(spark_cluster, delays) == in_table(file), "no micro-batch is in one sink only"
    publish_end(servers, flights)
    with Driver(file, servers, ["--once", "--set", "source.maxOffsetsPerTrigger=10000"]) as driver:
        assert driver.wait() == 0, driver.said
        last = driver.told
    assert last[0]["batch"] == first[-1]["batch"] + 1
    assert last[-1]["behind"] == 0
    assert sum(batch["rows"] for batch in first + last) == len(MANY) + 1
    assert sum(batch["late"] for batch in first + last) == 0
    assert in_topic(spark_cluster, delays) == in_table(file) == expected(MANY)
    wait_gone(str(file))


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_killed_in_mid_batch_again_and_again(
    spark_cluster: LocalCluster, topics: tuple[str, str], pipeline_file: File
) -> None:
    """The batches complete windows, so that both sinks have something to write."""
    servers, (flights, delays) = spark_cluster.bootstrap_servers, topics
    file = pipeline_file({"source.maxOffsetsPerTrigger": "700"})
    publish(servers, flights, MANY)
    for killed_in in (1, 2, 4):
        with Driver(file, servers) as driver:
            driver.wait_until(lambda number=killed_in: driver.under_way() == number, f"batch {killed_in}")
            driver.wait_until(lambda: has_opened(servers), "its transaction is open")
            driver.kill()
    publish_end(servers, flights)
    with Driver(file, servers, ["--once", "--set", "source.maxOffsetsPerTrigger=10000"]) as driver:
        assert driver.wait() == 0, driver.said
        assert sum(batch["late"] for batch in driver.told) == 0
    assert in_topic(spark_cluster, delays) == in_table(file) == expected(MANY)
    wait_gone(str(file))


def has_opened(bootstrap: str) -> bool:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return bool(admin.list_transactions(states=["Ongoing"], pattern="spark-.*"))


def test_without_pyspark_it_is_said_what_to_install(pipeline_file: File, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from ottla.cli.main import main\n"
        f"sys.exit(main(['spark', 'run', {str(pipeline_file({}))!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "ottla spark: Spark pipelines need PySpark: pip install '.[spark]' in a checkout of Ottla\n",
    )


def test_without_java_it_is_said_what_to_install(
    pipeline_file: File, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    argv = [sys.executable, "-m", "ottla", "spark", "run", str(pipeline_file({}))]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("ottla"))
    assert line == (
        f"ottla spark: JAVA_HOME is {tmp_path}, and there is no {tmp_path}/bin/java: name a Java of version 17 or newer"
    )
