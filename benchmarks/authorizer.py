"""Measures one decision of the authorizer, and an answer that needs thousands: `python -m benchmarks.authorizer`."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.table import Table

from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.dataplane.security.authorization.grants import Grants
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType

from .metadata_answers import MetadataAnswers

COUNTS = (10, 1_000, 100_000)
LENGTHS = range(3, 23)
TOPIC = AclResourceType.TOPIC
OWN = Acl(TOPIC, "team07-", PatternType.PREFIXED, "User:u7", "*", AclOperation.READ, AclPermission.ALLOW)
TOPICS = 10_000
NAMES = [f"team07-topic-number-{number:06d}" for number in range(1000)]
"""Topics of the requests, which are made by User:u7 from 10.0.0.1."""


def make_acls(count: int, chance: random.Random) -> list[Acl]:
    """Make ACLs of many principals; half are for prefixes, of twenty different lengths."""
    acls: dict[Acl, None] = {}
    while len(acls) < count:
        number = len(acls)
        name = f"team{number % 97:02d}-topic-number-{number:06d}"
        prefixed = number % 2 == 1
        acls[
            Acl(
                TOPIC,
                name[: chance.choice(LENGTHS)] + f"{number % 1000}" if prefixed else name,
                PatternType.PREFIXED if prefixed else PatternType.LITERAL,
                f"User:u{chance.randrange(200)}",
                chance.choice(("*", "10.0.0.1", "10.0.0.0/8")),
                chance.choice((AclOperation.READ, AclOperation.WRITE, AclOperation.ALL)),
                AclPermission.ALLOW if chance.random() < 0.9 else AclPermission.DENY,
            )
        ] = None
    return list(acls)


def microseconds(call: Callable[[int], object], times: int) -> float:
    """Return the CPU microseconds of one call: the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for number in range(times):
            call(number)
        best = min(best, time.process_time() - began)
    return best / times * 1e6


def measure(count: int) -> tuple[float, float, float, float, float]:
    """Return microseconds of a remembered decision, a new decision, a change, and building the index; and the number of
    prefix lengths.
    """
    chance = random.Random(count)
    acls = make_acls(count, chance)
    authorizer = Authorizer()
    began = time.process_time()
    authorizer.change((acl, True) for acl in acls)
    built_us = (time.process_time() - began) * 1e6
    authorizer.change([(OWN, True)])
    grants: Grants = authorizer.grants("User:u7", "10.0.0.1")
    requester = grants.requester
    cached = microseconds(lambda number: grants.mask(TOPIC, "team07-topic-number-000007"), 100_000)
    cold = microseconds(lambda number: authorizer.mask(TOPIC, NAMES[number % len(NAMES)], requester), 20_000)
    change = microseconds(lambda number: authorizer.change([(OWN, number % 2 == 1)]), 10_000)
    lengths = len({len(acl.resource_name) for acl in acls if acl.pattern_type == PatternType.PREFIXED})
    return cached, cold, change, built_us / count, lengths


def answers() -> Table:
    """Measure answers to Metadata for all topics: without ACLs, and with growing numbers of ACLs."""
    told = MetadataAnswers(
        [f"team07-topic-number-{number:06d}" for number in range(TOPICS)], "User:u7", "10.0.0.1"
    )
    table = Table(title=f"Metadata about {TOPICS:,} topics: milliseconds")
    for name in ("ACLs", "topics told", "remembered", "not remembered"):
        table.add_column(name, justify="right")
    alone, topics = told.milliseconds(None, lambda: None)
    table.add_row("no authorizer", f"{topics:,}", f"{alone:.1f}", "")
    for count in COUNTS:
        authorizer = Authorizer()
        authorizer.change((acl, True) for acl in make_acls(count, random.Random(count)))
        authorizer.change([(OWN, True)])
        cold, topics = told.milliseconds(authorizer, partial(forget, authorizer))
        warm, _ = told.milliseconds(authorizer, lambda: None)
        table.add_row(f"{count:,}", f"{topics:,}", f"{warm:.1f}", f"{cold:.1f}")
    return table


def forget(authorizer: Authorizer) -> None:
    """Drop all remembered decisions, as any change of the ACLs does."""
    authorizer.change([(OWN, False)])
    authorizer.change([(OWN, True)])


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    table = Table(title="authorizer: microseconds")
    for name in (
        "ACLs",
        "prefix lengths",
        "remembered",
        "not remembered",
        "one ACL changes",
        "made, per ACL",
    ):
        table.add_column(name, justify="right")
    for count in COUNTS:
        cached, cold, change, built, lengths = measure(count)
        table.add_row(
            f"{count:,}", f"{lengths:.0f}", f"{cached:.2f}", f"{cold:.2f}", f"{change:.2f}", f"{built:.2f}"
        )
    Console().print(table)
    Console().print(answers())


if __name__ == "__main__":
    main()
