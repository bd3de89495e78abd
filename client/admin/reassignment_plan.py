"""Plans that balance the replicas among the brokers and move as little as possible. Pure.

A plan keeps every partition's number of replicas. It empties the brokers that leave. The other brokers get the same
number of replicas, or one more, and the same number of preferred leaders, or one more. No two replicas of a partition
are on the same host or rack while another host or rack has none, as far as the counts allow. Among the possible moves,
the plan takes those of the smallest partitions. A change of the preferred leader moves no bytes.

The three steps are, in this order: `_emptied` (replicas that must leave), `_evened` (counts of replicas, and racks),
`_led` (counts of preferred leaders, by paths of swaps within partitions).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

Key = tuple[str, int]


class NoPlan(ValueError):
    """An error: the replicas cannot be placed; the message says why."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The new replicas of a partition, preferred leader first, and the number of bytes to copy."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes_moved: int

    @property
    def added(self) -> tuple[int, ...]:
        """The ids of the brokers that have to copy the partition, since they have no replica of it yet."""
        return tuple(broker_id for broker_id in self.after if broker_id not in self.before)


@dataclass(frozen=True, slots=True)
class Plan:
    """A reassignment plan: the new replicas of each partition that moves; unchanged partitions do not appear."""

    moves: Mapping[Key, PlannedMove] = field(default_factory=dict)

    @property
    def bytes_moved(self) -> int:
        """The total number of bytes that the plan's moves copy."""
        return sum(move.bytes_moved for move in self.moves.values())


