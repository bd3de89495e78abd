"""Time of `ottla.testing.LocalCluster` from `with` until it is ready, and to stop.

python -m benchmarks.local_cluster [--rounds 10]
"""

from __future__ import annotations

import argparse
import statistics
import time

from ottla.testing import LocalCluster


def main() -> None:
    """Print a line for each size of cluster."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=10, metavar="N", help="clusters of each size (10)")
    rounds = options.parse_args().rounds
    for brokers, quorum_nodes in ((1, 1), (3, 1), (3, 3)):
        ready, ended = [], []
        for _ in range(rounds):
            began = time.monotonic()
            with LocalCluster(brokers, quorum_nodes):
                ready.append(time.monotonic() - began)
                began = time.monotonic()
            ended.append(time.monotonic() - began)
        print(
            f"{brokers} brokers, {quorum_nodes} quorum nodes: ready after {statistics.median(ready):.2f} s"
            f" ({min(ready):.2f} to {max(ready):.2f}), ended after {statistics.median(ended):.2f} s"
        )


if __name__ == "__main__":
    main()
