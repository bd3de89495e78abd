"""Settings of nodes: YAML and properties files, environment, overrides, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.nodes.settings import environment_settings, parse_overrides, read_settings, variable_of


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_yaml_and_properties_say_the_same(tmp_path: Path) -> None:
    flat = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,OTHER://:9093",
        "auto.create.topics.enable": "false",
        "log.dirs": "/data/a,/data/b",
        "broker.rack": "",
    }
    yaml = written(
        tmp_path,
        "broker.yaml",
        """
        node.id: 1
        listeners: [PLAINTEXT://127.0.0.1:9092, "OTHER://:9093"]
        auto: {create: {topics.enable: no}}
        log.dirs:
          - /data/a
          - /data/b
        broker.rack:
        """.replace("\n        ", "\n"),
    )
    properties = written(
        tmp_path,
        "broker.properties",
        "# a comment\n! another\n\nnode.id=1\nlisteners = PLAINTEXT://127.0.0.1:9092,\\\n  OTHER://:9093\n"
        "auto.create.topics.enable: false\nlog.dirs=/data/a,/data/b\nbroker.rack=\n",
    )
    assert read_settings(yaml) == flat
    assert read_settings(properties) == flat


def test_environment_overrides_the_file_and_set_overrides_both(tmp_path: Path) -> None:
    path = written(tmp_path, "n.yaml", "log.segment.bytes: 1\nnode.id: 1\nbroker.rack: a\n")
    environ = {"KAFKA_LOG_SEGMENT_BYTES": "2", "KAFKA_NODE_ID": "2", "HOME": "/root", "KAFKA_": "x"}
    overrides = parse_overrides(["log.segment.bytes=3", "listeners=A://h:1=x"])
    assert read_settings(path) | environment_settings(environ) | overrides == {
        "log.segment.bytes": "3",
        "node.id": "2",
        "broker.rack": "a",
        "listeners": "A://h:1=x",
    }


def test_only_kafka_variables_count() -> None:
    assert environment_settings({"PATH": "/bin", "KAFKAESQUE": "1"}) == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "node.id: [", "is not valid YAML"),
        ("a.yaml", "- node.id", "expected 'key: value' lines"),
        ("a.yaml", "node:\n  id: 1\nnode.id: 2\n", "node.id stands there twice"),
        ("a.yaml", "!!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("a.properties", "node.id=1\nnonsense\n", "line 2: expected key=value"),
        ("a.properties", "node.id=1\n\nnode.id=2\n", "node.id stands in line 1 and again in line 3"),
        ("a.yaml", "node.id: 1\nlog.dirs: a\nnode.id: 2\n", "node.id stands in line 1 and again in line 3"),
        ("a.yaml", "log:\n  dirs: a\n  dirs: b\n", "log.dirs stands in line 2 and again in line 3"),
        ("a.yaml", "a: b\nssl.key.password: [hunter2", "is not valid YAML: did not find expected"),
        ("a.yaml", "steps:\n- {a: 1, a: 2}\n", "steps.a stands in line 2 and again in line 2"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(CommandFailed, match=message) as refused:
        read_settings(written(tmp_path, name, text))
    assert "nonsense" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"cannot read .*none\.yaml: No such file"):
        read_settings(tmp_path / "none.yaml")
    with pytest.raises(CommandFailed, match="Is a directory"):
        read_settings(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandFailed, match="is not a text file"):
        read_settings(tmp_path / "b.yaml")


def test_an_override_without_a_value_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--set takes key=value, not 'x'"):
        parse_overrides(["x"])


def test_variables_and_properties_have_one_name_each() -> None:
    assert variable_of("log.segment.bytes") == "KAFKA_LOG_SEGMENT_BYTES"
    assert environment_settings({variable_of("log.segment.bytes"): "1"}) == {"log.segment.bytes": "1"}


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LISTENER_NAME_CLIENTS_SSL_CLIENT_AUTH", "listener.name.clients.ssl.client.auth"),
        ("KAFKA_LISTENER_NAME_MY__CLIENTS_SSL_CLIENT_AUTH", "listener.name.my_clients.ssl.client.auth"),
        (
            "KAFKA_LISTENER_NAME_A_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.a.scram-sha-256.sasl.jaas.config",
        ),
        ("KAFKA_SSL_CLIENT_AUTH", "ssl.client.auth"),
    ],
)
def test_names_of_listeners_in_variables(variable: str, key: str) -> None:
    assert environment_settings({variable: "x"}) == {key: "x"}
    assert variable_of(key) == variable
