"""The settings of a quorum node, and the messages for invalid ones."""

from pathlib import Path

import pytest

from ottla.metadata_quorum.config import QuorumNodeConfig, parse_voters
from ottla.protocol.session.handshake import Role
from ottla.protocol.settings.config_keys import ConfigError


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    for name, secret in (("secret", "0123456789abcdef"), ("quorum.secret", "fedcba9876543210")):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(f"{secret * 2}\n")
    return {
        "node.id": "101",
        "process.roles": "controller",
        "cluster.id": "c",
        "cluster.secret.file": str(tmp_path / "secret"),
        "quorum.secret.file": str(tmp_path / "quorum.secret"),
        "controller.quorum.voters": "101@127.0.0.1:9193,102@[::1]:9194,103@host:9195",
        "listeners": "CONTROLLER://:9193",
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
    }


def test_kafkas_names_make_a_configuration(properties: dict[str, str], tmp_path: Path) -> None:
    given = {
        "broker.session.timeout.ms": "1000",
        "metadata.log.max.record.bytes.between.snapshots": "100000",
        "transactional.id.expiration.ms": "86400000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "60000",
    }
    config = QuorumNodeConfig.from_properties(properties | given)
    assert config.node_id == 101
    assert config.voters == {101: ("127.0.0.1", 9193), 102: ("::1", 9194), 103: ("host", 9195)}
    assert (config.listen_host, config.listen_port) == ("", 9193)
    assert config.security.of(Role.BROKER).first == b"0123456789abcdef0123456789abcdef"
    assert config.security.of(Role.RAFT).first == b"fedcba9876543210fedcba9876543210"
    assert not config.security.requires_encryption
    assert not config.believes_any_refusal
    assert config.directory == tmp_path / "a"
    assert config.broker_session_timeout_ms == 1000
    assert config.snapshot_bytes == 100_000
    assert config.duties.transactional_id_expiration_ms == 86_400_000
    assert config.duties.unused_ids_check_interval_s == 60


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ("", "there is no quorum.secret.file"),
        ("secret", "holds nothing but secrets that brokers have"),
        ("quorum.secret", ""),
    ],
)
def test_a_quorum_whose_secret_brokers_have_is_remarked(
    properties: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, given: str, remark: str
) -> None:
    properties["quorum.secret.file"] = str(tmp_path / given) if given else ""
    config = QuorumNodeConfig.from_properties(properties)
    assert remark in caplog.text
    assert bool(remark) == bool(caplog.records)
    shared = config.security.of(Role.RAFT).first == config.security.of(Role.BROKER).first
    assert shared == bool(remark)


def test_an_operator_may_say_that_refusals_are_not_forged(properties: dict[str, str]) -> None:
    properties["broker.fence.on.refusal"] = "any"
    assert QuorumNodeConfig.from_properties(properties).believes_any_refusal


def test_secrets_are_not_shown(properties: dict[str, str]) -> None:
    config = QuorumNodeConfig.from_properties(properties | {"cluster.link.encryption": "required"})
    assert config.security.requires_encryption
    assert "0123456789abcdef" not in repr(config)
    assert "fedcba9876543210" not in repr(config)


def test_without_a_listener_it_listens_where_the_voters_say(properties: dict[str, str]) -> None:
    del properties["listeners"]
    config = QuorumNodeConfig.from_properties(properties | {"metadata.log.dir": "/elsewhere"})
    assert (config.listen_host, config.listen_port) == ("127.0.0.1", 9193)
    assert config.directory == Path("/elsewhere")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("node.id", "104", r"node.id 104 is not in controller.quorum.voters, which has \[101, 102, 103\]"),
        ("node.id", "one", "'one' for configuration node.id: it must be a whole number"),
        ("cluster.secret.file", "", "cluster.secret.file is missing"),
        (
            "quorum.secret.file",
            "/nowhere/secret",
            "quorum.secret.file: cannot read /nowhere/secret: No such file",
        ),
        ("cluster.link.encryption", "off", "'off' .*must be one of preferred, required"),
        ("process.roles", "broker", "process.roles is 'broker'"),
        ("cluster.id", " ", "cluster.id is missing"),
        ("cluster.secret.file", "/nowhere/secret", "cannot read /nowhere/secret: No such file"),
        ("controller.quorum.voters", "101:h:1", "'101:h:1' is not of the form id@host:port"),
        ("controller.quorum.voters", "101@h:1,102@h:2", "has 2 nodes: a quorum has 1, 3 or 5"),
        ("controller.quorum.voters", "101@h:1,101@h:2,1@h:3", "node id 101 stands there twice"),
        ("broker.session.timeout.ms", "-5", "broker.session.timeout.ms"),
        ("transactional.id.expiration.ms", "0", "transactional.id.expiration.ms"),
        ("auto.leader.rebalance.enable", "maybe", "'maybe' for configuration auto.leader.rebalance.enable"),
        ("broker.sesion.timeout.ms", "500", "broker.session.timeout.ms"),
        ("listeners", "CONTROLLER://here", "'CONTROLLER://here' is not of the form"),
    ],
)
def test_a_bad_setting_is_named(properties: dict[str, str], key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        QuorumNodeConfig.from_properties(properties | {key: value})


def test_a_short_secret_is_refused(properties: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    with pytest.raises(ConfigError, match="holds 5 bytes, at least 16 are needed"):
        QuorumNodeConfig.from_properties(properties)


def test_a_port_beyond_the_range_is_no_voter() -> None:
    with pytest.raises(ConfigError, match="id@host:port"):
        parse_voters("1@h:70000")
