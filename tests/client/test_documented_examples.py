"""The examples of docs/CLIENT.md and of `ottla.sync`, run unchanged."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import ottla.client.sync
from ottla.sync import Consumer, Producer
from tests.cluster import RunningCluster, running_cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CLIENT.md"
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("examples")
    settings = {"group.initial.rebalance.delay.ms": "0"}  # members of the examples start without delay
    with running_cluster(
        directory, quorum=1, brokers=1, arguments=("--combined",), settings=settings
    ) as running:
        yield running


def run(example: str, namespace: dict[str, object], cluster: RunningCluster) -> None:
    """Run statements like a notebook, which permits `await` anywhere."""
    code = compile(
        example.replace("localhost:9092", cluster.bootstrap),
        "example",
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    result = eval(code, namespace)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def test_the_examples_of_the_page_work(
    cluster: RunningCluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == PAGE.read_text().count("```python") > 0
    for example in examples:
        run(example, namespace, cluster)
    printed = capsys.readouterr().out
    assert "orders {0: 1, 1: 1, 2: 1}\n" in printed
    assert "b'the last one'" in printed
    assert "passed over: the value_deserializer failed with the record at offset" in printed
    assert re.search(r"^\d+ 0 wait$", printed, re.MULTILINE)
    assert "mine now: [TopicPartition(topic='orders', partition=0)" in printed
    assert re.search(r"\d+ read, \d+ to come", printed)
    assert "10000000 bytes, True\n" in printed
    assert "LargeMessageStats(assembled=1, evicted=0" in printed
    assert "['audit', 'copies', 'counts', 'orders', 'parcels']" in printed.replace(
        "'__consumer_offsets', ", ""
    )
    with Consumer(
        "counts",
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as counts:
        counted = sum(int(record.value or b"") for record in islice(counts, 3))
    assert counted == 1_002  # all orders up to then, once
    assert re.search(r"\d rows in \d at \d+ to \d+", printed)
    assert "['topic', 'partition', 'offset', 'timestamp', 'key', 'value'] True\n" in printed


def test_the_examples_of_the_docstring_work(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(inspect.getdoc(ottla.client.sync))
    example = textwrap.dedent("".join(re.findall(r"^(?:    .*)?\n", text, re.MULTILINE)))
    # The topic is another than the page's; and a test has to begin at the beginning, and to end.
    example = example.replace('"orders"', '"others"').replace(
        '"billing",', '"b", auto_offset_reset="earliest",'
    )
    example = example.replace("consumer.commit()", "consumer.commit()\n        break")
    example = example.replace("in queue:", "in queue.getmany(timeout_ms=100):")
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="owner") as owner:
        namespace: dict[str, object] = {"token": owner.begin().token}
        run(example, namespace, cluster)
    offset, value = capsys.readouterr().out.split()
    assert int(offset) > 1_000
    assert value.startswith("b'")
    assert str(namespace["receipt"]).startswith("w1.")
