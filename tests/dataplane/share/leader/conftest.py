"""Tests of this folder run on the event loop of brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dataplane.event_loop import event_loop_policy as event_loop_policy

from .share_broker import ID, TOPIC, ShareBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ShareBroker]:
    """A broker that leads the only partition of a topic. Share groups begin at its first record."""
    broker = ShareBroker(tmp_path)
    broker.create(TOPIC, ID, 1)
    yield broker
    await broker.close()
