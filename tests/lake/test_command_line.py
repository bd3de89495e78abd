"""`ottla lake` against a cluster: a worker that is stopped by a signal, its tables' states, and a pause."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError

from ottla import Admin, Producer, TopicPartition
from ottla.cli.commands.lake import sweeping
from ottla.cli.main import main
from ottla.lake.failures import TableRefused
from tests.cluster import RunningCluster, wait_until
from tests.commands import run_ottla
from tests.lake.written_tables import create, rows, values, worker

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("lake")]
ROOT = Path(__file__).parents[2]
MEASURED = ("lag_records", "lag_seconds", "table_failing", "files_total", "rows_total")


def ottla(cluster: RunningCluster, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with the exit code `code`."""
    done = run_ottla(*words, environ={**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap})
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


async def write(cluster: RunningCluster, topic: str, *given: bytes) -> None:
    """Write values to partition 0."""
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in given:
            await producer.send_and_wait(topic, value, partition=0)


def count(folder: Path) -> int:
    """Return the number of rows of the watched table; 0 while it does not exist."""
    try:
        return len(rows(folder, "lake.watched"))
    except (NoSuchTableError, TableRefused):
        return 0


def sample(path: Path, name: str) -> float:
    """Return a metric of the watched table, from an endpoint at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        page = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    line = next(line for line in page.splitlines() if line.startswith(f'{name}{{table="lake.watched"}}'))
    return float(line.split()[-1])


def test_a_worker_writes_until_a_signal_and_status_shows_its_tables(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    asyncio.run(create(cluster, "watched", 1, mode="json", **{"commit.ms": "1000"}))
    asyncio.run(write(cluster, "watched", b'{"a": 1}', b"bad"))
    lake = str(tmp_path / "lake")
    command = [
        sys.executable,
        "-m",
        "ottla",
        "lake",
        "run",
        "-b",
        cluster.bootstrap,
        "--lake",
        lake,
        "--metrics-listener",
        f"unix:{tmp_path}/metrics",
        "watched",
    ]
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: count(tmp_path / "lake") == 1, "a row")
        asyncio.run(write(cluster, "watched", b'{"a": 2}'))
        wait_until(lambda: count(tmp_path / "lake") == 2, "a further row")
        wait_until(lambda: sample(tmp_path / "metrics", "ottla_lake_commits_total") == 2, "a second commit")
        measured = {name: sample(tmp_path / "metrics", f"ottla_lake_{name}") for name in MEASURED}
        found = json.loads(ottla(cluster, "lake", "status", "--lake", lake, "-o", "json", "watched").stdout)[
            0
        ]
    finally:
        running.send_signal(signal.SIGTERM)
        _, logged = running.communicate(timeout=30)
    assert running.returncode == 0, logged
    assert "the lake's worker runs" in logged
    assert "1 records do not fit, the first at partition 0, offset 1" in logged
    assert 0 <= measured.pop("lag_seconds") < 60
    assert measured == {"lag_records": 0, "table_failing": 0, "files_total": 2, "rows_total": 3}
    assert found["committed_ms"] > (time.time() - 60) * 1000
    assert {name: found[name] for name in ("topic", "table", "mode", "letters", "behind", "problem")} == {
        "topic": "watched",
        "table": "lake.watched",
        "mode": "json",
        "letters": 1,
        "behind": 0,
        "problem": "",
    }
    asyncio.run(write(cluster, "watched", b'{"a": 3}'))
    headings, row = ottla(cluster, "lake", "status", "--lake", lake, "watched").stdout.splitlines()
    shown = dict(zip(headings.split("\t"), row.split("\t"), strict=True))
    assert (shown["TABLE"], shown["ROWS"], shown["BAD"], shown["BEHIND"], shown["STATE"]) == (
        "lake.watched",
        "2",
        "1",
        "1",
        "ok",
    )


SIGNALLED_EARLY = """
import os, signal, sys
from ottla.cli.commands.lake import running
from ottla.cli.main import main

place_of = running.lake_of


