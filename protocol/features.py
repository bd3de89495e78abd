"""Features with levels that are finalized for the whole cluster (KIP-584): what we know of each.

Only what is there is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: the levels it can be set to, and the one in force where nothing was ever finalized."""

    name: str
    least: int
    most: int
    default: int


SECURITY: Final = "ottla.security.version"
"""1: all nodes know ACLs and users. A broker that does not would let everybody do everything.
2: all nodes know delegation tokens. A broker that does not cannot read their records."""
SECURITY_WITH_TOKENS: Final = 2
MIRROR: Final = "ottla.mirror.version"
"""1: all nodes know mirrors. A broker that does not would take records for the copy of a topic.
2: all nodes know cuts of mirrors, their ACLs, failbacks, and limits of bandwidth. One that does not cannot read the
records of cuts and ACLs, and would leave out records after a failback, or cut them off.
3: all nodes know that mirrors copy committed offsets, too. One that does not cannot read their records, and would have
groups go on ahead of the cut."""
MIRROR_WITH_CUTS: Final = 2
MIRROR_WITH_FAILBACK: Final = 2
MIRROR_WITH_LIMITS: Final = 2
MIRROR_WITH_ACLS: Final = 2
MIRROR_WITH_OFFSETS: Final = 3
PLACEMENT: Final = "ottla.placement.version"
"""1: all nodes know the hosts of brokers (broker.host). A quorum node that does not would place replicas elsewhere than
the others.
2: all quorum nodes place the followers of a broker's partitions in turns, so that its leaderships go to all others when
it dies. One that does not would place replicas elsewhere, too."""
PLACEMENT_BY_HOSTS: Final = 1
PLACEMENT_IN_TURNS: Final = 2
OURS: Final = (SECURITY, MIRROR, PLACEMENT)
"""Features of Ottla's own. Clusters begin with the highest level of the program that forms them; a broker that knows
less than the level in force is not let in."""

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        # ELRs are always kept (KIP-966).
        Feature("eligible.leader.replicas.version", 1, 1, 1),
        # 1: the consumer groups of KIP-848.
        Feature("group.version", 0, 1, 1),
        # Kafka 4.0 as far as clients go; every 4.x tool knows its name. Ours has nothing to do with it.
        Feature("metadata.version", 25, 25, 25),
        Feature(MIRROR, 0, MIRROR_WITH_OFFSETS, 0),
        Feature(PLACEMENT, 0, PLACEMENT_IN_TURNS, 0),
        Feature(SECURITY, 0, SECURITY_WITH_TOKENS, 0),
        # 2: clients add partitions to transactions by writing to them, and take up an epoch with each (KIP-890).
        # Brokers serve both ways; clients choose by the level.
        Feature("transaction.version", 0, 2, 2),
    )
}


def finalized(levels: Mapping[str, int]) -> dict[str, int]:
    """The level in force of every feature, given those that the quorum keeps; 0: not in force."""
    return {name: levels.get(name, feature.default) for name, feature in FEATURES.items()}
