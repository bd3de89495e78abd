"""`ottla lake rebuild`: removes a table, which the worker then writes from the first record of its topic."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ....client.admin import Admin
from ...connection.precedence import connection_of
from ...failures import CommandFailed
from ...run_client import run_client
from ...terminal.confirmation import confirm
from ...terminal.text import say
from .place import lake_of, refusals

if TYPE_CHECKING:
    from ....lake.rebuilding import Rebuild


def rebuild_table(arguments: argparse.Namespace) -> None:
    """Remove a table after a confirmation, so that the worker writes it again."""
    place = lake_of(arguments)
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.rebuilding import remove_table

    with refusals():
        catalog = open_catalog(place)
        plan = run_client(_planned(arguments))
        topic, table = plan.settings.topic, plan.settings.table
        if plan.deleted and not arguments.accept_loss:
            partition, beginning = next(iter(plan.deleted.items()))
            raise CommandFailed(
                f"{topic}-{partition} begins at offset {beginning}: records below were deleted, and a new table would "
                "lack them; --accept-loss makes it nevertheless"
            )
        confirm(f"Remove table {table}, to make it anew from topic {topic}?", yes=arguments.yes)
        run_client(_set_back(arguments, plan))
        remove_table(catalog, plan.settings)
        run_client(_set_back(arguments, plan))
    say(f"{table}: removed; a running worker makes it anew, or `ottla lake run --once {topic}`")


async def _planned(arguments: argparse.Namespace) -> Rebuild:
    from ....lake.cluster_view import LakeView
    from ....lake.rebuilding import planned_rebuild

    async with Admin(**connection_of(arguments)) as admin:
        return await planned_rebuild(LakeView(admin), arguments.table)


async def _set_back(arguments: argparse.Namespace, plan: Rebuild) -> None:
    from ....lake.cluster_view import LakeView
    from ....lake.rebuilding import set_offsets_back

    async with Admin(**connection_of(arguments)) as admin:
        await set_offsets_back(LakeView(admin), plan)
