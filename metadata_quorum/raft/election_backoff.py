"""How patient a node is with a silent leader: more so where leaders were late, or have lost to silence again and again.

Pure. On a machine with too much to do, the loops of its nodes wait for a processor for longer than the election
timeout, and a leader is deposed that only waits. Then brokers report their logs to the next one, and nothing is decided
meanwhile. Two signs of such a machine make the timeouts longer, up to eight times:

- A leader was late, and went on. Timeouts are at least twice the longest such gap of the last minute.
- Terms began after silence. Timeouts double with each such term beyond a few.

After a minute without a sign they are as usual. A leader whose connection is lost is replaced at once, however long
the timeouts are.
"""

from __future__ import annotations

from collections import deque

USUAL_TERMS = 3
"""So many that began after silence make nobody more patient."""
WITHIN_S = 60.0
FACTOR_MAX = 8
GAPS_TOLERATED = 2
"""The shortest timeout is so many times the longest gap."""
_DOUBLINGS = FACTOR_MAX.bit_length() - 1


class ElectionBackoff:
    """What one node has seen. Times are seconds of any monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: the usual shortest timeout."""
        self._timeout_s = timeout_s
        self._began: deque[float] = deque(maxlen=USUAL_TERMS + _DOUBLINGS)
        #: when gaps ended and how long they were; each is longer than all that ended after it
        self._gaps: deque[tuple[float, float]] = deque()

    def leader_fell_silent(self, now: float) -> None:
        """A term has begun although nothing was known of the end of the leader before."""
        self._began.append(now)

    def leader_was_late(self, gap_s: float, now: float) -> None:
        """Note a leader's silence of `gap_s` that has ended now.

        A silence that outlasts even the longest timeouts is left out: the leader was stopped or cut off, and longer
        timeouts would only have delayed the next leader.
        """
        if not self._timeout_s / GAPS_TOLERATED < gap_s <= self._timeout_s * FACTOR_MAX:
            return
        gaps = self._gaps
        while gaps and gaps[-1][1] <= gap_s:
            gaps.pop()
        gaps.append((now, gap_s))

    def factor(self, now: float) -> float:
        """By how much timeouts are longer."""
        began, gaps = self._began, self._gaps
        while began and now - began[0] > WITHIN_S:
            began.popleft()
        while gaps and now - gaps[0][0] > WITHIN_S:
            gaps.popleft()
        by_terms = float(1 << max(0, len(began) - USUAL_TERMS))
        if not gaps:
            return by_terms
        return max(by_terms, min(FACTOR_MAX, GAPS_TOLERATED * gaps[0][1] / self._timeout_s))
