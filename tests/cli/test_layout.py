"""The folder of a local cluster: a second start gives the same cluster, and no other cluster's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.files import write_atomically
from ottla.cli.local_cluster.layout import ClusterLayout, known_layout, open_layout
from ottla.cli.local_cluster.ports import OUTGOING_PORTS
from ottla.cli.main import main
from ottla.protocol.settings.security_protocol import SecurityProtocol


def opened(
    folder: Path, quorum: int | None = None, brokers: int | None = None, base_port: int | None = None
) -> ClusterLayout:
    layout = open_layout(folder, quorum=quorum, brokers=brokers, base_port=base_port)
    layout.write({})
    return layout


def test_three_and_three_on_ports_that_are_free(tmp_path: Path) -> None:
    layout = opened(tmp_path)
    assert [member.name for member in layout.members] == [
        "quorum-101", "quorum-102", "quorum-103", "broker-1", "broker-2", "broker-3",
    ]  # fmt: skip
    ports = [member.port for member in layout.members]
    assert len(set(ports)) == 6
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


@pytest.mark.skipif(not OUTGOING_PORTS.exists(), reason="this system does not say which ports it hands out")
def test_no_port_is_one_that_an_outgoing_connection_may_take(tmp_path: Path) -> None:
    first = int(OUTGOING_PORTS.read_text().split()[0])
    if first < 11_000:
        pytest.skip("nearly all ports are for outgoing connections here")
    members = opened(tmp_path).members
    assert [port for member in members for port in (member.port, member.metrics_port) if port >= first] == []


def test_no_two_clusters_choose_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ports of the first cluster are not in use yet, nor while its nodes are down."""
    monkeypatch.setattr("ottla.cli.local_cluster.ports.candidate_ports", lambda: list(range(17_000, 18_000)))
    layouts = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        layouts.append(opened(folder, quorum=1, brokers=1))
    ports = [
        port for layout in layouts for member in layout.members for port in (member.port, member.metrics_port)
    ]
    assert len(set(ports)) == len(ports) == 12


def test_a_machine_without_a_free_port_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a port never ended, until the process had no file descriptor left."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("ottla.cli.local_cluster.ports.candidate_ports", lambda: [taken.getsockname()[1]])
        with pytest.raises(CommandFailed, match=r"no free port for the cluster's nodes on 127\.0\.0\.1"):
            opened(tmp_path, quorum=1, brokers=1)


def test_the_same_folder_gives_the_same_cluster(tmp_path: Path) -> None:
    first = opened(tmp_path, quorum=1, brokers=2)
    secret = first.secret_file.read_bytes()
    again = opened(tmp_path)
    assert again == first
    assert again.secret_file.read_bytes() == secret
    assert known_layout(tmp_path) == first


def test_brokers_can_be_added_and_nothing_taken_away(tmp_path: Path) -> None:
    first = opened(tmp_path, quorum=1, brokers=1)
    more = opened(tmp_path, brokers=3)
    assert more.brokers[:1] == first.brokers
    assert [member.id for member in more.brokers] == [1, 2, 3]
    with pytest.raises(UsageError, match="holds 3 brokers"):
        opened(tmp_path, brokers=2)
    with pytest.raises(UsageError, match="holds 1 quorum node: give --quorum 1"):
        opened(tmp_path, quorum=3)


def test_ports_count_up_from_the_base(tmp_path: Path) -> None:
    layout = opened(tmp_path, base_port=21000)
    assert [member.port for member in layout.brokers] == [21000, 21001, 21002]
    assert [member.port for member in layout.quorum] == [21100, 21101, 21102]
    assert layout.bootstrap == "127.0.0.1:21000,127.0.0.1:21001,127.0.0.1:21002"


