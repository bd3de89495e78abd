"""`ottla cluster disks`: the data folders of brokers, their free space and their replicas."""

from __future__ import annotations

import argparse
from typing import Any

from ....client.admin import Admin, LogDirDescription
from ....protocol.errors import KafkaError
from ...connection.precedence import connection_of
from ...run_client import raise_refusals, run_client
from ...terminal.output import bytes_text, print_json, print_table
from ...terminal.shades import Shade, Shaded, state


def disks(arguments: argparse.Namespace) -> None:
    """Print every data folder of the brokers with its free space; the command fails if a broker did not answer."""
    found = run_client(_ask(arguments))
    folders = [
        (broker, folder)
        for broker, answer in found.items()
        for folder in (() if isinstance(answer, KafkaError) else answer)
    ]
    if arguments.output == "json":
        print_json([_as_json(broker, folder) for broker, folder in folders])
    elif folders:
        print_table(
            ("BROKER", "FOLDER", "STATE", "REPLICAS", "SIZE", "FREE", "VOLUME"),
            [
                (
                    broker,
                    folder.path,
                    state("healthy") if folder.error is None else Shaded(folder.error.code.name, Shade.BAD),
                    len(folder.replicas),
                    bytes_text(sum(folder.replicas.values())),
                    bytes_text(folder.usable_bytes) if folder.usable_bytes >= 0 else "-",
                    bytes_text(folder.total_bytes) if folder.total_bytes >= 0 else "-",
                )
                for broker, folder in folders
            ],
            spare=("VOLUME", "REPLICAS"),
            wide=arguments.output == "wide",
        )
    raise_refusals(
        {f"broker {broker}": answer for broker, answer in found.items() if isinstance(answer, KafkaError)}
    )


async def _ask(arguments: argparse.Namespace) -> dict[int, list[LogDirDescription] | KafkaError]:
    async with Admin(**connection_of(arguments)) as admin:
        return await admin.describe_log_dirs(arguments.broker)


def _as_json(broker: int, folder: LogDirDescription) -> dict[str, Any]:
    return {
        "broker": broker,
        "folder": folder.path,
        "error": None if folder.error is None else folder.error.code.name,
        "total_bytes": folder.total_bytes,
        "usable_bytes": folder.usable_bytes,
        "replicas": [
            {"topic": partition.topic, "partition": partition.partition, "size_bytes": size}
            for partition, size in sorted(folder.replicas.items())
        ],
    }
