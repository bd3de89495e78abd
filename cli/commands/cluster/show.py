"""`ottla cluster` without an action: brokers, quorum, and the topics whose partitions are not healthy."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....client.admin.partition_states import TopicStates
from ...arguments.selection import second_text
from ...connection.precedence import connection_of, of_librdkafka
from ...failures import CommandFailed
from ...run_client import run_client
from ...terminal.output import print_json, print_table, separate
from ...terminal.shades import Shade, Shaded, faults, state
from ...terminal.text import counted, say
from .report import headline, imbalance_text, needy_topics, report_of
from .survey import Survey, survey

TOPICS_MAX: Final = 10
"""The most topics in the table for people, unless `--all` is given."""


def show(arguments: argparse.Namespace) -> int:
    """Print the cluster's brokers, quorum and topics in need, and return the exit code.

    With `--quorum-leader` only the id of the quorum's leader is printed. Raises CommandFailed if there is no leader.
    """
    quorum: list[dict[str, Any]] | None = None
    connection = connection_of(arguments)
    if arguments.quorum_leader and not arguments.data:
        raise CommandFailed(
            "--quorum-leader needs --data: the nodes answer only clients with the cluster's secret"
        )
    if arguments.data:
        from ...local_cluster.layout import known_layout
        from ...local_cluster.ports import HOST
        from ...local_cluster.quorum_status import ask_quorum, leader_of

        layout = known_layout(arguments.data.absolute())
        if layout.security is not None:
            connection = of_librdkafka(layout.security.client_options(layout.bootstrap))
        connection["bootstrap_servers"] = layout.bootstrap
        answers = ask_quorum(layout)
        leader = leader_of(answers)
        if arguments.quorum_leader:
            if leader is None:
                raise CommandFailed("the quorum has no leader now")
            say(leader)
            return 0
        quorum = []
        for answer in answers:
            word = (
                "unreachable"
                if not answer.reachable
                else "leader"
                if answer.member.id == leader
                else "follower"
            )
            quorum.append(
                {
                    "id": answer.member.id,
                    "address": f"{HOST}:{answer.member.port}",
                    "state": word,
                    "term": answer.term,
                }
            )
    found = run_client(_ask(connection))
    report = report_of(found)
    if quorum is not None:
        report["quorum"] = quorum
    if arguments.output == "json":
        print_json(report)
        return 0
    is_wide = arguments.output == "wide"
    size = f"{counted(report['topics'], 'topic')}, {counted(report['partitions'], 'partition')}"
    say(f"cluster {report['cluster_id']}: {size}")
    say(headline(found, time.time()))
    _print_brokers(report["brokers"], is_wide=is_wide)
    if imbalance := imbalance_text(found):
        say(imbalance)
    _print_quorum(report["quorum"], is_wide=is_wide)
    _print_topics(needy_topics(found), shows_all=arguments.all, is_wide=is_wide)
    return 0


async def _ask(connection: Mapping[str, Any]) -> Survey:
    from ....client.admin import Admin

    async with Admin(**connection) as admin:
        return await survey(admin)


def _print_brokers(brokers: Sequence[Mapping[str, Any]], *, is_wide: bool) -> None:
    separate()
    print_table(
        ("BROKER", "STATE", "SINCE", "ADDRESS", "RACK", "HOST", "LEADS", "REPLICAS"),
        [
            (
                broker["id"],
                state(broker["state"]),
                "-" if broker["fenced_since_ms"] is None else second_text(broker["fenced_since_ms"]),
                broker["address"] or "-",
                broker["rack"] or "-",
                broker["host"] or "-",
                broker["leads"],
                broker["replicas"],
            )
            for broker in brokers
        ],
        spare=("HOST", "RACK", "REPLICAS", "LEADS"),
        wide=is_wide,
    )


def _print_quorum(nodes: Sequence[Mapping[str, Any]], *, is_wide: bool) -> None:
    if nodes:
        separate()
        print_table(
            ("QUORUM NODE", "ADDRESS", "STATE", "TERM"),
            [(node["id"], node["address"], state(node["state"]), node["term"]) for node in nodes],
            wide=is_wide,
        )


def _print_topics(topics: Sequence[TopicStates], *, shows_all: bool, is_wide: bool) -> None:
    """Print the topics with partitions that are offline, under-replicated or being reassigned."""
    if not topics:
        return
    separate()
    print_table(
        ("TOPIC", "PARTITIONS", "OFFLINE", "UNDER-REPLICATED", "REASSIGNING"),
        [
            (
                topic.topic,
                topic.partitions,
                faults(topic.offline),
                _impaired(topic.under_replicated),
                _impaired(topic.reassigning),
            )
            for topic in (topics if shows_all else topics[:TOPICS_MAX])
        ],
        spare=("REASSIGNING",),
        wide=is_wide,
    )
    if not shows_all and len(topics) > TOPICS_MAX:
        say(f"and {counted(len(topics) - TOPICS_MAX, 'more topic')}: --all shows all")
    say("'ottla topic describe TOPIC' shows the partitions of a topic")


def _impaired(count: int) -> object:
    return Shaded(count, Shade.IMPAIRED) if count else count
