"""The course of a run: members work while the seed kills, cuts off, stops and adds members. Then all records end."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from unittest.mock import patch

from ottla.client.worker import group_work as composition
from tests.simulation.worker.loop import VirtualLoop
from tests.simulation.worker.member import Member
from tests.simulation.worker.world import PromiseBroken, World

STEPS = 60
ENDS_WITHIN_S = 900.0
MEMBERS_MAX = 4


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of a run."""

    starts: int
    records: int
    faults: int
    exactly_once: bool
    is_eager: bool


class Unwatched:
    """A watch of the loop that does nothing: virtual time stands still in a handler."""

    def __init__(self, *_: object) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()


class Course:
    """A run of one seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.members = [Member(self.world) for _ in range(2)]
        self.faults = 0

    async def play(self) -> Report:
        """Torment the members, heal, and wait for the results of all records. Raises PromiseBroken."""
        world = self.world
        for _ in range(STEPS):
            await asyncio.sleep(world.chance.random() * 2)
            self._step()
            self._check()
        for member in self.members:
            member.reconnect()
        self.members.append(Member(world))
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                while not (world.is_done and all(member.has_settled for member in self._alive)):
                    await asyncio.sleep(1)
                    self._check()
        except TimeoutError:
            what = "members did not join again" if world.is_done else "records were not finished"
            raise PromiseBroken(f"{what} within {ENDS_WITHIN_S:g} s") from None
        world.history.check_all(exactly_once=world.exactly_once)
        records = sum(len(log.records) for log in world.logs.values())
        return Report(world.history.starts, records, self.faults, world.exactly_once, world.is_eager)

    async def close(self) -> None:
        """End all tasks."""
        self.world.is_over = True
        for member in self.members:
            member.unveil()
        for _ in range(5):
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=10)

    @property
    def _alive(self) -> list[Member]:
        return [member for member in self.members if not (member.was_killed or member.running.done())]

    def _step(self) -> None:
        world, alive = self.world, self._alive
        member = world.chance.choice(alive) if alive else None
        what = world.chance.random()
        if what < 0.5 or member is None:
            world.append(world.chance.randrange(20))
        elif what < 0.6:
            self.faults += 1
            member.kill()
        elif what < 0.7:
            self.faults += 1
            member.cut_off()
            heals_s = world.chance.choice([1, 10, 30])
            asyncio.get_running_loop().call_later(heals_s, member.reconnect)
        elif what < 0.8:
            member.worker.stop(at_once=world.chance.random() < 0.3)
        elif len(alive) < MEMBERS_MAX:
            self.members.append(Member(world))
        self._replace()

    def _replace(self) -> None:
        if not self._alive:
            self.members.append(Member(self.world))

    def _check(self) -> None:
        if self.world.broken is not None:
            raise self.world.broken
        for member in self.members:
            if (
                member.running.done()
                and not member.running.cancelled()
                and (error := member.running.exception())
            ):
                raise PromiseBroken(f"a worker ended with {error!r}") from error


async def _course(seed: int) -> Report:
    course = Course(seed)
    try:
        return await course.play()
    finally:
        await course.close()


def run_seed(seed: int) -> Report:
    """Play one run. Raises PromiseBroken with the seed."""
    random.seed(seed)  # Delays of retries have a random part.
    loop = VirtualLoop()
    logger = logging.getLogger("ottla")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with patch.object(composition, "LoopWatch", Unwatched):
            return loop.run_until_complete(_course(seed))
    except PromiseBroken as error:
        raise PromiseBroken(f"seed {seed}: {error}") from error
    finally:
        loop.close()
        logger.setLevel(level)
