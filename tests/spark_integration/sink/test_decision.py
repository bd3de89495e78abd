"""A batch's tasks and its driver without Spark: concurrent attempts, two drivers, lost answers, outages."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ottla.spark_integration.sink import decision, task
from ottla.spark_integration.sink.options import SinkOptions, of_stream
from ottla.spark_integration.sink.task import TransactionLost, Written
from ottla.sync import Admin
from ottla.testing.local_cluster import LocalCluster
from tests.cluster import wait_until
from tests.spark_integration.topics import values

WAIT_S = 30


def options(cluster: LocalCluster, topic: str, **more: str) -> SinkOptions:
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    return of_stream({**servers, "topic": topic, **more})


def batches(*texts: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": [text]}) for text in texts])


def sent_one(cluster: LocalCluster, topic: str) -> None:
    wait_until(lambda: len(values(cluster, topic, committed=False)) == 1, "the first row is in the log")


class SlowTask:
    """An attempt that has sent its first row, and waits before the second."""

    def __init__(self, chosen: SinkOptions, name: str, version: int) -> None:
        self.written: Written | None = None
        self.error: Exception | None = None
        self._go_on = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(chosen, name, version))
        self._thread.start()

    def go_on(self) -> None:
        self._go_on.set()

    def has_ended(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def end(self) -> None:
        self.go_on()
        assert self.has_ended(WAIT_S)

    def _run(self, chosen: SinkOptions, name: str, version: int) -> None:
        def slowly() -> Iterator[pa.RecordBatch]:
            yield from batches("slow 1")
            assert self._go_on.wait(WAIT_S)
            yield from batches("slow 2")

        try:
            self.written = task.write(slowly(), chosen, name, version)
        except Exception as error:
            self.error = error


def test_of_two_attempts_at_once_the_accepted_one_counts(spark_cluster: LocalCluster) -> None:
    """Both attempts of a speculative task write everything, and Spark takes the message of one."""
    spark_cluster.create_topic("speculation")
    chosen = options(spark_cluster, "speculation")
    slow = SlowTask(chosen, "speculation", 0)
    sent_one(spark_cluster, "speculation")
    quick = task.write(batches("quick 1", "quick 2"), chosen, "speculation", 0)
    slow.end()
    assert slow.written is not None
    assert slow.written.transaction == quick.transaction
    decision.commit(chosen, [quick])
    assert values(spark_cluster, "speculation") == [b"quick 1", b"quick 2"]


def test_a_commit_may_be_asked_for_again(spark_cluster: LocalCluster) -> None:
    """The commit is repeated after a lost answer, and once the next batch has begun."""
    spark_cluster.create_topic("answers")
    chosen = options(spark_cluster, "answers")
    first = task.write(batches("a"), chosen, "answers", 0)
    for _ in range(2):
        decision.commit(chosen, [first, None])
    second = task.write(batches("b"), chosen, "answers", 1)
    decision.commit(chosen, [first])
    decision.abort(chosen, [first])
    decision.commit(chosen, [second])
    assert values(spark_cluster, "answers") == [b"a", b"b"]


def test_of_two_drivers_the_first_commit_counts(spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("two-drivers")
    chosen = options(spark_cluster, "two-drivers")
    first, other = (task.write(batches(name), chosen, "two-drivers", 3) for name in ("one", "other"))
    decision.commit(chosen, [other])
    decision.commit(chosen, [first])
    late = task.write(batches("late"), chosen, "two-drivers", 3)
    assert late == Written(0, was_committed=True)
    decision.commit(chosen, [late, first])
    assert values(spark_cluster, "two-drivers") == [b"other"]


def test_tasks_in_different_transactions_commit_nothing(spark_cluster: LocalCluster) -> None:
    """The first transaction timed out, or was aborted, before all tasks had written."""
    spark_cluster.create_topic("torn-batch")
    chosen = options(spark_cluster, "torn-batch")
    first = task.write(batches("a"), chosen, "torn-batch", 0)
    decision.abort(chosen, [first])
    second = task.write(batches("b"), chosen, "torn-batch", 0)
    with pytest.raises(decision.TornBatch, match="the tasks wrote in transactions 1, 2 of 'torn-batch'"):
        decision.commit(chosen, [first, second])
    assert values(spark_cluster, "torn-batch") == []
    again = task.write(batches("a", "b"), chosen, "torn-batch", 0)
    decision.commit(chosen, [again])
    assert values(spark_cluster, "torn-batch") == [b"a", b"b"]


def test_a_task_whose_transaction_is_aborted_fails(spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("task-aborted")
    chosen = options(spark_cluster, "task-aborted", transactionTimeoutMs="1000")
    slow = SlowTask(chosen, "task-aborted", 0)
    sent_one(spark_cluster, "task-aborted")
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        admin.abort_transaction("task-aborted")
        wait_until(
            lambda: (
                getattr(admin.describe_transactions(["task-aborted"])["task-aborted"], "state", "")
                == "Ongoing"
            ),
            "the task has asked again, and begun another one by that",
        )
    slow.end()
    assert isinstance(slow.error, TransactionLost), slow.error
    assert slow.written is None
    assert values(spark_cluster, "task-aborted") == []


def test_tasks_keep_their_transaction_open(spark_cluster: LocalCluster) -> None:
    """Tasks keep it open for longer than its timeout, and with nothing to write."""
    spark_cluster.create_topic("kept-open")
    chosen = options(spark_cluster, "kept-open", transactionTimeoutMs="500")
    slow = SlowTask(chosen, "kept-open", 0)
    assert not slow.has_ended(within_s=3)
    slow.end()
    assert slow.error is None
    decision.commit(chosen, [slow.written])
    assert values(spark_cluster, "kept-open") == [b"slow 1", b"slow 2"]


def test_a_batch_is_written_though_the_cluster_stands_still_for_a_while(spark_cluster: LocalCluster) -> None:
    spark_cluster.create_topic("still-for-a-while")
    chosen = options(spark_cluster, "still-for-a-while")
    slow = SlowTask(chosen, "still-for-a-while", 0)
    sent_one(spark_cluster, "still-for-a-while")
    (node,) = spark_cluster.broker_ids
    spark_cluster.pause(node)
    try:
        slow.go_on()
        assert not slow.has_ended(within_s=1.5), "it waits for an acknowledgement"
    finally:
        spark_cluster.heal()
    slow.end()
    assert slow.error is None
    decision.commit(chosen, [slow.written])
    assert values(spark_cluster, "still-for-a-while") == [b"slow 1", b"slow 2"]