def early(arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    return place_of(arguments)


running.lake_of = early
sys.exit(main(sys.argv[1:]))
"""


def test_a_signal_before_the_worker_is_there_ends_it_orderly(cluster: RunningCluster, tmp_path: Path) -> None:
    words = ["lake", "run", "-b", cluster.bootstrap, "--lake", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED_EARLY, *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_paused_topic_is_not_written_until_it_is_resumed(cluster: RunningCluster, tmp_path: Path) -> None:
    asyncio.run(create(cluster, "paused", 1))
    asyncio.run(write(cluster, "paused", b"1"))
    lake = str(tmp_path)
    assert asyncio.run(worker(cluster, tmp_path, "paused").run())
    assert "not written any more" in ottla(cluster, "lake", "pause", "paused").stdout
    asyncio.run(write(cluster, "paused", b"2"))
    nothing = ottla(cluster, "lake", "run", "--lake", lake, "--once", "paused")
    assert "there is nothing to write" in nothing.stderr
    assert list(values(tmp_path, "lake.paused").values()) == [b"1"]
    ottla(cluster, "lake", "resume", "paused")
    assert asyncio.run(worker(cluster, tmp_path, "paused").run())
    assert sorted(values(tmp_path, "lake.paused").values()) == [b"1", b"2"]
    expired = ottla(
        cluster, "lake", "expire", "--lake", lake, "--older-than", "0", "--keep", "1", "-o", "json"
    )
    assert json.loads(expired.stdout) == [{"table": "lake.paused", "expired": 1}]
    assert sorted(values(tmp_path, "lake.paused").values()) == [b"1", b"2"]
    unknown = ottla(cluster, "lake", "pause", "nowhere", code=1)
    assert "nowhere" in unknown.stderr
    missing = ottla(cluster, "lake", "run", "--lake", lake, "--once", "nowhere", code=1)
    assert "topic nowhere is not written" in missing.stderr


def test_settings_that_cannot_be_used_are_refused_by_the_cluster(cluster: RunningCluster) -> None:
    asyncio.run(create(cluster, "refused", 1))
    done = ottla(cluster, "config", "set", "topic", "refused", "ottla.lake.mode=registry", code=1)
    assert (
        "rows by the schemas of a registry are not there yet; there are raw, json and upsert" in done.stderr
    )


def test_without_the_extra_the_command_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.lake.requirements.find_spec", lambda name: None)
    assert main(["lake", "run", "--lake", "/nowhere"]) == 1
    assert "the lake needs pyiceberg, pyarrow, sqlalchemy: pip install '.[lake]'" in capsys.readouterr().err
    assert main(["lake", "status", "--lake", "/nowhere"]) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run",), "give --lake FOLDER, or --catalog NAME"),
        (("run", "--lake", "s3://bucket"), "need a catalog of yours"),
        (("status", "--lake", "/a", "--catalog", "b"), "give --lake FOLDER, or --catalog NAME"),
    ],
)
def test_a_lake_without_a_place_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert main(["lake", *words]) == 2
    assert reason in capsys.readouterr().err


def test_nodes_and_clients_load_nothing_of_the_lake() -> None:
    program = (
        "import sys, ottla, ottla.cli.nodes.node, ottla.dataplane.broker, ottla.client.consumer, ottla.cli.main\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'pyiceberg', 'sqlalchemy', 'pyarrow'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Run a command that needs no cluster in this process, and return its output, followed by its errors."""
    assert main(["lake", *words]) == code
    return "".join(capsys.readouterr())


def test_maintenance_of_tables(
    cluster: RunningCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(create(cluster, "kept_small", 1))
    at = ("--lake", str(tmp_path))
    for number in range(5):
        asyncio.run(write(cluster, "kept_small", b"%d" % number))
        assert asyncio.run(worker(cluster, tmp_path, "kept_small").run())
    planned = said(capsys, "compact", *at, "--dry-run")
    assert planned.splitlines()[1].split("\t")[:2] == ["lake.kept_small", "5"]
    [done] = json.loads(said(capsys, "compact", *at, "-o", "json"))
    assert (done["table"], done["replaced"], done["by"], done["skipped"]) == ("lake.kept_small", 5, 1, 0)
    asyncio.run(write(cluster, "kept_small", b"5"))
    assert asyncio.run(worker(cluster, tmp_path, "kept_small").run())
    assert sorted(values(tmp_path, "lake.kept_small").values()) == [b"%d" % number for number in range(6)]
    forgotten = next((tmp_path / "lake").rglob("*.parquet")).with_name("forgotten.parquet")
    forgotten.write_bytes(b"PAR1")
    os.utime(forgotten, (0, 0))
    looked = json.loads(said(capsys, "sweep", *at, "--dry-run", "-o", "json"))
    assert looked == [{"table": "lake.kept_small", "files": 1, "bytes": 4, "dry_run": True}]
    assert forgotten.exists()

    def gone_meanwhile(question: str, *, yes: bool) -> None:
        assert question == "Delete 1 file, 4 B, of lake.kept_small?"
        forgotten.unlink()

    with monkeypatch.context() as patched:
        patched.setattr(sweeping, "confirm", gone_meanwhile)
        assert json.loads(said(capsys, "sweep", *at, "-o", "json"))[0]["files"] == 0
    forgotten.write_bytes(b"PAR1")
    os.utime(forgotten, (0, 0))
    assert json.loads(said(capsys, "sweep", *at, "-o", "json"))[0]["files"] == 1
    assert not forgotten.exists()
    assert "--older-than is at least 1d" in said(capsys, "sweep", *at, "--older-than", "1h", code=2)


def test_a_table_is_made_anew_from_the_first_record(cluster: RunningCluster, tmp_path: Path) -> None:
    asyncio.run(create(cluster, "anew_built", 1, mode="json"))
    asyncio.run(write(cluster, "anew_built", b'{"a": 1}', b"bad"))
    lake = str(tmp_path)
    assert asyncio.run(worker(cluster, tmp_path, "anew_built").run())
    ottla(cluster, "config", "set", "topic", "anew_built", "ottla.lake.mode=raw")
    assert not asyncio.run(worker(cluster, tmp_path, "anew_built").run())
    ottla(cluster, "lake", "rebuild", "--lake", lake, "lake.anew_built")
    assert asyncio.run(worker(cluster, tmp_path, "anew_built").run())
    assert list(values(tmp_path, "lake.anew_built").values()) == [b'{"a": 1}', b"bad"]
    asyncio.run(delete_records(cluster, "anew_built", 1))
    refused = ottla(cluster, "lake", "rebuild", "--lake", lake, "lake.anew_built", code=1)
    assert "anew_built-0 begins at offset 1: records below were deleted" in refused.stderr
    assert len(values(tmp_path, "lake.anew_built")) == 2
    ottla(cluster, "lake", "rebuild", "--lake", lake, "--accept-loss", "lake.anew_built")
    assert asyncio.run(worker(cluster, tmp_path, "anew_built").run())
    assert list(values(tmp_path, "lake.anew_built").values()) == [b"bad"]
    unknown = ottla(cluster, "lake", "rebuild", "--lake", lake, "lake.nothing", code=1)
    assert "no topic with ottla.lake.enable=true is written to table lake.nothing" in unknown.stderr


def test_a_rebuild_sets_the_offsets_back_for_which_retention_waits(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    asyncio.run(create(cluster, "held_built", 1, hold="true"))
    asyncio.run(write(cluster, "held_built", b"1", b"2", b"3"))
    asyncio.run(delete_records(cluster, "held_built", 1))
    at = ("--lake", str(tmp_path))
    assert asyncio.run(worker(cluster, tmp_path, "held_built").run())
    held = TopicPartition("held_built", 0)
    assert asyncio.run(committed(cluster, "lake.held_built")) == {held: 3}
    assert "\tyes\tok\n" in ottla(cluster, "lake", "status", *at, "held_built").stdout
    (state,) = json.loads(ottla(cluster, "lake", "status", *at, "held_built", "-o", "json").stdout)
    assert state["hold"]
    ottla(cluster, "lake", "rebuild", *at, "--accept-loss", "lake.held_built")
    assert asyncio.run(committed(cluster, "lake.held_built")) == {held: 1}
    assert asyncio.run(worker(cluster, tmp_path, "held_built").run())
    assert asyncio.run(committed(cluster, "lake.held_built")) == {held: 3}


async def committed(cluster: RunningCluster, table: str) -> dict[TopicPartition, int]:
    """Return the offsets that a table still needs, by its group."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return await admin.committed_offsets(f"ottla-lake-{table}")


async def delete_records(cluster: RunningCluster, topic: str, before: int) -> None:
    """Delete the records of partition 0 before an offset."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): before})
