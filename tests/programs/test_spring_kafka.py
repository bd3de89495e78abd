"""spring-kafka: retry topics, dead letters, a listener in transactions, and listeners in share groups, through kills of
instances and a broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cluster import RunningCluster
from tests.integration.share_groups import from_the_beginning, wait_until_finished
from tests.programs.jvm import Jars, needs_jdk
from tests.programs.kills import kill_and_start
from tests.programs.process import Program
from tests.programs.topics import Input, Output, Sent, create_topics

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(1200)]
SPRING = Jars(
    "spring-kafka", ("org.springframework.kafka:spring-kafka:4.1.2", "org.slf4j:slf4j-simple:2.0.17")
)
PARTITIONS = 3
OUTPUTS = ("done", "given-up", "billed", "orders-dead")
RETRIES = ("jobs-retry-200", "jobs-retry-400", "jobs-dlt")
WAIT_S = 240.0  # two instances and a cluster share the cores with other tests


def jobs_and_orders() -> Iterator[Sent]:
    """Yield one order to three jobs: each order is a separate transaction."""
    for number in itertools.count():
        topic = "jobs" if number % 4 else "orders"
        yield Sent(topic, f"key{number % 7}", f"value {number if topic == 'jobs' else number // 4}")


def fails(value: str) -> bool:
    """Return whether the program always fails with the value."""
    return value.endswith("3")


def worked(job: str) -> str:
    """Return the program's final output for a job."""
    return f"{job} at {3 if job.endswith('5') else 1}"


def values(output: Output) -> list[str]:
    return sorted(value for _, value in output.messages)


def test_jobs_and_orders_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    """Each order is billed, or given up, once. No job is lost, and some are repeated after a kill."""
    admin = create_topics(cluster, "jobs", "orders", *OUTPUTS, partitions=PARTITIONS)
    done, given_up, billed, dead = (Output(cluster.bootstrap, topic, PARTITIONS) for topic in OUTPUTS)
    argv = SPRING.command("SpringProgram.java")
    with ExitStack() as running:
        both = [
            running.enter_context(Program([*argv, cluster.bootstrap, name], tmp_path / f"{name}.log"))
            for name in ("ann", "ben")
        ]
        for program in both:
            program.wait_until_said("STARTED", WAIT_S)
        with Input(cluster.bootstrap, jobs_and_orders(), per_second=60) as given:
            billed.wait_for(50, WAIT_S)
            for turn in range(3):
                kill_and_start(cluster, both[turn % 2], turn, billed, 50, WAIT_S)
        jobs, orders = (
            sorted(str(message.value) for message in given.sent if message.topic == topic)
            for topic in ("jobs", "orders")
        )
        billed.wait_for(sum(not fails(order) for order in orders), WAIT_S)
        dead.wait_for(sum(map(fails, orders)), WAIT_S)
        assert values(billed) == [order for order in orders if not fails(order)]
        assert values(dead) == [order for order in orders if fails(order)]
        wait_for_all(done, {worked(job) for job in jobs if not fails(job)})
        wait_for_all(given_up, {job for job in jobs if fails(job)})
    check_retry_topics(admin)


def wait_for_all(output: Output, expected: set[str]) -> None:
    """Return once exactly the expected values are there."""
    output.wait_until(lambda: set(values(output)) >= expected, f"{len(expected)} values", WAIT_S)
    assert set(values(output)) == expected


def check_retry_topics(admin: AdminClient) -> None:
    """Check that they have as many partitions and replicas as the program requests."""
    topics = admin.list_topics(timeout=30).topics
    for name in RETRIES:
        replicas = [len(partition.replicas) for partition in topics[name].partitions.values()]
        assert replicas == [3] * PARTITIONS, name


def tasks_and_letters() -> Iterator[Sent]:
    for number in itertools.count():
        yield Sent(("tasks", "letters")[number % 2], f"key{number % 7}", f"value {number // 2}")


def test_tasks_of_share_groups_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    """Each task is done, or rejected. Some are repeated after a kill, and have a higher count then."""
    create_topics(cluster, "tasks", "letters", "done", "read", partitions=PARTITIONS)
    done, read = (Output(cluster.bootstrap, topic, PARTITIONS) for topic in ("done", "read"))
    for group in ("mailers", "readers"):
        from_the_beginning(cluster.bootstrap, group, share__delivery__count__limit="10")
    argv = [*SPRING.command("SpringQueueProgram.java"), cluster.bootstrap]
    with ExitStack() as running:
        both = [
            running.enter_context(Program(argv, tmp_path / f"{name}.log")) for name in ("queue-1", "queue-2")
        ]
        for program in both:
            program.wait_until_said("STARTED", WAIT_S)
        with Input(cluster.bootstrap, tasks_and_letters(), per_second=60) as given:
            done.wait_for(50, WAIT_S)
            for turn in range(2):
                kill_and_start(cluster, both[turn], turn, done, 50, WAIT_S)
        for output, topic in ((done, "tasks"), (read, "letters")):
            wait_for_copies(output, {str(message.value) for message in given.sent if message.topic == topic})
        assert all(not value.endswith("5 at 1") for value in values(done))
        for group in ("mailers", "readers"):
            wait_until_finished(cluster.bootstrap, group)


def wait_for_copies(output: Output, sent: set[str]) -> None:
    """Return once the output has each value that does not always fail, and no other."""
    expected = {value for value in sent if not fails(value)}

    def copied() -> set[str]:
        return {value.partition(" at ")[0] for value in values(output)}

    output.wait_until(lambda: copied() >= expected, f"{len(expected)} values", WAIT_S)
    assert copied() == expected
