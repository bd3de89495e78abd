"""The effective settings of topics: the topic's own, else dynamic ones of brokers, else this broker's, else
defaults."""

from __future__ import annotations

from dataclasses import replace

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.messages.config_commands import ResourceType
from ...protocol.settings.config_chain import topic_defaults
from ...protocol.settings.config_fields import from_settings
from ..broker_settings import BrokerSettings
from ..log import LogConfig
from ..replication.replica.settings import ReplicationSettings, TopicSettings
from ..replication.throttle import throttled_partitions
from .config import BrokerConfig

_OF_BROKER = "producer.id.expiration.ms"


class TopicSettingsView:
    """A cache of the effective settings of topics, as resolved from the cluster image and the broker's
    configuration.
    """

    def __init__(self, config: BrokerConfig, broker: BrokerSettings) -> None:
        self._config = config
        self._broker = broker
        self._known: dict[str, TopicSettings] = {}
        self._defaults: dict[str, str] | None = None

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Remove the cached topic settings that a change of the image affects."""
        of_brokers = any(kind == ResourceType.BROKER for kind, _ in delta.configs)
        if of_brokers:
            self._defaults = None
        if of_brokers or delta.removed_topics:
            self._known.clear()
        for kind, name in delta.configs:
            if kind == ResourceType.TOPIC:
                self._known.pop(name, None)

    def of(self, image: ClusterImage, topic: str) -> TopicSettings:
        """Return the effective settings of a topic's log and replication."""
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = self._resolve(image, topic)
        return found

    def _resolve(self, image: ClusterImage, topic: str) -> TopicSettings:
        if self._defaults is None:
            self._defaults = topic_defaults(self._broker.layers())
            self._defaults[_OF_BROKER] = str(self._broker.number(_OF_BROKER))
        texts = self._defaults | image.configs.get((ResourceType.TOPIC, topic), {})
        log = LogConfig.from_properties(texts)
        return TopicSettings(
            log=log,
            replication=replace(
                from_settings(ReplicationSettings, texts),
                lag_time_max_ms=self._config.replication.lag_time_max_ms,
                durable_before_acknowledged=log.flush_messages == 1,
                leader_throttled=throttled_partitions(texts, "leader", self._config.node_id),
                follower_throttled=throttled_partitions(texts, "follower", self._config.node_id),
                stored=log.stored_compression,
            ),
        )
