"""Where replicas go: partition i's replica j on broker (i + j) mod n over racks, from a seeded start."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from ...protocol.errors import ErrorCode, KafkaError


def start_of(seed: int, name: str, brokers: int) -> int:
    """Where the placement of a topic begins: even over seeds and names, the same everywhere."""
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8, person=b"placement").digest()
    return int.from_bytes(digest, "big") % brokers


def rack_alternating(broker_ids: Iterable[int], racks: Mapping[int, str | None]) -> list[int]:
    """The brokers such that neighbours are on different racks as far as possible."""
    by_rack: dict[str, deque[int]] = {}
    for broker_id in sorted(broker_ids):
        by_rack.setdefault(racks[broker_id] or "", deque()).append(broker_id)
    order: list[int] = []
    while any(by_rack.values()):
        order += [by_rack[rack].popleft() for rack in sorted(by_rack) if by_rack[rack]]
    return order


def check_replicas(brokers: Collection[int], replicas: Sequence[int]) -> None:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) for what no partition can be given as its replicas."""
    reason = ""
    unknown = [broker_id for broker_id in replicas if broker_id not in brokers]
    if not replicas:
        reason = "an empty replica list."
    elif unknown:
        reason = f"broker {unknown[0]}, but no such broker is registered."
    elif len(set(replicas)) != len(replicas):
        repeated = next(broker_id for broker_id in replicas if replicas.count(broker_id) > 1)
        reason = f"the broker {repeated} more than once."
    if reason:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}"
        )


class Placement:
    """Places the partitions of one topic. At least one broker has to be usable.

    The preferred leader is a usable broker. Racks repeat only once each has a replica; within that, brokers
    that are not usable come last, as they cannot join an ISR now.
    """

    def __init__(
        self, racks: Mapping[int, str | None], usable: Collection[int], seed: int, topic: str
    ) -> None:
        self._racks = racks
        self._usable = rack_alternating(usable, racks)
        self._others = rack_alternating(racks.keys() - set(usable), racks)
        self._start = start_of(seed, topic, len(self._usable))

    def replicas(self, partitions: Iterable[int], replication_factor: int) -> list[list[int]]:
        """The replicas of each partition, preferred leader first; there must be as many brokers."""
        return [self._place(self._start + index, replication_factor) for index in partitions]

    def _place(self, start: int, replication_factor: int) -> list[int]:
        left = _rotated(self._usable, start) + _rotated(self._others, start)
        chosen: list[int] = []
        used: dict[str | None, int] = {}
        while len(chosen) < replication_factor:
            best = min(left, key=lambda broker_id: used.get(self._racks[broker_id], 0))
            left.remove(best)
            chosen.append(best)
            used[self._racks[best]] = used.get(self._racks[best], 0) + 1
        return chosen


def _rotated(order: list[int], start: int) -> list[int]:
    first = start % len(order) if order else 0
    return order[first:] + order[:first]
