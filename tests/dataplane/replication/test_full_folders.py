"""Data folders without space: their replicas give way, stay readable, and follow again once there is space."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from ottla.dataplane.assembly import room_watch
from ottla.dataplane.assembly.room_watch import RoomWatch
from ottla.dataplane.log import LogConfig, PartitionLog
from ottla.dataplane.log.storage_errors import disk_error
from ottla.dataplane.replication.fetch_values import PartitionKey
from ottla.dataplane.replication.replicas.unwritable import UnwritableReplicas
from ottla.dataplane.storage.room import HOLDS_S, HOLDS_S_MAX, Room, try_room
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord

from .harness import batch
from .test_folders import TOPIC, Broker, broker, code, until


def refusal(number: int, folder: Path = Path("/data")) -> KafkaError:
    """Return the error of a write that the system refused with this errno."""
    try:
        raise OSError(number, os.strerror(number))
    except OSError as cause:
        error = disk_error("write to", folder, cause)
        error.__cause__ = cause
        return error


class Trials:
    """Attempts to write whose outcome the test decides: the errno by folder."""

    def __init__(self) -> None:
        self.refused: dict[Path, int] = {}

    def __call__(self, folder: Path) -> None:
        if folder in self.refused:
            raise refusal(self.refused[folder], folder)


class Reported:
    """The reports to the quorum, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[PartitionKey, bool]] = []
        self.answers: list[ErrorCode] = []

    async def __call__(self, keys: Sequence[PartitionKey], writable: bool) -> None:
        if self.answers:
            raise KafkaError(self.answers.pop(0), "not now")
        self.all += [(key, writable) for key in sorted(keys)]


def watched(host: Broker, trials: Trials, monkeypatch: pytest.MonkeyPatch) -> tuple[RoomWatch, Reported]:
    """Watch the folders of a broker."""
    monkeypatch.setattr(room_watch, "try_room", trials)
    monkeypatch.setattr("ottla.dataplane.storage.room.HOLDS_S", 0.0)
    reported = Reported()
    host.replicas.unwritable = UnwritableReplicas(reported, host.replicas.offline)
    return RoomWatch(host.logs, host.replicas, interval_s=0.001), reported


def fails(call: str, number: int) -> mock._patch[mock.MagicMock]:
    return mock.patch(call, side_effect=OSError(number, os.strerror(number)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_folder_gives_way_as_a_whole_and_the_other_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    trials = Trials()
    async with broker(tmp_path) as host:
        host.create(4)
        host.produce(0, 1)
        full = host.folder(0)
        watch, reported = watched(host, trials, monkeypatch)
        trials.refused[full.path] = number
        with fails("os.pwrite", number):
            assert code(lambda: host.produce(0, 1)) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: reported.all, "a report")
        assert reported.all == [((TOPIC, 0), False), ((TOPIC, 2), False)]
        assert str(full.path) in watch.lack()
        assert host.content(0), "existing records can be read"
        host.produce(1, 1)
        host.create(1, first=4)
        assert host.folder(4) is not full, "new logs go where there is room"
        assert not host.reports, "the replicas are not lost"
        del trials.refused[full.path]
        await until(lambda: not watch.lack(), "room")
        await until(lambda: len(reported.all) == 4, "the report of that")
        assert reported.all[2:] == [((TOPIC, 0), True), ((TOPIC, 2), True)]
        host.produce(0, 1)
        await watch.close()


async def test_a_follower_fetches_nothing_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials()
    state = {"topic_id": TOPIC, "partition": 0, "replicas": [2, 1], "isr": [2], "leader": 2}
    async with broker(tmp_path) as host:
        host.push(TopicRecord(topic_id=TOPIC, name="t"), PartitionRecord(**state))  # type: ignore[arg-type]
        watch, reported = watched(host, trials, monkeypatch)
        followed = host.replicas._fetchers._leader_of
        assert followed == {(TOPIC, 0): 2}
        trials.refused[host.folder(0).path] = errno.ENOSPC
        host.folder(0).lacks(refusal(errno.ENOSPC))
        await until(lambda: reported.all == [((TOPIC, 0), False)], "a report")
        assert not followed
        host.push(PartitionRecord(offline_replicas=[1], leader_epoch=1, **state))  # type: ignore[arg-type]
        assert not followed, "not with the next leader either"
        assert reported.all == [((TOPIC, 0), False)], "the quorum knows"
        host.push(PartitionRecord(leader_epoch=2, **state))  # type: ignore[arg-type]
        await until(lambda: len(reported.all) == 2, "a report of what the quorum does not know")
        trials.refused.clear()
        await until(lambda: reported.all[-1] == ((TOPIC, 0), True), "room")
        assert followed == {(TOPIC, 0): 2}
        await watch.close()


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_lack_of_descriptors_counts_only_if_a_trial_meets_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lasts: bool
) -> None:
    trials = Trials()
    async with broker(tmp_path) as host:
        host.create(1)
        watch, reported = watched(host, trials, monkeypatch)
        if lasts:
            trials.refused[host.folder(0).path] = errno.EMFILE
        host.folder(0).lacks(refusal(errno.EMFILE))
        await until(lambda: not watch._doubted and watch._watching is not None, "a trial")
        if lasts:
            await until(lambda: reported.all == [((TOPIC, 0), False)], "a report")
            trials.refused.clear()
        await until(lambda: watch._watching is not None and watch._watching.done(), "the end of all trials")
        await until(lambda: [writable for _, writable in reported.all] == [False, True] * lasts, "reports")
        await watch.close()


