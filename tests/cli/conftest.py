"""Clusters for commands."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Iterator

import pytest

from tests.client.fake_mirrors import Mirroring


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """Take away the log handlers of commands of nodes: they write to the standard error of the test that ran them."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirroring]:
    """Run one broker in a separate thread, which OTTLA_BOOTSTRAP names. Standard input is no terminal."""
    cluster, loop = Mirroring(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(cluster.start(1), loop).result(60)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", cluster.bootstrap)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    yield cluster
    asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()
