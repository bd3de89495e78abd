"""Hosts of brokers in the controller: kept and placed by where the feature is in force, and nowhere else."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import PLACEMENT
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult
from ottla.protocol.messages.topic_commands import CreatePartitions, CreatePartitionsResult, MorePartitions

from .harness import ControllerWithBrokers, topic

HOSTS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


def with_level(level: int) -> ControllerWithBrokers:
    return ControllerWithBrokers(6, hosts=HOSTS, levels={PLACEMENT: level})


def hosts_of(cluster: ControllerWithBrokers, name: str) -> list[set[str]]:
    partitions = cluster.machine.image.topics[name].partitions.values()
    return [{HOSTS[broker_id] for broker_id in state.replicas} for state in partitions]


def set_level(cluster: ControllerWithBrokers, level: int, upgrade_type: int) -> UpdateFeaturesResult:
    update = FeatureLevel(feature=PLACEMENT, level=level, upgrade_type=upgrade_type)
    return cluster.do(UpdateFeatures(updates=[update]), UpdateFeaturesResult)


def test_new_and_added_partitions_have_their_replicas_on_different_hosts() -> None:
    cluster = with_level(1)
    cluster.create(topic("t", partitions=6, factor=3))
    more = CreatePartitions(topics=[MorePartitions(name="t", count=12)], seed=11)
    assert not cluster.do(more, CreatePartitionsResult).topics[0].error_code
    assert hosts_of(cluster, "t") == [{"a", "b", "c"}] * 12


def test_without_the_feature_no_host_is_kept() -> None:
    """A quorum node of an older version does not know hosts, and would place replicas elsewhere."""
    cluster = with_level(0)
    assert {broker.host for broker in cluster.machine.image.brokers.values()} == {None}
    cluster.create(topic("t", partitions=6, factor=3))
    assert {"a", "b"} in hosts_of(cluster, "t")


@pytest.mark.parametrize(("level", "inherit"), [(1, 1), (2, 5)])
def test_leaderships_of_a_broker_go_to_all_others_where_all_know_how(level: int, inherit: int) -> None:
    """Some quorum node may place as older versions do at level 1, and all nodes have to place alike."""
    cluster = ControllerWithBrokers(6, levels={PLACEMENT: level})
    cluster.create(topic("t", partitions=30, factor=2))
    placed = [state.replicas for state in cluster.machine.image.topics["t"].partitions.values()]
    assert len({second for first, second in placed if first == 1}) == inherit


def test_hosts_count_from_the_next_start_of_a_broker_on() -> None:
    cluster = with_level(0)
    assert not set_level(cluster, 1, upgrade_type=1).error_code
    for broker_id in HOSTS:
        cluster.start(broker_id, clean=True)
        cluster.unfence(broker_id)
    cluster.create(topic("t", partitions=6, factor=3))
    assert hosts_of(cluster, "t") == [{"a", "b", "c"}] * 6


def test_the_feature_waits_for_the_last_broker_that_does_not_know_it() -> None:
    cluster = ControllerWithBrokers(2)
    refused = set_level(cluster, 1, upgrade_type=1)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "The program of broker 1 does not know it" in refused.error_message


def test_the_level_stays_while_a_broker_has_a_host() -> None:
    cluster = with_level(1)
    refused = set_level(cluster, 0, upgrade_type=2)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 1 has a host: start it without broker.host first" in refused.error_message
