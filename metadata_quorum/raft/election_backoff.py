"""A factor that stretches election timeouts after nodes were late, or leaders were repeatedly deposed for silence.

Pure. On an overloaded machine the nodes' event loops wait for a processor longer than the election timeout, and a
leader is deposed that is merely waiting. Then brokers report their logs to the next leader, and nothing is decided
meanwhile. Two signs of such a machine stretch the timeouts, up to eight times:

- Messages were late, and then arrived. The factor grows with the longest such gap.
- Terms began after silence. Timeouts double with each such term beyond a few.

Waiting times have a long tail: gaps of a tenth of a second are frequent on a machine whose longest gap in some minutes
is half a second. So the factor grows faster than the gap, and the longest gap counts for ten minutes while further gaps
follow. After a minute without a sign, timeouts return to normal. A leader whose connection is lost is replaced at once,
however long the timeouts are.
"""

from __future__ import annotations

from collections import deque

USUAL_TERMS = 3
"""Number of terms after silence within `WITHIN_S` that do not stretch the timeouts."""
WITHIN_S = 60.0
REMEMBERED_S = 600.0
"""Longest time for which a gap counts."""
FACTOR_MAX = 8
USUAL_GAP = 0.5
"""Part of the shortest timeout up to which a gap is no sign of load. It exceeds the pause between two heartbeats."""
LATENESS_TIMES = 6
"""Ratio of the stretch of the shortest timeout to the part of a gap beyond the usual."""
_DOUBLINGS = FACTOR_MAX.bit_length() - 1


class ElectionBackoff:
    """The signs of an overloaded machine that one node has seen, and the resulting factor for election timeouts. Times
    are seconds of any monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` is the normal shortest timeout."""
        self._timeout_s = timeout_s
        self._began: deque[float] = deque(maxlen=USUAL_TERMS + _DOUBLINGS)
        #: end and length of each gap; a gap is longer than all later gaps
        self._gaps: deque[tuple[float, float]] = deque()

    def leader_fell_silent(self, now: float) -> None:
        """Note that a term has begun although the previous leader's end was not known."""
        self._began.append(now)

    def was_late(self, gap_s: float, now: float) -> None:
        """Note a gap of `gap_s` that has just ended: between two messages of a leader, between two replies to a leader,
        or between two turns of this node.

        A gap longer than the longest timeout is ignored. The node was stopped or cut off, and longer timeouts would
        only have delayed the next leader.
        """
        if not self._timeout_s * USUAL_GAP < gap_s <= self._timeout_s * FACTOR_MAX:
            return
        gaps = self._gaps
        while gaps and gaps[-1][1] <= gap_s:
            gaps.pop()
        gaps.append((now, gap_s))

    def factor(self, now: float) -> float:
        """Return the factor, 1 to 8, by which election timeouts are stretched."""
        began, gaps = self._began, self._gaps
        while began and now - began[0] > WITHIN_S:
            began.popleft()
        if gaps and now - gaps[-1][0] > WITHIN_S:
            gaps.clear()
        while gaps and now - gaps[0][0] > REMEMBERED_S:
            gaps.popleft()
        by_terms = float(1 << max(0, len(began) - USUAL_TERMS))
        if not gaps:
            return by_terms
        by_gap = 1 + LATENESS_TIMES * (gaps[0][1] / self._timeout_s - USUAL_GAP)
        return max(by_terms, min(FACTOR_MAX, by_gap))
