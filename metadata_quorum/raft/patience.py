"""How patient a node is with a leader that is silent: more so where leaders have lost to silence again and again.

Pure. On a machine with too much to do, a leader's loop may stand still for longer than the election timeout. Whoever
follows it has more to do than it had, as every broker tells it about all of its logs. So terms may follow one another
for minutes, and nothing is decided meanwhile. Here the timeouts double with each such term beyond a few. After a minute
without one they are as usual. A leader whose connection is lost is replaced at once, however many were silent.
"""

from __future__ import annotations

from collections import deque

USUAL_TERMS = 3
"""So many that began after silence make nobody more patient."""
WITHIN_S = 60.0
FACTOR_MAX = 8
_DOUBLINGS = FACTOR_MAX.bit_length() - 1


class Patience:
    """What one node has seen. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._began: deque[float] = deque(maxlen=USUAL_TERMS + _DOUBLINGS)

    def leader_fell_silent(self, now: float) -> None:
        """A term has begun although nothing was known of the end of the leader before."""
        self._began.append(now)

    def factor(self, now: float) -> int:
        """By how much timeouts are longer."""
        began = self._began
        while began and now - began[0] > WITHIN_S:
            began.popleft()
        return 1 << max(0, len(began) - USUAL_TERMS)
