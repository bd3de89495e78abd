"""Replicas that restarted at their leader's log start, and lead later: their missing knowledge of
producers is excused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.dataplane.log.truncation import Truncation
from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import PartitionState
from tests.histories.operations import BegunAnew, History
from tests.simulation.machine.machine import Machine


@contextmanager
def watching_new_starts(history: History, machine: Machine) -> Iterator[None]:
    """Note every leadership of a replica that restarted at its leader's log start."""
    begin_anew, lead = Truncation.truncate_fully_and_start_at, Partition.become_leader
    starts: dict[tuple[str, str, int], int] = {}

    def host() -> str:
        return "" if machine.running is None else machine.running.process.host.name

    def begun(truncation: Truncation, offset: int) -> None:
        begin_anew(truncation, offset)
        log = truncation._log
        # A copy of it in another folder has a suffix, behind a point.
        topic, _, partition = log.directory.name.partition(".")[0].rpartition("-")
        place = host(), topic, int(partition)
        starts[place] = max(log.log_start_offset, starts.get(place, 0))

    def leads(partition: Partition, state: PartitionState) -> bool:
        start = starts.get((host(), partition.topic, partition.index))
        if start is not None:
            history.add(BegunAnew(partition.topic, partition.index, start, machine.now))
        return lead(partition, state)

    with (
        patch.object(Truncation, "truncate_fully_and_start_at", begun),
        patch.object(Partition, "become_leader", leads),
    ):
        yield
