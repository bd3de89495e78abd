"""Needless fences and elections in a soak of real processes, by the metrics of its nodes.

A working broker may be slow, but it is not fenced. A working leader of the quorum may be slow, but it stays. A fence is
needless if no fault hit that broker shortly before it. A new term is needless if no fault hit a quorum node.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from .clusters import Node

EVERY_S = 0.25
EXPLAINED_S = 45.0
"""Seconds after a fault within which a fence or an election is its consequence: at a high load a restart is long."""
_ANSWER_S = 5.0
_TERM = "ottla_quorum_term"
_LEADER = "ottla_quorum_leader"
_FENCED_COUNT = "kafka_controller_kafkacontroller_fencedbrokercount"
_FENCED = "ottla_broker_fenced"
_READ = frozenset({_TERM, _LEADER, _FENCED_COUNT, _FENCED})


class Watch:
    """Fences and terms of a cluster. `fault_s` returns the times of a node's faults, and `elapsed_s` the current time,
    both in seconds since the start."""

    def __init__(self, fault_s: Callable[[str], Sequence[float]], elapsed_s: Callable[[], float]) -> None:
        self._fault_s, self._elapsed_s = fault_s, elapsed_s
        self._fenced: frozenset[str] = frozenset()
        self._term = 0
        self.terms = 0
        """Terms that began during the run."""
        self.fences: list[tuple[float, str]] = []
        """All fences: time, and name of the broker."""
        self.needless: list[str] = []
        """Fences and new terms without a fault that explains them."""

    def saw_term(self, term: int, quorum: Iterable[str]) -> None:
        """Note the term of a quorum node; `quorum` has the names of all quorum nodes."""
        if term <= self._term:
            return
        before, self._term = self._term, term
        if before == 0:
            return
        self.terms += term - before
        if not any(self._explains(name) for name in quorum):
            self.needless.append(f"{self._elapsed_s():.0f} s: term {before} became {term}")

    def saw_fenced(self, brokers: Iterable[str]) -> None:
        """Note the names of all brokers that are fenced now."""
        now = frozenset(brokers)
        for name in sorted(now - self._fenced):
            self.fences.append((self._elapsed_s(), name))
            if not self._explains(name):
                self.needless.append(f"{self._elapsed_s():.0f} s: {name} was fenced")
        self._fenced = now

    def _explains(self, name: str) -> bool:
        now_s = self._elapsed_s()
        return any(now_s - at_s <= EXPLAINED_S for at_s in self._fault_s(name))


async def keep_watching(watch: Watch, quorum: Mapping[str, Node], brokers: Mapping[str, Node]) -> None:
    """Read the nodes' metrics until cancelled.

    Only a broker itself tells that it is fenced, so it counts from when it answers. The leader of the quorum counts
    fenced brokers, and brokers are asked only if there is any.
    """
    while True:
        fenced_count = 0.0
        for node in quorum.values():
            gauges = await _gauges(node)
            watch.saw_term(int(gauges.get(_TERM, 0)), quorum)
            if gauges.get(_LEADER) == node.id:
                fenced_count = gauges.get(_FENCED_COUNT, 0.0)
        asked = brokers if fenced_count else {}
        watch.saw_fenced([name for name, node in asked.items() if (await _gauges(node)).get(_FENCED) == 1.0])
        await asyncio.sleep(EVERY_S)


async def _gauges(node: Node) -> dict[str, float]:
    """Return the node's gauges without labels; empty if it does not answer."""
    with suppress(OSError):
        page = await asyncio.to_thread(_fetch, node.metrics)
        pairs = (line.rpartition(" ") for line in page.splitlines())
        return {name: float(value) for name, _, value in pairs if name in _READ}
    return {}


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
        page: bytes = answer.read()
    return page.decode()
