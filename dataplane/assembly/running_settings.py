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
    """A follower of the image that applies changed connection limits to the server."""

    def __init__(self, config: BrokerConfig, settings: BrokerSettings, admissions: Admissions) -> None:
        """Apply the connection limits of the present settings."""
        self._config = config
        self._settings = settings
        self._admissions = admissions
        self._apply()

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Apply the connection limits again, if settings have changed."""
        if delta.configs:
            self._apply()

    def _apply(self) -> None:
        self._admissions.limits = connection_limits(self._config, self._settings)


class CordonsInForce:
    """A follower of the image that applies changes of the list of cordoned data folders, which get no new replicas."""

    def __init__(self, config: BrokerConfig, settings: BrokerSettings, logs: LogStore) -> None:
        """Cordon the data folders that the present settings name."""
        self._config = config
        self._settings = settings
        self._logs = logs
        self._apply()

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Cordon the data folders that the settings name now, if settings have changed."""
        if delta.configs:
            self._apply()

    def _apply(self) -> None:
        self._logs.cordoned = cordoned_folders(self._settings, self._config.log_dirs)


class CleanerSettingsInForce:
    """A follower of the image that applies changed settings to the log cleaner."""

    def __init__(self, settings: BrokerSettings, cleaner: LogCleaner[Partition]) -> None:
        self._settings = settings
        self._cleaner = cleaner

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Apply changed settings to the log cleaner, if settings have changed."""
        if delta.configs:
            self._cleaner.reconfigure(CleanerSettings.of(self._settings))
