"""The schedule of retries: the number of attempts, and the delay before each. Pure: chance is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class Retry:
    """A schedule of attempts, with delays that grow:

        Retry(attempts=5, first=1.0, factor=4, most=60, jitter=0.2)

    All delays are in seconds. `attempts` counts the first call of the handler, too. The delay after the first failure
    is `first`. It grows by `factor` with each failure, up to `most`. A random part of it, up to `jitter`, is added or
    taken away. Delays up to `most_held_s` are waited for in memory, where the record holds its key. Longer delays need
    `retry_topic=True`. In a share group the broker keeps the delays, up to seven days.
    """

    attempts: int = 5
    first: float = 1.0
    factor: float = 4.0
    most: float = 60.0
    jitter: float = 0.2
    most_held_s: float = 300.0

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for an invalid value, by its name."""
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool):
            raise TypeError(f"Retry: attempts is a whole number, not {self.attempts!r}")
        if self.attempts < 1:
            raise ValueError(f"Retry: attempts is 1 or more, not {self.attempts}")
        for name, least in (
            ("first", 0.0),
            ("factor", 1.0),
            ("most", 0.0),
            ("jitter", 0.0),
            ("most_held_s", 0.0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"Retry: {name} is a number, not {value!r}")
            if not (isfinite(value) and value >= least):
                raise ValueError(f"Retry: {name} is {least:g} or more, not {value}")
        if self.jitter > 1:
            raise ValueError(f"Retry: jitter is 0 to 1, not {self.jitter}")
        if self.first > self.most:
            raise ValueError(f"Retry: first is at most most ({self.most}), not {self.first}")

    @property
    def longest_s(self) -> float:
        """The longest delay that the schedule can have, without the random part; 0 for a single attempt."""
        return self._plain_s(self.attempts - 1) if self.attempts > 1 else 0.0

    def delay_s(self, failures: int, chance: float) -> float | None:
        """Return the delay after this many failures, at least one; None if there is no further attempt.

        `chance` is a random number from 0 to 1.
        """
        if failures >= self.attempts:
            return None
        return self._plain_s(failures) * (1 + self.jitter * (2 * chance - 1))

    def _plain_s(self, failures: int) -> float:
        try:
            return min(self.most, self.first * float(self.factor) ** (failures - 1))
        except OverflowError:
            return self.most
