"""The times at which the quorum's leader hears of the progress of a broker's image."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.dataplane.quorum.offset_reports import Echo
from ottla.protocol.cluster.image_delta import ImageDelta

OF_A_TRANSACTION = ImageDelta(transactions={"t"})
OF_A_PARTITION = ImageDelta(partitions={(b"x" * 16, 0)})


class Broker:
    """An echo on a loop whose clock only moves when the test moves it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.told_ms: list[int] = []
        self.loop = asyncio.SelectorEventLoop()
        self.loop.time = lambda: self.now_ms / 1000  # type: ignore[method-assign]
        self.echo = Echo(lambda: self.told_ms.append(self.now_ms))

    def moved(self, delta: ImageDelta) -> None:
        self.loop.call_soon(self.echo.image_moved, delta)
        self.wait(0)

    def wait(self, ms: int) -> None:
        for _ in range(ms + 1):
            for _ in range(2):  # A turn for due timers, and a turn for their callbacks.
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            self.now_ms += 1
        self.now_ms -= 1


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.loop.close()


def test_what_changed_of_replicas_is_told_soon_and_once(broker: Broker) -> None:
    for _ in range(5):
        broker.moved(OF_A_PARTITION)
        broker.wait(2)
    broker.wait(300)
    assert broker.told_ms == [20]


def test_what_changed_of_transactions_may_wait(broker: Broker) -> None:
    for _ in range(20):
        broker.moved(OF_A_TRANSACTION)
        broker.wait(10)
    broker.wait(300)
    assert broker.told_ms == [250]


def test_a_change_that_is_waited_for_hastens_what_is_to_be_told(broker: Broker) -> None:
    broker.moved(OF_A_TRANSACTION)
    broker.wait(100)
    broker.moved(OF_A_PARTITION)
    broker.wait(10)
    broker.moved(OF_A_TRANSACTION)
    broker.wait(300)
    assert broker.told_ms == [120]


def test_nothing_is_told_once_it_is_stopped(broker: Broker) -> None:
    broker.moved(OF_A_PARTITION)
    broker.echo.stop()
    broker.wait(300)
    assert broker.told_ms == []
