"""The individual settings of one host's brokers, and the refused ones."""

from __future__ import annotations

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.nodes.host.process_settings import process_settings

FILE = {
    "node.id": "10",
    "listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://[::]:19092",
    "advertised.listeners": "INSIDE://h:9092,OUTSIDE://out.example:443",
    "log.dirs": "/a, /b",
}


def test_each_process_has_an_id_ports_folders_and_the_host() -> None:
    first, second, third = process_settings(FILE, 3, None, "machine")
    assert [process.node_id for process in (first, second, third)] == [10, 11, 12]
    assert first.own == {
        "node.id": "10",
        "listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://[::]:19092",
        "advertised.listeners": "INSIDE://h:9092,OUTSIDE://out.example:443",
        "log.dirs": "/a/broker-10,/b/broker-10",
        "broker.host": "machine",
    }
    assert third.own["listeners"] == "INSIDE://10.0.0.1:9094,OUTSIDE://[::]:19094"
    assert third.own["advertised.listeners"] == "INSIDE://h:9094,OUTSIDE://out.example:445"
    assert third.own["log.dirs"] == "/a/broker-12,/b/broker-12"
    assert third.name == "broker-12"


def test_what_the_file_says_of_the_host_and_of_ids_counts() -> None:
    given = process_settings(FILE | {"broker.host": "rack-7-u3"}, 2, "4,9", "machine")
    assert [(process.node_id, process.own["broker.host"]) for process in given] == [
        (4, "rack-7-u3"),
        (9, "rack-7-u3"),
    ]
    assert [process.node_id for process in process_settings(FILE, 2, "100", "machine")] == [100, 101]


def test_folders_that_take_no_new_replicas_are_those_of_each_process() -> None:
    (process,) = process_settings(FILE | {"cordoned.log.dirs": "/b"}, 1, None, "machine")
    assert process.own["cordoned.log.dirs"] == "/b/broker-10"
    (process,) = process_settings(FILE | {"cordoned.log.dirs": "*"}, 1, None, "machine")
    assert "cordoned.log.dirs" not in process.own


def test_ports_that_the_system_chooses_stay_so() -> None:
    given = process_settings({"node.id": "1", "log.dir": "/a", "listeners": "PLAINTEXT://:0"}, 2, None, "m")
    assert [process.own["listeners"] for process in given] == ["PLAINTEXT://:0"] * 2


def test_without_listeners_there_is_the_default_one() -> None:
    given = process_settings({"node.id": "1", "log.dir": "/a"}, 2, None, "m")
    assert [process.own["listeners"] for process in given] == ["PLAINTEXT://:9092", "PLAINTEXT://:9093"]


@pytest.mark.parametrize(
    ("changes", "processes", "ids", "message"),
    [
        ({}, 0, None, "--processes takes 1 to 100, not 0"),
        ({}, 101, None, "--processes takes 1 to 100, not 101"),
        ({}, 3, "1,2", "--id takes the first id, or 3 different ids with commas between, not '1,2'"),
        (
            {},
            2,
            "1,1",
            "--id takes the first id, or 2 different ids with commas between: 1,1 has one of them",
        ),
        ({}, 2, "x", "not 'x'"),
        ({"node.id": ""}, 2, None, "--processes needs the first id: give --id, or node.id in the file"),
        ({"log.dirs": ""}, 2, None, "log.dirs is missing"),
        (
            {"listeners": "A://:9092,B://:9093"},
            2,
            None,
            "listeners: A and B would both take port 9093, as every process takes the next one: with --processes 2 "
            "leave 2 ports for each listener",
        ),
        (
            {"advertised.listeners": "A://h:1,B://h:2"},
            2,
            None,
            "advertised.listeners: A and B would both take port 2",
        ),
        (
            {"listeners": "A://:65535"},
            2,
            None,
            "A would take the ports 65535 to 65536, and the highest is 65535: with --processes 2 it begins at 65534",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(
    changes: dict[str, str], processes: int, ids: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        process_settings(FILE | changes, processes, ids, "machine")
    assert message in str(refused.value)
