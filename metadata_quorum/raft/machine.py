"""The replicated state machine as the Raft layer sees it, and how to make a fresh one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

MAX_CHUNK_BYTES = 256 << 10


class Machine(Protocol):
    """Pure: no clock, no randomness, no input or output. Every node's ends up in the same state."""

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply one committed command. Total: an exception stops the process, on every node alike."""

    def snapshot(self) -> Iterator[bytes]:
        """The whole state, in chunks of at most `MAX_CHUNK_BYTES`."""

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Become what `snapshot` described."""


@runtime_checkable
class Adopting(Protocol):
    """A machine that can take another's state over at once.

    A snapshot from the leader is then restored into a fresh machine off the loop; without this method
    `restore` runs on the loop and holds it up.
    """

    def adopt(self, other: Any) -> None:
        """Become `other`, a machine of the same class that is not used afterwards, in constant time."""


def load_factory(name: str) -> Callable[[], Machine]:
    """The callable named `module:callable`. Raises ValueError when there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"machine factory {name!r} is not 'module:callable': {error}") from error
    if not callable(factory):
        raise ValueError(f"machine factory {name!r} is not callable")
    return factory  # type: ignore[no-any-return]
