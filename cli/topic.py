"""`ottla topic`: create, list, describe and delete topics."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

from ..client.admin import TOPIC_RESOURCE, Admin, ConfigEntry, NewTopic
from ..client.metadata import TopicInfo
from ..protocol.errors import ErrorCode, KafkaError
from .failures import CommandFailed
from .options import add_bootstrap, add_output, command_parser, key_values, run_client
from .output import numbers, print_json, print_table


def parser(name: str) -> argparse.ArgumentParser:
    """Arguments of `ottla topic ...`."""
    options = command_parser(
        f"ottla {name}",
        "Create, list, describe and delete topics.",
        "  ottla topic create orders -p 6 -r 3 --config min.insync.replicas=2\n"
        "  ottla topic list -o json\n"
        "  ottla topic describe orders\n"
        "  ottla topic delete orders",
    )
    add_bootstrap(options)
    actions = options.add_subparsers(dest="action", required=True, metavar="create|list|describe|delete")

    create = actions.add_parser("create", help="create topics", description="Create topics.")
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument(
        "-p", "--partitions", type=int, default=-1, metavar="N", help="cluster's default if not given"
    )
    create.add_argument(
        "-r", "--replication-factor", type=int, default=-1, metavar="N", help="cluster's default if not given"
    )
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    create.add_argument("--if-not-exists", action="store_true", help="a topic that exists is no failure")
    create.add_argument("--dry-run", action="store_true", help="only ask whether it would work")

    listing = actions.add_parser("list", help="list topics", description="List topics.")
    listing.add_argument("--internal", action="store_true", help="the cluster's own topics too")

    describe = actions.add_parser("describe", help="partitions and configs", description="Describe topics.")
    describe.add_argument("names", nargs="*", metavar="TOPIC", help="all, if none is named")

    delete = actions.add_parser(
        "delete", help="delete topics", description="Delete topics and all they hold."
    )
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a topic that does not exist is no failure")

    for action in (create, listing, describe, delete):
        add_bootstrap(action, repeats=True)
        add_output(action, "-o")
    return options


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    action = {"create": _create, "list": _list, "describe": _describe, "delete": _delete}[arguments.action]
    run_client(action(arguments))
    return 0


async def _create(arguments: argparse.Namespace) -> None:
    configs = key_values(arguments.config, "--config")

    async def create(admin: Admin, name: str) -> str:
        topic = NewTopic(name, arguments.partitions, arguments.replication_factor, configs=configs)
        try:
            await admin.create_topics([topic], validate_only=arguments.dry_run)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not arguments.if_not_exists:
                raise
            return "exists"
        return "checked" if arguments.dry_run else "created"

    await _for_each(arguments, create)


async def _list(arguments: argparse.Namespace) -> None:
    async with Admin(bootstrap_servers=arguments.bootstrap) as admin:
        topics = [
            topic for topic in await admin.describe_topics() if arguments.internal or not topic.is_internal
        ]
    rows = [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in topics]
    if arguments.output == "json":
        print_json(
            [{"topic": name, "partitions": count, "replication_factor": rf} for name, count, rf in rows]
        )
    else:
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)


async def _describe(arguments: argparse.Namespace) -> None:
    async with Admin(bootstrap_servers=arguments.bootstrap) as admin:
        topics = await admin.describe_topics(arguments.names or None)
        configs = {topic.name: await admin.describe_configs(TOPIC_RESOURCE, topic.name) for topic in topics}
    if arguments.output == "json":
        print_json([_as_json(topic, configs[topic.name]) for topic in topics])
        return
    for topic in topics:
        print(f"{topic.name}: {len(topic.partitions)} partitions, {_replication_factor(topic)} replicas each")
        print_table(
            ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"),
            [
                (
                    one.index,
                    one.leader if one.leader >= 0 else "none",
                    one.leader_epoch,
                    numbers(one.replicas),
                    numbers(one.isr),
                )
                for one in topic.partitions.values()
            ],
        )
        own = [
            (entry.name, entry.value, entry.source)
            for entry in configs[topic.name]
            if entry.source == "topic"
        ]
        if own:
            print_table(("CONFIG", "VALUE", "SOURCE"), own)


async def _delete(arguments: argparse.Namespace) -> None:
    async def delete(admin: Admin, name: str) -> str:
        try:
            await admin.delete_topics([name])
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not arguments.if_exists:
                raise
            return "absent"
        return "deleted"

    await _for_each(arguments, delete)


async def _for_each(arguments: argparse.Namespace, act: Callable[[Admin, str], Awaitable[str]]) -> None:
    """Do it to every topic named, whatever became of the others, and show what became of each."""
    results: list[dict[str, Any]] = []
    failures: list[str] = []
    async with Admin(bootstrap_servers=arguments.bootstrap) as admin:
        for name in arguments.names:
            try:
                result = await act(admin, name)
            except KafkaError as error:
                result = "failed"
                failures.append(f"{error.message} ({error.code.name})")
            results.append({"topic": name, "result": result})
    if len(failures) < len(results):
        _print_results(arguments, results)
    if failures:
        raise CommandFailed("; ".join(failures))


def _print_results(arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    if arguments.output == "json":
        print_json(results)
    else:
        print_table(("TOPIC", "RESULT"), [(one["topic"], one["result"]) for one in results])


def _replication_factor(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _as_json(topic: TopicInfo, configs: list[ConfigEntry]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": one.index,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
                "isr": one.isr,
                "offline": one.offline,
            }
            for one in topic.partitions.values()
        ],
        "configs": {entry.name: {"value": entry.value, "source": entry.source} for entry in configs},
    }
