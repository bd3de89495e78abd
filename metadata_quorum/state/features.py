"""Finalized levels of features (KIP-584)."""

from __future__ import annotations

from ...protocol.cluster.mirror_table import is_offsets_copy
from ...protocol.credentials.sealed_text import sealed_bytes
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import (
    FEATURES,
    MIRROR,
    MIRROR_WITH_ACLS,
    MIRROR_WITH_CUTS,
    MIRROR_WITH_FAILBACK,
    MIRROR_WITH_LIMITS,
    MIRROR_WITH_OFFSETS,
    OURS,
    PLACEMENT,
    PLACEMENT_BY_HOSTS,
    SECURITY,
    SECURITY_WITH_TOKENS,
    SHARE,
    SHARE_ABILITIES,
    SHARE_ORDERED,
    SHARE_STATE_TOPIC,
    finalized,
)
from ...protocol.messages.config_commands import ResourceType
from ...protocol.messages.features import UNSAFE_DOWNGRADE, UPGRADE
from ...protocol.messages.metadata_records import FeatureLevelRecord
from ...protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult
from ...protocol.settings.config_share import BY_KEY, ORDERING
from .workspace import Workspace


def update_features(work: Workspace, command: UpdateFeatures) -> UpdateFeaturesResult:
    """Change the finalized levels of all named features, or of none. Raises KafkaError for the first invalid update."""
    levels = finalized(work.image.features)
    named: set[str] = set()
    for update in command.updates:
        if update.feature in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{update.feature} is updated twice")
        named.add(update.feature)
        _check(update, levels)
        if update.feature in OURS:
            _check_brokers(work, update.feature, update.level)
        if update.feature == SECURITY:
            _check_security(work, update.level)
        elif update.feature == MIRROR:
            _check_mirrors(work, update.level)
        elif update.feature == PLACEMENT:
            _check_placement(work, update.level)
        elif update.feature == SHARE:
            _check_share_groups(work, update)
        elif update.feature == SHARE_ABILITIES:
            _check_ordered_groups(work, update.level)
    if not command.validate_only:
        for update in command.updates:
            if levels[update.feature] != update.level:
                work.emit(FeatureLevelRecord(feature=update.feature, level=update.level))
    return UpdateFeaturesResult()


