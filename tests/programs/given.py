"""Inputs of programs with several frameworks: lines to count words in, orders and payments to join."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.programs.topics import Message, Sent

WINDOW_MS = 10_000
WORDS = [f"word{number}" for number in range(20)]


class Given:
    """Random lines, orders and payments with simulated times, and the application's expected results."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.words: Counter[str] = Counter()
        self.events: dict[str, list[tuple[str, int, str]]] = defaultdict(list)

    def messages(self) -> Iterator[Sent]:
        """Yield messages, which count as sent once they are taken."""
        begun_ms = int(time.time() * 1000) - 600_000
        for number in itertools.count(1):
            at_ms = begun_ms + 50 * number
            words = self._chance.choices(WORDS, k=3)
            self.words.update(words)
            yield Sent("lines", f"line{number}", " ".join(words), at_ms)
            if number % 3 == 0:
                customer = f"customer{self._chance.randrange(50)}"
                topic = self._chance.choice(("orders", "payments"))
                value = f"{topic[0]}{number}"
                self.events[customer].append((topic, number, value))
                yield Sent(topic, customer, value, at_ms)

    @property
    def counts(self) -> list[Message]:
        """Expected counts: every word with each number up to its total."""
        return sorted((word, str(n)) for word, total in self.words.items() for n in range(1, total + 1))

    @property
    def paid(self) -> list[Message]:
        """Expected joins: every order of a customer with every payment within the window."""
        return sorted(
            (customer, f"{event[2]}+{other[2]}")
            for customer, events in self.events.items()
            for event in events
            for other in events
            if event[0] == "orders" and other[0] == "payments" and abs(event[1] - other[1]) * 50 <= WINDOW_MS
        )
