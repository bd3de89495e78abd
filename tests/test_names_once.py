"""Names mean one thing: two modules of the product do not define classes of one name, and a logger is called `logger`.

Three families of classes repeat names for a reason, and are left out. Structs of the wire formats in
`protocol/messages/` are named per message by Kafka. Classes of `client/sync` mirror those of `client`. Private classes
are known in their module alone.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.imports import modules, tree

FAMILIES = ("ottla.protocol.messages.", "ottla.client.sync.")


def defined() -> dict[str, set[str]]:
    """Return the modules that define a public class of each name."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        if path.suffix == ".py" and not module.startswith(FAMILIES):
            for node in tree(module).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(module.removeprefix("ottla."))
    return found


def test_a_class_name_is_defined_once() -> None:
    assert not {name: where for name, where in defined().items() if len(where) > 1}


def test_a_logger_is_called_logger() -> None:
    names = {
        module: node.targets[0].id
        for module, path in modules().items()
        if path.suffix == ".py"
        for node in tree(module).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value).startswith("logging.getLogger(")
    }
    assert not {module for module, name in names.items() if name != "logger"}
