"""The event loop of brokers, for tests of what runs on it: a folder's conftest.py imports the fixture."""

from __future__ import annotations

import asyncio

import pytest
import uvloop


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy()
