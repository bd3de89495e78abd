"""A host: an address, a disk, clocks, and the processes on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .files import VirtualDisk
    from .machine import Machine
    from .process import Process

WALL_START_S = 1_800_000_000.0
"""Wall-clock time at the start of a run, up to a host's error."""

_CLOCK_ERROR_S = 0.05


class Host:
    """A host, whose disk outlives its processes; unsynced data does not survive a power loss."""

    def __init__(self, machine: Machine, name: str, address: str, disk: VirtualDisk) -> None:
        self.machine = machine
        self.name = name
        self.address = address
        self.disk = disk
        self.powered = True
        #: the kernel's boot id: another one after each loss of power
        self.boot = f"{name}-1"
        self._boots = 1
        self.processes: list[Process] = []
        #: seconds since this host started, less the machine's: differs from host to host
        self._booted_s = machine.random.uniform(0, 100_000)
        #: how wrong its clock on the wall is; a jump changes it
        self.wall_error_s = machine.random.uniform(-_CLOCK_ERROR_S, _CLOCK_ERROR_S)
        machine.hosts[address] = self

    def monotonic_s(self) -> float:
        return self.machine.now + self._booted_s

    def wall_s(self) -> float:
        return WALL_START_S + self.machine.now + self.wall_error_s

    def lose_power(self, *, keeps_some: bool = True) -> None:
        """End every process without notice to its peers, and lose all or a random part of the unsynced data."""
        self.machine.trace.note(self.machine.now, self.name, "loses power")
        self.powered = False
        for process in list(self.processes):
            process.kill(silently=True)
        self.disk.lose_power(keeps_some=keeps_some)

    def power_on(self) -> None:
        """Start the host, unless it runs."""
        if not self.powered:
            self._boots += 1
            self.boot = f"{self.name}-{self._boots}"
        self.powered = True
