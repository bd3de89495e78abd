"""The pages in docs/ agree with the code: APIs and versions, configuration keys, commands, test names."""

from __future__ import annotations

import argparse
import ast
import importlib
import pkgutil
import re
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ottla.cli.arguments.leading_options import split
from ottla.cli.main import COMMANDS
from ottla.cli.nodes.settings import parse_yaml
from ottla.dataplane import assembly, handlers
from ottla.dataplane.configuration.config import BrokerConfig
from ottla.dataplane.server import HandlerTable
from ottla.metadata_quorum.config import QuorumNodeConfig
from ottla.protocol.cluster.mirror_table import MIRRORED_SETTINGS
from ottla.protocol.settings.config_keys import (
    IGNORED_KEYS,
    NODE_KEYS,
    NOT_IN_EFFECT,
    TOPIC_KEYS,
    Scope,
    check_properties,
)
from tests import render_layers, render_metrics
from tests.declared_metrics import declared_metrics, declared_names, metrics_modules
from tests.imports import nodes
from tests.render_configuration import PAGE, render

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("README.md"))]
API_ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+)[^|]* \| `(\w+)\.py` \|", re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ |    |)(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(ottla [^`#|<>&;\n]*)", re.MULTILINE)
INLINE = re.compile(r"`((?:\.venv/bin/)?ottla [^`]+)`")
KEY = re.compile(r"[a-z]+(?:\.[a-z]+)+")
CONFIG_FILES = (
    "protocol/settings/config_listeners.py",
    "dataplane/configuration/config.py",
    "metadata_quorum/config.py",
    "cli/nodes/endpoint_security.py",
    "cli/nodes/node.py",
    "protocol/cluster/authorizer_settings.py",
)
UNITS_OF = {"log.retention", "log.roll"}
"""Stems of keys that are read by unit: log.retention.hours and so on."""


def handler_classes() -> list[type]:
    """Return the handler classes that the modules of `dataplane/handlers` define for brokers to register."""
    modules = [
        importlib.import_module(f"{handlers.__name__}.{found.name}")
        for found in pkgutil.iter_modules(handlers.__path__)
        if not found.ispkg
    ]
    return [
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and name.endswith("Handlers") and value.__module__ == module.__name__
    ]


def test_the_table_of_apis_is_what_brokers_serve() -> None:
    text = (ROOT / "docs" / "SUPPORT.md").read_text()
    documented = {
        int(key): (name, int(first), int(last), file)
        for key, name, first, last, file in API_ROW.findall(text)
    }
    # The methods are looked at without the objects behind them.
    served = {
        handler.api_key: (
            handler.request_class.__name__.removesuffix("Request"),
            handler.min_version,
            handler.max_version,
            handler.function.__module__.rpartition(".")[2],
        )
        for handler in HandlerTable(*(object.__new__(each) for each in handler_classes()))
    }
    assert documented == served


def test_the_table_of_rights_is_what_handlers_ask_for() -> None:
    """Every API states its required rights, since an API without a statement is denied to all clients."""
    table = HandlerTable(*(object.__new__(each) for each in handler_classes()))
    rows = [
        f"| {handler.api_key} | {handler.request_class.__name__.removesuffix('Request')} | {needs} |"
        for handler in table
        for needs in [handler.needs.text if handler.needs else None]
    ]
    page = (ROOT / "docs" / "AUTHORIZATION.md").read_text()
    assert re.findall(r"^\| \d+ \|.*$", page, re.MULTILINE) == rows, "\n".join(rows)


def test_brokers_register_every_handler() -> None:
    modules = [
        importlib.import_module(f"{assembly.__name__}.{found.name}")
        for found in pkgutil.iter_modules(assembly.__path__)
    ]
    registered = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    assert set(handler_classes()) <= registered


def test_every_module_of_handlers_handles_an_api() -> None:
    files = {path.stem for path in Path(handlers.__path__[0]).glob("*.py")} - {"__init__"}
    assert {each.__module__.rpartition(".")[2] for each in handler_classes()} == files


def test_the_configuration_page_is_the_table_of_keys() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.render_configuration"


def test_the_metrics_page_is_what_nodes_export() -> None:
    assert render_metrics.PAGE.read_text() == render_metrics.render(), "run: python -m tests.render_metrics"


def test_every_metric_of_the_page_is_told() -> None:
    """No declared metric family is missing from the page of a node's metrics."""
    silent = []
    for module in metrics_modules():
        used = {
            node.id
            for node in nodes(module.__name__)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        silent += [f"{module.__name__}: {name}" for name in sorted(declared_names(module.__name__) - used)]
    assert not silent, f"yield a Family of each: {silent}"


def test_every_metric_is_on_the_page_once() -> None:
    names = re.findall(
        r"^\| `([a-z_]+)` \| (?:gauge|counter|histogram) \|", render_metrics.PAGE.read_text(), re.M
    )
    assert sorted(names) == sorted(metric.name for metric in declared_metrics())


def test_every_key_that_is_read_is_declared() -> None:
    read = {
        node.value
        for path in CONFIG_FILES
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value)
    }
    assert read - UNITS_OF - NODE_KEYS.keys() - TOPIC_KEYS.keys() == set()


def test_no_key_is_declared_and_silently_ignored() -> None:
    files = [ROOT / path for path in CONFIG_FILES] + [*(ROOT / "dataplane").rglob("*.py")]
    files += [*(ROOT / "metadata_quorum").rglob("*.py"), *(ROOT / "lake").rglob("*.py")]
    sources = "".join(path.read_text() for path in files)
    topics = {name for name in TOPIC_KEYS if f'"{name}"' in sources}
    behind = {name for key in TOPIC_KEYS.values() if key.name in topics for name in key.synonyms}
    silent = {
        name
        for name in NODE_KEYS.keys() | TOPIC_KEYS.keys()
        if f'"{name}"' not in sources and name not in NOT_IN_EFFECT and name not in behind | topics
    }
    assert silent == set()


