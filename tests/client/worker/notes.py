"""The notes of workers that are killed: the starts and ends of their handlers, and the promises about their order."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ENDS = ("end", "reject")
"""Events after which the next record of a key may start."""


class Notes:
    """The events that killed programs have noted, in the order of their times: `what key number time` in each line."""

    def __init__(self, *files: Path) -> None:
        lines = [line.split() for file in files if file.exists() for line in file.read_text().splitlines()]
        whole = [line for line in lines if len(line) == 4]
        self.events = sorted((float(at), what, key, int(number)) for what, key, number, at in whole)

    @property
    def ended(self) -> list[int]:
        """The numbers whose handlers have ended, as often as they have ended."""
        return [number for _, what, _, number in self.events if what in ENDS]

    def check_order(self) -> None:
        """Check that no record of a key starts before its predecessors have ended, in any program."""
        ended: dict[str, set[int]] = defaultdict(set)
        numbers = defaultdict[str, set[int]](set)
        for _, _, key, number in self.events:
            numbers[key].add(number)
        for _, what, key, number in self.events:
            if what == "start":
                earlier = {other for other in numbers[key] if other < number}
                assert earlier <= ended[key], (
                    f"{number} of key {key} started before {earlier - ended[key]} ended"
                )
            elif what in ENDS:
                ended[key].add(number)
