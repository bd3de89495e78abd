"""Features with levels that are finalized for the whole cluster (KIP-584), and the levels that this program knows.

Only features that this program implements are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature with its lowest and highest level, and the level in force if none was finalized."""

    name: str
    least: int
    most: int
    default: int


SECURITY: Final = "ottla.security.version"
"""The feature of ACLs and users.

1: all nodes know ACLs and users. A broker that does not know them would let every client do everything.

2: all nodes know delegation tokens. A broker that does not know them cannot read their records.
"""
SECURITY_WITH_TOKENS: Final = 2
MIRROR: Final = "ottla.mirror.version"
"""The feature of mirrors.

1: all nodes know mirrors. A broker that does not know them would accept producers' records for the copy of a topic.

2: all nodes know cuts, ACLs, failbacks and bandwidth limits of mirrors. A node that does not know them cannot read the
records of cuts and ACLs, and would leave out records after a failback, or cut them off.

3: all nodes know that mirrors copy committed offsets, too. A node that does not know it cannot read their records, and
would let groups continue ahead of the cut.
"""
MIRROR_WITH_CUTS: Final = 2
MIRROR_WITH_FAILBACK: Final = 2
MIRROR_WITH_LIMITS: Final = 2
MIRROR_WITH_ACLS: Final = 2
MIRROR_WITH_OFFSETS: Final = 3
PLACEMENT: Final = "ottla.placement.version"
"""The feature of replica placement.

1: all nodes know the hosts of brokers (broker.host). A quorum node that does not know them would place replicas
differently from the others.

2: all quorum nodes place the followers of a broker's partitions in rotation, so that its leaderships spread over all
other brokers when it dies. A node that does not know it would also place replicas differently.
"""
PLACEMENT_BY_HOSTS: Final = 1
PLACEMENT_IN_TURNS: Final = 2
SHARE: Final = "share.version"
"""The feature of share groups, with Kafka's name and levels.

1: all nodes know share groups (KIP-932). A broker that does not know them could not coordinate them, or lead partitions
of theirs.

2: all nodes know dead letters of share groups (KIP-1191).
"""
SHARE_STATE_TOPIC: Final = "__share_group_state"
"""The topic with the states of share-partitions. It is created for the first share group."""
SHARE_GROUPS: Final = 1
SHARE_WITH_DEAD_LETTERS: Final = 2
SHARE_SERVED: Final[int] = SHARE_WITH_DEAD_LETTERS
"""The highest level that this program serves. At 0 clients see neither the feature nor the settings of share groups
(`settings/config_share.py`)."""
SHARE_ABILITIES: Final = "ottla.share.version"
"""The feature of abilities of share groups that Kafka does not have.

1: all nodes know the order of keys (`ottla.share.ordering`). A broker that does not know it would deliver records with
the same key at the same time, and a quorum node would refuse the setting.
"""
SHARE_ORDERED: Final = 1
OURS: Final = (SECURITY, MIRROR, PLACEMENT, *((SHARE, SHARE_ABILITIES) if SHARE_SERVED else ()))
"""Features of Ottla's own, and the feature of share groups. A new cluster begins with the highest level of the program
that forms it. A broker that knows less than the level in force is refused."""

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        # Eligible leader replicas are always maintained (KIP-966).
        Feature("eligible.leader.replicas.version", 1, 1, 1),
        # Level 1: the consumer groups of KIP-848.
        Feature("group.version", 0, 1, 1),
        # Kafka 4.0 as far as clients can tell; every tool of Kafka 4.x knows the name. Ottla's own metadata does not
        # depend on it.
        Feature("metadata.version", 25, 25, 25),
        Feature(MIRROR, 0, MIRROR_WITH_OFFSETS, 0),
        Feature(PLACEMENT, 0, PLACEMENT_IN_TURNS, 0),
        Feature(SECURITY, 0, SECURITY_WITH_TOKENS, 0),
        # Level 2: clients add partitions to transactions by writing to them, and take up a new epoch with each
        # transaction (KIP-890). Brokers serve both protocols; clients choose by the level.
        Feature("transaction.version", 0, 2, 2),
        Feature(SHARE, 0, SHARE_SERVED, 0),
        Feature(SHARE_ABILITIES, 0, SHARE_ORDERED if SHARE_SERVED else 0, 0),
    )
    if feature.most > 0
}


def finalized(levels: Mapping[str, int]) -> dict[str, int]:
    """Return the level in force of every feature, given the levels that the quorum stores; 0: not in force."""
    return {name: levels.get(name, feature.default) for name, feature in FEATURES.items()}
