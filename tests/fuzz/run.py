"""Plays many inputs that are nearly valid: `python -m tests.fuzz.run [--inputs N] [--seed S] [--target NAME ...]`.

Prints its seed. The first input with a forbidden effect ends the run, and the command that plays it again is printed.
Memory is bounded by the kernel: code that takes hundreds of megabytes for an input gets MemoryError.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.broker import play_broker
from tests.fuzz.mutation import make_input
from tests.fuzz.targets import TARGETS, FoundFault, Target

ROOM_BYTES = 256 << 20
"""Address space in bytes that the process may take beyond its initial one."""
GROWTH_BYTES_MAX = 48 << 20
"""Bytes that may additionally be resident after all inputs of a target."""
BROKER, BROKER_SHARE = "broker", 0.03


def play(target: Target, seed: int, numbers: range) -> None:
    """Play inputs of a target. Raises FoundFault."""
    valid = target.valid()
    for given in valid:
        _must_pass(target, given)
    before = resident_bytes()
    for number in numbers:
        data = make_input(seed, target.name, number, valid)
        try:
            target.play(data)
        except target.refusals:
            continue
        except Exception as error:
            raise FoundFault(
                f"{target.name}: {error!r} is no refusal. Again: python -m tests.fuzz.run --target {target.name} "
                f"--seed {seed} --first {number} --inputs 1. The input in hex: {data[:2_000].hex()}"
            ) from error
    grown = resident_bytes() - before
    if grown > GROWTH_BYTES_MAX:
        raise FoundFault(
            f"{target.name}: {grown >> 20} MB more are resident after {len(numbers)} inputs, seed {seed}"
        )


def _must_pass(target: Target, data: bytes) -> None:
    """Check that a valid input is accepted; a refusal would make all others worthless.

    TLS waits for the client's next message.
    """
    if target.name != "tls":
        target.play(data)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def bound_memory() -> None:
    """Limit the address space from here on."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM_BYTES, resource.RLIM_INFINITY))


def shares(inputs: int, names: list[str]) -> Iterator[tuple[Target, int]]:
    """Yield the chosen targets, each with its number of inputs."""
    chosen = [target for target in TARGETS if target.name in names]
    total = sum(target.weight for target in chosen)
    for target in chosen:
        yield target, max(1, inputs * target.weight // total)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the duration of the block."""
    began_s = time.monotonic()
    yield
    print(f"{what}, {time.monotonic() - began_s:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [BROKER, *(target.name for target in TARGETS)]
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--first", type=int, default=0, help="number of the first input of each target")
    parser.add_argument("--target", action="append", choices=names)
    args = parser.parse_args()
    chosen = args.target or names
    print(f"seed {args.seed}", flush=True)
    through_broker = 0
    if BROKER in chosen:
        through_broker = args.inputs if chosen == [BROKER] else int(args.inputs * BROKER_SHARE)
    bound_memory()
    try:
        for target, count in shares(args.inputs - through_broker, chosen):
            with timed(f"{target.name}: {count:,} inputs"):
                play(target, args.seed, range(args.first, args.first + count))
        if through_broker:
            with timed(f"{BROKER}: {through_broker:,} inputs"):
                asyncio.run(play_broker(args.seed, range(args.first, args.first + through_broker)))
    except FoundFault as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
