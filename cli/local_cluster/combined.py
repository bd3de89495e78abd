"""`ottla up --combined`: a quorum node and a broker on one event loop of this process.

Both talk to each other over loopback.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

from ...network.garbage_collection import only_new_garbage_collected
from ..failures import CommandFailed
from ..nodes import logs
from ..nodes.node import (
    build,
    known_variables,
    plain_failures,
    resolved,
    run_nodes,
    with_endpoint,
)
from ..nodes.settings import read_settings
from ..terminal.progress import waiting
from .layout import ClusterLayout
from .readiness import brokers_seen_by

START_TIMEOUT_S = 60.0


class Announcement:
    """The last part of a combined cluster to start: it waits until the broker has joined the cluster, then announces
    the cluster."""

    def __init__(self, layout: ClusterLayout, announce: Callable[[], None]) -> None:
        self._layout = layout
        self._announce = announce

    async def start(self) -> None:
        """Return once the cluster is announced. Raises CommandFailed if the broker does not join in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        broker = self._layout.brokers[0]
        async with waiting(broker.name):
            while broker.id not in await asyncio.to_thread(brokers_seen_by, self._layout, broker):
                if time.monotonic() > deadline:
                    raise CommandFailed(f"the broker does not take part after {START_TIMEOUT_S:.0f} s")
                await asyncio.sleep(0.02)
        self._announce()

    async def stop(self) -> None:
        """Do nothing: an announcement has nothing to stop."""


def run_combined(layout: ClusterLayout, first_users: Sequence[str], announce: Callable[[int], None]) -> int:
    """Run the quorum node and the broker until a signal arrives, and call `announce(pid)` once they serve.

    `first_users` are the `--add-scram` arguments of a cluster that is not formed yet.
    """
    logs.configure("warning")
    with plain_failures():
        given = {key: text for key, text in known_variables(os.environ).items() if key not in layout.own_keys}
        settings = [
            resolved(read_settings(layout.settings_file(member)) | given) for member in layout.members
        ]
        with only_new_garbage_collected(freezes=True):
            nodes = [
                build(member.role, own, add_scram=first_users if member.role == "quorum" else ())
                for member, own in zip(layout.members, settings, strict=True)
            ]
        # Both nodes share one process and one HTTP endpoint, at the broker's address.
        run_nodes(
            with_endpoint(settings[-1].values, nodes),
            last=Announcement(layout, lambda: announce(os.getpid())),
        )
    return 0
