"""The placement of replicas. Broker i mod n leads partition i, over racks and hosts, from a seeded start. Its followers
are the next brokers, shifted by one for every n partitions.

If the followers were always the next brokers, all leaderships of a broker that dies would move to its neighbour.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType

from ...protocol.errors import ErrorCode, KafkaError


def start_of(seed: int, name: str, brokers: int) -> int:
    """Return the position in the list of brokers at which a topic's placement starts. It is a hash (BLAKE2b) of seed
    and name: evenly distributed, and equal on all nodes."""
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8, person=b"placement").digest()
    return int.from_bytes(digest, "big") % brokers


def alternating(
    broker_ids: Iterable[int], racks: Mapping[int, str | None], hosts: Mapping[int, str]
) -> list[int]:
    """Return the brokers in an order in which neighbours are on different racks, and within a rack on different hosts,
    as far as possible."""
    by_host: dict[int | str, deque[int]] = {}
    for broker_id in sorted(broker_ids):
        by_host.setdefault(hosts.get(broker_id, broker_id), deque()).append(broker_id)
    by_rack: dict[str, deque[int]] = {}
    for broker_id in _in_turns(by_host.values()):
        by_rack.setdefault(racks[broker_id] or "", deque()).append(broker_id)
    return _in_turns([by_rack[rack] for rack in sorted(by_rack)])


def _in_turns(groups: Collection[deque[int]]) -> list[int]:
    order: list[int] = []
    while any(groups):
        order += [group.popleft() for group in groups if group]
    return order


def check_replicas(brokers: Collection[int], replicas: Sequence[int]) -> None:
    """Raise KafkaError(INVALID_REPLICA_ASSIGNMENT) for an invalid list of replicas."""
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
    """The assignment of brokers to the replicas of one topic's partitions. At least one broker must be usable.

    The preferred leader is a usable broker. A host gets a second replica only once each host has one, and so does a
    rack, since a host is in one rack. Within these limits brokers that are not usable come last, as they cannot join an
    ISR now. A broker without a host in `hosts` counts as a separate host.
    """

    def __init__(
        self,
        racks: Mapping[int, str | None],
        usable: Collection[int],
        seed: int,
        topic: str,
        hosts: Mapping[int, str] = MappingProxyType({}),
        *,
        in_turns: bool = True,
    ) -> None:
        """`in_turns` shifts the followers. It is false while some quorum node may not support that, since all must
        place alike."""
        self._racks = racks
        self._hosts = hosts
        self._in_turns = in_turns
        self._usable = alternating(usable, racks, hosts)
        self._others = alternating(racks.keys() - set(usable), racks, hosts)
        self._start = start_of(seed, topic, len(self._usable))

    def replicas(self, partitions: Iterable[int], replication_factor: int) -> list[list[int]]:
        """Return the replicas of each partition, preferred leader first; there must be at least `replication_factor`
        brokers."""
        return [self._place(index, replication_factor) for index in partitions]

    def _place(self, partition: int, replication_factor: int) -> list[int]:
        start = self._start + partition
        leader, *others = _rotated(self._usable, start)
        if self._in_turns:
            others = _rotated(others, partition // len(self._usable))
        left = [leader, *others, *_rotated(self._others, start)]
        chosen: list[int] = []
        on_host: Counter[int | str] = Counter()
        in_rack: Counter[str | None] = Counter()
        while len(chosen) < replication_factor:
            best = min(
                left, key=lambda broker_id: (on_host[self._host(broker_id)], in_rack[self._racks[broker_id]])
            )
            left.remove(best)
            chosen.append(best)
            on_host[self._host(best)] += 1
            in_rack[self._racks[best]] += 1
        return chosen

    def _host(self, broker_id: int) -> int | str:
        return self._hosts.get(broker_id, broker_id)


def _rotated(order: list[int], start: int) -> list[int]:
    first = start % len(order) if order else 0
    return order[first:] + order[:first]
