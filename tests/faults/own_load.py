"""A load by our own producer, beside that of confluent-kafka (`tests.integration.history.Load`)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

from ottla import Producer
from tests.cluster import wait_until
from tests.integration.history import Place, Read

PREFIX = b"own:"
FLUSH_S = 60.0


class OwnLoad:
    """A thread that sends `own:<name>:<number>` with acks=all until the block ends."""

    def __init__(self, bootstrap: str, topic: str, name: str, per_second: int = 200, **options: Any) -> None:
        self._options = {"bootstrap_servers": bootstrap, "acks": "all", "linger_ms": 2, **options}
        self._topic, self._per_second = topic, per_second
        self._prefix = PREFIX + name.encode() + b":"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=f"own load {name}", daemon=True)
        self._crash: BaseException | None = None
        self.sent: set[bytes] = set()
        self.acknowledged: dict[bytes, Place] = {}
        self.failed: list[tuple[bytes, BaseException]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(FLUSH_S + 30)
        if error is None:
            assert not self._thread.is_alive(), "no outcome for some records"
            if self._crash is not None:
                raise self._crash

    def wait_acknowledged(self, more: int, timeout_s: float = 30) -> None:
        """Return once `more` records than now are acknowledged."""
        goal = len(self.acknowledged) + more
        wait_until(
            lambda: len(self.acknowledged) >= goal or self._crash, f"{more} acknowledgements", timeout_s
        )

    def check(self, read: list[Read]) -> None:
        """Fail unless every record is read exactly once, where it was acknowledged."""
        own = [record for record in read if record.value.startswith(self._prefix)]
        assert [value for value, count in Counter(record.value for record in own).items() if count > 1] == []
        found = {record.value: record.place for record in own}
        assert {value: found.get(value) for value in self.acknowledged} == self.acknowledged
        assert found.keys() <= self.sent

    def _guarded(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._crash = error

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began_s, number, waiting = loop.time(), 0, set[asyncio.Task[None]]()
        async with Producer(**self._options) as producer:
            while not self._stop.is_set():
                while number < (loop.time() - began_s) * self._per_second and len(waiting) < 2_000:
                    task = asyncio.create_task(self._send(producer, self._prefix + b"%d" % number))
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)
                    number += 1
                await asyncio.sleep(0.005)
            async with asyncio.timeout(FLUSH_S):
                await asyncio.gather(*waiting)

    async def _send(self, producer: Producer, value: bytes) -> None:
        self.sent.add(value)
        try:
            done = await producer.send_and_wait(self._topic, value)
        except Exception as error:
            self.failed.append((value, error))
        else:
            self.acknowledged[value] = Place(done.partition, done.offset)