def _check(update: FeatureLevel, levels: dict[str, int]) -> None:
    name, level = update.feature, update.level
    wrong = f"Invalid update version {level} for feature {name}."
    feature = FEATURES.get(name)
    if feature is None:
        raise _refusal(f"{wrong} Brokers do not support this feature.")
    if not UPGRADE <= update.upgrade_type <= UNSAFE_DOWNGRADE:
        raise _refusal(f"{wrong} The controller does not support the given upgrade type.")
    if not feature.least <= level <= feature.most:
        raise _refusal(f"{wrong} Brokers only support versions {feature.least}-{feature.most}.")
    if level < levels[name] and update.upgrade_type == UPGRADE:
        raise _refusal(
            f"{wrong} Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > levels[name] and update.upgrade_type != UPGRADE:
        raise _refusal(f"{wrong} Can't downgrade to a newer version.")


def _check_brokers(work: Workspace, feature: str, level: int) -> None:
    unaware = sorted(
        broker.broker_id for broker in work.image.brokers.values() if broker.level_of(feature) < level
    )
    if unaware:
        raise _refusal(
            f"Invalid update version {level} for feature {feature}. The program of broker {unaware[0]} does not "
            "know it: upgrade all brokers first, and unregister those that will not come back."
        )


def _check_security(work: Workspace, level: int) -> None:
    image = work.image
    if level < SECURITY_WITH_TOKENS and image.delegation_tokens:
        raise _refusal(
            f"Invalid update version {level} for feature {SECURITY}. There are {len(image.delegation_tokens)} "
            "delegation tokens: expire them first."
        )
    secrets = sum(
        sealed_bytes(value) is not None for values in image.configs.values() for value in values.values()
    )
    if level == 0 and (image.acls or image.scram_credentials or secrets):
        raise _refusal(
            f"Invalid update version 0 for feature {SECURITY}. There are {len(image.acls)} ACLs, which nobody would "
            f"enforce, {len(image.scram_credentials)} passwords of SCRAM and {secrets} secrets among the settings of "
            "brokers: remove them first."
        )


def _check_mirrors(work: Workspace, level: int) -> None:
    image = work.image
    mirrors, cuts = image.mirrors.by_name, image.mirror_cuts.by_mirror
    if level == 0 and mirrors:
        raise _refusal(
            f"Invalid update version 0 for feature {MIRROR}. There are {len(mirrors)} mirrors, "
            "whose copies would take records: delete them first."
        )
    if level < MIRROR_WITH_CUTS and cuts:
        raise _refusal(
            f"Invalid update version {level} for feature {MIRROR}. There are {len(cuts)} mirrors with cuts: delete "
            "them first."
        )
    with_acls = sum(mirror.copies_acls for mirror in mirrors.values())
    if level < MIRROR_WITH_ACLS and with_acls:
        raise _refusal(
            f"Invalid update version {level} for feature {MIRROR}. There are {with_acls} mirrors that copy ACLs: "
            "delete them first."
        )
    limited = sum(mirror.bandwidth > 0 for mirror in mirrors.values())
    if level < MIRROR_WITH_LIMITS and limited:
        raise _refusal(
            f"Invalid update version {level} for feature {MIRROR}. There are {limited} mirrors with a limit of "
            "bandwidth: lift it first."
        )
    copies = sum(is_offsets_copy(name) for name in image.topics)
    if level < MIRROR_WITH_OFFSETS and copies:
        raise _refusal(
            f"Invalid update version {level} for feature {MIRROR}. There are {copies} mirrors that copy committed "
            "offsets: promote them first."
        )
    returned = sum(topic.has_returned for topic in image.mirrors.topics.values())
    if level < MIRROR_WITH_FAILBACK and returned:
        raise _refusal(
            f"Invalid update version {level} for feature {MIRROR}. There are {returned} topics that became copies by a "
            "failback: delete them first."
        )


def _check_placement(work: Workspace, level: int) -> None:
    placed = sorted(broker.broker_id for broker in work.image.brokers.values() if broker.host is not None)
    if level < PLACEMENT_BY_HOSTS and placed:
        raise _refusal(
            f"Invalid update version {level} for feature {PLACEMENT}. Broker {placed[0]} has a host: start it without "
            "broker.host first."
        )


def _check_share_groups(work: Workspace, update: FeatureLevel) -> None:
    """Raise KafkaError if the level would hide share groups. Brokers keep the groups, so UNSAFE_DOWNGRADE may."""
    if (
        update.level == 0
        and update.upgrade_type != UNSAFE_DOWNGRADE
        and SHARE_STATE_TOPIC in work.image.topics
    ):
        raise _refusal(
            f"Invalid update version 0 for feature {SHARE}. There may be share groups, since the topic "
            f"{SHARE_STATE_TOPIC} exists: delete the groups and then the topic, or set the upgrade type to unsafe "
            "downgrade, which refuses the groups' requests and keeps their states."
        )


def _check_ordered_groups(work: Workspace, level: int) -> None:
    ordered = sorted(
        name
        for (kind, name), values in work.image.configs.items()
        if kind == ResourceType.GROUP and values.get(ORDERING) == BY_KEY
    )
    if level < SHARE_ORDERED and ordered:
        raise _refusal(
            f"Invalid update version {level} for feature {SHARE_ABILITIES}. {len(ordered)} groups have "
            f"{ORDERING}={BY_KEY}, such as {ordered[0]!r}: remove the setting first."
        )


def check_ordering(work: Workspace) -> None:
    """Raise KafkaError unless every broker keeps the order of keys in share groups."""
    if finalized(work.image.features)[SHARE_ABILITIES] < SHARE_ORDERED:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{ORDERING}={BY_KEY} needs the feature {SHARE_ABILITIES} at level {SHARE_ORDERED}, so that no broker is "
            "left that does not know it",
        )


def check_security(work: Workspace, what: str, level: int = 1) -> None:
    """Raise KafkaError unless the finalized feature `security` has at least this level, so that every broker supports
    ACLs and users. `what` begins the error's text."""
    if finalized(work.image.features)[SECURITY] < level:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} the feature {SECURITY} at level {level}, so that no broker is left that does not know them",
        )


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
