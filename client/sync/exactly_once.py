"""The consume-transform-produce loop, for programs without an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, Unpack

from ...network.threads import in_thread
from ..exactly_once import batch, processor
from ..exactly_once.batch import Made, NewRecord, OnError, Transform
from ..exactly_once.options import EXACTLY_ONCE_OPTIONS, ExactlyOnceOptions
from ..options import shows_options
from ..records import ConsumerRecord, TopicPartition
from .facade import Facade, on_loop
from .loop_thread import shared_loop

P = ParamSpec("P")


class ConsumedBatch:
    """A batch of records, and a `with` block in which to process them. See `ottla.ConsumedBatch`."""

    def __init__(self, owner: ExactlyOnce, inner: batch.ConsumedBatch) -> None:
        self._loop = owner._loop
        self._inner = inner

    @property
    def records(self) -> list[ConsumerRecord]:
        """The batch's records to process, in the order of the partitions."""
        return self._inner.records

    @property
    def committed(self) -> bool:
        """True once the `with` block has ended and the batch is committed."""
        return self._inner.committed

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offset to read next in each partition, once the batch is committed."""
        return self._inner.offsets

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Hand one record over, as to `Producer.send`. It is certainly sent once the batch is committed."""
        work = self._inner.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        self._loop.run(work)

    def shorten(self, count: int) -> None:
        """Leave all but the first `count` records of this batch to the next batch."""

        async def now() -> None:
            self._inner.shorten(count)

        self._loop.run(now())

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__(), unseen=self._never_entered)
        batch.INSIDE.set(self._inner)
        return self

    def _never_entered(self, _: object) -> None:
        """End a block that had begun when an interrupt came, so that its body never runs."""
        self._loop.finish(self._inner.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        batch.INSIDE.set(None)
        return not self._loop.left_behind and self._loop.run(self._inner.__aexit__(kind, error, trace))


@shows_options(*EXACTLY_ONCE_OPTIONS)
class ExactlyOnce(Facade):
    """A processor that turns records into other records, each exactly once, despite any failure.

        with ExactlyOnce("orders", group_id="copier") as copier:
            copier.run(lambda record: NewRecord("copies", record.value, record.key))

    See `ottla.ExactlyOnce`, whose calls and options it has.
    """

    def __init__(self, *topics: str, **options: Unpack[ExactlyOnceOptions]) -> None:
        self._processor = processor.ExactlyOnce(*topics, **options)
        self._loop = shared_loop()
        super().__init__(self._processor, self._loop)

    def __iter__(self) -> Self:
        async def now() -> None:
            aiter(self._processor)

        self._loop.run(now())
        return self

    def __next__(self) -> ConsumedBatch:
        """Return the next batch; the iteration ends when there is no more work."""

        async def following() -> batch.ConsumedBatch | None:
            return await anext(self._processor, None)

        found = self._loop.run(following())
        if found is None:
            raise StopIteration
        return ConsumedBatch(self, found)

    finish = on_loop(processor.ExactlyOnce.finish)

    def run(self, transform: Transform, *, on_error: Literal["raise", "skip"] | OnError = "raise") -> None:
        """Send the results of `transform` for each record. See `ottla.ExactlyOnce.run`.

        `transform`, and `on_error` if it is a function, are called on a thread that is neither the caller's nor the
        clients' own: they may call other clients, and `finish`.
        """
        handler = on_error if isinstance(on_error, str) else _on_a_thread(on_error)
        self._loop.run(self._processor.run(_on_a_thread(transform), on_error=handler))


def _on_a_thread(make: Callable[P, Made | Awaitable[Made]]) -> Callable[P, Awaitable[Made]]:
    """Return a function that calls `make` on another thread, and exhausts a generator there, too."""

    def whole(*args: P.args, **kwargs: P.kwargs) -> Made | Awaitable[Made]:
        made = make(*args, **kwargs)
        if made is None or isinstance(made, NewRecord | Awaitable | AsyncIterable | str | bytes):
            return made
        return list(made) if isinstance(made, Iterable) else made

    async def call(*args: P.args, **kwargs: P.kwargs) -> Made:
        made = await in_thread(whole, *args, **kwargs)
        return await made if isinstance(made, Awaitable) else made

    return call
