"""`ottla_sink`: functions for `foreachBatch` do not write under each other's names."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import pytest

from ottla.spark_integration.foreach_batch import NameTaken, ottla_sink
from ottla.spark_integration.sink.options import TRANSACTIONAL_ID
from ottla.spark_integration.streaming_query import QUERY_ID

HERE = "localhost:9092"


class Frames:
    """Micro-batches in a single run of a query."""

    def __init__(self, query: str = "") -> None:
        self.query, self.run = query or str(uuid4()), str(uuid4())
        self.written: list[str] = []
        self.failure: Exception | None = None

    def frame(self) -> Any:
        frame = MagicMock()
        frame.sparkSession.sparkContext.getLocalProperty = lambda name: (
            self.query if name == QUERY_ID else self.run
        )
        frame.write.format.return_value.mode.return_value.options = self._options
        return frame

    def _options(self, **options: str) -> Any:
        self.written.append(options[TRANSACTIONAL_ID])
        write = MagicMock()
        write.save.side_effect = self.failure
        return write


def test_what_a_second_function_writes_is_not_left_out_without_a_word() -> None:
    frames = Frames()
    early, late = (ottla_sink(topic="delays", bootstrap_servers=HERE) for _ in range(2))
    early(frames.frame(), 0)
    with pytest.raises(NameTaken, match=f"spark-{frames.query}-delays.*name="):
        late(frames.frame(), 0)
    assert len(frames.written) == 1


def test_functions_with_names_of_their_own_write_beside_each_other() -> None:
    frames = Frames()
    sinks = [
        ottla_sink(topic="delays", bootstrap_servers=HERE),
        ottla_sink(topic="delays", bootstrap_servers=HERE, name="late"),
        ottla_sink(topic="lateness", bootstrap_servers=HERE),
        ottla_sink(topic="delays", bootstrap_servers="elsewhere:9092"),
    ]
    for number in range(3):
        for sink in sinks:
            sink(frames.frame(), number)
    assert len(frames.written) == 12


def test_topics_that_differ_in_case_are_two_topics_with_two_names() -> None:
    frames = Frames()
    for topic in ("Sales.Orders", "sales.orders"):
        ottla_sink(topic=topic, bootstrap_servers=HERE)(frames.frame(), 0)
    assert frames.written == [f"spark-{frames.query}-{topic}" for topic in ("Sales.Orders", "sales.orders")]


def test_a_second_call_for_a_batch_fails_and_the_next_one_goes_on() -> None:
    frames = Frames()
    sink = ottla_sink(topic="delays", bootstrap_servers=HERE)
    sink(frames.frame(), 7)
    with pytest.raises(NameTaken, match=r"called twice for batch 7.*another name"):
        sink(frames.frame(), 7)
    sink(frames.frame(), 8)
    assert len(frames.written) == 2


@pytest.mark.parametrize("is_same_driver", [True, False])
def test_the_next_run_plays_the_last_batch_again(is_same_driver: bool) -> None:
    first = Frames()
    sink = ottla_sink(topic="delays", bootstrap_servers=HERE)
    sink(first.frame(), 7)
    second = Frames(first.query)
    if not is_same_driver:
        sink = ottla_sink(topic="delays", bootstrap_servers=HERE)
    sink(second.frame(), 7)
    assert second.written == [f"spark-{first.query}-delays"]


def test_a_function_that_failed_may_be_called_again() -> None:
    frames = Frames()
    sink = ottla_sink(topic="delays", bootstrap_servers=HERE)
    frames.failure = OSError("no broker answers")
    with pytest.raises(OSError, match="no broker"):
        sink(frames.frame(), 0)
    frames.failure = None
    sink(frames.frame(), 0)
    assert len(frames.written) == 2


def test_a_function_may_be_made_for_each_batch() -> None:
    frames = Frames()
    for number in range(3):
        ottla_sink(topic="delays", bootstrap_servers=HERE)(frames.frame(), number)
    assert len(frames.written) == 3


def test_a_function_that_failed_leaves_the_batch_to_another_one() -> None:
    frames = Frames()
    frames.failure = OSError("no broker answers")
    with pytest.raises(OSError, match="no broker"):
        ottla_sink(topic="delays", bootstrap_servers=HERE)(frames.frame(), 0)
    frames.failure = None
    ottla_sink(topic="delays", bootstrap_servers=HERE)(frames.frame(), 0)
    assert len(frames.written) == 2
