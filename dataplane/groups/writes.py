"""Writes to a shard's log: the errors that clients get for them, and the timeout of clients that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ..coordinated_log.batches import BatchWriter, KeyValue, batch_of, transactional_batch_of
from ..coordinated_log.log import COORDINATOR_ERRORS, CoordinatedLog

_BATCH_BYTES = 512 * 1024
"""Maximum batch size, half of what the log takes by default. Larger writes are split into several batches."""
_RECORD_OVERHEAD_BYTES = 24


class ShardWrites:
    """The writer of one shard's records to its log. Once it is closed, it no longer calls `show` for committed
    records."""

    def __init__(self, log: CoordinatedLog, wall_ms: Callable[[], int], timeout_s: float) -> None:
        """Create the writer of a log. `timeout_s` is Kafka's `offsets.commit.timeout.ms` in seconds."""
        self._log, self._wall_ms, self._timeout_s = log, wall_ms, timeout_s
        # Tombstones that the log refused, of items that are gone from memory: they precede the next write. Their `show`
        # functions run then, too: they remove what was in flight when the tombstones were refused.
        self._owed: list[KeyValue] = []
        self._owed_shows: list[Callable[[int], None]] = []
        self.closed = False

    def write(
        self,
        records: Iterable[KeyValue],
        done: Callable[[ErrorCode], None],
        show: Callable[[int], None] = lambda _position: None,
        *,
        insist: bool = False,
    ) -> None:
        """Append records.

        `show` gets the log position of the first record once the records are committed, however late. `done` gets the
        outcome or a timeout. `insist` is for tombstones of items that are gone from memory: if the log refuses them,
        they are written with the next write.
        """
        owed, self._owed = self._owed, []
        owed_shows, self._owed_shows = self._owed_shows, []
        due = [(record, True) for record in owed] + [(record, insist) for record in records]
        pieces = list(_pieces(due))
        asking = 0
        ended = False
        position = self._log.end_offset
        outcome = _Outcome(done, self._timeout_s)

        def written(error: ErrorCode) -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            if error is not ErrorCode.NONE:
                self._owed = [*_lasting(pieces[asking:]), *self._owed]
                self._owed_shows = [*owed_shows, *([show] if insist else []), *self._owed_shows]
            elif not self.closed:
                for show_owed in owed_shows:
                    show_owed(position)
                show(position)
            outcome.tell(error)

        def piece_written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                written(error)

        while asking < len(pieces) and not ended:
            batch = batch_of([record for record, _ in pieces[asking]], self._wall_ms())
            last = asking == len(pieces) - 1
            self._log.append(batch, written if last else piece_written)
            asking += 1

    def write_transactional(
        self,
        records: Iterable[KeyValue],
        writer: BatchWriter,
        done: Callable[[ErrorCode], None],
        appended: Callable[[int], None],
        show: Callable[[], None],
    ) -> None:
        """Append records as one batch of a writer's transaction.

        `appended` is called at once with the batch's position if the batch is in the log. `show` is called once it is
        committed, however late. `done` gets the outcome or a timeout.
        """
        self.settle_debts()
        if self._owed:
            # The owed tombstones would be written after these records, and remove them.
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        position = self._log.end_offset
        try:
            end = self._log.append_transactional(transactional_batch_of(records, writer, self._wall_ms()))
        except KafkaError as error:
            done(_for_clients(error.code))
            return
        appended(position)
        outcome = _Outcome(done, self._timeout_s)

        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and not self.closed:
                show()
            outcome.tell(error)

        self._log.on_high_watermark(end, written)

    def settle_debts(self) -> None:
        """Write the tombstones that the log refused earlier, if there are any."""
        if self._owed:
            self.write((), lambda _outcome: None)


class _Outcome:
    """The answer to a client's write: its outcome, or a timeout if the outcome is not known in time."""

    def __init__(self, done: Callable[[ErrorCode], None], timeout_s: float) -> None:
        self._done: Callable[[ErrorCode], None] | None = done
        self._timer = asyncio.get_running_loop().call_later(
            timeout_s, self.tell, ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    def tell(self, error: ErrorCode) -> None:
        """Report the outcome of the write to the client. Only the first call has an effect."""
        self._timer.cancel()
        done, self._done = self._done, None
        if done is not None:
            done(_for_clients(error))


def _pieces(due: Sequence[tuple[KeyValue, bool]]) -> Iterator[list[tuple[KeyValue, bool]]]:
    """Split records into batches that the log takes. A record that is too large gets a separate batch."""
    piece: list[tuple[KeyValue, bool]] = []
    size = 0
    for each in due:
        (key, value), _ = each
        bytes_more = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if piece and size + bytes_more > _BATCH_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += bytes_more
    yield piece


def _lasting(refused: Iterable[Iterable[tuple[KeyValue, bool]]]) -> Iterator[KeyValue]:
    return (record for piece in refused for record, insist in piece if insist and record[1] is None)


_CLIENT_ERRORS = {
    **COORDINATOR_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def _for_clients(error: ErrorCode) -> ErrorCode:
    """Return the error that a group member gets for a failed write to the offsets log, as Kafka maps it."""
    return _CLIENT_ERRORS.get(error, error)
