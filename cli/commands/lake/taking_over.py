"""`ottla lake take-over`: lets a table go on with a topic that was restored, or promoted with its mirror."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from ....client.admin import Admin
from ...connection.precedence import connection_of
from ...run_client import run_client
from ...terminal.output import print_json
from ...terminal.text import say
from .place import lake_of, refusals

if TYPE_CHECKING:
    from ....lake.iceberg.catalogs import LakePlace
    from ....lake.take_over import TakeOver


def take_over_table(arguments: argparse.Namespace) -> None:
    """Give a table its position in the copy of its former topic, and print the offsets."""
    place = lake_of(arguments)
    with refusals():
        plan = run_client(_taken_over(arguments, place))
    if arguments.output == "json":
        print_json(
            {
                "topic": plan.now.topic,
                "topic_id": plan.now.topic_id,
                "cluster": plan.now.cluster,
                "tables": [
                    {
                        "table": planned.table,
                        "offsets": {
                            str(index): reach.offset for index, reach in planned.position.places.items()
                        },
                        "rolled_back_to": planned.back_to,
                        "removed_tags": list(planned.lost_tags),
                    }
                    for planned in plan.tables
                ],
                "done": not arguments.dry_run,
            }
        )
        return
    _print(plan, "would go on" if arguments.dry_run else "goes on")


async def _taken_over(arguments: argparse.Namespace, place: LakePlace) -> TakeOver:
    from ....lake.cluster_view import LakeView
    from ....lake.epochs import new_epoch
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.take_over import carry_out, planned_take_over

    connection = connection_of(arguments)
    catalog = await asyncio.to_thread(open_catalog, place)
    async with Admin(**connection) as admin:
        view = LakeView(admin)
        await view.start()
        plan = await planned_take_over(view, catalog, arguments.table, rolls_back=arguments.roll_back)
    if plan.tables and not arguments.dry_run:
        epoch = await new_epoch(connection, arguments.table, plan.now.cluster)
        await asyncio.to_thread(carry_out, plan, catalog, epoch)
    return plan


def _print(plan: TakeOver, verb: str) -> None:
    if not plan.tables:
        say(
            f"{plan.settings.table}: its records are those of today's topic {plan.now.topic}; nothing is to be done"
        )
    for planned in plan.tables:
        offsets = ", ".join(
            f"{index} from {reach.offset}" for index, reach in sorted(planned.position.places.items())
        )
        say(
            f"{planned.table} {verb} with topic {plan.now.topic} in cluster {plan.now.cluster}: partitions {offsets}"
        )
        if planned.back_to is not None:
            say(
                f"{planned.table}: its newest snapshot is {planned.back_to} again, and later rows are read again"
            )
