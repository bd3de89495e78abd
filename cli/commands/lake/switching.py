"""`ottla lake pause` and `ottla lake resume`: the setting of a topic that a worker follows."""

from __future__ import annotations

import argparse

from ....client.admin import TOPIC_RESOURCE, Admin
from ....protocol.errors import KafkaError
from ...connection.precedence import connection_of
from ...run_client import raise_refusals, run_client
from ...terminal.text import say

_SETTING = "ottla.lake.enable"
_SOON = "a running worker follows within half a minute"


def pause(arguments: argparse.Namespace) -> None:
    """Stop writing topics as tables."""
    run_client(_set(arguments, is_on=False))
    say(f"{', '.join(arguments.topics)}: not written any more; {_SOON}")


def resume(arguments: argparse.Namespace) -> None:
    """Write topics as tables again."""
    run_client(_set(arguments, is_on=True))
    say(f"{', '.join(arguments.topics)}: written from where the tables stand; {_SOON}")


async def _set(arguments: argparse.Namespace, *, is_on: bool) -> None:
    failures: dict[str, KafkaError] = {}
    async with Admin(**connection_of(arguments)) as admin:
        for topic in arguments.topics:
            try:
                await admin.alter_configs(TOPIC_RESOURCE, topic, {_SETTING: is_on})
            except KafkaError as error:
                failures[topic] = error
    raise_refusals(failures)
