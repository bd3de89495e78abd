"""References in settings to values elsewhere: their results, and errors that prevent a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.failures import CommandFailed
from ottla.cli.main import main
from ottla.cli.nodes.config_providers import ResolvedSettings, resolve
from ottla.cli.nodes.node import build
from ottla.cli.nodes.secret_settings import check_visible, remark_on_file

KAFKAS = "org.apache.kafka.common.config.provider"
ENVIRON = {"PASS": "hunter2", "NESTED": "${env:PASS}", "EMPTY": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with secrets; `outside` is a file for references that must be refused."""
    for name, text in {
        "mounted/secrets.properties": "tls.key=of the key\nuser=ann\nwith=a=b:c\n",
        "mounted/password": "of the file\n",
        "outside": "not allowed",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
    return tmp_path


def resolved(remarks: list[str] | None = None, **settings: str) -> ResolvedSettings:
    """Return resolved settings; two underscores stand for a dot."""
    given = {"config.providers": "env,file,dir"}
    given |= {name.replace("__", "."): text for name, text in settings.items()}
    return resolve(given, ENVIRON, (remarks if remarks is not None else []).append)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:PASS}", "hunter2"),
        ("${env::PASS}", "hunter2"),
        ("${env:EMPTY}", ""),
        ("${file:FOLDER/mounted/secrets.properties:tls.key}", "of the key"),
        ("${file:FOLDER/mounted/secrets.properties:with}", "a=b:c"),
        ("${dir:FOLDER/mounted:password}", "of the file"),
        (
            'M required user_ann="${env:PASS}" user_bob="${dir:FOLDER/mounted:password}";',
            'M required user_ann="hunter2" user_bob="of the file";',
        ),
        # A reference's value is not resolved again.
        ("${env:NESTED}", "${env:PASS}"),
        ("$1 ${} ${env} {env:PASS}", "$1 ${} ${env} {env:PASS}"),
    ],
)
def test_references_give_values(folder: Path, text: str, value: str) -> None:
    assert resolved(a=text.replace("FOLDER", str(folder))).values == {"a": value}


def test_the_reference_is_kept_beside_the_value() -> None:
    found = resolved(a="${env:PASS}", b="as it is")
    assert found.values == {"a": "hunter2", "b": "as it is"}
    assert found.references == {"a": "${env:PASS}"}
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${env:NONE}", "there is no variable 'NONE' in the environment"),
        ("${env:path:PASS}", "a variable of the environment has no path"),
        ("${vault:secret:key}", "config.providers has no 'vault'; it has env, file, dir"),
        ("${file:FOLDER/mounted/secrets.properties:none}", "secrets.properties has no key 'none'"),
        ("${file:FOLDER/none:key}", "cannot read .*/none: No such file"),
        ("${file:secrets.properties:key}", "secrets.properties is no absolute path"),
        ("${file:FOLDER/mounted/password:key}", "line 1: expected key=value"),
        ("${file:password}", "it has the form .*{file:PATH:KEY}"),
        ("${dir:FOLDER/mounted:none}", "cannot read .*/none: No such file"),
        ("${dir:FOLDER/mounted:../outside}", "FILE is the name of a file in PATH"),
        ("${dir:FOLDER:mounted}", "cannot read .*/mounted: Is a directory"),
    ],
)
def test_a_reference_without_a_value_ends_the_start(folder: Path, text: str, problem: str) -> None:
    text = text.replace("FOLDER", str(folder))
    with pytest.raises(CommandFailed, match=problem) as refused:
        resolved(ssl__key__password=text)
    assert str(refused.value).startswith(f"ssl.key.password: {text} gives no value: ")
    assert "of the file" not in str(refused.value)


def test_without_providers_a_reference_is_not_taken_for_a_value() -> None:
    with pytest.raises(CommandFailed, match=r"config\.providers has no 'env'; it has none"):
        resolve({"a": "${env:PASS}"}, ENVIRON, [].append)


def test_classes_and_parameters_of_providers(folder: Path) -> None:
    given = {
        "config__providers": "e, f",
        "config__providers__e__class": f"{KAFKAS}.EnvVarConfigProvider",
        "config__providers__e__param__allowlist__pattern": "PA.+",
        "config__providers__f__class": f"{KAFKAS}.DirectoryConfigProvider",
        "config__providers__f__param__allowed__paths": f"{folder}/mounted",
    }
    found = resolved(**given, a="${e:PASS}", b=f"${{f:{folder}/mounted:password}}")
    assert found.values == {"a": "hunter2", "b": "of the file"}
    with pytest.raises(CommandFailed, match=r"allowlist\.pattern does not match 'NESTED'"):
        resolved(**given, a="${e:NESTED}")
    with pytest.raises(CommandFailed, match=f"outside is not within {folder}/mounted"):
        resolved(**given, a=f"${{f:{folder}:outside}}")


