"""The examples in docstrings of `from ottla import ...`, run unchanged; every class that programs
instantiate has one.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import ottla
from ottla import Admin, Consumer, ExactlyOnce, Producer, ShareConsumer, ShareTask, Worker, WriterReceipt
from ottla.client.records import ConsumerRecord
from ottla.testing import LocalCluster

pytestmark = pytest.mark.cluster

WITHOUT = {
    # Only given to programs, or raised: there is nothing to show.
    "Acknowledgement",
    # Names of numbers.
    *("AclOperation", "AclPermission", "AclResourceType", "PatternType"),
    *(
        "BegunTransaction",
        "BrokerAddress",
        "ClusterDescription",
        "CommitResult",
        "CommittedTransaction",
        "ConfigEntry",
        "AppVersions",
        "Cut",
        "CutOffset",
        "TransactionOutcome",
    ),
    *(
        "ConsumerGroupMetadata",
        "ConsumerRecord",
        "ColumnsDelivery",
        "ColumnsSent",
        "LargeMessageStats",
        "OffsetAndMetadata",
        "RecordDelivery",
    ),
    *(
        "BackupCut",
        "BackupProgress",
        "BackupPruning",
        "BackupTopic",
        "BackupVerification",
        "MissedRecords",
        "Restoration",
        "RestoredTopic",
        "RestoreProgress",
    ),
    *("FencedBroker", "GroupDescription", "GroupListing", "GroupMember", "ShareGroupOffset"),
    *("HangingTransaction", "LogDirDescription"),
    *(
        "OngoingReassignment",
        "PartitionInfo",
        "ProducerDescription",
        "ProducerIdentity",
        "QuorumDescription",
        "RecordMetadata",
    ),
    *("RejectedRecord", "Spooled", "SpooledRecord"),
    *(
        "Failback",
        "FailbackPartition",
        "FailbackTopic",
        "FaultKind",
        "MirrorCut",
        "MirrorDescription",
        "MirrorFault",
        "MirrorPartitionDescription",
        "MirrorPhase",
    ),
    "MirrorTopicDescription",
    "WorkerStats",
    *(
        "TopicInfo",
        "TransactionDescription",
        "TransactionListing",
        "UserLogin",
        "DelegationToken",
        "ErrorCode",
    ),
}


def public_classes() -> list[type]:
    named = (getattr(ottla, name) for name in ottla.__all__)
    return [kind for kind in named if isinstance(kind, type)]


def examples(documented: object) -> list[str]:
    """Return the indented parts of a docstring."""
    text = inspect.getdoc(documented) or ""
    parts = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text + "\n", re.MULTILINE)
    return [textwrap.dedent(part).strip() for part in parts]


def collected() -> Iterator[tuple[str, str]]:
    for kind in public_classes():
        for example in examples(kind):
            yield kind.__name__, example
        for name in dir(kind):
            if not name.startswith("_") and not issubclass(kind, BaseException):
                for example in examples(getattr(kind, name)):
                    yield f"{kind.__name__}.{name}", example


COLLECTED = [pytest.param(example, id=name) for name, example in collected()]


class Ending(Consumer):
    """A consumer that ends where an example would wait for more."""

    async def __anext__(self) -> ConsumerRecord:
        async with asyncio.timeout(2):
            return await super().__anext__()


class EndingQueue(ShareConsumer):
    """A consumer of a share group that ends where an example would wait for more."""

    async def __anext__(self) -> ShareTask:
        async with asyncio.timeout(2):
            return await super().__anext__()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalCluster(settings=authorizer) as cluster:
        for topic in (
            "orders",
            "copies",
            "originals",
            "payments",
            "ledger",
            "results",
            "orders.dlq",
            "tasks",
        ):
            cluster.create_topic(topic, partitions=2)
        yield cluster


@asynccontextmanager
async def given(cluster: LocalCluster) -> AsyncIterator[dict[str, object]]:
    """Provide the names that examples assume: records, a group member, a transactional producer, another owner's
    transaction.
    """
    at = {"bootstrap_servers": cluster.bootstrap_servers}
    async with (
        Admin(**at) as admin,
        Consumer("originals", group_id="copiers", heartbeat_interval_ms=100, **at) as consumer,
        Producer(transactional_id="examples", **at) as producer,
        Producer(transactional_id="owner", **at) as owner,
        Producer(**at) as filler,
        ExactlyOnce("orders", group_id="batches", idle_timeout_ms=500, **at) as copier,
    ):
        for number in range(3):
            for partition in (0, 1):
                await filler.send_and_wait("orders", b"%d" % number, partition=partition)
        async with asyncio.timeout(20):
            while not consumer.assignment():
                await asyncio.sleep(0.01)
        transaction = await owner.begin()
        yield {name: getattr(ottla, name) for name in ottla.__all__} | {
            "Consumer": partial(Ending, **at),
            "Producer": partial(Producer, **at),
            "ExactlyOnce": partial(ExactlyOnce, idle_timeout_ms=500, **at),
            "Worker": partial(Worker, **at),
            "ShareConsumer": partial(EndingQueue, **at),
            "copier": copier,
            "admin": admin,
            "consumer": consumer,
            "producer": producer,
            "transaction": transaction,
            "token": transaction.token,
            "receipt": WriterReceipt(4711, 0),
        }


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__name__)
def test_a_class_that_programs_make_has_an_example(kind: type) -> None:
    if kind.__name__ in WITHOUT or issubclass(kind, BaseException):
        assert not examples(kind), "it has one: take it off the list"
    else:
        assert examples(kind)


@pytest.mark.parametrize("example", COLLECTED)
async def test_examples_run(example: str, cluster: LocalCluster, tmp_path: Path) -> None:
    source = example.replace("localhost:9092", cluster.bootstrap_servers).replace("/var/spool", str(tmp_path))
    code = compile(source, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with given(cluster) as namespace, asyncio.timeout(30):
        with suppress(TimeoutError):  # of Ending
            result = eval(code, namespace)
            if inspect.iscoroutine(result):
                await result
