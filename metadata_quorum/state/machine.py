"""The controller as Raft's replicated state machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ...protocol.cluster_image import ClusterImage
from ...protocol.messages.metadata_records import Record
from .controller import Applied, Controller
from .workspace import Scope

OnRecords = Callable[[Sequence[tuple[Scope, Record]], int], None]
"""Given the records of one command, and the mark of the history that ends with it."""


class ControllerMachine:
    """Calls `on_records` with each command's records, in order, after they are in the image."""

    def __init__(self, on_records: OnRecords | None = None) -> None:
        self.controller = Controller()
        self.on_records = on_records

    @property
    def image(self) -> ClusterImage:
        """The image. Ask anew for each use: restoring replaces the object."""
        return self.controller.image

    @property
    def history(self) -> int:
        """The mark of the history that has made the image."""
        return self.controller.history.mark

    def apply(self, index: int, term: int, command: bytes) -> Applied:
        """Apply one committed command."""
        history = self.controller.history
        history.applied(term, command)
        applied = self.controller.apply(command)
        if applied.records:
            history.changed()
            if self.on_records is not None:
                self.on_records(applied.records, history.mark)
        return applied

    def check(self) -> None:
        """AssertionError if the state contradicts itself."""
        self.controller.check()

    def snapshot(self) -> Iterator[bytes]:
        """The whole state, in chunks."""
        return self.controller.snapshot()

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Become what `snapshot` described."""
        self.controller.restore(chunks)

    def adopt(self, other: ControllerMachine) -> None:
        """Become `other`, which is not used afterwards."""
        self.controller = other.controller


def new_machine() -> ControllerMachine:
    """A fresh machine without a listener, for child processes too."""
    return ControllerMachine()
