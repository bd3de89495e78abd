"""Parts that apply changed settings of the broker while it runs."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ..broker_settings import BrokerSettings
from ..configuration.config import BrokerConfig
from ..replication.replica.partition import Partition
from ..server.admissions import Admissions
from ..storage.folder_settings import cordoned_folders
from ..storage.log_cleaner import CleanerSettings, LogCleaner
from ..storage.log_store import LogStore
from .connection_limits import connection_limits


class ConnectionLimitsInForce:
    """The limits on connections, by which the server admits new ones."""

    def __init__(self, config: BrokerConfig, settings: BrokerSettings, admissions: Admissions) -> None:
        """Apply the limits that are in force now."""
        self._config = config
        self._settings = settings
        self._admissions = admissions
        self._apply()

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Apply the limits again, if settings have changed."""
        if delta.configs:
            self._apply()

    def _apply(self) -> None:
        self._admissions.limits = connection_limits(self._config, self._settings)


class CordonsInForce:
    """The data folders that get no new replicas."""

    def __init__(self, config: BrokerConfig, settings: BrokerSettings, logs: LogStore) -> None:
        """Cordon the folders that are named now."""
        self._config = config
        self._settings = settings
        self._logs = logs
        self._apply()

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Cordon the folders that are named now, if settings have changed."""
        if delta.configs:
            self._apply()

    def _apply(self) -> None:
        self._logs.cordoned = cordoned_folders(self._settings, self._config.log_dirs)


class CleanerSettingsInForce:
    """The settings of the log cleaner, which has read them at its start."""

    def __init__(self, settings: BrokerSettings, cleaner: LogCleaner[Partition]) -> None:
        self._settings = settings
        self._cleaner = cleaner

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Reconfigure the cleaner, if settings have changed."""
        if delta.configs:
            self._cleaner.reconfigure(CleanerSettings.of(self._settings))
