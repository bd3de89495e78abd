"""A program that kills backups at their awaits, and restorations after their steps, and lets another process finish.

    python -m tests.integration.killed_backups BOOTSTRAP_SERVERS FOLDER TOPIC backup SPREAD|all
    python -m tests.integration.killed_backups BOOTSTRAP_SERVERS FOLDER TOPIC restore STEP,...|all

All moments use one store, so a backup finds what every earlier kill has left. SPREAD moments are evenly spread over the
run; `all` begins with the first, until a run ends whole. After each kill another backup makes a cut.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from ottla import Admin
from ottla.client.admin.backups import run as runs
from ottla.client.admin.backups.backup import Backup
from ottla.client.admin.backups.restore import Restore, prepare
from ottla.client.admin.backups.restore_endpoint import endpoint_for
from ottla.client.admin.backups.run import open_backup
from ottla.client.backup.plans import restore_plan
from ottla.client.backup.reading import read_catalog, read_cut
from ottla.client.objects.opening import open_store
from tests.killed_at_moments import Moments, forked, play

WATCHED_S = 0.2
CUTS = 2
RUN = ((runs, "take_lease"), (Backup, "cut"), (Backup, "close"))
"""The coroutines of a backup, from its lease to its end."""
STEPS = ("_begun", "_copied", "_check_unread", "promote_mirror", "delete_mirror")


async def back_up(servers: str, folder: Path, topic: str, cuts: int) -> None:
    """Make some cuts."""
    async with Admin(bootstrap_servers=servers) as admin:
        backup = await open_backup(
            admin,
            open_store(folder.as_uri(), 30),
            topics=topic,
            groups=f"{topic}-.*",
            watched_s=WATCHED_S,
        )
        for _ in range(cuts):
            await backup.cut()
        await backup.close()


async def restore(servers: str, folder: Path, topic: str, name: str, killed_after: str) -> None:
    """Restore the topic of the newest cut under a name, and die after a step."""
    store = open_store(folder.as_uri(), 30)
    catalog = await read_catalog(store)
    assert catalog.newest is not None
    plan = restore_plan(await read_cut(store, catalog.newest), topic, None, {topic: name})
    async with Admin(bootstrap_servers=servers) as admin:
        restoring = Restore(admin, store, await prepare(store, catalog, plan))
        owner = restoring if hasattr(restoring, killed_after) else admin
        if killed_after:
            setattr(owner, killed_after, _dying(getattr(owner, killed_after)))
        with endpoint_for(("127.0.0.1", 0), "127.0.0.1") as endpoint:
            await restoring.run(endpoint)


def _dying(step: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def run(*arguments: Any, **named: Any) -> None:
        await step(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return run


def _run(restoring: Callable[[str], Coroutine[Any, Any, None]], killed_after: str) -> None:
    asyncio.run(restoring(killed_after))


class Play:
    """The kills of one cluster and store."""

    def __init__(self, servers: str, folder: Path, topic: str) -> None:
        self._servers = servers
        self._folder = folder
        self._topic = topic
        self.passed = folder.with_suffix(".passed")

    def kill_backup(self, moment: int) -> bool:
        """Kill a backup at a moment, and let another make a cut. Return whether the first has finished before."""
        status = forked(lambda: self._first(moment))
        if status:
            assert os.WIFSIGNALED(status), f"moment {moment}: the backup failed"
            second = forked(lambda: asyncio.run(back_up(self._servers, self._folder, self._topic, 1)))
            assert second == 0, f"moment {moment}: the second backup did not finish"
        print(moment, "killed" if status else "whole", flush=True)
        return status == 0

    def _first(self, moment: int) -> None:
        moments = Moments(moment)
        for owner, name in RUN:
            moments.watch(owner, name)
        asyncio.run(back_up(self._servers, self._folder, self._topic, CUTS))
        self.passed.write_text(str(moments.passed))

    def kill_restorations(self, steps: Iterable[str]) -> None:
        """Kill a restoration after each of these steps, and let another process finish it."""
        for step in steps:
            name = f"{self._topic}{step}"
            restoring = partial(restore, self._servers, self._folder, self._topic, name)
            status = forked(partial(_run, restoring, step))
            assert os.WIFSIGNALED(status), f"{step}: the restoration was not killed"
            if step != "delete_mirror":
                second = forked(partial(_run, restoring, ""))
                assert second == 0, f"{step}: the second restoration did not finish"
            print(step, "killed", flush=True)


def main() -> None:
    """Play the chosen moments or steps."""
    servers, folder, topic, mode, chosen = sys.argv[1:]
    kills = Play(servers, Path(folder), topic)
    if mode == "backup":
        play(kills.kill_backup, kills.passed, chosen)
    else:
        kills.kill_restorations(STEPS if chosen == "all" else chosen.split(","))


if __name__ == "__main__":
    main()
