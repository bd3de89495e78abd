"""A cluster that is missing the last batches takes over a checkpoint: the remaining files in its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla import TopicPartition
from ottla.client.admin import TransactionDescription
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark_integration import checkpoints
from ottla.spark_integration.checkpoints import TakenOver, batches_behind, take_over
from ottla.spark_integration.source.position import PartitionPosition, Position, WrongCheckpoint

PLACE = TopicPartition("orders", 0)
HEAD = 'v1\n{"batchWatermarkMs":0}\n'
QUERY = "8ba9b5b8-4f6e-4f0c-9c52-4f0e2b7b4f11"
OTHER = '{"logOffset":3}'


class Promoted:
    """A substitute for an admin client: a cluster that has batches of one transactional id."""

    versions: dict[str, int] = {}
    end = 100
    copied_end = 100

    def __init__(self, **options: Any) -> None:
        assert options == {"bootstrap_servers": "east:9092"}

    def __enter__(self) -> Promoted:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id="east")

    def describe_transactions(self, names: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        missing = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return {
            name: TransactionDescription(name, "Empty", 1, 0, 1000, -1, (), self.versions[name], 1)
            if name in self.versions
            else missing
            for name in names
        }

    def list_transactions(self, *, pattern: str) -> list[Any]:
        return [
            SimpleNamespace(transactional_id=name) for name in self.versions if re.fullmatch(pattern, name)
        ]

    def list_topics(self) -> list[str]:
        return ["orders"]

    def describe_topics(self, names: Iterable[str]) -> list[Any]:
        return [SimpleNamespace(name=name, id=bytes([7])) for name in names]

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, self.end)

    def copied_ends(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, 0): self.copied_end for topic in topics}


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkpoint with batches 3 to 7, of which the last is not done."""
    monkeypatch.setattr(checkpoints, "Admin", Promoted)
    monkeypatch.setattr(Promoted, "versions", {f"spark-{QUERY}": 5})
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    for log in ("offsets", "commits", "state/0/1"):
        (tmp_path / log).mkdir(parents=True)
    for batch in range(3, 8):
        position = Position(
            "atomic", 40, {PLACE: PartitionPosition(batch * 10, batch * 10)}, {"orders": "06"}, "west"
        )
        (tmp_path / "offsets" / str(batch)).write_text(f"{HEAD}{json.dumps(position.to_json())}\n{OTHER}")
        (tmp_path / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        (tmp_path / "state/0/1" / f"{batch + 1}.delta").touch()
        (tmp_path / "state/0/1" / f".{batch + 1}.delta.crc").touch()
        if batch < 7:
            (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
            (tmp_path / "commits" / f".{batch}.crc").write_bytes(b"crc")
    (tmp_path / "state/0/1/7_b2c4.changelog").touch()
    (tmp_path / "state/0/1/6.snapshot").touch()
    return tmp_path


def there(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def taken(checkpoint: Path, **options: Any) -> TakenOver:
    return take_over(str(checkpoint), {"bootstrap_servers": "east:9092"}, **options)


def test_batches_behind_the_last_that_counts_are_removed(checkpoint: Path) -> None:
    assert taken(checkpoint) == TakenOver(QUERY, 5, (6, 7), "east")
    # Batches 4 and 5 are rewritten, so Hadoop's checksums of them are gone.
    assert there(checkpoint) == sorted(
        ["metadata", "offsets/3", "offsets/.3.crc", "offsets/4", "offsets/5"]
        + [f"commits/{name}" for batch in (3, 4, 5) for name in (f"{batch}", f".{batch}.crc")]
        + [
            f"state/0/1/{name}"
            for version in (4, 5, 6)
            for name in (f"{version}.delta", f".{version}.delta.crc")
        ]
        + ["state/0/1/6.snapshot"]
    )
    for batch in (4, 5):
        *head, ours, other = (checkpoint / "offsets" / str(batch)).read_text().split("\n")
        expected = Position(
            "atomic", 40, {PLACE: PartitionPosition(batch * 10, batch * 10)}, {"orders": "07"}, "east"
        )
        assert (head, json.loads(ours), other) == (HEAD.split("\n")[:2], expected.to_json(), OTHER)
    assert taken(checkpoint) == TakenOver(QUERY, 5, (), "east"), "once more changes nothing"


def test_a_look_changes_nothing(checkpoint: Path) -> None:
    before = {path: (checkpoint / path).read_bytes() for path in there(checkpoint)}
    assert taken(checkpoint, only_look=True).removed == (6, 7)
    assert {path: (checkpoint / path).read_bytes() for path in there(checkpoint)} == before


def test_the_sink_of_a_stream_may_have_a_name(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Promoted, "versions", {f"delays-{QUERY}": 6})
    assert taken(checkpoint, transactional_id="delays") == TakenOver(QUERY, 6, (7,), "east")
    with pytest.raises(
        WrongCheckpoint, match=f"under a transactional id 'spark-{QUERY}', .*-[.]{{3}}'.*--batch"
    ):
        taken(checkpoint)


@pytest.mark.parametrize(
    ("versions", "given_"),
    [
        ({f"spark-{QUERY}-delays": 5}, None),
        ({f"spark-{QUERY}-delays": 4, f"spark-{QUERY}-late": 5, f"spark-{QUERY}-rare": 2}, None),
        ({"delays": 5, f"spark-{QUERY}-late": 4}, "delays"),
    ],
    ids=["one", "several", "named by transactionalId"],
)
def test_the_last_batch_of_functions_in_foreach_batch_runs_again(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, versions: dict[str, int], given_: str | None
) -> None:
    """The cut may lie between the commits of two sinks for batch 5."""
    monkeypatch.setattr(Promoted, "versions", versions)
    assert taken(checkpoint, transactional_id=given_) == TakenOver(QUERY, 5, (6, 7), "east", replayed=True)
    assert [name for name in there(checkpoint) if name.startswith(("commits/", "offsets/"))] == sorted(
        [f"commits/{name}" for batch in (3, 4) for name in (f"{batch}", f".{batch}.crc")]
        + ["offsets/3", "offsets/.3.crc", "offsets/4", "offsets/5"]
    )


def test_a_query_that_writes_elsewhere_says_what_counts_there(checkpoint: Path) -> None:
    assert taken(checkpoint, batch=4).removed == (5, 6, 7)


def test_what_a_batch_has_read_must_be_there(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other records have the offsets after the cut by now."""
    monkeypatch.setattr(Promoted, "copied_end", 49)
    before = there(checkpoint)
    with pytest.raises(WrongCheckpoint, match="orders-0 up to offset 50, and the cluster has it up to 49"):
        taken(checkpoint)
    assert there(checkpoint) == before
    monkeypatch.setattr(Promoted, "copied_end", 50)
    assert taken(checkpoint).batch == 5
    monkeypatch.setattr(Promoted, "copied_end", 0)
    assert taken(checkpoint).batch == 5, "the checkpoint names the cluster and its topic"
    monkeypatch.setattr(Promoted, "end", 49)
    with pytest.raises(WrongCheckpoint, match="orders-0 up to offset 50, and the cluster has it up to 49"):
        taken(checkpoint)


@pytest.mark.parametrize(
    ("batches", "last", "says"),
    [
        ([], 3, "has no batches"),
        ([0, 1, 2], -1, "no batch counts, as the last is -1: start the query with a new checkpoint"),
        ([0, 1, 2], 3, "the cluster has batch 3, and the checkpoint ends at 2"),
        ([5, 6, 7], 4, "the last batch that counts is 4, and the checkpoint has 5 to 7 without 4"),
        ([5, 6, 7], 5, "without 4"),
    ],
)
def test_where_spark_could_not_go_on_it_is_said(batches: list[int], last: int, says: str) -> None:
    with pytest.raises(WrongCheckpoint, match=says):
        batches_behind(batches, last)
    assert batches_behind([0, 1, 2], 0) == [1, 2]
    assert batches_behind([5, 6, 7], 7) == []


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongCheckpoint, match="is no checkpoint of a query"):
        taken(tmp_path)
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(WrongCheckpoint, match="is no checkpoint of a query"):
        taken(tmp_path)


def test_a_format_of_spark_that_is_not_known_is_refused(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "5").write_text("v7\n{}\n{}")
    with pytest.raises(WrongCheckpoint, match="offsets/5 begins with 'v7'"):
        taken(checkpoint)
