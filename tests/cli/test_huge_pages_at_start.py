"""A node's event loop goes on while the kernel collapses the memory of the process into huge pages."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from ottla.cli.nodes import node

TURNS = 20


class CountingNode:
    """A node whose loop counts turns while its memory is collapsed."""

    def __init__(self) -> None:
        self.turned = threading.Event()

    async def start(self) -> None:
        self._turn(TURNS)

    async def stop(self) -> None:
        """Nothing to end."""

    def _turn(self, left: int) -> None:
        if left:
            asyncio.get_running_loop().call_later(0.001, self._turn, left - 1)
        else:
            self.turned.set()


def test_the_loop_turns_while_memory_is_collapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = CountingNode()
    turned: list[bool] = []

    def collapse() -> None:
        turned.append(counting.turned.wait(10.0))
        os.kill(os.getpid(), signal.SIGTERM)

    for changes_this_process in ("raise_descriptor_limit", "freeze_all_objects"):
        monkeypatch.setattr(node, changes_this_process, lambda: None)
    monkeypatch.setattr(node, "collapse_into_huge_pages", collapse)
    node.run_nodes([counting])
    assert turned == [True]
