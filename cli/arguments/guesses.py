"""Suggestions for a command line that names no command, action or option of `ottla`.

People come with the words of other tools, with words in another order, and with typing mistakes. A suggestion is only
shown: no other word is accepted in place of a command. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ...protocol.nearest import nearest

LINES: Final[Mapping[str, str]] = {
    "acls": "acl list",
    "benchmark": "bench",
    "brokers": "cluster",
    "config-get": "config get",
    "context": "profile",
    "controller": "quorum",
    "dead-letters": "dlq ls",
    "disks": "cluster disks",
    "dlt": "dlq ls",
    "dump": "log dump",
    "health": "cluster health",
    "kafka-acls": "acl",
    "kafka-configs": "config",
    "kafka-console-consumer": "consume",
    "kafka-console-producer": "produce",
    "kafka-consumer-groups": "group",
    "kafka-delegation-tokens": "token",
    "kafka-dump-log": "log dump",
    "kafka-leader-election": "cluster elect",
    "kafka-log-dirs": "cluster disks",
    "kafka-reassign-partitions": "cluster reassign",
    "kafka-server-start": "broker",
    "kafka-topics": "topic",
    "kafka-transactions": "txn",
    "lag": "group list --lag",
    "letters": "dlq ls",
    "login": "profile create",
    "offsets": "group describe",
    "partitions": "topic describe",
    "perf": "bench",
    "publish": "produce",
    "read": "consume",
    "rebalance": "cluster rebalance",
    "redrive": "dlq replay",
    "reset-offsets": "group seek",
    "run": "up",
    "send": "produce",
    "server": "broker",
    "settings": "config get",
    "start": "up",
    "status": "cluster health",
    "subscribe": "consume",
    "tail": "consume",
    "transaction": "txn",
    "transactions": "txn list",
    "ui": "console",
    "web": "console",
    "write": "produce",
}
"""Words of other tools in place of a command, each with the command line of `ottla`."""
EXPLANATIONS: Final[Mapping[str, str]] = dict.fromkeys(
    ("down", "kafka-server-stop", "kill", "shutdown", "stop"),
    "Control-C in the terminal of 'ottla up' stops its cluster, and SIGTERM stops an 'ottla broker' or 'ottla quorum'",
)
"""Words for which `ottla` has no command, each with the way to do it."""
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("create",),
    "allow": ("create",),
    "balance": ("rebalance",),
    "cat": ("describe", "dump"),
    "change": ("alter", "set", "limit"),
    "configure": ("alter", "set"),
    "delete-offsets": ("delete",),
    "delete-records": ("trim",),
    "deny": ("create",),
    "describe": ("show",),
    "drain": ("decommission",),
    "drop": ("delete",),
    "edit": ("alter", "set"),
    "erase": ("delete",),
    "expand": ("add-partitions",),
    "explain": ("check", "describe"),
    "folders": ("disks",),
    "get": ("list", "describe"),
    "grant": ("create",),
    "grow": ("add-partitions",),
    "info": ("describe", "status"),
    "inspect": ("describe", "status", "show"),
    "lag": ("describe",),
    "leave": ("decommission",),
    "list": ("ls",),
    "log-dirs": ("disks",),
    "ls": ("list",),
    "make": ("create",),
    "members": ("describe",),
    "modify": ("alter", "set"),
    "move": ("reassign",),
    "new": ("create",),
    "offsets": ("describe",),
    "partitions": ("add-partitions",),
    "prune": ("trim",),
    "purge": ("trim", "delete"),
    "read": ("dump", "show"),
    "redrive": ("replay",),
    "remove": ("delete", "unset", "decommission"),
    "remove-broker": ("decommission",),
    "resend": ("replay",),
    "reset": ("seek", "unset"),
    "reset-offset": ("seek",),
    "reset-offsets": ("seek",),
    "resize": ("add-partitions",),
    "retry": ("replay",),
    "revoke": ("delete", "expire"),
    "rewind": ("seek",),
    "rm": ("delete", "unset"),
    "scale": ("add-partitions",),
    "select": ("use",),
    "set-offsets": ("seek",),
    "show": ("describe", "list", "get", "status"),
    "start": ("create", "resume"),
    "status": ("health", "describe"),
    "stop": ("pause",),
    "switch": ("use",),
    "test": ("check", "verify"),
    "truncate": ("trim",),
    "unregister": ("decommission",),
    "update": ("alter", "set"),
    "view": ("describe", "list", "show"),
}
"""Words of other tools in place of an action, each with the actions of `ottla`, the likeliest first."""
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "--add-config": ("--set", "--config"),
    "--allow-changes": ("--console=changes",),
    "--config": ("--set",),
    "--delete-config": ("--unset",),
    "--set": ("--config",),
}
"""Options of other tools, and of other commands, each with the options of `ottla`, the likeliest first."""
_ACTION_LINES_MAX: Final = 4


def action_meant(word: str, actions: Collection[str]) -> str | None:
    """Return the action of a command that a word may stand for; None if no action is similar."""
    known = (action for action in ACTIONS.get(word, ()) if action in actions)
    return next(known, None) or nearest(word, actions)


def option_meant(word: str, options: Iterable[str]) -> str | None:
    """Return the option that a word such as `--brokrs`, `--form` or `--add-config` may stand for; None if no option is
    similar."""
    known = [option for option in options if option.startswith("--")]
    for option in OPTIONS.get(word, ()):
        if option.partition("=")[0] in known:
            return option
    longer = [option for option in known if option.startswith(word)]
    return longer[0] if len(longer) == 1 else nearest(word, known)


def lines_meant(
    name: str, words: Sequence[str], commands: Collection[str], actions_of: Callable[[str], Collection[str]]
) -> list[str]:
    """Return the command lines that a line may stand for whose first word, `name`, is no command.

    `words` are the words after the name. `actions_of` returns the actions of a command.
    """
    bare = name.removesuffix(".sh")
    if bare in LINES:
        return [LINES[bare]]
    if (line := _in_order(bare, words, commands, actions_of)) is not None:
        return [line]
    if lines := [f"{command} {bare}" for command in commands if bare in actions_of(command)]:
        return lines[:_ACTION_LINES_MAX]
    meant = nearest(bare, commands)
    return [] if meant is None else [meant]


def _in_order(
    name: str, words: Sequence[str], commands: Collection[str], actions_of: Callable[[str], Collection[str]]
) -> str | None:
    """Return the line `topic create` for the words `create topic` and `create topics`; None for other words."""
    singular = (word if word in commands else word.removesuffix("s") for word in words)
    command = next((word for word in singular if word in commands), None)
    if command is None:
        return None
    action = action_meant(name, actions_of(command))
    return None if action is None else f"{command} {action}"