async def test_a_trial_that_finds_a_read_only_disk_takes_the_folder_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials()
    async with broker(tmp_path) as host:
        host.create(2)
        watch, reported = watched(host, trials, monkeypatch)
        broken = host.folder(0)
        trials.refused[broken.path] = errno.EROFS
        broken.lacks(refusal(errno.ENOSPC))
        await until(lambda: broken.failure is not None, "the failure of the folder")
        await until(lambda: host.reports == [(TOPIC, 0)], "the report of the loss")
        await until(lambda: watch._watching is not None and watch._watching.done(), "the end of all trials")
        assert all(not writable for _, writable in reported.all), "a lost replica is not reported as writable"
        await watch.close()


async def test_a_log_that_cannot_be_made_is_reported_and_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials()
    async with broker(tmp_path) as host:
        watch, reported = watched(host, trials, monkeypatch)
        trials.refused.update({directory.path: errno.ENOSPC for directory in host.logs.directories})
        with fails("ottla.dataplane.log.partition_log.open_folder", errno.ENOSPC) as opened:
            opened.side_effect = refusal(errno.ENOSPC)
            host.create(1)
        await until(lambda: ((TOPIC, 0), False) in reported.all, "a report")
        trials.refused.clear()
        await until(lambda: not watch.lack(), "room")
        host.replicas.making.look_for_missing_logs()
        host.produce(0, 1)
        await watch.close()


async def test_a_replica_that_comes_to_a_full_disk_does_not_wait_for_the_next_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials()
    async with broker(tmp_path) as host:
        watch, reported = watched(host, trials, monkeypatch)
        watch._interval_s = 600.0
        host.create(2)
        for directory in host.logs.directories:
            trials.refused[directory.path] = errno.ENOSPC
            directory.lacks(refusal(errno.ENOSPC))
        await until(lambda: len(reported.all) == 2, "a report of those that are there")
        host.create(2, first=2)
        with fails("os.pwrite", errno.ENOSPC):
            assert code(lambda: host.produce(2, 1)) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: {key for key, _ in reported.all} == {(TOPIC, index) for index in range(4)}, "all")
        await watch.close()


