"""Transactions while replicas move and return: a broker knows all that the controller knows about its partitions,
whatever it was sent before.
"""

from __future__ import annotations

import random

from ottla.protocol.cluster.transaction_table import Phase

from .transactional import Transactions

PARTITIONS = 3


def test_random_moves_leave_no_broker_with_what_is_past() -> None:
    for seed in range(60):
        random_steps(random.Random(seed), Transactions(PARTITIONS))


def random_steps(chance: random.Random, cluster: Transactions) -> None:
    for name in "xy":
        cluster.begin(name)
    for _ in range(40):
        name, broker = chance.choice("xy"), chance.randint(1, 3)
        places = cluster.places(*some_of(chance, range(PARTITIONS)))
        state = cluster.state(name)
        who = (state.producer_id, state.producer_epoch)
        step = chance.choice(("add", "end", "write markers", "move"))
        if step == "add":
            cluster.add(who, places, name, broker)
        elif step == "end" and state.phase is Phase.ONGOING:
            commits, bumps = chance.choice((True, False)), chance.choice((True, False))
            cluster.end(who, commits=commits, bumps=bumps, name=name, broker=broker)
        elif step == "write markers":
            cluster.write_markers(places)
        elif step == "move":
            cluster.move(chance.randrange(PARTITIONS), chance.choice((None, some_of(chance, range(1, 4)))))
        cluster.check()


def some_of(chance: random.Random, numbers: range) -> list[int]:
    return chance.sample(numbers, chance.randint(1, len(numbers)))
