"""Some thousands of inputs, always the same; `make fuzz` plays a million others."""

from __future__ import annotations

import pytest

from tests.fuzz.broker import play_broker
from tests.fuzz.run import play
from tests.fuzz.targets import TARGETS, FoundFault, Target

SEED = 1
INPUTS, THROUGH_BROKER = 400, 300


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_but_refusals(target: Target) -> None:
    play(target, SEED, range(INPUTS))


async def test_a_broker_serves_on() -> None:
    await play_broker(SEED, range(THROUGH_BROKER))


def test_a_fault_is_found_and_told() -> None:
    """An undeclared exception ends the run, with the command that plays the input again."""

    def faulty(data: bytes) -> None:
        if data != b"valid":
            raise IndexError("too far")

    with pytest.raises(FoundFault, match=r"IndexError.*--target faulty --seed 1 --first \d+ --inputs 1"):
        play(Target("faulty", lambda: [b"valid"], faulty, (ValueError,)), SEED, range(100))
