"""Settings of topics are resolved again where a change may have made them wrong, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.dataplane.broker_settings import BrokerSettings
from ottla.dataplane.configuration.topic_settings import TopicSettingsView
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.image_delta import ImageDelta
from ottla.protocol.messages.metadata_records import ConfigRecord

TOPIC, BROKER, GROUP = 2, 4, 32


def test_a_change_of_one_topic_leaves_the_others_as_they_are() -> None:
    image = ClusterImage()
    config = SimpleNamespace(node_id=1, replication=SimpleNamespace(lag_time_max_ms=30_000))
    view = TopicSettingsView(cast(Any, config), BrokerSettings(1, {}, lambda: image))

    def changed(kind: int, name: str, key: str, value: str) -> None:
        record = ConfigRecord(resource_type=kind, resource_name=name, config_name=key, value=value)
        image.apply(record)
        delta = ImageDelta()
        delta.note(record)
        view.image_changed(image, delta)

    other = view.of(image, "other")
    changed(TOPIC, "orders", "min.insync.replicas", "3")
    changed(GROUP, "g", "consumer.session.timeout.ms", "45000")
    assert view.of(image, "other") is other
    assert view.of(image, "orders").replication.min_in_sync == 3
    changed(TOPIC, "orders", "min.insync.replicas", "2")
    assert view.of(image, "orders").replication.min_in_sync == 2
    changed(BROKER, "", "min.insync.replicas", "4")
    assert view.of(image, "other").replication.min_in_sync == 4
    assert view.of(image, "orders").replication.min_in_sync == 2
