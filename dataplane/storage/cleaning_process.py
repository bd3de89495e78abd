"""The child process that compacts logs. It is started when there is work, and gets one job at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator

from ..log.compaction.job import CleaningJob, GroupCleaned, MalformedLine, Reply, decode_reply

_WORKER = "ottla.dataplane.log.compaction.worker"
_REPLY_BYTES_MAX = 16 << 20
_END_TIMEOUT_S = 1.0

logger = logging.getLogger(__name__)


class CleaningProcessDied(Exception):
    """An error: the child process ended, or sent an invalid reply, before the compaction job was done."""


class CleaningProcess:
    """A holder of at most one child process that compacts logs. A process that died is replaced when the next job
    comes.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the running child process; None if there is none."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def run(self, job: CleaningJob) -> AsyncIterator[Reply]:
        """Pass a compaction job to the child process, and yield its replies as they arrive. The last reply is not a
        `GroupCleaned`.

        Raises CleaningProcessDied if the process ends without a last reply.
        """
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(job.encode())
            await process.stdin.drain()
            while True:
                line = await process.stdout.readline()
                if not line:
                    raise CleaningProcessDied(f"it ended with status {await process.wait()}")
                reply = decode_reply(line)
                yield reply
                if not isinstance(reply, GroupCleaned):
                    return
        except (ConnectionError, MalformedLine, ValueError) as error:
            await self.kill()
            raise CleaningProcessDied(str(error) or type(error).__name__) from error

    async def _started(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or process.returncode is not None:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _WORKER,
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_REPLY_BYTES_MAX,
            )
        return process

    async def end(self) -> None:
        """Let an idle child process end; it is killed if it does not end in time."""
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """Kill the child process at once; the files that it has written stay."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
