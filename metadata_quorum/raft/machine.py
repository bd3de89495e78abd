"""The interface of the replicated state machine, and its factory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

MAX_CHUNK_BYTES = 256 << 10


class Machine(Protocol):
    """The interface of the replicated state machine: pure, without clock, randomness, input or output. All nodes'
    machines reach the same state."""

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply a committed command. It must not fail: an exception stops the process, on every node alike."""

    def snapshot(self) -> Iterator[bytes]:
        """Yield the whole state, in chunks of at most `MAX_CHUNK_BYTES`."""

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the state by a state from `snapshot`."""


@runtime_checkable
class Adopting(Protocol):
    """A machine that can take over another machine's state at once.

    A snapshot from the leader is then restored into a new machine off the loop; without this method `restore` blocks
    the loop.
    """

    def adopt(self, other: Any) -> None:
        """Take over the state of `other` in constant time. `other` has the same class and is not used afterwards."""


def load_factory(name: str) -> Callable[[], Machine]:
    """Import the callable named `module:callable`. Raises ValueError if there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"machine factory {name!r} is not 'module:callable': {error}") from error
    if not callable(factory):
        raise ValueError(f"machine factory {name!r} is not callable")
    return factory  # type: ignore[no-any-return]
