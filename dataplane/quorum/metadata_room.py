"""Upper bounds of the cluster's metadata (partitions, settings and so on), by kind. A command that would exceed a bound
is refused before it is sent.

Every quorum node and every broker keeps all metadata in memory. Several brokers may each send a command at the same
time, so commands that are already on their way may exceed a bound. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.acl_commands import CreateAcls
from ...protocol.messages.command import Command
from ...protocol.messages.config_commands import AlterConfigs, ConfigOperation
from ...protocol.messages.failback_commands import FailBackMirror
from ...protocol.messages.mirror_commands import CreateMirror
from ...protocol.messages.quota_commands import AlterClientQuotas
from ...protocol.messages.topic_commands import CreatePartitions, CreateTopics
from ...protocol.messages.user_commands import AlterScramCredentials

PARTITIONS_MAX: Final = 1_000_000
SETTINGS_MAX: Final = 1_000
"""The most settings of one topic, broker, group or subscription of metrics. Names that no node knows count too."""
SET_RESOURCES_MAX: Final = 1_000_000
QUOTAS_MAX: Final = 100_000
ACLS_MAX: Final = 500_000
USERS_MAX: Final = 200_000
"""The most passwords of users; a user may have two."""
MIRRORS_MAX: Final = 1_000
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def check_room(image: ClusterImage, command: Command[Any]) -> None:
    """Raise KafkaError POLICY_VIOLATION if the image would exceed an upper bound of metadata after this command."""
    match command:
        case CreateTopics(topics=topics):
            more = sum(len(topic.assignments) or max(topic.num_partitions, 1) for topic in topics)
            _check("partitions", _partitions(image), more, PARTITIONS_MAX)
        case CreatePartitions(topics=topics):
            present = {topic.name: image.topics.get(topic.name) for topic in topics}
            more = sum(
                topic.count - len(found.partitions)
                for topic in topics
                if (found := present[topic.name]) is not None
            )
            _check("partitions", _partitions(image), more, PARTITIONS_MAX)
        case AlterConfigs():
            _check_settings(image, command)
        case AlterClientQuotas(entries=entries):
            more = sum(any(not change.remove for change in entry.changes) for entry in entries)
            _check("quotas", len(image.client_quotas), more, QUOTAS_MAX)
        case CreateAcls(acls=acls):
            _check("ACLs", len(image.acls), len(acls), ACLS_MAX)
        case AlterScramCredentials(changes=changes):
            more = sum(bool(change.sealed_keys) for change in changes)
            _check("passwords of users", len(image.scram_credentials), more, USERS_MAX)
        case CreateMirror() | FailBackMirror():
            _check("mirrors", len(image.mirrors.by_name), 1, MIRRORS_MAX)


def _partitions(image: ClusterImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.values())


def _check_settings(image: ClusterImage, command: AlterConfigs) -> None:
    more = 0
    for resource in command.resources:
        key = (resource.resource_type, resource.resource_name)
        present = image.configs.get(key, _NOTHING)
        news = {
            change.name
            for change in resource.changes
            if change.operation != ConfigOperation.DELETE and change.name not in present
        }
        if news:
            more += not present
            _check(f"settings of {resource.resource_name!r}", len(present), len(news), SETTINGS_MAX)
    _check("resources with settings", len(image.configs), more, SET_RESOURCES_MAX)


def _check(kind: str, present: int, more: int, most: int) -> None:
    if more > 0 and present + more > most:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"There are {present} {kind}, and {more} more are asked for: at most {most} are allowed.",
        )
