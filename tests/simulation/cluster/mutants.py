"""Historical faults of replicated logs, planted one at a time, which the simulations have to find.

Each mutant patches the one function that prevents the fault. A missing patch target fails when the mutant is planted,
and `test_mutants_planted` shows that each planted mutant takes effect.
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
"""Mutants by name."""
