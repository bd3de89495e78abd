"""Play seeds of a simulated cluster whose records the members of a share group take.

    python -m tests.simulation.share.run --seeds 0-300              many, on all processors
    python -m tests.simulation.share.run --seeds 17 --trace 17.txt  one, with everything that happens in it
    python -m tests.simulation.share.run --mutants --seeds 0-200    seeds it takes to find faults that are planted

Exits with the number of seeds that broke something, at most 100.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.cluster.batches import (
    Simulation,
    find_mutants,
    fix_order_of_sets,
    play_many,
    seeds_of,
    tell,
    trace,
)
from tests.simulation.cluster.playing import warm_up
from tests.simulation.share.mutants import MUTANTS
from tests.simulation.share.scenario import play

SIMULATION = Simulation("tests.simulation.share.run", play, MUTANTS)


def main() -> int:
    """Run the command that the module's docstring describes."""
    fix_order_of_sets(SIMULATION.module)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds",
        default="0-100",
        type=seeds_of,
        help="first-last, last excluded, or one seed; or several of these: 0-12,79",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutant", choices=SIMULATION.mutants)
    parser.add_argument(
        "--until-found", action="store_true", help="stop at the first seed that breaks something"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write down what happens")
    parser.add_argument(
        "--mutants", action="store_true", help="plant one after the other, until each is found"
    )
    parser.add_argument("--totals", type=Path, metavar="FILE", help="write what was counted, as JSON")
    arguments = parser.parse_args()
    mutant = SIMULATION.mutants[arguments.mutant].planted if arguments.mutant else nullcontext
    warm_up()
    if arguments.mutants:
        return find_mutants(SIMULATION, arguments.seeds, arguments.processes)
    with mutant():
        if arguments.trace:
            return trace(SIMULATION, arguments.seeds[0], arguments.trace)
        played = play_many(SIMULATION, arguments.seeds, arguments.processes, arguments.until_found)
    tell(played)
    if arguments.totals:
        arguments.totals.write_text(json.dumps(played.totals))
    return min(len(played.broken), 100)


if __name__ == "__main__":
    sys.exit(main())
