"""A simulated cluster of quorum nodes and brokers. Each is a process on a separate host, and runs its real code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ottla.cli.nodes.mirror_sources import ClientSources
from ottla.dataplane.assembly.parts import BrokerParts
from ottla.dataplane.broker import Broker
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.replication.replica.partition import Partition
from ottla.metadata_quorum.config import QuorumNodeConfig
from ottla.metadata_quorum.node import QuorumNode
from ottla.protocol.cluster.cluster_image import ClusterImage
from tests.simulation.machine.files import VirtualDisk
from tests.simulation.machine.host import Host
from tests.simulation.machine.machine import Machine
from tests.simulation.machine.process import Process

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZXI"
SECRET = b"the secret of a simulated cluster"
QUORUM_SECRET = b"the secret of its quorum nodes alone"
RAFT_PORT = 9093
CLIENT_PORT = 9092
RESTART_AFTER_S = 0.4
"""Seconds after which a process that ended on its own is restarted, as by a service manager."""

BROKER_SETTINGS = {
    "broker.session.timeout.ms": "500",
    "broker.silence.fence.ms": "250",
    "broker.heartbeat.interval.ms": "100",
    "replica.lag.time.max.ms": "400",
    "replica.fetch.wait.max.ms": "100",
    "replica.socket.timeout.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "controlled.shutdown.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "1048576",
    "log.retention.check.interval.ms": "1500",
    "log.cleaner.backoff.ms": "2000",
    "auto.create.topics.enable": "false",
    "cluster.link.encryption": "required",
}
QUORUM_SETTINGS = {
    "cluster.link.encryption": "required",
    "broker.session.timeout.ms": "500",
    "broker.silence.fence.ms": "250",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "broker.fence.on.refusal": "any",  # each process has a separate machine here
}


@dataclass(frozen=True, slots=True)
class Site:
    """The location and the name of a cluster. Each of several clusters in a machine room has a separate site."""

    name: str = ""
    """Prefix of the nodes' names."""
    network: str = "10.0"
    """Prefix of the nodes' addresses."""
    cluster_id: str = CLUSTER_ID


ONLY_SITE = Site()


