"""Settings of nodes: YAML and properties files, environment, overrides, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.nodes.settings import environment_settings, parse_overrides, read_settings, variable_of
from ottla.protocol.settings.config_keys import NODE_KEYS, ConfigError


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


@pytest.mark.parametrize(
    "text",
    [
        "010", "0755", "0x1F", "0o17", "0b1", "1_000", "1:30", "190:20:30", "1.50", "1e3", ".5", ".inf", "+1", "-0",
        "no", "on", "Yes", "n", "true", "True", "~", "null", "2026-01-31", "2026-01-31T12:00:00Z", "=", "<<x",
        "123456701234567012345678901234567890",
    ],
)  # fmt: skip
def test_a_value_in_yaml_is_the_text_that_stands_there(tmp_path: Path, text: str) -> None:
    keys = ("broker.rack", "ssl.key.password", "log.retention.ms", "steps.limit")
    nested = f"broker: {{rack: {text}}}\nssl.key.password: {text}\nlog.retention.ms: [{text}]\n"
    nested += f"steps:\n  limit: {text}\n"
    found = read_settings(written(tmp_path, "a.yaml", nested))
    lines = "".join(f"{key}={text}\n" for key in keys)
    assert found == read_settings(written(tmp_path, "a.properties", lines)) == dict.fromkeys(keys, text)
    assert read_settings(written(tmp_path, "k.yaml", f"{text}: 1\n")) == {text: "1"}
    assert read_settings(written(tmp_path, "q.yaml", f"rack: '{text}'\n")) == {"rack": text}


def test_what_a_key_declares_decides(tmp_path: Path) -> None:
    """Files that said yes and no to booleans go on; a number in another base is refused by its key."""
    path = written(
        tmp_path, "a.yaml", "auto.create.topics.enable: off\ndelete.topic.enable: 'off'\nbroker.rack: off\n"
    )
    assert read_settings(path) == {
        "auto.create.topics.enable": "false", "delete.topic.enable": "off", "broker.rack": "off",
    }  # fmt: skip
    for text in ("1:30", "0x10", "1_000"):
        given = read_settings(written(tmp_path, "b.yaml", f"log.retention.ms: {text}\n"))["log.retention.ms"]
        with pytest.raises(ConfigError, match=f"Invalid value '{text}' for configuration log.retention.ms"):
            NODE_KEYS["log.retention.ms"].parse(given)


def test_mappings_are_merged_and_aliases_taken(tmp_path: Path) -> None:
    text = "a: &common {x: 010, y: no}\nb: {<<: *common, y: 1}\nc: {<<: [{x: 5}, *common]}\nd: &z [1, 2]\ne: [*z, 3]\n"
    assert read_settings(written(tmp_path, "a.yaml", text)) == {
        "a.x": "010", "a.y": "no", "b.x": "010", "b.y": "1", "c.x": "5", "c.y": "no", "d": "1,2", "e": "1,2,3",
    }  # fmt: skip
    assert read_settings(written(tmp_path, "b.yaml", "--- \n")) == {}


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
        ("a.yaml", "steps:\n- {a: 1, b: 2}\n", "steps in line 2 is a list, which has texts in it"),
        ("a.yaml", "a: !!python/name:os.system hunter2\n", "is not valid YAML: the tag in line 1"),
        ("a.yaml", "a: 1\nb: !!int '5'\n", "is not valid YAML: the tag in line 2"),
        ("a.yaml", "? [a]\n: b\n", "the key in line 1 is a list or a mapping"),
        ("a.yaml", "a: &x {b: *x}\n", "a.b in line 1 refers to what it is part of"),
        ("a.yaml", "a: &x [1, *x]\n", "a refers to what it is part of"),
        ("a.yaml", "a: {<<: hunter2}\n", "<< in line 1 merges mappings"),
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
