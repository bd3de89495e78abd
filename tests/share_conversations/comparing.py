"""Comparison of a broker's answers with those that Kafka gave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .playing import Answer
from .steps import Fetch, Offsets, Script, Step

ANSWERS = Path(__file__).parent / "kafka.json"
OWN_ANSWERS = Path(__file__).parent / "ottla.json"
"""Ottla's answers in the steps in which they differ from Kafka's on purpose."""
UNKNOWN = -1


class Difference(NamedTuple):
    """A step that is answered in another way than expected."""

    number: int
    step: Step
    expected: Answer
    got: Answer


def recorded() -> dict[str, list[Answer]]:
    """Return Kafka's answers by the name of the conversation."""
    found: dict[str, list[Answer]] = json.loads(ANSWERS.read_text())
    return found


def expected_of_ottla() -> dict[str, list[Answer]]:
    """Return the answers that Ottla has to give, by the name of the conversation."""
    found = recorded()
    for name, answers in json.loads(OWN_ANSWERS.read_text()).items():
        for number, answer in answers.items():
            found[name][int(number)] = answer
    return found


def differences(script: Script, expected: Sequence[Answer], got: Sequence[Answer]) -> list[Difference]:
    """Return the steps whose answers mean something else to a client than the expected answers."""
    return [
        Difference(number, step, wanted, answer)
        for number, (step, wanted, answer) in enumerate(zip(script.steps, expected, got, strict=True))
        if _meaning(step, wanted) not in (None, _meaning(step, answer))
    ]


def _meaning(step: Step, answer: Answer) -> Answer:
    """Return the part of an answer that clients act on; None if it says nothing.

    Kafka's stored start offset may lie behind the first record that is not finished, and a state that it has not
    written has none. A row without records and outcome is the same as no row.
    """
    if isinstance(step, Offsets):
        lags = [lag for _, lag in answer["start and lag"]]
        return None if lags == [UNKNOWN] else lags
    if isinstance(step, Fetch):
        rows = [row for row in answer["rows"] if step.ranges or row["acquired"] or row["error"] != "NONE"]
        return answer["error"], rows
    return answer
