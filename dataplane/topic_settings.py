"""A topic's settings in force: its own, else dynamic ones of brokers, else this broker's, else defaults."""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.cluster_image import ClusterImage
from ..protocol.messages.quorum_commands import ResourceType
from .config import TOPIC_DEFAULT_OF, BrokerConfig
from .log import LogConfig
from .replication.partition import ReplicationSettings
from .replication.replicas import TopicSettings
from .replication.throttle import NOT_THROTTLED, ThrottledPartitions


class TopicSettingsView:
    """Resolves settings against an image; the results are kept until `forget`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._known: dict[str, TopicSettings] = {}

    def forget(self) -> None:
        """Some setting has changed."""
        self._known.clear()

    def of(self, image: ClusterImage, topic: str) -> TopicSettings:
        """What the log and replication of a topic go by."""
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = self._resolve(image, topic)
        return found

    def _resolve(self, image: ClusterImage, topic: str) -> TopicSettings:
        texts = dict(self._config.topic_settings)
        texts["producer.id.expiration.ms"] = str(self._config.producer_id_expiration_ms)
        for name in ("", str(self._config.node_id)):
            texts |= _as_topic_settings(image.configs.get((ResourceType.BROKER, name), {}))
        texts |= image.configs.get((ResourceType.TOPIC, topic), {})
        log = LogConfig.from_properties(texts)
        return TopicSettings(
            log=log,
            replication=ReplicationSettings(
                min_in_sync=int(texts.get("min.insync.replicas", "1")),
                lag_time_max_ms=self._config.replication.lag_time_max_ms,
                durable_before_acknowledged=log.flush_messages == 1,
                leader_throttled=self._throttled(texts, "leader"),
                follower_throttled=self._throttled(texts, "follower"),
            ),
        )

    def _throttled(self, texts: Mapping[str, str], side: str) -> ThrottledPartitions:
        text = texts.get(f"{side}.replication.throttled.replicas", "")
        return ThrottledPartitions.parse(text, self._config.node_id) if text else NOT_THROTTLED


def _as_topic_settings(broker_settings: Mapping[str, str]) -> dict[str, str]:
    return {
        topic_key: broker_settings[broker_key]
        for topic_key, broker_key in TOPIC_DEFAULT_OF.items()
        if broker_key in broker_settings
    }