def test_allowed_paths_count_behind_symbolic_links(folder: Path) -> None:
    """A link that leads out is outside; Kubernetes' links within a mount are inside."""
    within = {"config__providers__dir__param__allowed__paths": f"{folder}/linked"}
    (folder / "linked").symlink_to(folder / "mounted")
    (folder / "mounted" / "leads-out").symlink_to(folder / "outside")
    (folder / "mounted" / "..data").mkdir()
    (folder / "mounted" / "..data" / "deep").write_text("of Kubernetes")
    (folder / "mounted" / "deep").symlink_to("..data/deep")
    assert resolved(**within, a=f"${{dir:{folder}/mounted:deep}}").values == {"a": "of Kubernetes"}
    with pytest.raises(CommandFailed, match="outside is not within"):
        resolved(**within, a=f"${{dir:{folder}/mounted:leads-out}}")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"config__providers": "vault"},
            f"config.providers.vault.class is missing: there are {KAFKAS}.EnvVarConfigProvider",
        ),
        ({"config__providers__env__class": "com.example.Vault"}, "is 'com.example.Vault': there are"),
        (
            {"config__providers__env__param__allowed__paths": "/"},
            "Unknown configuration: config.providers.env",
        ),
        ({"config__providers__vault__class": "x"}, "Unknown configuration: config.providers.vault.class"),
        ({"config__providers__env__param__allowlist__pattern": "("}, "is no regular expression"),
        (
            {"config__providers__dir__param__allowed__paths": "/nowhere/at/all"},
            "no absolute path of what exists",
        ),
        ({"config__providers__dir__param__allowed__paths": "etc"}, "no absolute path of what exists"),
    ],
)
def test_mistakes_in_providers_end_the_start(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(CommandFailed, match=problem):
        resolved(**settings)


def test_a_secret_that_every_user_may_read_is_remarked(folder: Path) -> None:
    remarks: list[str] = []
    reference = f"${{dir:{folder}/mounted:password}}"
    resolved(remarks, a=reference)
    assert remarks == []
    (folder / "mounted" / "password").chmod(0o644)
    resolved(remarks, a=reference)
    assert len(remarks) == 1
    assert f"chmod 600 {folder}/mounted/password" in remarks[0]


def node_settings(folder: Path, **settings: str) -> dict[str, str]:
    secret = folder / "secret"
    secret.write_text("0123456789abcdef" * 2)
    return {
        "config__providers": "env",
        "node__id": "1",
        "cluster__id": "c",
        "cluster__secret__file": str(secret),
        "controller__quorum__voters": "1@127.0.0.1:9093",
        "log__dirs": str(folder / "data"),
        **settings,
    }


def test_nodes_are_built_with_values(folder: Path) -> None:
    from ottla.dataplane.broker import Broker
    from ottla.metadata_quorum.node import QuorumNode

    settings = node_settings(folder, broker__rack="in ${env:PASS}")
    broker = build("broker", resolved(**settings))
    assert isinstance(broker, Broker)
    assert broker.config.rack == "in hunter2"
    assert broker.config.references == {"broker.rack": "in ${env:PASS}"}
    assert isinstance(build("quorum", resolved(**settings)), QuorumNode)


def test_a_node_does_not_start_without_a_value(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "broker.yaml"
    file.write_text(
        "config.providers: [env, dir]\n"
        f"broker.rack: ${{dir:{folder}/mounted:none}}\n"
        "node.id: ${env:OTTLA_NODE}\n"
    )
    monkeypatch.setenv("OTTLA_NODE", "7")
    assert main(["broker", "-c", str(file)]) == 1
    said = capsys.readouterr().err
    assert (
        f"broker.rack: ${{dir:{folder}/mounted:none}} gives no value: cannot read {folder}/mounted/none"
        in said
    )
    monkeypatch.setenv("KAFKA_BROKER_RACK", "${env:PASS}")
    assert main(["broker", "-c", str(file)]) == 1
    assert "broker.rack: ${env:PASS} gives no value" in capsys.readouterr().err
    monkeypatch.setenv("KAFKA_CONFIG_PROVIDERS_ENV_PARAM_ALLOWLIST_PATTERN", "PASS")
    monkeypatch.setenv("PASS", "r1")
    assert main(["broker", "-c", str(file)]) == 1
    assert (
        "node.id: ${env:OTTLA_NODE} gives no value: config.providers.env.param.allow"
        in capsys.readouterr().err
    )


def test_a_file_with_secrets_that_every_user_may_read_is_remarked(folder: Path) -> None:
    file = folder / "broker.yaml"
    file.write_text("")
    file.chmod(0o644)
    settings = {"ssl.key.password": "hunter2"}
    assert f"chmod 600 {file}" in remark_on_file(file, settings)
    assert "hunter2" not in remark_on_file(file, settings)
    for harmless in ({"node.id": "1"}, {"ssl.key.password": "${env:PASS}"}, {"ssl.key.password": ""}):
        assert remark_on_file(file, harmless) == ""
    file.chmod(0o640)
    assert remark_on_file(file, settings) == ""


@pytest.mark.parametrize("command", [("broker", "-c", "none.yaml"), ("up", "--data", "none")])
def test_secrets_are_not_set_on_the_command_line(
    command: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--set", "listener.name.a.ssl.key.password=hunter2"]) == 2
    said = capsys.readouterr().err
    assert "KAFKA_LISTENER_NAME_A_SSL_KEY_PASSWORD" in said
    assert "hunter2" not in said
    check_visible({"ssl.key.password": "${env:PASS}", "log.segment.bytes": "1"})
