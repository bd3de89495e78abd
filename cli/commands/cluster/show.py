"""`ottla cluster` without an action: brokers, quorum and under-replicated partitions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ...connection.precedence import connection_of, of_librdkafka
from ...failures import CommandFailed
from ...run_client import run_client
from ...terminal.output import numbers, print_json, print_table
from ...terminal.text import say


def show(arguments: argparse.Namespace) -> int:
    """Print the cluster's brokers, quorum and under-replicated partitions, and return the exit code.

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
            state = (
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
                    "state": state,
                    "term": answer.term,
                }
            )
    report = run_client(_report(connection))
    if quorum is not None:
        report["quorum"] = quorum
    if arguments.output == "json":
        print_json(report)
    else:
        _print(report)
    return 0


async def _report(connection: Mapping[str, Any]) -> dict[str, Any]:
    from ....client.admin import Admin

    async with Admin(**connection) as admin:
        cluster = await admin.describe_cluster()
        topics = await admin.describe_topics()
        quorum = await admin.describe_quorum()
    led = [partition.leader for topic in topics for partition in topic.partitions.values()]
    held = [
        broker for topic in topics for partition in topic.partitions.values() for broker in partition.replicas
    ]
    behind = [
        {
            "topic": topic.name,
            "partition": partition.index,
            "leader": partition.leader,
            "replicas": partition.replicas,
            "isr": partition.isr,
        }
        for topic in topics
        for partition in topic.partitions.values()
        if len(partition.isr) < len(partition.replicas)
    ]
    return {
        "cluster_id": cluster.cluster_id,
        "topics": len(topics),
        "partitions": len(led),
        "brokers": [
            {
                "id": broker.id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "host": cluster.hosts.get(broker.id),
                "leads": led.count(broker.id),
                "replicas": held.count(broker.id),
            }
            for broker in sorted(cluster.brokers, key=lambda broker: broker.id)
        ],
        "quorum": [
            {
                "id": node_id,
                "address": "" if address is None else f"{address[0]}:{address[1]}",
                "state": quorum.state_of(node_id),
                "term": quorum.term,
            }
            for node_id, address in sorted(quorum.voters.items())
        ],
        "under_replicated": behind,
    }


def _print(report: dict[str, Any]) -> None:
    say(f"cluster {report['cluster_id']}: {report['topics']} topics, {report['partitions']} partitions")
    print_table(
        ("BROKER", "ADDRESS", "RACK", "HOST", "LEADS", "REPLICAS"),
        [
            (
                broker["id"],
                broker["address"],
                broker["rack"] or "",
                broker["host"] or "",
                broker["leads"],
                broker["replicas"],
            )
            for broker in report["brokers"]
        ],
    )
    if report["quorum"]:
        print_table(
            ("QUORUM NODE", "ADDRESS", "STATE", "TERM"),
            [(node["id"], node["address"], node["state"], node["term"]) for node in report["quorum"]],
        )
    if not report["under_replicated"]:
        say("no under-replicated partitions")
        return
    print_table(
        ("UNDER-REPLICATED", "PARTITION", "LEADER", "REPLICAS", "ISR"),
        [
            (
                partition["topic"],
                partition["partition"],
                partition["leader"],
                numbers(partition["replicas"]),
                numbers(partition["isr"]),
            )
            for partition in report["under_replicated"]
        ],
    )
