"""`ottla mirror` with a cluster whose mirrors a test describes: output, requests and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.protocol.cluster.mirror_table import MirrorPhase, offsets_copy
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cuts import CutTopic
from ottla.protocol.messages.mirror_records import MirrorOption
from ottla.protocol.messages.mirrors import (
    AlterMirrorRequest,
    CreateMirrorRequest,
    DescribedMirror,
    DescribedMirrorPartition,
    DescribedMirrorTopic,
    MirrorAction,
    SkippedTopic,
)
from tests.cli.people import Person, printed
from tests.client.fake_mirrors import Described, Mirroring, described, partition

GAP = {"fault": 1, "fault_first": 3, "fault_end": 9, "fault_reason": "retention was faster"}
DIVERGED = {"fault": 2, "fault_first": 5, "fault_end": 7, "fault_reason": "an unclean election"}
MADE_ANEW = {"fault": 3, "fault_first": 0, "fault_end": -1, "fault_reason": "another topic has its name"}


def told(index: int, *, lag: int = 0, **more: Any) -> DescribedMirrorPartition:
    """Return a partition that broker 0 leads and describes."""
    values: dict[str, Any] = {
        "is_told": True,
        "log_end_offset": 100,
        "high_watermark": 100,
        "source_high_watermark": 100 + lag,
        "lag_bytes": 10 * lag,
        "behind_ms": 20 * lag,
        **more,
    }
    return partition(index, 0, **values)


def west(*partitions: DescribedMirrorPartition, **changes: Any) -> DescribedMirror:
    values: dict[str, Any] = {
        "name": "west",
        "source_cluster_id": "W",
        "bootstrap_servers": "west:9092",
        "topics_pattern": "t.*",
        "is_told": True,
        **changes,
    }
    return described(*partitions, **values)


# create


def test_create_sends_what_was_written(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "west.properties"
    file.write_text(
        "bootstrap.servers=elsewhere:9092\nacks=all\nsecurity.protocol=SASL_SSL\nsasl_plain_password=p w\n"
    )
    words = ["mirror", "create", "west", "--from", "west:9092", "--topics", "o.*", "--groups", "g"]
    more = ["--source-option", "sasl_plain_username=ann", "--source-options-file", str(file)]
    assert main([*words, *more, "--start", "1700000000000"]) == 0
    assert capsys.readouterr() == (
        "MIRROR\tSOURCE-CLUSTER\tRESULT\nwest\tthere\tcreated\n",
        f"{file}: ignored, since not about connections: acks, bootstrap.servers\n",
    )
    (request,) = cluster.asked
    assert isinstance(request, CreateMirrorRequest)
    assert {option.name: option.value for option in request.options} == {
        "security_protocol": "SASL_SSL",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "p w",
    }
    request.options = []
    assert request == CreateMirrorRequest(
        name="west", bootstrap_servers="west:9092", topics="o.*", groups="g", start=1_700_000_000_000
    )


def test_create_takes_all_topics_from_their_start_and_no_groups(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mirror", "create", "west", "--from", "west:9092", "--dry-run", "-o", "json"]) == 0
    assert printed(capsys) == {"name": "west", "source_cluster_id": "there", "result": "checked"}
    asked = {"name": "west", "bootstrap_servers": "west:9092", "topics": ".*"}
    assert cluster.asked == [CreateMirrorRequest(**asked, validate_only=True)]
    words = ["mirror", "create", "west", "--from", "west:9092", "--bandwidth", "10MB/s", "--acls"]
    assert main(words) == 0
    assert cluster.asked[-1] == CreateMirrorRequest(**asked, bandwidth=10_000_000, acls=True)
    cluster.describe = lambda broker: [west(told(0), acls=True)]
    main(["mirror", "status", "west"])
    assert "topics t.*, with their ACLs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "--from"),
        (
            ["--from", "w:1", "--start", "yesterday"],
            2,
            "--start takes earliest, latest or a time: 'yesterday'",
        ),
        (
            ["--from", "w:1", "--source-option", "sasl_plain_password=x"],
            2,
            "other users could see it in the list of processes",
        ),
        (["--from", "w:1", "--bandwidth", "fast"], 2, "--bandwidth takes a number of bytes such as 10MB"),
        (["--from", "w:1", "--bandwidth", "0"], 2, "--bandwidth 0: pause the mirror"),
        (["--from", "w:1", "--source-option", "x"], 2, "--source-option takes key=value, not 'x'"),
        (["--from", "w:1", "--source-option", "ssl.nosuch=1"], 2, "there is no option 'ssl.nosuch'"),
        (["--from", "w:1", "--source-options-file", "/nosuch"], 1, "/nosuch"),
        (["--from", "w:1"], 1, "mirror 'west': for a reason (DUPLICATE_RESOURCE)"),
    ],
)
def test_what_create_refuses(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    cluster.refusals = [ErrorCode.DUPLICATE_RESOURCE]
    assert main(["mirror", "create", "west", *words]) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_create_waits_until_each_copy_has_once_had_all(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.commands.mirror.create.LOOK_AGAIN_S", 0.01)
    looks = iter(
        [
            [west()],
            [west(told(0, lag=90), told(1, lag=3, behind_ms=4000))],
            [west(told(0), told(1, lag=3, behind_ms=4000))],
            [west(told(0, lag=90), told(1, lag=3, behind_ms=10))],
        ]
    )
    cluster.describe = lambda broker: next(looks)
    assert main(["mirror", "create", "west", "--from", "west:9092", "--wait"]) == 0
    assert capsys.readouterr().out.endswith("west\tthere\tcaught up\n")
    assert next(looks, None) is None


def test_create_does_not_wait_for_what_has_stopped(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.describe = lambda broker: [west(told(0, **GAP))]
    assert main(["mirror", "create", "west", "--from", "west:9092", "--wait"]) == 1
    assert "1 partitions have stopped: 'ottla mirror status west' shows why" in capsys.readouterr().err


def test_reconnect_replaces_all_options(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from", "elsewhere:9092", "--source-option", "security.protocol=SSL"]
    assert main(["mirror", "reconnect", "west", *words]) == 0
    assert capsys.readouterr().out == "MIRROR\tRESULT\nwest\treconnected\n"
    assert main(["mirror", "reconnect", "west", "-o", "json"]) == 0
    assert printed(capsys) == {"name": "west", "result": "reconnected"}
    ssl = [MirrorOption(name="security_protocol", value="SSL")]
    assert [
        (request.bootstrap_servers, request.options)
        for request in cluster.asked
        if isinstance(request, AlterMirrorRequest)
    ] == [
        ("elsewhere:9092", ssl),
        ("", []),
    ]
    assert main(["mirror", "reconnect", "west", "--source-option", "sasl.password=x"]) == 2


# list and status


def test_list_has_a_line_for_each(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.describe = lambda broker: [
        west(told(0, lag=7), told(1, **GAP)),
        west(partition(0, -1), name="east", phase=MirrorPhase.PAUSED),
    ]
    assert main(["mirror", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "MIRROR\tPHASE\tSOURCE\tTOPICS\tLAG\tFAULTS",
        "east\tpaused\twest:9092\t1\t?\t0",
        "west\tactive\twest:9092\t1\t7\t1",
    ]
    assert main(["mirror", "list", "-o", "json"]) == 0
    assert printed(capsys)[1] == {
        "name": "west",
        "phase": "active",
        "bootstrap_servers": "west:9092",
        "source_cluster_id": "W",
        "lag": 7,
        "lag_bytes": 70,
        "topics": 1,
        "faults": 1,
    }


def test_status_names_what_is_lost_and_why(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.describe = lambda broker: [
        west(
            told(0, lag=7, trouble="the source is silent"),
            told(1, **GAP),
            told(2, **DIVERGED),
            told(3, **MADE_ANEW),
            groups_pattern="g",
            trouble="no route to west",
            skipped=[SkippedTopic(name="x", reason="there is a topic x here")],
        )
    ]
    assert main(["mirror", "status", "west"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "mirror west of west:9092 (cluster W) is active: topics t.*, groups g",
        "TOPIC\tPARTITIONS\tSTATE\tLAG\tLAG-BYTES\tBEHIND-MS\tFAULTS",
        "t\t4\tfaulted\t7\t70 B\t140\t3",
        "cut: none; the source has reported none yet",
        "stopped; 'ottla mirror resume west --accept-gap' resumes without the lost records:",
        "TOPIC\tPARTITION\tFAULT\tLOSS\tREASON",
        "t\t1\tgap\tt-1: 6 offsets from 3 to 8 are left out\tretention was faster",
        "t\t2\tdiverged\tt-2: 2 offsets from 5 to 6 are cut off here, and copied as the source has them now"
        "\tan unclean election",
        "t\t3\tmade anew\tt-3: all records that were copied are deleted, and the new topic is copied from its start"
        "\tanother topic has its name",
        "in trouble:",
        "WHERE\tWHY",
        "broker 0\tno route to west",
        "t-0\tthe source is silent",
        "not copied:",
        "TOPIC\tREASON",
        "x\tthere is a topic x here",
    ]


def test_status_as_json_has_all(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    option = MirrorOption(name="security_protocol", value="SSL")
    cluster.describe = lambda broker: [
        west(told(0, lag=7), partition(1, -1), start=-1, options=[option], groups_pattern="g")
    ]
    assert main(["mirror", "status", "-o", "json"]) == 0
    (found,) = printed(capsys)
    first, second = found["topics"][0].pop("partitions")
    assert found == {
        "name": "west",
        "phase": "active",
        "source_cluster_id": "W",
        "bootstrap_servers": "west:9092",
        "topics_pattern": "t.*",
        "groups_pattern": "g",
        "start": "latest",
        "options": {"security_protocol": "SSL"},
        "bandwidth": None,
        "acls": False,
        "takes_offsets": False,
        "lag": None,
        "lag_bytes": None,
        "topics": [
            {
                "name": "t",
                "state": "no leader",
                "topic_id": b"t".hex() * 16,
                "source_topic_id": "00" * 16,
                "lag": None,
                "lag_bytes": None,
                "behind_ms": None,
            }
        ],
        "cut": None,
        "cuts_trouble": None,
        "behind_cut": [],
        "promoted_at_cut": False,
        "skipped": {},
        "troubles": [],
    }
    assert first == {
        "partition": 0,
        "leader": 0,
        "lag": 7,
        "lag_bytes": 70,
        "behind_ms": 140,
        "log_end_offset": 100,
        "high_watermark": 100,
        "source_high_watermark": 107,
        "promoted_epoch": None,
        "fault": None,
        "trouble": None,
    }
    assert (second["leader"], second["lag"]) == (None, None)


@pytest.mark.parametrize(
    ("mirror", "state"),
    [
        (west(told(0)), "copying"),
        (west(told(0, trouble="silent")), "in trouble"),
        (west(partition(0, 0)), "unknown"),
        (west(partition(0, -1)), "no leader"),
        (west(told(0, **GAP)), "faulted"),
        (west(told(0), phase=MirrorPhase.PAUSED), "paused"),
        (west(partition(0, 0), phase=MirrorPhase.PROMOTED), "promoted"),
    ],
)
def test_each_topic_has_a_state(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], mirror: DescribedMirror, state: str
) -> None:
    cluster.describe = lambda broker: [mirror]
    code = main(["mirror", "status"])
    assert capsys.readouterr().out.splitlines()[2].split("\t")[2] == state
    assert code == int(state in ("in trouble", "faulted"))


def test_a_mirror_that_is_not_there(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.describe = lambda broker: [west()]
    for action in ("status", "promote"):
        assert main(["mirror", action, "wets"]) == 1
        assert "there is no mirror 'wets'; did you mean 'west'?" in capsys.readouterr().err


# changes


def test_a_limit_is_set_and_shown(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mirror", "limit", "west", "--bandwidth", "64KiB"]) == 0
    assert main(["mirror", "limit", "west", "--bandwidth", "none"]) == 0
    out = capsys.readouterr().out
    assert "west\tlimited" in out
    assert "west\tunlimited" in out
    assert [request.bandwidth for request in cluster.asked if isinstance(request, AlterMirrorRequest)] == [
        65_536,
        0,
    ]
    cluster.describe = lambda broker: [west(told(0), bandwidth=10_000_000)]
    main(["mirror", "status", "west"])
    assert "topics t.*, at most 10.0 MB/s for each broker" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["pause", "resume", "delete"])
def test_a_change_says_what_it_has_done(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert main(["mirror", action, "west"]) == 0
    assert capsys.readouterr().out == f"MIRROR\tRESULT\nwest\t{action.rstrip('e')}ed\n"
    assert main(["mirror", action, "west", "-o", "json"]) == 0
    assert printed(capsys)["name"] == "west"
    assert cluster.actions() == [(MirrorAction[action.upper()], [])] * 2


def test_only_what_was_shown_is_accepted(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.describe = lambda broker: [west(told(0, **GAP), told(1), told(2, **DIVERGED))]
    assert main(["mirror", "resume", "west", "--accept-gap", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "t-0: 6 offsets from 3 to 8 are left out (retention was faster)",
        "t-2: 2 offsets from 5 to 6 are cut off here, and copied as the source has them now (an unclean election)",
    ]
    losses = json.loads(captured.out)["accepted"]
    assert [
        (loss["topic"], loss["partition"], loss["kind"], loss["first"], loss["end"]) for loss in losses
    ] == [
        ("t", 0, "gap", 3, 9),
        ("t", 2, "diverged", 5, 7),
    ]
    assert cluster.actions() == [(MirrorAction.ACCEPT_FAULTS, ["t"]), (MirrorAction.RESUME, [])]


def test_offsets_that_no_broker_can_tell_are_named_and_accepted(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    """This concerns a promotion at a cut. An old fault of another topic no longer stops anything."""
    lost = partition(
        1, -1, fault=1, fault_first=0, fault_end=7, fault_reason="no broker that has them is there"
    )
    promoted = {
        "phase": MirrorPhase.PROMOTED,
        "is_cut": True,
        "cut": 5,
        "cut_age_ms": 9,
        "takes_offsets": True,
    }
    mirror = west(told(0, **GAP), **promoted)
    mirror.topics.append(
        DescribedMirrorTopic(
            name=offsets_copy("west"), topic_id=b"c" * 16, partitions=[partition(0, 0), lost]
        )
    )
    cluster.describe = lambda broker: [mirror]
    assert main(["mirror", "status", "west"]) == 1
    out = capsys.readouterr().out
    assert f"{offsets_copy('west')}\t2\tfaulted\t" in out
    assert "t\t1\tpromoted\t" in out
    loss = f"{offsets_copy('west')}-1: 7 offsets from 0 to 6 are left out"
    assert f"\t1\tgap\t{loss}\tno broker that has them is there\n" in out
    assert "t-0: 6 offsets" not in out
    assert main(["mirror", "resume", "west", "--accept-gap"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{loss} (no broker that has them is there)\n"
    assert captured.out.endswith("west\tresumed, 1 fault accepted\n")
    assert cluster.actions() == [
        (MirrorAction.ACCEPT_FAULTS, [offsets_copy("west")]),
        (MirrorAction.RESUME, []),
    ]


def test_where_nothing_is_lost_nothing_is_accepted(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.describe = lambda broker: [west(told(0))]
    assert main(["mirror", "resume", "west", "--accept-gap"]) == 0
    assert capsys.readouterr().out.endswith("west\tresumed, 0 faults accepted\n")
    assert cluster.actions() == [(MirrorAction.RESUME, [])]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--topic", "t"], 2, "a mirror is resumed as a whole: --topic goes with --accept-gap"),
        (["--accept-gap", "--topic", "x"], 1, "there is no topic 'x'"),
    ],
)
def test_what_resume_refuses(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    cluster.describe = lambda broker: [west(told(0, **GAP))]
    assert main(["mirror", "resume", "west", *words]) == code
    assert said in capsys.readouterr().err
    assert not cluster.asked


class AfterPromotion:
    """A description that shows the mirror as promoted once the promotion was requested."""

    def __init__(self, cluster: Mirroring, *partitions: DescribedMirrorPartition, **changes: Any) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._changes = changes

    def __call__(self, broker: int) -> Described:
        is_promoted, is_cut = [
            (action, []) in self._cluster.actions()
            for action in (MirrorAction.PROMOTE, MirrorAction.PROMOTE_AT_CUT)
        ]
        phase = MirrorPhase.PROMOTED if is_promoted or is_cut else MirrorPhase.ACTIVE
        return [west(*self._partitions, phase=phase, is_cut=is_cut, **self._changes)]


def test_promote_tells_what_was_left_behind(cluster: Mirroring, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.describe = AfterPromotion(cluster, told(0, lag=7), told(1))
    assert main(["mirror", "promote", "west", "-o", "json"]) == 0
    assert printed(capsys) == {
        "name": "west",
        "result": "promoted",
        "topics": 1,
        "partitions": 2,
        "lag_before": 7,
        "faults": 0,
        "cut": None,
    }
    assert main(["mirror", "promote", "west"]) == 0
    assert capsys.readouterr().out == "MIRROR\tTOPICS\tPARTITIONS\tRESULT\nwest\t1\t2\tpromoted\n"


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        (
            [told(0, lag=1234)],
            "1,234 records (12.3 kB) of the source are not copied yet, and would stay behind.",
        ),
        ([told(0), partition(1, 0)], "The number of records that are not copied yet is unknown."),
        ([told(0, **GAP)], "1 partition has stopped before, and misses later records."),
    ],
)
def test_promote_asks_and_tells_what_would_be_lost(
    cluster: Mirroring,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    partitions: list[DescribedMirrorPartition],
    said: str,
) -> None:
    cluster.describe = AfterPromotion(cluster, *partitions)
    monkeypatch.setattr("sys.stdin", Person("n\n"))
    assert main(["mirror", "promote", "west"]) == 1
    output = capsys.readouterr().err
    assert "it cannot be undone" in output
    assert said in output
    assert "nothing was done" in output
    assert not cluster.asked
    assert main(["mirror", "promote", "west", "--yes"]) == 0
    assert cluster.actions() == [(MirrorAction.PROMOTE, [])]


# cuts


def behind(*indexes: int) -> list[CutTopic]:
    return [CutTopic(topic_id=b"t" * 16, partitions=list(indexes))]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "cut: none; the source has reported none yet"),
        ({"cuts_trouble": "it is no Ottla"}, "cut: none; it is no Ottla"),
        (
            {"behind_cut": behind(0, 1)},
            "cut: none; t-0, t-1 have not reached the next one: compaction of copies waits",
        ),
        (
            {"behind_cut": behind(*range(7))},
            "cut: none; t-0, t-1, t-2, t-3, t-4 and 2 more have not reached the next one: compaction of copies waits",
        ),
        ({"cut": 4711, "cut_age_ms": 812, "behind_cut": behind(0)}, "cut: 4711, 812 ms old"),
        (
            {"cut": 4711, "cut_age_ms": 12_345, "behind_cut": behind(0)},
            "cut: 4711, 12,345 ms old; t-0 have not reached the next one: compaction of copies waits",
        ),
        ({"cut": 5, "cut_age_ms": 99, "phase": MirrorPhase.PROMOTED, "is_cut": True}, "promoted at cut 5"),
        ({"cut": 5, "cut_age_ms": 99, "phase": MirrorPhase.PROMOTED}, None),
    ],
)
def test_status_tells_the_cut_that_a_promotion_would_go_by(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], line: str | None
) -> None:
    cluster.describe = lambda broker: [west(told(0), **changes)]
    assert main(["mirror", "status"]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == ([] if line is None else [line])


def test_promote_at_a_cut_tells_what_stays_behind(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.describe = AfterPromotion(cluster, told(0, lag=7), told(1, **GAP), cut=4711, cut_age_ms=1812)
    monkeypatch.setattr("sys.stdin", Person("n\n"))
    assert main(["mirror", "promote", "west", "--at-cut"]) == 1
    said = capsys.readouterr().err
    assert "Copies end at a cut that the source reported 1,812 ms ago, or at a newer one" in said
    assert "1 partition has stopped before, and holds up newer cuts." in said
    assert not cluster.asked
    assert main(["mirror", "promote", "west", "--at-cut", "--yes"]) == 0
    assert cluster.actions() == [(MirrorAction.PROMOTE_AT_CUT, [])]
    assert capsys.readouterr().out.endswith("west\t1\t2\tpromoted at cut 4711\n")
    assert main(["mirror", "promote", "west", "--at-cut", "-o", "json"]) == 0
    assert printed(capsys)["cut"] == {"commit_index": 4711, "age_ms": 1812}


def test_without_a_cut_nobody_is_asked_and_nothing_is_done(
    cluster: Mirroring, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.describe = lambda broker: [west(told(0), cuts_trouble="the source is no cluster of Ottla")]
    assert main(["mirror", "promote", "west", "--at-cut", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "'west' has no cut that all copies have reached: the source is no cluster of Ottla" in said
    assert not cluster.asked


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["resume", "west", "--accept-gap"], "Resume 1 partition without the lost records? [y/N]"),
        (["delete", "west"], "Delete mirror west? Its topics stay. [y/N]"),
    ],
)
def test_who_says_no_changes_nothing(
    cluster: Mirroring,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    asked: str,
) -> None:
    cluster.describe = lambda broker: [west(told(0, **GAP))]
    monkeypatch.setattr("sys.stdin", Person("n\n"))
    assert main(["mirror", *words]) == 1
    assert asked in capsys.readouterr().err
    assert not cluster.asked
