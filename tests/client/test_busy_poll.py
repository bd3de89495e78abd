"""The times at which a producer polls for an answer, and at which it lets the processor sleep."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.client.producer import Producer
from ottla.client.producing.busy_poll import BusyPoll
from ottla.protocol.messages.produce import ProduceRequest
from tests.client.fake_cluster import fake_cluster


class Selector(selectors.DefaultSelector):
    """A selector that notes the loop's permitted sleep at each poll; None: until an event."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def select(self, timeout: float | None = None) -> Any:
        self.waits_s.append(timeout)
        return super().select(timeout)

    async def slept_within(self, awaited_s: float) -> bool:
        """Return whether the loop slept while it waited for an event after `awaited_s` seconds."""
        self.waits_s.clear()
        news = asyncio.Event()
        asyncio.get_running_loop().call_later(awaited_s, news.set)
        await news.wait()
        return any(wait_s is None or wait_s > 0 for wait_s in self.waits_s)


def run(scenario: Callable[[Selector], Coroutine[Any, Any, None]]) -> None:
    selector = Selector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(scenario(selector))


def test_the_loop_does_not_sleep_while_an_answer_is_awaited_that_is_usually_quick() -> None:
    async def scenario(selector: Selector) -> None:
        poll = BusyPoll(most_s=60)
        poll.begin()
        assert await selector.slept_within(0.02), "the time of the first answer is unknown"
        poll.end()
        poll.begin()
        assert not await selector.slept_within(0.02)
        poll.end()
        assert await selector.slept_within(0.02), "nothing is awaited any more"
        poll.begin()
        poll.end()
        poll.begin()
        assert not await selector.slept_within(0.02)

    run(scenario)


def test_polling_ends_when_the_answer_takes_long_and_begins_after_one_that_does_not() -> None:
    async def scenario(selector: Selector) -> None:
        now_s = 100.0
        poll = BusyPoll(0.25, lambda: now_s)

        def answered_after(seconds: float) -> None:
            nonlocal now_s
            poll.begin()
            now_s += seconds
            poll.end()

        answered_after(0.25)
        poll.begin()
        assert not await selector.slept_within(0.005)
        now_s += 0.5
        assert await selector.slept_within(0.005), "it has waited for long enough"
        poll.end()
        poll.begin()
        assert await selector.slept_within(0.005), "the one before took too long"
        poll.end()
        answered_after(0.5)
        poll.begin()
        assert await selector.slept_within(0.005)
        answered_after(0.125)
        poll.begin()
        assert not await selector.slept_within(0.005)

    run(scenario)


def test_who_wants_none_gets_none() -> None:
    async def scenario(selector: Selector) -> None:
        poll = BusyPoll(most_s=0)
        for _ in range(3):
            poll.begin()
            poll.end()
        poll.begin()
        assert await selector.slept_within(0.005)

    run(scenario)


class SlowBroker:
    """A `before_answer` of a fake cluster that can hold Produce requests until they are released."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def __call__(self, api_key: int) -> None:
        if api_key == ProduceRequest.api_key and not self.goes_on.is_set():
            self.asked.set()
            await self.goes_on.wait()


@pytest.mark.parametrize(
    ("waited_for", "busy_poll_us", "sleeps"),
    [(True, 60_000_000, False), (True, 0, True), (False, 60_000_000, True)],
)
def test_a_producer_polls_for_the_answer_to_a_record_that_somebody_waits_for_at_once(
    waited_for: bool, busy_poll_us: int, sleeps: bool
) -> None:
    async def scenario(selector: Selector) -> None:
        broker = SlowBroker()
        async with fake_cluster() as cluster:
            cluster.before_answer = broker
            async with Producer(bootstrap_servers=cluster.bootstrap, busy_poll_us=busy_poll_us) as producer:
                for _ in range(3):
                    await producer.send_and_wait("t", b"quick")
                assert await selector.slept_within(0.02), "nothing is awaited"
                broker.goes_on.clear()
                send = producer.send_and_wait if waited_for else producer.send
                sending = asyncio.ensure_future(send("t", b"slow"))
                await broker.asked.wait()
                assert await selector.slept_within(0.02) is sleeps
                broker.goes_on.set()
                await sending

    run(scenario)
