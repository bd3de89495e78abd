"""Historical faults of replicated logs, planted one at a time: what the simulations have to find.

Each patches the one function that keeps it away. A target that is gone fails when the mutant is planted, and
`test_mutants_planted` shows for each that what is planted takes effect.
"""

from __future__ import annotations

from tests.simulation.cluster import (
    mutants_of_brokers,
    mutants_of_disks,
    mutants_of_duplicates,
    mutants_of_endings,
    mutants_of_offsets,
    mutants_of_raft,
    mutants_of_replication,
    mutants_of_the_isr,
    mutants_of_transactions,
)
from tests.simulation.cluster.planting import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: dict[str, Mutant] = {
    each.name: each
    for each in (
        *mutants_of_replication.ALL,
        *mutants_of_the_isr.ALL,
        *mutants_of_brokers.ALL,
        *mutants_of_disks.ALL,
        *mutants_of_raft.ALL,
        *mutants_of_transactions.ALL,
        *mutants_of_endings.ALL,
        *mutants_of_duplicates.ALL,
        *mutants_of_offsets.ALL,
    )
}
"""By name."""