def test_keys_without_effect_exist_and_are_in_one_list_only() -> None:
    assert NOT_IN_EFFECT.keys() <= NODE_KEYS.keys() | TOPIC_KEYS.keys()
    assert not IGNORED_KEYS.keys() & (NODE_KEYS.keys() | TOPIC_KEYS.keys())


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 2)
    return {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": str(tmp_path / "data"),
    }


def test_the_page_of_mirrors_lists_the_settings_that_a_copy_takes_over() -> None:
    page = (ROOT / "docs" / "MIRRORS.md").read_text()
    row = "| settings | " + ", ".join(f"`{name}`" for name in MIRRORED_SETTINGS) + " |"
    assert row in page, row
    assert set(MIRRORED_SETTINGS) <= TOPIC_KEYS.keys()


DEFAULT_BY_ROLE = ("process.roles", "listeners")
CLUSTER_WIDE = ("min.insync.replicas", "unclean.leader.election.enable")
"""Keys whose explicit values a broker keeps unchanged."""


def test_the_defaults_in_the_table_are_those_in_force(node: dict[str, str]) -> None:
    defaults = {
        name: key.default
        for name, key in NODE_KEYS.items()
        if key.default is not None and name not in DEFAULT_BY_ROLE
    }
    assert len(defaults) > 100
    broker = [name for name in defaults if Scope.BROKER in NODE_KEYS[name].scope]
    quorum = [name for name in defaults if Scope.QUORUM in NODE_KEYS[name].scope and name not in CLUSTER_WIDE]
    other = [name for name in broker if broker_config(node | {name: defaults[name]}) != broker_config(node)]
    other += [
        name
        for name in quorum
        if QuorumNodeConfig.from_properties(node | {name: defaults[name]})
        != QuorumNodeConfig.from_properties(node)
    ]
    assert not other, "\n".join(other)


def broker_config(properties: dict[str, str]) -> BrokerConfig:
    """Return the configuration that a broker reads from these properties, without the properties themselves."""
    return replace(BrokerConfig.from_properties(properties), properties={})


def mentioned_commands() -> list[tuple[str, str]]:
    """Return (page, command line) of every `ottla ...` that a page shows for typing."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        blocks += re.findall(r"((?:^    .*\n)+)", text, re.MULTILINE)
        for block in blocks:
            found += [(page.name, line) for line in COMMAND.findall(block)]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        found += [(page.name, line.removeprefix(".venv/bin/")) for line in INLINE.findall(prose)]
    return found


def test_commands_in_the_pages_exist() -> None:
    found = mentioned_commands()
    assert len(found) > 100
    wrong = [f"{page}: {line!r} {what}" for page, line in found if (what := wrong_in(line))]
    assert not wrong, "\n".join(wrong)


def test_every_command_has_an_example() -> None:
    shown = {word for _, line in mentioned_commands() for word in line.split()[1:2]}
    assert COMMANDS.keys() - shown == set()


def wrong_in(line: str) -> str | None:
    """Return a message that names the first unknown command or options in a line, or None."""
    _, words = split([word for word in shlex.split(line)[1:] if word not in ("...", "…")], COMMANDS)
    if not words or words[0] in ("version", "--help", "COMMAND"):
        return None
    if words[0] not in COMMANDS:
        return f"names the command {words[0]!r}, which there is not"
    flags = {word.partition("=")[0] for word in words[1:] if re.fullmatch(r"--[a-z-]+(=.*)?", word)}
    unknown = flags - command_flags(words[0]) - {"--help"}
    return f"uses {sorted(unknown)}, which {words[0]} does not have" if unknown else None


@cache
def command_flags(name: str) -> frozenset[str]:
    """Return every long option of a command and of its actions."""
    flags: set[str] = set()
    parsers = [importlib.import_module(f"ottla.cli.{COMMANDS[name]}").parser(name)]
    while parsers:
        for action in parsers.pop()._actions:
            flags |= {option for option in action.option_strings if option.startswith("--")}
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
    return frozenset(flags)


def yaml_blocks() -> list[str]:
    text = (ROOT / "docs" / "OPERATIONS.md").read_text()
    return re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", yaml_blocks(), ids=lambda block: block.splitlines()[1])
def test_the_examples_of_files_are_usable(block: str, node: dict[str, str], tmp_path: Path) -> None:
    settings = parse_yaml(block, tmp_path / "example.yaml")
    settings["cluster.secret.file"] = node["cluster.secret.file"]
    if "quorum.secret.file" in settings:
        settings["quorum.secret.file"] = node["cluster.secret.file"]
    if settings["process.roles"] == "broker":
        assert check_properties(settings, Scope.BROKER) == []
        BrokerConfig.from_properties(settings)
    else:
        check_properties(settings, Scope.QUORUM)
        QuorumNodeConfig.from_properties(settings)


def test_files_named_in_links_exist() -> None:
    missing = [
        f"{page.name} links to {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not missing, "\n".join(missing)


def test_measurements_stand_on_the_pages_of_figures() -> None:
    """A command that measures stands beside its figures, and readers find those on three pages."""
    elsewhere = {
        page.name for page in (ROOT / "docs").rglob("*.md") if "python -m benchmarks." in page.read_text()
    }
    assert elsewhere <= {"FIGURES.md", "SCALE.md"}


def test_the_drawings_of_the_house_are_its_contracts() -> None:
    page = render_layers.PAGE.read_text()
    assert page == render_layers.render(page), "run: python -m tests.render_layers"