async def test_reports_are_repeated_until_the_quorum_has_them(tmp_path: Path) -> None:
    reported = Reported()
    reported.answers = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]
    with mock.patch("ottla.dataplane.replication.replicas.reports._RETRY_S", 0.001):
        replicas = UnwritableReplicas(reported, lost={(TOPIC, 3)})
        replicas.become(frozenset([(TOPIC, 1), (TOPIC, 2), (TOPIC, 3)]))
        replicas.become(frozenset([(TOPIC, 1)]))
        replicas.discard((TOPIC, 1))
        await until(lambda: reported.all, "a report")
        await replicas._reports.arrived()
    assert reported.all == [((TOPIC, 2), True), ((TOPIC, 3), False)] or reported.all == [
        ((TOPIC, 3), False),
        ((TOPIC, 2), True),
    ]


# Rolls


@pytest.mark.parametrize(
    ("number", "is_offline"), [(errno.EIO, True), (errno.EROFS, True), (errno.ENOSPC, False)]
)
def test_a_segment_that_cannot_be_begun_is_not_left_to_others_patience(
    tmp_path: Path, number: int, *, is_offline: bool
) -> None:
    log = PartitionLog.open(
        tmp_path / "t-0", LogConfig(segment_bytes=100), clean_shutdown=False, recovery_point=0, now_ms=0
    )
    failures: list[KafkaError] = []
    lacks: list[KafkaError] = []
    log.on_failure, log.on_lack = failures.append, lacks.append
    log.produced.append(memoryview(batch(b"v")), 0, 0)
    with (
        mock.patch("ottla.dataplane.log.partition_log.write_snapshot", side_effect=refusal(number, tmp_path)),
        pytest.raises(KafkaError),
    ):
        log.roll(1)
    assert (len(failures), len(lacks)) == ((1, 0) if is_offline else (0, 1))
    assert (log.failure is not None) is is_offline
    log.close(clean=False)


# Trials and patience


def test_a_trial_leaves_nothing_and_says_why_there_is_no_room(tmp_path: Path) -> None:
    try_room(tmp_path)
    assert list(tmp_path.iterdir()) == []
    for call in ("os.write", "os.open"):
        with fails(call, errno.EDQUOT), pytest.raises(KafkaError, match=r"write to .*[Qq]uota") as refused:
            try_room(tmp_path)
        assert isinstance(refused.value.__cause__, OSError)
        assert list(tmp_path.iterdir()) == []
    volume = os.statvfs(tmp_path)
    fields = list(volume)
    fields[4] = 0  # f_bavail
    with (
        mock.patch("os.statvfs", return_value=os.statvfs_result(fields)),
        pytest.raises(KafkaError, match=r"0 bytes are free, at least [0-9]+ are needed"),
    ):
        try_room(tmp_path)


def shortage(room: Room, begins_s: float) -> float:
    """Play a shortage in which every trial succeeds, and return its duration in seconds."""
    room.ran_out(refusal(errno.ENOSPC), begins_s)
    now_s = begins_s
    while not room.tried(None, now_s):
        now_s += 0.5
    return now_s - begins_s


def test_room_has_to_hold_and_longer_after_each_relapse() -> None:
    room = Room()
    now_s, lasted = 1000.0, []
    for _ in range(9):
        lasted.append(shortage(room, now_s))
        now_s += lasted[-1] + 1
    assert lasted == [min(HOLDS_S * 2**number, HOLDS_S_MAX) for number in range(9)]
    assert shortage(room, now_s + 1000) == HOLDS_S, "that was long ago"


def test_one_failed_trial_begins_the_wait_again() -> None:
    room = Room()
    room.ran_out(refusal(errno.ENOSPC), 0)
    assert not room.tried(None, 1)
    assert not room.tried(refusal(errno.ENOSPC), 1 + HOLDS_S / 2)
    assert not room.tried(None, 1 + HOLDS_S)
    assert room.lack is not None
    assert room.tried(None, 1 + 2 * HOLDS_S)
    assert room.lack is None
