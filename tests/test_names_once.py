"""A class name means one thing: no two modules of the product define classes of the same name.

Three families repeat names for a reason, and are left out: structs of the wire formats in `protocol/messages/`, which
Kafka names per message; `client/sync`, whose classes mirror those of `client`; and private classes, whose names end
with their module.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.imports import modules, tree

FAMILIES = ("ottla.protocol.messages.", "ottla.client.sync.")

LEFT = {
    "AbortedTransaction",
    "Accepted",
    "Answer",
    "Batch",
    "Connection",
    "ConsumerGroup",
    "Cut",
    "Damage",
    "ExactlyOnce",
    "GroupMember",
    "Identity",
    "Kind",
    "LeaderSession",
    "Link",
    "LogStore",
    "MalformedMessage",
    "Membership",
    "PartitionState",
    "Phase",
    "Placement",
    "Position",
    "Progress",
    "Questions",
    "Reading",
    "Record",
    "Replica",
    "Segment",
    "Source",
    "Step",
    "Throttle",
    "Ticket",
    "Transaction",
    "Waiting",
    "Window",
}
"""Names that still mean several things. Nothing is added here."""


def defined() -> dict[str, set[str]]:
    """The modules that define a public class of each name."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        if path.suffix == ".py" and not module.startswith(FAMILIES):
            for node in tree(module).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(module.removeprefix("ottla."))
    return found


def test_a_class_name_is_defined_once() -> None:
    assert {name for name, where in defined().items() if len(where) > 1} == LEFT
