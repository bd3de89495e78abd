"""The order in which the parts of a broker follow the image, are measured and are closed."""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.dataplane.assembly.foundation import lay_foundation
from ottla.dataplane.assembly.image_changes import FollowersBehindGate, ImageChanges
from ottla.dataplane.assembly.lifecycle import close_all
from ottla.dataplane.assembly.parts import BrokerParts
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.quorum.image_gate import ImageGate
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from tests.imports import modules, nodes

IMAGE_FOLLOWERS = [
    "TopicSettingsView",
    "ListedBrokers",
    "LostBrokers",
    "ConnectionLimitsInForce",
    "CordonsInForce",
    "CleanerSettingsInForce",
    "TlsReloads",
    "Authorization",
    "ClientQuotas",
    "Resealer",
    "EndedCredentials",
    "DelegationTokens",
    "EndedTokens",
    "FollowersBehindGate",
]
FOLLOWERS_OF_ROLES = [
    "LogsAtStart",
    "Replicas",
    "TransactionParticipant",
    "GroupCoordinator",
    "RemovedTopics",
    "ShareStateCoordinator",
    "PeerRequests",
    "StatePersister",
    "Mirrors",
    "Server",
]
MEASURED = [
    "ClusterMetrics",
    "ReplicaMetrics",
    "CleanerMetrics",
    "TableHolds",
    "GroupMetrics",
    "LateShareParts",
    "ServerMetrics",
    "BearerLogins",
    "TlsMetrics",
    "Resealing",
    "MirrorMetrics",
    "AuthorizationMetrics",
]
PERIODIC = ["Upkeep", "GroupExpiry", "ShareStateCoordinator"]
STARTED = ["PeriodicRunner", "Upkeep", "TlsReloads", "BearerLogins", "Replicas"]
CLOSED = [
    "PeriodicRunner",
    "Upkeep",
    "TlsReloads",
    "BearerLogins",
    "Resealing",
    "LostBrokers",
    "Server",
    "Logins",
    "FetchHandlers",
    "ProduceHandlers",
    "LateShareParts",
    "TransactionParticipant",
    "GroupCoordinator",
    "StatePersister",
    "PeerRequests",
    "ShareStateCoordinator",
    "Mirrors",
    "FolderMoves",
    "RoomWatch",
    "Replicas",
]


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    """The parts of a broker that has every optional part."""
    secret = tmp_path / "secret"
    secret.write_text("3f9a17c05be28d64" * 2)
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "cluster.id": "c",
            "cluster.secret.file": str(secret),
            "controller.quorum.voters": "101@127.0.0.1:9193",
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "delegation.token.secret.key": "0123456789abcdef" * 2,
        }
    )
    foundation = await lay_foundation(config)
    parts = BrokerParts(config, os.urandom(16), foundation, lambda _: None)
    yield parts
    parts.server.close()
    parts.logs.close(clean=True, broker_epoch=-1)


def kinds(objects: Iterable[object]) -> list[str]:
    return [type(each).__name__ for each in objects]


async def test_parts_follow_the_image_in_this_order(parts: BrokerParts) -> None:
    followers = parts.image_changes.followers
    assert kinds(followers) == IMAGE_FOLLOWERS
    behind_gate = followers[-1]
    assert isinstance(behind_gate, FollowersBehindGate)
    assert kinds(behind_gate.followers) == FOLLOWERS_OF_ROLES


async def test_parts_are_measured_in_this_order(parts: BrokerParts) -> None:
    assert kinds(parts.metrics.parts) == MEASURED


def classes_with(method: str, *parameters: str) -> set[str]:
    """The classes of the broker with a method of these parameters, without protocols."""
    return {
        node.name
        for module, path in modules().items()
        if module.startswith("ottla.dataplane.") and path.suffix == ".py"
        for node in nodes(module)
        if isinstance(node, ast.ClassDef) and not any(ast.unparse(base) == "Protocol" for base in node.bases)
        for function in node.body
        if isinstance(function, ast.FunctionDef)
        and function.name == method
        and [argument.arg.lstrip("_") for argument in function.args.args] == ["self", *parameters]
    }


def test_every_part_that_offers_something_is_in_a_list() -> None:
    followers = classes_with("image_changed", "image", "delta")
    assert followers == {*IMAGE_FOLLOWERS, *FOLLOWERS_OF_ROLES, "ImageChanges"}
    # The metrics of share partitions appear with the late parts.
    assert classes_with("metric_families") == {*MEASURED, "SharePartitionMetrics"}
    assert classes_with("periodic_work") == set(PERIODIC)


async def test_parts_are_started_and_closed_in_this_order(parts: BrokerParts) -> None:
    assert kinds(parts.started) == STARTED
    assert kinds(parts.closed) == CLOSED
    assert kinds(parts.periodic.parts) == PERIODIC
    works = [work.name for part in parts.periodic.parts for work in part.periodic_work()]
    assert works == [
        "log checkpoints",
        "expiry of producers",
        "expiry of groups",
        "removal of old share states",
    ]


async def test_each_part_is_closed_once_the_part_before_it_is() -> None:
    noted: list[str] = []

    class Slow:
        async def close(self) -> None:
            noted.append("begins")
            await asyncio.sleep(0)
            noted.append("ends")

    class Quick:
        def close(self) -> None:
            noted.append("quick")

    await close_all([Slow(), Quick(), Slow()])
    assert noted == ["begins", "ends", "quick", "begins", "ends"]


class Followers:
    """Named followers that note the changes they get."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, ImageDelta]] = []

    def named(self, name: str) -> Any:
        noted = self.noted

        class Follower:
            def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
                noted.append((name, delta))

        return Follower()


def test_each_change_goes_to_all_followers_in_order_and_past_the_gate_once_it_is_open() -> None:
    registered = False
    followers = Followers()
    gate = ImageGate(lambda: registered)
    changes = ImageChanges(
        [
            followers.named("settings"),
            followers.named("brokers"),
            FollowersBehindGate(gate, [followers.named("replicas"), followers.named("groups")]),
        ]
    )
    image, first, second, third = ClusterImage(), ImageDelta(), ImageDelta(), ImageDelta()
    changes.image_changed(image, first)
    assert followers.noted == [("settings", first), ("brokers", first)]
    registered = True
    followers.noted.clear()
    changes.image_changed(image, second)
    assert [name for name, _ in followers.noted] == ["settings", "brokers", "replicas", "groups"]
    assert followers.noted[-1][1] is not second, "the first change behind the gate is the whole image"
    followers.noted.clear()
    changes.image_changed(image, third)
    assert [name for name, _ in followers.noted] == ["settings", "brokers", "replicas", "groups"]
    assert followers.noted[-1][1] is third


def test_a_failure_behind_the_gate_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    gate = ImageGate(lambda: True)
    FollowersBehindGate(gate, [cast(Any, object())]).image_changed(ClusterImage(), ImageDelta())
    assert ended == [1]