def test_a_base_port_moves_a_cluster_to_other_ports(tmp_path: Path) -> None:
    before = opened(tmp_path)
    moved = opened(tmp_path, base_port=22000)
    assert moved.cluster_id == before.cluster_id
    assert [(member.id, member.port, member.metrics_port) for member in moved.members] == [
        (101, 22100, 22300), (102, 22101, 22301), (103, 22102, 22302),
        (1, 22000, 22200), (2, 22001, 22201), (3, 22002, 22202),
    ]  # fmt: skip
    assert opened(tmp_path) == moved


def test_the_secret_is_for_the_owner_alone(tmp_path: Path) -> None:
    layout = opened(tmp_path)
    for secret in (layout.secret_file, layout.quorum_secret_file):
        assert secret.stat().st_mode & 0o777 == 0o600
        assert len(secret.read_text().strip()) == 64
    assert layout.secret_file.read_text() != layout.quorum_secret_file.read_text()
    for member in layout.members:
        assert layout.settings_file(member).stat().st_mode & 0o777 == 0o600, "they may hold passwords"


def test_brokers_are_not_told_where_the_secret_of_the_quorum_is(tmp_path: Path) -> None:
    layout = opened(tmp_path)
    for member in layout.members:
        is_named = "quorum.secret.file" in layout.settings_file(member).read_text()
        assert is_named == (member.role == "quorum")


def test_settings_win_over_what_up_chooses(tmp_path: Path) -> None:
    layout = open_layout(tmp_path, quorum=None, brokers=None, base_port=None)
    layout.write({"log.dirs": "/elsewhere"})
    for member in layout.members:
        assert "log.dirs=/elsewhere\n" in layout.settings_file(member).read_text()


def test_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="holds no cluster"):
        known_layout(tmp_path)
    (tmp_path / "layout.json").write_text("{}")
    with pytest.raises(CommandFailed, match=r"cannot use .*layout\.json"):
        known_layout(tmp_path)


def test_what_is_removed_is_the_cluster_alone(tmp_path: Path) -> None:
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    for folder in (whole, shared):
        folder.mkdir()
        layout = opened(folder)
        for member in layout.members:
            (folder / member.name).mkdir()
            (folder / member.name / "data").touch()
        if folder == shared:
            (folder / "diary").touch()
        layout.remove()
    assert not whole.exists()
    assert list(shared.iterdir()) == [shared / "diary"]


@pytest.mark.parametrize("protocol", SecurityProtocol)
def test_folders_that_others_use_too_keep_what_is_theirs(tmp_path: Path, protocol: SecurityProtocol) -> None:
    """`ottla up --data . --until-exit PID --temporary` in a project deleted its folder `config`."""
    theirs = [tmp_path / name / "own.yaml" for name in ("config", "logs", "run", "tls", "client")]
    for file in theirs:
        file.parent.mkdir()
        file.touch()
    layout = open_layout(tmp_path, quorum=1, brokers=2, base_port=None, protocol=protocol)
    layout.write({})
    (tmp_path / "logs" / "up.log").touch()
    (tmp_path / "console.log").touch()
    layout.settings_file(layout.brokers[0]).with_suffix(".properties.4711.part").touch()
    layout.remove()
    assert sorted(file for file in tmp_path.rglob("*") if file.is_file()) == sorted(theirs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a,b", "a,b: log.dirs has commas between folders"),
        (os.fsdecode(b"a\xff"), "its name is not UTF-8"),
        ("${env:HOME}", "settings would take that for a reference"),
    ],
)
def test_a_folder_that_settings_cannot_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    """A comma in the name divided the data into two other folders, one of them the program's."""
    assert main(["up", "--data", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_disk_that_is_full_keeps_no_folder(tmp_path: Path, blocks: int) -> None:
    line = f'ulimit -f {blocks}; exec "{sys.executable}" -m ottla up --data "{tmp_path}/new"'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ottla up: File too large")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, "one")
    (tmp_path / f"f.{os.getpid()}.part").write_text("left over from a crash")
    write_atomically(path, "two", mode=0o600)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]
