"""Additions to a trace besides the events: log lines, and the changes of partitions in the quorum's image."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.protocol.cluster.cluster_image import PartitionState
from tests.simulation.cluster.cluster import Node
from tests.simulation.machine.machine import Machine


class _LogLines(logging.Handler):
    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def emit(self, record: logging.LogRecord) -> None:
        machine = self._machine
        actor = machine.running.process.name if machine.running else "-"
        machine.trace.remark(machine.now, actor, f"logs {record.levelname}: {record.getMessage()}")


@contextmanager
def log_lines(machine: Machine) -> Iterator[None]:
    """Write log lines of all processes to the trace, if it has a reader, and nowhere else."""
    root, handler = logging.getLogger(), _LogLines(machine)
    before, root.handlers = root.handlers, [handler] if machine.trace.wanted else []
    level = root.level
    root.setLevel(logging.INFO)
    logging.disable(logging.NOTSET if machine.trace.wanted else logging.CRITICAL)
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(level)


class PartitionChanges:
    """An observer that reports every new state of a partition once, when the first quorum node has it.

    It never fails.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._offset = 0
        self._told: dict[tuple[str, int], PartitionState] = {}

    def observe(self, node: Node) -> None:
        image = node.quorum_node.controller.image if node.quorum_node is not None else None
        if image is None or image.offset <= self._offset:
            return
        self._offset = image.offset
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                if self._told.get((topic.name, index)) != state:
                    self._told[topic.name, index] = state
                    self._machine.trace.remark(
                        self._machine.now, node.name, f"{topic.name}-{index} is {_short(state)}"
                    )


def _short(state: PartitionState) -> str:
    parts = [f"led by {state.leader} in epoch {state.leader_epoch}.{state.partition_epoch}, ISR {state.isr}"]
    if state.elr or state.last_known_elr:
        parts.append(f"ELR {state.elr}, last known {state.last_known_elr}")
    if state.unclean:
        parts.append("unclean")
    if state.offline_replicas:
        parts.append(f"offline {state.offline_replicas}")
    return ", ".join(parts)
