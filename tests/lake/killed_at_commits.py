"""A program that kills workers of the lake around their commits, one worker at each moment, and lets another finish.

Usage: python -m tests.lake.killed_at_commits BOOTSTRAP_SERVERS FOLDER SPREAD|all

A moment is the time before or after a commit to the catalog, or after a file was completed. Each moment has topics and
a folder of its own, a child process that is killed, and a child process that finishes. SPREAD moments are evenly spread
over a run; `all` begins with the first, until a run ends whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from ottla import Admin, NewTopic, Producer
from ottla.lake.iceberg.catalogs import LakePlace
from ottla.lake.iceberg.files import DataFiles
from ottla.lake.worker import LakeOptions, LakeWorker
from tests.killed_at_moments import Moments, forked, play

TRANSFERS = 12
BAD = b"no JSON"


class CommitMoments(Moments):
    """The moments around commits."""

    def watch(self) -> None:
        """Pass a moment before and after each commit, and after the files of a round."""
        SqlCatalog.commit_table = self._around(SqlCatalog.commit_table)
        DataFiles.finish = self._around(DataFiles.finish)

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self.pass_one()
            result = function(*arguments, **named)
            self.pass_one()
            return result

        return called


def topics_of(moment: int) -> tuple[str, str]:
    """Return the names of the topics of a moment: one in JSON, and one raw."""
    return f"json_{moment}", f"raw_{moment}"


async def prepare(servers: str, moment: int) -> None:
    """Create the topics, and write transfers from one to the other, each with a bad record and an aborted one."""
    in_json, raw = topics_of(moment)
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics(
            [
                NewTopic(
                    topic,
                    2,
                    1,
                    configs={
                        "ottla.lake.enable": "true",
                        "ottla.lake.mode": mode,
                        "ottla.lake.group": f"group-{moment}",
                    },
                )
                for topic, mode in ((in_json, "json"), (raw, "raw"))
            ]
        )
    async with Producer(bootstrap_servers=servers, transactional_id=f"transfers-{moment}") as producer:
        for number in range(TRANSFERS):
            async with producer.transaction():
                await producer.send(in_json, b'{"amount": %d}' % number, partition=number % 2)
                await producer.send(in_json, BAD, partition=number % 2)
                await producer.send(raw, b"%d" % -number, partition=number // 2 % 2)
        await producer.begin_transaction()
        await producer.send(raw, b"aborted", partition=0)
        await producer.abort_transaction()


async def work(servers: str, folder: Path, moment: int) -> None:
    """Write the topics of a moment once."""
    options = LakeOptions(
        {"bootstrap_servers": servers}, LakePlace(folder=folder), topics_of(moment), once=True
    )
    assert await LakeWorker(options).run()


class Play:
    """The kills of one cluster and folder."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self.passed = folder / "passed"

    def moment(self, killed_at: int) -> bool:
        """Kill a worker at a moment, and let another finish. Return whether the first has finished before."""
        status = forked(lambda: self._first(killed_at))
        is_whole = status == 0
        if not is_whole:
            assert os.WIFSIGNALED(status), f"moment {killed_at}: the worker failed"
            second = forked(lambda: asyncio.run(work(self._servers, self._lake(killed_at), killed_at)))
            assert second == 0, f"moment {killed_at}: the second worker did not finish"
        print(killed_at, "whole" if is_whole else "killed", flush=True)
        return is_whole

    def _lake(self, moment: int) -> Path:
        return self._folder / f"lake-{moment}"

    def _first(self, killed_at: int) -> None:
        asyncio.run(prepare(self._servers, killed_at))
        moments = CommitMoments(killed_at)
        moments.watch()
        asyncio.run(work(self._servers, self._lake(killed_at), killed_at))
        self.passed.write_text(str(moments.passed))


def main() -> None:
    """Play the chosen moments."""
    logging.disable(logging.ERROR)  # Dead letters are as planned.
    servers, folder, chosen = sys.argv[1:]
    kills = Play(servers, Path(folder))
    play(kills.moment, kills.passed, chosen)


if __name__ == "__main__":
    main()
