"""The library as shipped, on a virtual clock and network, to show each fault that Ottla's version must not have."""

from __future__ import annotations

import random
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pysyncobj.syncobj as library
import pysyncobj.tcp_connection
import pysyncobj.transport
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

NAMES = ("A", "B", "C")


class StockNode(SyncObj):  # type: ignore[misc]
    """A replicated list with appends."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.items: list[Any] = []

    @replicated  # type: ignore[untyped-decorator]
    def put(self, item: Any) -> int:
        self.items.append(item)
        return len(self.items)

    def private(self, name: str) -> Any:
        return getattr(self, f"_SyncObj__{name}")

    @property
    def last_index(self) -> int:
        return int(self.private("raftLog")[-1][1])


class _Link(Transport):  # type: ignore[misc]
    def __init__(self, world: StockWorld, name: str) -> None:
        super().__init__(None, None, [])
        self.world, self.name = world, name

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        if (self.name, node.id) in self.world.cut:
            return False
        self.world.queues[self.name, node.id].append(message)
        return True


class StockWorld:
    """Three nodes of the library, which only act when a test advances them."""

    def __init__(self, make: Callable[..., Any] = StockNode, **options: Any) -> None:
        random.seed(2)
        self.now = 1000.0
        self.cut: set[tuple[str, str]] = set()
        self.queues: dict[tuple[str, str], deque[Any]] = defaultdict(deque)
        self.links = {name: _Link(self, name) for name in NAMES}
        self.nodes: dict[str, Any] = {}
        settings = {"logCompactionMinEntries": 10**6, "logCompactionMinTime": 10**6, **options}
        for name in NAMES:
            others = [Node(other) for other in NAMES if other != name]
            configuration = SyncObjConf(autoTick=False, **settings)
            self.nodes[name] = make(Node(name), others, configuration, transport=self.links[name])
            self.nodes[name]._poller.poll = lambda timeout: None
        for name in NAMES:
            for other in NAMES:
                if name < other:
                    self.connect(name, other)

    def connect(self, first: str, second: str) -> None:
        self.cut -= {(first, second), (second, first)}
        self.links[first]._onNodeConnected(Node(second))
        self.links[second]._onNodeConnected(Node(first))

    def drop(self, first: str, second: str) -> None:
        self.cut |= {(first, second), (second, first)}
        for pair in ((first, second), (second, first)):
            self.queues[pair].clear()
            self.links[pair[0]]._onNodeDisconnected(Node(pair[1]))

    def deliver(self, sender: str, receiver: str, count: int = 10**9) -> None:
        queue = self.queues[sender, receiver]
        while queue and count:
            self.links[receiver]._onMessageReceived(Node(sender), queue.popleft())
            count -= 1

    def tick(self, *names: str, seconds: float = 0.11) -> None:
        self.now += seconds
        for name in names:
            self.nodes[name].doTick(0)

    def step(self, rounds: int = 1, among: tuple[str, ...] = NAMES) -> None:
        for _ in range(rounds):
            self.tick(*among, seconds=0.01)
            for pair in list(self.queues):
                if pair[0] in among and pair[1] in among:
                    self.deliver(*pair)

    def leader(self, among: tuple[str, ...] = NAMES) -> str:
        for _ in range(1000):
            leaders = [name for name in among if self.nodes[name]._isLeader()]
            if leaders:
                self.step(60, among)
                return leaders[0]
            self.step(1, among)
        raise AssertionError("no leader")


@contextmanager
def stock_world(**options: Any) -> Iterator[StockWorld]:
    clock = library.monotonicTime
    world = StockWorld.__new__(StockWorld)
    library.monotonicTime = lambda: getattr(world, "now", 1000.0)
    try:
        world.__init__(**options)  # type: ignore[misc]
        yield world
    finally:
        library.monotonicTime = clock


class Silent(Transport):  # type: ignore[misc]
    """A transport without other nodes."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def send(self, node: Any, message: Any) -> bool:
        return False

    def destroy(self) -> None:
        """Do nothing."""


class StockSockets:
    """Nodes of the library on loopback sockets. Only their clock is virtual: it advances with `step`."""

    def __init__(self, size: int) -> None:
        random.seed(3)
        self.now = 1000.0
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(size)]
        self.addresses = sorted(f"127.0.0.1:{listening.getsockname()[1]}" for listening in sockets)
        """Addresses in order; the larger of two nodes dials the smaller."""
        for listening in sockets:
            listening.close()
        self.nodes: dict[str, Any] = {}

    def start(self, address: str) -> Any:
        others = [other for other in self.addresses if other != address]
        self.nodes[address] = StockNode(address, others, SyncObjConf(autoTick=False, bindAddress=address))
        return self.nodes[address]

    def stop(self, address: str) -> None:
        self.nodes.pop(address).destroy()

    def step(self, seconds: float = 0.01) -> None:
        self.now += seconds
        for node in self.nodes.values():
            node.doTick(0)

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until the condition holds; return whether it holds."""
        end = self.now + seconds
        while not condition() and self.now < end:
            self.step()
        return condition()

    def connected(self, first: str, second: str) -> bool:
        """Return whether both nodes consider themselves connected."""
        return all(
            self.nodes[here].isNodeConnected(Node(there))
            for here, there in ((first, second), (second, first))
        )


@contextmanager
def stock_sockets(size: int) -> Iterator[StockSockets]:
    world = StockSockets(size)
    modules = (library, pysyncobj.transport, pysyncobj.tcp_connection)
    clock = library.monotonicTime
    for module in modules:
        module.monotonicTime = lambda: world.now
    try:
        yield world
    finally:
        for address in list(world.nodes):
            world.stop(address)
        for module in modules:
            module.monotonicTime = clock
