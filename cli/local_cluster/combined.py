"""`ottla up --combined`: one quorum node and one broker in this process, on one event loop. They speak over
loopback.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

from ..failures import CommandFailed
from ..nodes import logs
from ..nodes.node import (
    build,
    known_variables,
    only_new_garbage_collected,
    plain_failures,
    resolved,
    run_nodes,
    with_endpoint,
)
from ..nodes.settings import read_settings
from .layout import OWN_KEYS, ClusterLayout
from .readiness import brokers_seen_by

START_TIMEOUT_S = 60.0


class Announcement:
    """Runs last: waits until the broker takes part, then tells whoever started the cluster."""

    def __init__(self, layout: ClusterLayout, announce: Callable[[], None]) -> None:
        self._layout = layout
        self._announce = announce

    async def start(self) -> None:
        """Return once the cluster is announced. Raises CommandFailed when it does not come up."""
        deadline = time.monotonic() + START_TIMEOUT_S
        broker = self._layout.brokers[0]
        while broker.id not in await asyncio.to_thread(brokers_seen_by, self._layout, broker):
            if time.monotonic() > deadline:
                raise CommandFailed(f"the broker does not take part after {START_TIMEOUT_S:.0f} s")
            await asyncio.sleep(0.02)
        self._announce()

    async def stop(self) -> None:
        """Nothing to stop."""


def run_combined(layout: ClusterLayout, first_users: Sequence[str], announce: Callable[[int], None]) -> int:
    """Run both nodes until a signal; `announce(pid)` is called once they serve. `first_users`: of a cluster that is not
    formed yet."""
    logs.configure("warning")
    with plain_failures():
        given = {key: text for key, text in known_variables(os.environ).items() if key not in OWN_KEYS}
        settings = [
            resolved(read_settings(layout.settings_file(member)) | given) for member in layout.members
        ]
        with only_new_garbage_collected():
            nodes = [
                build(member.role, own, add_scram=first_users if member.role == "quorum" else ())
                for member, own in zip(layout.members, settings, strict=True)
            ]
        # One process, one endpoint: the broker's address tells of both nodes.
        run_nodes(
            with_endpoint(settings[-1].values, nodes),
            last=Announcement(layout, lambda: announce(os.getpid())),
        )
    return 0
