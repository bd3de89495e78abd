"""`ottla mirror failback` against a cluster that answers what a test says."""

from __future__ import annotations

import pytest

from ottla.cli.main import main
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.failback import FailBackMirrorRequest, FailedBackPartition, FailedBackTopic
from tests.cli.people import Person, printed
from tests.client.fake_mirrors import Mirroring


def failing_back(cluster: Mirroring, lost: int) -> None:
    parts = [FailedBackPartition(partition=0, common_offset=100, log_end_offset=100 + lost, lost=lost)]
    cluster.failed_back = [FailedBackTopic(name="t", partitions=parts)]


FAILBACK = ["mirror", "failback", "east", "--from", "east:9092"]


def test_failback_tells_what_is_copied_from_where(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_back(cluster, 0)
    assert (
        main([*FAILBACK, "--topics", "t.*", "--groups", "g", "--source-option", "security.protocol=SSL"]) == 0
    )
    assert capsys.readouterr() == (
        "TOPIC\tPARTITION\tCOMMON-OFFSET\tLOG-END-OFFSET\tLOST\nt\t0\t100\t100\t0\n",
        "",
    )
    (request,) = cluster.asked
    assert isinstance(request, FailBackMirrorRequest)
    assert (request.name, request.bootstrap_servers) == ("east", "east:9092")
    assert (request.topics, request.groups) == ("t.*", "g")
    assert not request.discards
    assert not request.validate_only


def test_failback_that_would_lose_something_is_refused(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refusals = [ErrorCode.POLICY_VIOLATION]
    assert main(FAILBACK) == 1
    assert "mirror 'east': for a reason" in capsys.readouterr().err


def test_a_dry_run_of_a_failback_tells_what_would_be_lost(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_back(cluster, 1204)
    cluster.failed_back.append(FailedBackTopic(name="u", error_code=42, error_message="u is another one"))
    assert main([*FAILBACK, "--dry-run"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1] == "t\t0\t100\t1304\t1,204"
    assert captured.err == "u: u is another one\n1,204 records that are only here would be lost\n"
    cluster.failed_back.pop()
    assert main([*FAILBACK, "--dry-run", "--discard", "-o", "json"]) == 0
    assert printed(capsys) == {
        "name": "east",
        "source_cluster_id": "there",
        "result": "checked",
        "lost": 1204,
        "topics": [
            {
                "name": "t",
                "refusal": None,
                "partitions": [{"partition": 0, "common_offset": 100, "log_end_offset": 1304, "lost": 1204}],
            }
        ],
    }
    assert all(
        request.validate_only for request in cluster.asked if isinstance(request, FailBackMirrorRequest)
    )
    cluster.failed_back = []
    assert main([*FAILBACK, "--dry-run"]) == 1
    assert capsys.readouterr().err == "no topic here matches\n"


def test_failback_discards_what_a_person_has_seen(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_back(cluster, 7)
    monkeypatch.setattr("sys.stdin", Person("n\n"))
    assert main([*FAILBACK, "--discard"]) == 1
    assert "7 records that are only here are deleted for good. [y/N]" in capsys.readouterr().err
    assert all(
        request.validate_only for request in cluster.asked if isinstance(request, FailBackMirrorRequest)
    )
    assert main([*FAILBACK, "--discard", "--yes"]) == 0
    assert "7 records that are only here are lost" in capsys.readouterr().err
    last = cluster.asked[-1]
    assert isinstance(last, FailBackMirrorRequest)
    assert last.discards
    assert not last.validate_only
