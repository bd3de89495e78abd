"""Random logs, cleaned round after round, compared with a consumer's previous view."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.dataplane.log import PartitionLog
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import ControlType

from .histories import NOW_MS, RETENTION_MS, History, Producer, Seen, batches, clean, job_for, look

_KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"key-%d" % 5, b"k" * 80])
_VALUES = st.one_of(st.none(), st.binary(min_size=0, max_size=90))
_RECORDS = st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=6)
_CODECS = st.sampled_from(list(Compression))
_PLAIN = st.tuples(st.just("plain"), _RECORDS, _CODECS)
_IDEMPOTENT = st.tuples(st.just("idempotent"), st.integers(1, 3), _RECORDS, _CODECS)
_TRANSACTION = st.tuples(
    st.just("transaction"),
    st.integers(11, 12),
    st.lists(_RECORDS, min_size=0, max_size=3),
    st.sampled_from([*ControlType, None]),
)
_HISTORY = st.lists(st.one_of(_PLAIN, _IDEMPOTENT, _TRANSACTION), min_size=3, max_size=40)
ROUNDS_MAX = 30


def _write(history: History, step: tuple) -> None:  # type: ignore[type-arg]
    kind, *rest = step
    if kind == "plain":
        history.write(rest[0], compression=rest[1])
    elif kind == "idempotent":
        history.write(rest[1], Producer(rest[0], 0), rest[2])
    else:
        producer = Producer(rest[0], 0, transactional=True)
        for records in rest[1]:
            history.write(records, producer)
        if rest[2] is not None:
            history.end(producer, rest[2])


def _first_unstable(log: PartitionLog) -> int:
    open_transactions = [
        entry.transaction_first_offset
        for entry in log.producers.entries()
        if entry.transaction_first_offset >= 0
    ]
    return min(open_transactions, default=log.log_end_offset)


def _upper_bound(log: PartitionLog) -> int:
    """Return the base offset of the first segment that may not be cleaned."""
    limit = min(_first_unstable(log), log.segments[-1].base_offset)
    return max(segment.base_offset for segment in log.segments if segment.base_offset <= limit)


def _check_nothing_changed(before: Seen, after: Seen) -> None:
    assert after.state == before.state
    for offset, record in after.records.items():
        assert record == before.records[offset]
    for offset, marker in after.markers.items():
        assert marker == before.markers[offset]


def _check_compact(before: Seen, after: Seen, upto: int) -> None:
    """Check that below `upto` only the last record of each key is left, and no aborted record."""
    latest: dict[bytes, int] = {}
    for offset, record in before.committed.items():
        assert record.key is not None
        if offset < upto:
            latest[record.key] = offset
    for offset, record in after.records.items():
        if offset < upto:
            assert record.key is not None
            assert offset == latest.get(record.key)
    for offset in latest.values():
        if before.records[offset].value is not None:
            assert offset in after.records


def _sequences(log: PartitionLog) -> dict[int, tuple[int, int, int]]:
    return {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
        for entry in log.producers.entries()
    }


@settings(max_examples=120)
@given(_HISTORY, _HISTORY, st.sampled_from([24 * 1024, 1 << 20]))
def test_a_reader_from_the_start_sees_the_same(first: list, second: list, dedupe_bytes: int) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "t-0")
        log = history.log
        checkpoint, now_ms = 0, NOW_MS
        for steps in (first, second):
            for step in steps:
                _write(history, step)
            upper = _upper_bound(log)
            if upper <= checkpoint:
                continue
            before, untouched = look(log), [data for h, data in batches(log) if h.base_offset >= upper]
            sequences = _sequences(log)
            job = job_for(log, checkpoint, now_ms=now_ms, dedupe_bytes=dedupe_bytes, upper=upper)
            checkpoint = clean(log, job).clean_offset
            after = look(log)
            _check_nothing_changed(before, after)
            _check_compact(before, after, checkpoint)
            assert [data for h, data in batches(log) if h.base_offset >= upper] == untouched
            now_ms += RETENTION_MS // 2
            for path in Path(folder).rglob("*.snapshot"):
                path.unlink()
            log.close(clean=False)
            history.log = log = PartitionLog.open(
                log.directory, log.config, clean_shutdown=False, recovery_point=0, now_ms=NOW_MS
            )
            assert look(log) == after
            assert _sequences(log) == sequences, "a replay of the log knows every producer as before"
        log.close(clean=False)


@settings(max_examples=60)
@given(_HISTORY)
def test_what_is_dead_goes_in_the_end(steps: list) -> None:  # type: ignore[type-arg]
    """After the horizons no tombstone is left below the bound, and no marker of a transaction without data.

    Markers of producers that never wrote stay, as in Kafka.
    """
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "t-0")
        log = history.log
        for step in steps:
            _write(history, step)
        upper = _upper_bound(log)
        before = look(log)
        sequences = _sequences(log)
        _clean_until_nothing_goes(log, upper)
        after = look(log)
        _check_nothing_changed(before, after)
        assert all(record.value is not None for offset, record in after.records.items() if offset < upper)
        wrote = {entry.producer_id for entry in log.producers.entries() if entry.batches}
        data = [
            (header.producer_id, header.base_offset) for header, _ in batches(log) if not header.is_control
        ]
        for offset, (producer_id, _) in after.markers.items():
            earlier = [
                at for at, (marked, _) in before.markers.items() if marked == producer_id and at < offset
            ]
            has_data = any(who == producer_id and max(earlier, default=-1) < at < offset for who, at in data)
            assert offset >= upper or has_data or producer_id not in wrote
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
        log.close(clean=False)
        again = PartitionLog.open(
            log.directory, log.config, clean_shutdown=False, recovery_point=0, now_ms=NOW_MS
        )
        assert look(again) == after
        assert _sequences(again) == sequences, "a replay of the log knows every producer as before"
        again.close(clean=False)


def _clean_until_nothing_goes(log: PartitionLog, upper: int) -> None:
    """Clean until nothing changes; one round's horizon has passed in the next.

    The last batch of a segment stays until the segment is merged with the next one, and its marker stays longer.
    """
    left: list[list[bytes]] = [[], []]
    for round_ in range(ROUNDS_MAX):
        clean(log, job_for(log, 0, now_ms=NOW_MS + round_ * RETENTION_MS, upper=upper))
        left.append([data for _, data in batches(log)])
        if left[-1] == left[-2] == left[-3]:
            return
    raise AssertionError(f"something has gone in each of {ROUNDS_MAX} rounds")
