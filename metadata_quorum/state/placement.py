"""Where replicas go: partition i's replica j on broker (i + j) mod n over racks, from a seeded start."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from hashlib import blake2b


def start_of(seed: int, name: str, brokers: int) -> int:
    """Where the placement of a topic begins: even over seeds and names, the same everywhere."""
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8, person=b"placement").digest()
    return int.from_bytes(digest, "big") % brokers


def rack_alternating(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers such that neighbours are on different racks as far as possible."""
    by_rack: dict[str, deque[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id] or "", deque()).append(broker_id)
    order: list[int] = []
    while len(order) < len(racks):
        order += [by_rack[rack].popleft() for rack in sorted(by_rack) if by_rack[rack]]
    return order


def place(racks: Mapping[int, str | None], partition: int, replication_factor: int, start: int) -> list[int]:
    """The replicas of one partition, preferred leader first; needs as many brokers as replicas.

    Racks repeat only once each has a replica.
    """
    order = rack_alternating(racks)
    first = (start + partition) % len(order)
    ring = order[first:] + order[:first]
    chosen: list[int] = []
    used: dict[str, int] = {}
    while len(chosen) < replication_factor:
        best = min(
            (broker_id for broker_id in ring if broker_id not in chosen),
            key=lambda broker_id: used.get(racks[broker_id] or "", 0),
        )
        chosen.append(best)
        used[racks[best] or ""] = used.get(racks[best] or "", 0) + 1
    return chosen
