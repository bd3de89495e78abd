"""The admin client. Any broker is asked; it knows whom to ask in turn.

`Admin` is put together from a class for each theme; they share the session of `session.py`.
"""

from __future__ import annotations

from .cluster import ClusterAdmin
from .configs import ConfigAdmin
from .groups import GroupAdmin
from .placement import OngoingReassignment, PlacementAdmin
from .topics import TopicAdmin
from .values import (
    BROKER_RESOURCE,
    CONFIG_SOURCES,
    TOPIC_RESOURCE,
    ClusterDescription,
    ConfigEntry,
    GroupListing,
    NewTopic,
    QuorumDescription,
)

__all__ = [
    "BROKER_RESOURCE",
    "CONFIG_SOURCES",
    "TOPIC_RESOURCE",
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "GroupListing",
    "NewTopic",
    "OngoingReassignment",
    "QuorumDescription",
]


class Admin(TopicAdmin, ConfigAdmin, ClusterAdmin, GroupAdmin, PlacementAdmin):
    """Creates, lists, describes and deletes. Every method raises KafkaError with what the cluster
    answered.
    """
