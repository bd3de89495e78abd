"""Numbers and durations of answered requests by API."""

from __future__ import annotations

import time
from bisect import bisect_left

from ...protocol.exposition import Histogram

FOLLOWER_FETCH = -1
"""The key for followers' fetches, which are counted separately: they wait by design, consumers' do not."""

BOUNDS_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class RequestTimes:
    """A histogram of milliseconds per API key, from a request's arrival to its answer, including waits."""

    def __init__(self) -> None:
        self.by_api: dict[int, Histogram] = {}

    def answered(self, api_key: int, began_s: float) -> None:
        """Count an answered request, and its duration from `began_s` (its arrival on `time.perf_counter`) until now."""
        histogram = self.by_api.get(api_key)
        if histogram is None:
            histogram = self.by_api[api_key] = Histogram(BOUNDS_MS)
        took_ms = (time.perf_counter() - began_s) * 1000
        # This is `Histogram.observe` without a call for each answer.
        histogram.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        histogram.total += took_ms
