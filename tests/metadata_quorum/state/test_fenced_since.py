"""The time since which a broker is fenced: the controller keeps it until the broker is unfenced."""

from __future__ import annotations

from ottla.protocol.messages.broker_commands import FenceBroker, RegisterBroker, RegisterBrokerResult
from ottla.protocol.messages.command import PlainResult

from .harness import ControllerWithBrokers

KILLED_MS, RESTARTED_MS, LATER_MS = 1_700_000_000_000, 1_700_000_007_000, 1_700_000_099_000


def since_ms(cluster: ControllerWithBrokers, broker_id: int) -> int:
    return cluster.machine.image.brokers[broker_id].fenced_since_ms


def fence(cluster: ControllerWithBrokers, broker_id: int, now_ms: int) -> None:
    command = FenceBroker(broker_id=broker_id, broker_epoch=cluster.epoch(broker_id), now_ms=now_ms)
    cluster.do(command, PlainResult)


def register(cluster: ControllerWithBrokers, broker_id: int, now_ms: int) -> None:
    incarnation = now_ms.to_bytes(16, "big")
    command = RegisterBroker(broker_id=broker_id, incarnation=incarnation, now_ms=now_ms)
    cluster.do(command, RegisterBrokerResult)


def test_a_live_broker_has_no_such_time() -> None:
    assert since_ms(ControllerWithBrokers(1), 1) == -1


def test_the_first_fence_counts_until_the_broker_is_unfenced() -> None:
    cluster = ControllerWithBrokers(2)
    fence(cluster, 1, KILLED_MS)
    fence(cluster, 1, LATER_MS)
    assert since_ms(cluster, 1) == KILLED_MS
    register(cluster, 1, RESTARTED_MS)
    assert since_ms(cluster, 1) == KILLED_MS
    cluster.unfence(1)
    assert since_ms(cluster, 1) == -1


def test_a_broker_that_has_just_registered_waits_since_its_registration() -> None:
    cluster = ControllerWithBrokers(1)
    register(cluster, 2, RESTARTED_MS)
    assert since_ms(cluster, 2) == RESTARTED_MS
    register(cluster, 1, LATER_MS)
    assert since_ms(cluster, 1) == LATER_MS


def test_a_leader_of_an_older_version_names_no_time() -> None:
    cluster = ControllerWithBrokers(2)
    cluster.fence(1)
    assert since_ms(cluster, 1) == -1
