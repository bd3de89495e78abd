"""Each planted mistake is seen by its test."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from .planted_mistakes import MISTAKES
from .share_broker import ID, TOPIC, ShareBroker


@pytest.mark.parametrize("name", MISTAKES)
async def test_the_test_sees_the_mistake(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mistake = MISTAKES[name]
    with mistake.planted():
        broker = ShareBroker(tmp_path)
        broker.create(TOPIC, ID, 1)
        fixtures = {"broker": broker, "caplog": caplog}
        wanted = inspect.signature(mistake.test).parameters
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            outcome = mistake.test(**{parameter: fixtures[parameter] for parameter in wanted})
            if inspect.isawaitable(outcome):
                await outcome
        await broker.close()
