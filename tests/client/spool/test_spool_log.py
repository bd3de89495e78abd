"""The files of a spool compared with a list of their records: cut anywhere, damaged anywhere, opened again."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.failures import SpoolUnusable
from ottla.client.spool.folder import INDEX_BITS
from ottla.client.spool.frames import read_file_header
from ottla.client.spool.spool_log import SpoolLog

SEGMENT = 300


def opened(path: Path, run: int, segment_bytes: int = SEGMENT) -> SpoolLog:
    log = SpoolLog(path, run << INDEX_BITS, segment_bytes)
    log.open()
    return log


def write(log: SpoolLog, value: bytes) -> int:
    return log.append("t", None, b"k", value, 1, (("h", None),))


def read_all(log: SpoolLog, position: int = 0, records_max: int = 3) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    while position < log.end:
        chunk = log.read(position, records_max, 200)
        assert chunk.end > position
        assert len(chunk.records) <= records_max
        found += [(record.position, record.value) for record in chunk.records]
        position = chunk.end
    return found


def files(path: Path) -> list[Path]:
    return sorted(path.glob("*.spool"))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=120)),
        st.tuples(st.just("deliver"), st.integers(1, 10)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("crash"), st.integers(0, 400)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
@settings(max_examples=150)
def test_it_is_a_list_that_survives(script: list[tuple[str, int | bytes]]) -> None:
    """A crash cuts the newest file like a power failure: never more than the last writes are lost."""
    with TemporaryDirectory() as name:
        path, run, position = Path(name), 1, 0
        log = opened(path, run)
        model: list[tuple[int, bytes]] = []
        for step, argument in script:
            if isinstance(argument, bytes):
                model.append((write(log, argument), argument))
            elif step == "deliver":
                chunk = log.read(position, argument, 1 << 20)
                expected = [entry for entry in model if entry[0] >= position][: len(chunk.records)]
                assert [(record.position, record.value) for record in chunk.records] == expected
                position = chunk.end
                log.delivered(position)
                model = [entry for entry in model if entry[0] >= position]
            elif step == "again":
                assert read_all(log, position) == model
            else:
                log.close(0)
                newest = files(path)[-1:]
                if step == "crash" and newest and argument:
                    size = newest[0].stat().st_size
                    os.truncate(newest[0], max(0, size - argument))
                run += 1
                log = opened(path, run)
                survived = read_all(log, position)
                assert survived == model[: len(survived)]
                if step == "reopen" or not argument:
                    assert survived == model
                model = model[: len(survived)]
        assert log.count_from(position) == len(model)
        assert log.bytes == sum(file.stat().st_size for file in path.iterdir())
        assert read_all(log, position) == model
        log.close(log.end)
        assert not files(path)


@given(st.integers(0), st.binary(min_size=1, max_size=30))
@settings(max_examples=150)
def test_damage_anywhere_is_told_and_costs_only_what_it_hits(place: int, noise: bytes) -> None:
    with TemporaryDirectory() as name:
        path = Path(name)
        log = opened(path, 1)
        written = [(write(log, b"value %d" % index), b"value %d" % index) for index in range(20)]
        log.close(0)
        victim = files(path)[place % len(files(path))]
        is_newest = victim == files(path)[-1]
        content = bytearray(victim.read_bytes())
        start = place % len(content)
        noise = noise[: len(content) - start]
        same = content[start : start + len(noise)] == noise
        content[start : start + len(noise)] = noise
        victim.write_bytes(content)
        for run in (2, 3):  # it is reported once
            log = opened(path, run)
            found = read_all(log)
            assert set(found) <= set(written)
            assert found == sorted(found)
            assert (len(found) == len(written)) == same
            # At the very end it may look like a frame that was not written whole.
            assert log.damaged == (not same) or (is_newest and not log.damaged)
            log.close(0)


def test_damage_that_comes_after_opening_is_found_when_it_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path, 1, 1 << 20)
    for index in range(5):
        write(log, b"value %d" % index)
    [file] = files(tmp_path)
    content = bytearray(file.read_bytes())
    content[content.index(b"value 2")] ^= 1
    file.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        assert [value for _, value in read_all(log)] == [b"value 0", b"value 1", b"value 3", b"value 4"]
    [record] = caplog.records
    assert str(file) in record.getMessage()
    [aside] = tmp_path.glob("damaged-*")
    assert b"alue 2" in aside.read_bytes()
    assert log.damaged == 1


def test_a_frame_that_makes_no_sense_is_passed_over(tmp_path: Path) -> None:
    log = opened(tmp_path, 1, 1 << 20)
    first = write(log, b"first")
    [file] = files(tmp_path)
    marker = read_file_header(file.read_bytes())
    body = (first + 1).to_bytes(8, "big") + b"?" * 40
    length = len(body).to_bytes(4, "big")
    frame = marker + length + crc32c(body, crc32c(length)).to_bytes(4, "big") + body
    log.close(0)
    file.write_bytes(file.read_bytes() + frame)
    log = opened(tmp_path, 2)
    write(log, b"second")
    assert [value for _, value in read_all(log)] == [b"first", b"second"]
    assert log.damaged == 1


def test_a_file_without_a_header_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(tmp_path, 1)
    written = [write(log, b"v" * 100) for _ in range(10)]
    log.close(0)
    victim = files(tmp_path)[0]
    victim.write_bytes(b"?" + victim.read_bytes()[1:])
    log = opened(tmp_path, 2)
    found = [position for position, _ in read_all(log)]
    assert found == [position for position in written if position in found]
    assert 0 < len(found) < len(written)
    assert (tmp_path / f"damaged-{victim.name}").exists()
    assert "are not delivered" in caplog.text


def test_a_record_that_the_disk_does_not_take_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path, 1, 1 << 20)
    write(log, b"first")
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:20]))
    with pytest.raises(SpoolUnusable, match="the disk is full"):
        write(log, b"second")
    monkeypatch.undo()
    write(log, b"third")
    assert [value for _, value in read_all(log)] == [b"first", b"third"]
    log.close(0)
    assert [value for _, value in read_all(opened(tmp_path, 2))] == [b"first", b"third"]


@pytest.mark.parametrize("before", [0, 2])
def test_what_the_disk_does_not_take_and_does_not_give_back_costs_no_other_record(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path, 1, 1 << 20)
    real, begun = os.write, bool(before)

    def fail(file: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    def write_in_part(file: int, data: bytes) -> int:
        nonlocal begun
        whole, begun = not begun, True  # the header of a file that is begun
        return real(file, data if whole else data[:20])

    wanted = [b"%d" % number for number in range(before)]
    for value in wanted:
        write(log, value)
    monkeypatch.setattr(os, "write", write_in_part)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(SpoolUnusable, match="the disk is full"):
        write(log, b"not taken")
    monkeypatch.undo()
    for value in (b"next", b"last"):
        write(log, value)
        wanted.append(value)
    assert [value for _, value in read_all(log)] == wanted
    log.close(0)
    assert [value for _, value in read_all(opened(tmp_path, 2))] == wanted


def test_a_file_that_somebody_has_deleted_takes_no_room(tmp_path: Path) -> None:
    log = opened(tmp_path, 1, segment_bytes=1)
    write(log, b"0")
    assert [value for _, value in read_all(log)] == [b"0"]
    for file in files(tmp_path):
        file.unlink()
    log.delivered(log.end)
    assert log.bytes == 0


def test_positions_of_a_run_are_above_all_older_ones(tmp_path: Path) -> None:
    """This includes positions that a power failure took, and that the cluster has."""
    log = opened(tmp_path, 1, 1 << 20)
    lost = [write(log, b"v") for _ in range(5)]
    log.close(0)
    for file in files(tmp_path):
        file.unlink()
    assert write(opened(tmp_path, 2), b"new") > max(lost)


def test_records_of_a_later_run_than_the_folder_knows_are_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, 2)
    write(log, b"v")
    log.close(0)
    with pytest.raises(SpoolUnusable, match="later run"):
        opened(tmp_path, 1)