class Node:
    """A place where processes of the cluster run, one after the other."""

    def __init__(
        self, machine: Machine, role: str, number: int, name: str, address: str, settings: Mapping[str, str]
    ) -> None:
        self.machine = machine
        self.role = role
        self.id = number
        self.name = name
        self.host = Host(machine, self.name, address, VirtualDisk(machine, self.name))
        self.settings = dict(settings)
        self.process: Process | None = None
        # : parts of the current process, once they exist
        self.broker: Broker | None = None
        self.quorum_node: QuorumNode | None = None
        self._led: tuple[int, list[Partition]] = (-1, [])
        self._moved: tuple[int, list[Partition]] = (-1, [])
        #: of each replica: its role, log end offset and high watermark when it was last looked at
        self._places: dict[Partition, tuple[object, int, int]] = {}
        #: whether it is meant to run
        self.wanted = False
        # : number of times its process ended on its own without a signal
        self.gave_up = 0
        self.folder = f"/simulated/{self.name}/data"
        #: an operator says that a quorum node's folder was lost and that it begins again with an empty one
        self.replaces = False

    @property
    def up(self) -> bool:
        """True if the process runs and is not paused."""
        return self.process is not None and self.process.alive and not self.process.paused

    @property
    def stays(self) -> bool:
        """True if the process runs and was not asked to stop."""
        return self.up and self.process is not None and not self.process.told_to_stop

    def image(self) -> ClusterImage | None:
        """Return the metadata of the node's process."""
        if self.quorum_node is not None:
            return self.quorum_node.controller.image
        parts = self.parts
        return None if parts is None else parts.session.image

    @property
    def parts(self) -> BrokerParts | None:
        """Parts of the node's broker, once they exist."""
        return None if self.broker is None else self.broker.parts

    def replicas(self) -> Iterable[Partition]:
        """Return the replicas of the node's broker, once there are any."""
        parts = self.parts
        return () if parts is None else parts.replicas

    def led(self) -> list[Partition]:
        """Return the partitions that this broker believes to lead; repeated calls after the same event return the same
        list.
        """
        if self._led[0] != self.machine.events:
            self._led = (
                self.machine.events,
                [replica for replica in self.replicas() if replica.leader is not None],
            )
        return self._led[1]

    def moved(self) -> list[Partition]:
        """Return the replicas of this broker whose role, leader epoch, log end or high watermark changed.

        Changes count since the last previous event at which this was called.
        """
        if self._moved[0] != self.machine.events:
            places, moved = self._places, []
            for replica in self.replicas():
                place = (
                    replica.leader or replica.follower,
                    replica.log.log_end_offset,
                    replica.high_watermark,
                )
                if places.get(replica) != place:
                    places[replica] = place
                    moved.append(replica)
            self._moved = (self.machine.events, moved)
        return self._moved[1]

    def start(self) -> None:
        """Start a process, unless one runs."""
        self.wanted = True
        self.host.power_on()
        if self.process is None or not self.process.alive:
            self.broker = self.quorum_node = None
            self.process = Process(self.host, self.name, self._main)
            self.process.on_end = self._ended

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        self.wanted = False
        if self.process is not None:
            self.process.kill()

    def lose_power(self, *, keeps_some: bool = True) -> None:
        """Cut the host's power. `keeps_some`: a random part of the unsynced data survives."""
        self.wanted = False
        self.host.lose_power(keeps_some=keeps_some)

    def terminate(self) -> None:
        """Send SIGTERM, after which the process stops in good order."""
        self.wanted = False
        if self.process is not None and self.process.alive:
            self.process.signal(15)

    def _ended(self, process: Process) -> None:
        if process is not self.process or not self.wanted:
            return
        self.gave_up += 1
        self.machine.after(RESTART_AFTER_S, lambda: self.start() if self.wanted else None)

    async def _main(self) -> None:
        """Run the node as `ottla quorum` or `ottla broker` would."""
        process, finished = self.process, asyncio.Event()
        assert process is not None
        process.on_signal = finished.set
        node: Broker | QuorumNode
        if self.role == "quorum":
            config = QuorumNodeConfig.from_properties(self.settings)
            node = self.quorum_node = QuorumNode(replace(config, replace_empty=self.replaces))
        else:
            node = self.broker = Broker(BrokerConfig.from_properties(self.settings), ClientSources(self.id))
        starting = asyncio.ensure_future(node.start())
        stopping = asyncio.ensure_future(finished.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stopping
        else:
            starting.cancel()
            await asyncio.wait((starting,))
        await node.stop()


class SimulatedCluster:
    """The nodes of a cluster, and the hosts of its clients."""

    def __init__(
        self,
        machine: Machine,
        *,
        quorum: int = 3,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        site: Site = ONLY_SITE,
    ) -> None:
        self.machine = machine
        self.site = site
        network = site.network
        voters = ",".join(f"{node}@{network}.0.{node}:{RAFT_PORT}" for node in range(1, quorum + 1))
        common = {
            "controller.quorum.voters": voters,
            "cluster.id": site.cluster_id,
            **(settings or {}),
        }
        self.quorum = {
            node: self._node("quorum", node, f"{network}.0.{node}", common | QUORUM_SETTINGS)
            for node in range(1, quorum + 1)
        }
        self.brokers = {
            node: self._node("broker", node, f"{network}.1.{node}", common | BROKER_SETTINGS)
            for node in range(1, brokers + 1)
        }
        self.nodes = [*self.quorum.values(), *self.brokers.values()]
        self.bootstrap = ",".join(f"{node.host.address}:{CLIENT_PORT}" for node in self.brokers.values())
        self._clients = 0

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def client(self, name: str, main: Callable[[], Coroutine[Any, Any, object]]) -> Process:
        """Start a client process on a new host."""
        self._clients += 1
        address = f"{self.site.network}.2.{self._clients}"
        host = Host(self.machine, name, address, VirtualDisk(self.machine, name))
        return Process(host, name, main)

    @property
    def quorum_leader(self) -> Node | None:
        for node in self.quorum.values():
            if node.up and node.quorum_node is not None and node.quorum_node.is_leader:
                return node
        return None

    def decided_image(self) -> ClusterImage | None:
        """Return the image of the quorum's leader, which contains all decisions; None without a leader."""
        leaders = [
            node.quorum_node
            for node in self.quorum.values()
            if node.up and node.quorum_node is not None and node.quorum_node.is_leader
        ]
        return max(leaders, key=lambda leader: leader.raft.term).controller.image if leaders else None

    def newest_image(self) -> ClusterImage | None:
        """Return the metadata of the most up-to-date quorum node."""
        images = [image for node in self.quorum.values() if (image := node.image()) is not None]
        return max(images, key=lambda image: image.offset, default=None)

    def is_steady(self) -> bool:
        """Return whether every broker serves, and every replica is complete and in sync."""
        image = self.newest_image()
        if image is None or not all(node.stays for node in self.nodes):
            return False
        return all(has_joined(node, image) for node in self.brokers.values()) and all(
            set(state.isr) == set(state.replicas)
            for topic in image.topics.values()
            for state in topic.partitions.values()
        )

    def leaders(self, topic: str | None = None) -> list[Node]:
        """Return the running brokers that lead a partition, of this topic if one is named."""
        return [
            node
            for node in self.brokers.values()
            if node.up and any(topic is None or partition.topic == topic for partition in node.led())
        ]

    def _node(self, role: str, number: int, address: str, settings: Mapping[str, str]) -> Node:
        name = f"{self.site.name}{role}-{number}"
        node = Node(self.machine, role, number, name, address, {"node.id": str(number), **settings})
        secrets = {"cluster.secret.file": SECRET}
        if role == "quorum":
            secrets["quorum.secret.file"] = QUORUM_SECRET
        for key, secret in secrets.items():
            node.settings[key] = f"/simulated/{node.name}/{key}"
            with open(node.settings[key], "wb") as file:
                file.write(secret)
                file.flush()
                os.fsync(file.fileno())
        folder = os.open(f"/simulated/{node.name}", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        node.settings["process.roles"] = "controller" if role == "quorum" else "broker"
        node.settings["log.dirs"] = node.folder
        scheme, port = ("CONTROLLER", RAFT_PORT) if role == "quorum" else ("PLAINTEXT", CLIENT_PORT)
        node.settings["listeners"] = f"{scheme}://{address}:{port}"
        return node


def has_joined(node: Node, image: ClusterImage) -> bool:
    """Return whether the broker has been registered since its last start, so that the quorum knows of its losses."""
    known, parts = image.brokers.get(node.id), node.parts
    return (
        known is not None
        and node.up
        and parts is not None
        and parts.session.broker_epoch == known.broker_epoch
    )
