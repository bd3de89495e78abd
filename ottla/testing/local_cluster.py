"""A real cluster for tests, which runs for the duration of a `with` block."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .failures import LocalClusterError
from .launching import Launch, last_lines
from .nodes import END_TIMEOUT_S, Node

if TYPE_CHECKING:
    from ..client.admin import Admin

ResultT = TypeVar("ResultT")

QUORUM_SIZES = (1, 3, 5)
SECURITY = ("sasl_ssl", "ssl", "sasl_plaintext")
BROKERS_MAX = 100
START_TIMEOUT_S = 60.0
POLL_S = 0.005
FOR_TESTS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
"""Settings that differ from the defaults: consumer groups start at once."""


class LocalCluster:
    """A real cluster on loopback that any Kafka client can use, for `with` and `async with`.

        with LocalCluster() as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})

    One broker and a quorum of one share a separate process; with more `brokers` or `quorum_nodes` (1, 3 or 5) each
    node has its own. Brokers are numbered from 1, quorum nodes from 101. Topics are created on first use, with up to
    three replicas on different brokers. `settings` are broker settings by Kafka's names, for all nodes. Data is in a
    temporary folder. No process and no file is left when the block or this process ends, however it ends.

    With `security`, "sasl_ssl", "ssl" or "sasl_plaintext", clients need `client_options` instead of addresses alone.
    These clients are the first user, who has all rights; other users need ACLs.

    Linux only. Each object is started once. Starting raises LocalClusterError if a node does not start within
    `start_timeout_s`. The other methods block until the state that their text names; any thread may call them, one
    at a time.
    """

    def __init__(
        self,
        brokers: int = 1,
        quorum_nodes: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        security: str | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers is 1 to {BROKERS_MAX}, not {brokers}")
        if quorum_nodes not in QUORUM_SIZES:
            raise ValueError(f"quorum_nodes is 1, 3 or 5, not {quorum_nodes}")
        if security is not None and security not in SECURITY:
            raise ValueError(f"security is {', '.join(SECURITY)} or None, not {security!r}")
        self._security = security
        self._brokers = brokers
        self._quorum_nodes = quorum_nodes
        self._settings = FOR_TESTS | dict(settings or {})
        self._start_timeout_s = start_timeout_s
        self._directory: Path | None = None
        self._launch: Launch | None = None
        self._bootstrap = ""
        self._nodes: dict[int, Node] = {}
        """Nodes by id. Empty before the start and after the end; a shared process is one object under both ids."""
        self._killed: set[int] = set()

    def __enter__(self) -> Self:
        launch = self._begin()
        deadline = time.monotonic() + self._start_timeout_s
        try:
            while not self._ready(launch, deadline):
                time.sleep(POLL_S)
        except BaseException:
            self._end()
            raise
        return self

    async def __aenter__(self) -> Self:
        import asyncio

        launch = self._begin()
        deadline = time.monotonic() + self._start_timeout_s
        try:
            while not self._ready(launch, deadline):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    async def __aexit__(self, *exc: object) -> None:
        self._end()

    # Description

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers as `host:port`, separated by commas, in the form that every client accepts."""
        self._check_running()
        return self._bootstrap

    @property
    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for Ottla's own clients and kafka-python's: addresses and credentials."""
        from ..client.security.foreign_options import of_librdkafka

        return of_librdkafka(self.confluent_options)

    @property
    def confluent_options(self) -> dict[str, str]:
        """Options for confluent-kafka and other clients with librdkafka's names: addresses and credentials."""
        from ..cli.local_cluster.layout import known_layout

        self._check_running()
        assert self._directory is not None
        security = known_layout(self._directory).security
        if security is None:
            return {"bootstrap.servers": self._bootstrap}
        return security.client_options(self._bootstrap)

    @property
    def aiokafka_options(self) -> dict[str, Any]:
        """Keyword arguments for aiokafka, which takes an SSLContext instead of files."""
        options = self.client_options
        files = {name: options.pop(name) for name in [*options] if name.startswith("ssl_")}
        if files:
            import ssl

            context = ssl.create_default_context(cafile=files["ssl_cafile"])
            if "ssl_certfile" in files:
                context.load_cert_chain(files["ssl_certfile"], files["ssl_keyfile"])
            options["ssl_context"] = context
        return options

    @property
    def security_folder(self) -> Path | None:
        """Folder with files for clients, None without `security`.

        It has profiles of `ottla` (OTTLA_CONFIG_DIR), `admin.properties` for Java, and `admin.conf` for kcat -F.
        """
        self._check_running()
        return None if self._security is None or self._directory is None else self._directory / "client"

    @property
    def broker_ids(self) -> list[int]:
        """Ids of the brokers, including dead ones."""
        self._check_running()
        return [*range(1, self._brokers + 1)]

    @property
    def quorum_ids(self) -> list[int]:
        """Ids of the quorum nodes, including dead ones."""
        return sorted(set(self._running()).difference(self.broker_ids))

    def log(self, node: int) -> str:
        """Return the content of a node's log file so far. Nodes log only warnings and errors."""
        return self._node(node).log()

    # Faults

    def kill(self, node: int) -> None:
        """Send SIGKILL to a node; return once the process is gone. Its data remains."""
        self._alive(node).kill9()
        self._killed.add(node)

    def pause(self, node: int) -> None:
        """Send SIGSTOP to a node: the process hangs and keeps its connections."""
        self._alive(node).pause()

    def resume(self, node: int) -> None:
        """Let a paused node continue (SIGCONT). Brokers that were paused for long may have been fenced meanwhile."""
        self._alive(node).resume()

    def restart(self, node: int) -> None:
        """Start a node again with its data and port, after a controlled stop if it runs.

        Returns once a broker takes part, or a quorum node answers. Raises LocalClusterError if this takes longer than
        `start_timeout_s`.
        """
        found = self._node(node)
        if found.alive:
            found.resume()
            found.terminate()
        self._start([found])
        self._wait_for([found], brokers={found.id})

    def heal(self) -> None:
        """Resume paused nodes and start killed nodes; return once all brokers take part.

        Raises LocalClusterError if a node died without `kill`; the next call starts it again.
        """
        nodes = {id(node): node for node in self._running().values()}.values()
        for node in nodes:
            if node.alive and node.paused:
                node.resume()
        dead = [node for node in nodes if not node.alive]
        for node in dead:
            if not self._killed & self._numbers_of(node):
                raise self._died(node)
        self._start(dead)
        self._wait_for(nodes, brokers=set(self.broker_ids))

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; return once its partitions have leaders. -1 means the cluster's default replication factor.

        Raises KafkaError, for example if the topic exists.
        """
        from ..client.admin import NewTopic

        topic = NewTopic(name, partitions, replication_factor, configs=dict(configs or {}))
        self._ask(lambda admin: admin.create_topics([topic]))

    def delete_topics(self, *names: str) -> None:
        """Delete topics with their records; missing topics are ignored. Raises KafkaError."""

        async def delete(admin: Admin) -> None:
            there = set(await admin.list_topics())
            await admin.delete_topics([name for name in names if name in there])

        self._ask(delete)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the broker that leads a partition; None while there is no leader. Raises KafkaError for an unknown
        topic.
        """

        async def describe(admin: Admin) -> int | None:
            [described] = await admin.describe_topics([topic])
            info = described.partitions.get(partition)
            if info is None:
                raise ValueError(
                    f"topic {topic!r} has {len(described.partitions)} partitions: no {partition}"
                )
            return info.leader if info.leader >= 0 else None

        return self._ask(describe)

    # Starting and ending

    def _begin(self) -> Launch:
        if self._directory is not None:
            raise LocalClusterError("a LocalCluster is started once; make another one")
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-"))
        try:
            self._launch = self._launched(self._directory)
        except BaseException:
            self._end()
            raise
        return self._launch

    def _launched(self, directory: Path) -> Launch:
        combined = self._brokers == self._quorum_nodes == 1
        logs = directory / "logs"
        logs.mkdir()
        return Launch(
            directory,
            logs / ("broker-1.log" if combined else "up.log"),
            quorum_nodes=self._quorum_nodes,
            brokers=self._brokers,
            settings=self._settings,
            arguments=[
                "--temporary",
                *(["--combined"] if combined else []),
                *(["--secure", self._security.upper()] if self._security else []),
            ],
        )

    def _ready(self, launch: Launch, deadline: float) -> bool:
        described = launch.description()
        if described is None:
            if time.monotonic() > deadline:
                late = f"the cluster is not ready after {self._start_timeout_s:g} s"
                raise LocalClusterError(f"{late}; it said last:\n{launch.said()}")
            return False
        entries = [("quorum", entry) for entry in described["quorum"]]
        entries += [("broker", entry) for entry in described["brokers"]]
        of_process: dict[int, Node] = {}
        for role, entry in reversed(entries):  # a shared process is represented by its broker
            node = of_process.setdefault(entry["pid"], Node(role, entry))
            self._nodes[int(entry["id"])] = node
        self._bootstrap = described["bootstrap"]
        return True

    def _end(self) -> None:
        """Kill all nodes and delete the data. No controlled stop is needed, since the data is not used again."""
        nodes, self._nodes = self._nodes, {}
        try:
            for node in nodes.values():
                if node.alive:
                    node.kill9()
        finally:
            if self._launch is not None:
                self._launch.stop(END_TIMEOUT_S)
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)

    # Nodes

    def _running(self) -> Mapping[int, Node]:
        self._check_running()
        return self._nodes

    def _check_running(self) -> None:
        if not self._nodes:
            state = "not started" if self._directory is None else "closed"
            raise LocalClusterError(f"the cluster is {state}: use it inside of its with block")

    def _node(self, number: int) -> Node:
        nodes = self._running()
        if number not in nodes:
            brokers, quorum = (", ".join(map(str, ids)) for ids in (self.broker_ids, self.quorum_ids))
            raise ValueError(f"there is no node {number}: brokers are {brokers}, quorum nodes {quorum}")
        return nodes[number]

    def _alive(self, number: int) -> Node:
        node = self._node(number)
        if not node.alive:
            raise LocalClusterError(f"{_name(node)} does not run; it said last:\n{last_lines(node.log())}")
        return node

    def _numbers_of(self, node: Node) -> set[int]:
        return {number for number, member in self._nodes.items() if member is node}

    def _died(self, node: Node) -> LocalClusterError:
        """Return the error for a node that died without `kill`. The node then counts as killed, so `heal` starts it
        without raising again."""
        self._killed |= self._numbers_of(node)
        return LocalClusterError(f"{_name(node)} died by itself; it said last:\n{last_lines(node.log())}")

    def _start(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._killed -= self._numbers_of(node)
            node.restart()

    def _wait_for(self, nodes: Iterable[Node], *, brokers: set[int]) -> None:
        """Return once these quorum nodes answer, and each of these broker nodes reports that all `brokers` are
        registered and unfenced. Raises LocalClusterError if a node dies or is late."""
        deadline = time.monotonic() + self._start_timeout_s
        for node in nodes:
            while not self._takes_part(node, brokers):
                if not node.alive:
                    raise self._died(node)
                if time.monotonic() > deadline:
                    late = f"{_name(node)} does not take part after {self._start_timeout_s:g} s"
                    raise LocalClusterError(f"{late}; it said last:\n{last_lines(node.log())}")
                time.sleep(POLL_S)

    def _takes_part(self, node: Node, brokers: set[int]) -> bool:
        from ..cli.local_cluster.layout import known_layout
        from ..cli.local_cluster.quorum_status import ask_quorum
        from ..cli.local_cluster.readiness import brokers_seen_by

        assert self._directory is not None
        layout = known_layout(self._directory)
        if node.role == "broker":
            member = next(each for each in layout.brokers if each.id == node.id)
            return brokers <= brokers_seen_by(layout, member)
        answers = {answer.member.id: answer for answer in ask_quorum(layout)}
        return answers[node.id].reachable

    def _ask(self, question: Callable[[Admin], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Run `question` with an admin client that is connected to the live, unpaused brokers, and return its result.
        It runs in a thread with a separate event loop, since the caller may already run one."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        from ..client.admin import Admin

        brokers = [self._node(number) for number in self.broker_ids]
        awake = [node.address for node in brokers if node.alive and not node.paused]
        if not awake:
            raise LocalClusterError("no broker is awake to be asked")
        options = self.client_options | {"bootstrap_servers": awake}

        async def ask() -> ResultT:
            async with Admin(**options) as admin:
                return await question(admin)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, ask()).result()


def _name(node: Node) -> str:
    return f"{'broker' if node.role == 'broker' else 'quorum node'} {node.id}"