def plan(
    replicas: Mapping[Key, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    leaving: Collection[int] = (),
    sizes: Mapping[Key, int] | None = None,
    hosts: Mapping[int, str] | None = None,
    balance: bool = True,
    targets: Collection[int] | None = None,
) -> Plan:
    """Return a balanced reassignment plan for these partitions (replicas by topic and index, preferred leader first).

    `racks` has every broker that may hold replicas, with its rack; new brokers are included. `leaving` are brokers to
    be emptied. `sizes` has the bytes of each partition, 1 if unknown. `hosts` has the machines of brokers that share a
    machine. Without `balance` only the leaving brokers are emptied, onto the brokers with the fewest replicas, of which
    `targets` may name some. Raises NoPlan, and ValueError for `targets` of a balanced plan.
    """
    if balance and targets is not None:
        raise ValueError("a balanced plan moves replicas to all brokers: give no targets")
    staying = {broker_id: rack for broker_id, rack in racks.items() if broker_id not in leaving}
    for key, present in sorted(replicas.items()):
        if len(present) > len(staying):
            left = "1 broker is" if len(staying) == 1 else f"{len(staying)} brokers are"
            raise NoPlan(f"{key[0]}-{key[1]} has {len(present)} replicas, and {left} left for them")
    board = _Board(replicas, staying, sizes or {}, hosts or {})
    _emptied(
        board,
        board.held if targets is None else [broker_id for broker_id in board.held if broker_id in targets],
    )
    if balance:
        _evened(board)
        _led(board)
    return board.plan(replicas)


class _Board:
    """The placement of replicas as planned so far, with the counts by broker on which decisions are based."""

    def __init__(
        self,
        replicas: Mapping[Key, Sequence[int]],
        racks: Mapping[int, str | None],
        sizes: Mapping[Key, int],
        hosts: Mapping[int, str],
    ) -> None:
        self.racks = {broker_id: rack or f"#{broker_id}" for broker_id, rack in racks.items()}
        self.hosts = {broker_id: hosts.get(broker_id) or f"#{broker_id}" for broker_id in racks}
        self.original = {key: tuple(present) for key, present in replicas.items()}
        self.replicas = {key: list(present) for key, present in sorted(replicas.items())}
        self.sizes = sizes
        self.held: dict[int, set[Key]] = {broker_id: set() for broker_id in sorted(racks)}
        for key, present in self.replicas.items():
            for broker_id in present:
                if broker_id in self.held:
                    self.held[broker_id].add(key)

    def size(self, key: Key) -> int:
        return self.sizes.get(key, 1)

    def cost(self, key: Key, source: int, target: int) -> int:
        """Return the change of the bytes to copy if a partition's replica moves from broker `source` to `target`. A
        replica that is only planned at `source`, or returns to its original broker, adds no bytes."""
        before = self.original[key]
        return self.size(key) * ((target not in before) - (source not in before and source in self.held))

    def crowding(self, key: Key, target: int, source: int | None = None) -> int:
        """Return how many other replicas of the partition are on the rack of broker `target`, without the replica at
        `source`. A replica on the same host counts for more than all replicas that are only on the same rack."""
        rack, host = self.racks[target], self.hosts[target]
        others = [other for other in self.replicas[key] if other not in (source, target)]
        beside = sum(self.hosts.get(other) == host for other in others)
        return beside * len(self.replicas[key]) + sum(self.racks.get(other) == rack for other in others)

    def move(self, key: Key, source: int, target: int) -> None:
        present = self.replicas[key]
        present[present.index(source)] = target
        if source in self.held:
            self.held[source].discard(key)
        self.held[target].add(key)

    def plan(self, before: Mapping[Key, Sequence[int]]) -> Plan:
        moves: dict[Key, PlannedMove] = {}
        for key, after in self.replicas.items():
            was = tuple(before[key])
            if tuple(after) != was:
                copied = sum(broker_id not in was for broker_id in after)
                moves[key] = PlannedMove(was, tuple(after), copied * self.size(key))
        return Plan(moves)


def _emptied(board: _Board, targets: Collection[int]) -> None:
    """Move replicas off brokers that leave or are unknown, to those of the brokers `targets` with free racks and few
    replicas; the largest partitions first, while there is a choice. Raises NoPlan."""
    stranded = [
        (-board.size(key), key, broker_id)
        for key, present in board.replicas.items()
        for broker_id in present
        if broker_id not in board.held
    ]
    for _, key, source in sorted(stranded):
        free = [broker_id for broker_id in targets if key not in board.held[broker_id]]
        if not free:
            raise NoPlan(
                f"each broker that may take {key[0]}-{key[1]} from broker {source} has a replica of it"
            )
        target = min(
            free,
            key=lambda broker_id: (
                board.crowding(key, broker_id, source),
                len(board.held[broker_id]),
                broker_id,
            ),
        )
        board.move(key, source, target)


def _evened(board: _Board) -> None:
    """Even out the brokers' numbers of replicas, until they differ by at most one; then spread racks by exchanges that
    keep the numbers."""
    offers: dict[tuple[int, int], list[_Offer]] = {}
    while True:
        counts = {broker_id: len(keys) for broker_id, keys in board.held.items()}
        source, target = (
            max(counts, key=lambda broker_id: counts[broker_id]),
            min(counts, key=lambda broker_id: counts[broker_id]),
        )
        if counts[source] - counts[target] <= 1:
            break
        board.move(_best(board, offers, source, target), source, target)
    for key in board.replicas:
        _spread(board, key)


_Offer = tuple[int, int, Key]
"""A possible move: the change of crowding (replicas on the same rack), the bytes to copy, and the partition."""


def _best(board: _Board, offers: dict[tuple[int, int], list[_Offer]], source: int, target: int) -> Key:
    """Return the cheapest partition to move from `source` to `target`. `offers` holds a heap of candidates for each
    pair of brokers: other moves seldom change them, and a changed candidate is put back into the heap."""
    heap = offers.get((source, target))
    while True:
        if not heap:
            movable = board.held[source] - board.held[target]
            heap = offers[source, target] = [_offer(board, key, source, target) for key in movable]
            heapify(heap)
        offer = heappop(heap)
        key = offer[2]
        if key in board.held[source] and key not in board.held[target]:
            now = _offer(board, key, source, target)
            if now == offer:
                return key
            heappush(heap, now)


def _offer(board: _Board, key: Key, source: int, target: int) -> _Offer:
    crowding = board.crowding(key, target, source) - board.crowding(key, source)
    return crowding, board.cost(key, source, target), key


def _spread(board: _Board, key: Key) -> None:
    """Move a partition's replicas off racks that hold several while a rack is free, by exchange with another partition
    that becomes no more crowded."""
    for source in list(board.replicas[key]):
        crowded = board.crowding(key, source)
        if not crowded:
            continue
        targets = [
            other
            for other in board.held
            if key not in board.held[other] and board.crowding(key, other, source) < crowded
        ]
        offers = [
            (board.cost(key, source, target) + board.cost(given, target, source), given, target)
            for target in targets
            for given in board.held[target] - board.held[source]
            if board.crowding(given, source, target) <= board.crowding(given, target)
        ]
        if offers:
            _, given, target = min(offers)
            board.move(key, source, target)
            board.move(given, target, source)


def _led(board: _Board) -> None:
    """Even out the brokers' numbers of preferred leaders, until they differ by at most one where replicas allow it.

    While a path of partitions leads from a broker with too many to a broker with too few, each broker on the path hands
    a partition to the next.
    """
    led = Counter(dict.fromkeys(board.held, 0))
    by_leader: dict[int, set[Key]] = {broker_id: set() for broker_id in board.held}
    for key, present in board.replicas.items():
        if present:
            led[present[0]] += 1
            by_leader[present[0]].add(key)
    # Search again from the start each time: what one broker hands over may open a path for another broker.
    while (path := _first_path(board, by_leader, led)) is not None:
        led[board.replicas[path[0][0]][0]] -= 1
        led[path[-1][1]] += 1
        for key, target in path:
            present = board.replicas[key]
            holder = present[0]
            place = present.index(target)
            present[0], present[place] = target, holder
            by_leader[holder].discard(key)
            by_leader[target].add(key)


def _first_path(
    board: _Board, by_leader: Mapping[int, set[Key]], led: Mapping[int, int]
) -> list[tuple[Key, int]] | None:
    """Return a path of leadership handovers from the broker that leads most, among the brokers that have such a
    path."""
    for source in sorted(led, key=lambda broker_id: (-led[broker_id], broker_id)):
        if (path := _path(board, by_leader, led, source)) is not None:
            return path
    return None


def _path(
    board: _Board, by_leader: Mapping[int, set[Key]], led: Mapping[int, int], source: int
) -> list[tuple[Key, int]] | None:
    """Return a path of leadership handovers: partitions, and the broker that each is handed to, from `source` to a
    broker that leads at least two fewer."""
    came: dict[int, tuple[int, Key]] = {}
    seen, queue = {source}, deque([source])
    while queue:
        holder = queue.popleft()
        for key in sorted(by_leader[holder]):
            for target in board.replicas[key][1:]:
                if target in seen:
                    continue
                seen.add(target)
                came[target] = (holder, key)
                if led[source] - led[target] >= 2:
                    return _walked(came, source, target)
                queue.append(target)
    return None


def _walked(came: Mapping[int, tuple[int, Key]], source: int, target: int) -> list[tuple[Key, int]]:
    steps: list[tuple[Key, int]] = []
    while target != source:
        holder, key = came[target]
        steps.append((key, target))
        target = holder
    return steps[::-1]
