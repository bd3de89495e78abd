"""`ottla quorum` and `ottla broker`: one node in the foreground; SIGTERM or SIGINT stops it in an orderly way."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ...network.garbage_collection import (
    freeze_all_objects,
    long_passes_freeze,
    only_new_garbage_collected,
)
from ...network.huge_pages import collapse_into_huge_pages
from ..arguments.options import CommandParser
from ..build import this_build
from ..failures import CommandFailed, UsageError
from . import logs
from .config_providers import ResolvedSettings, is_of_providers, resolve
from .descriptor_limit import raise_descriptor_limit
from .pid_files import pid_file
from .secret_settings import check_visible, remark_on_file
from .settings import environment_settings, parse_overrides, read_settings, variable_of

if TYPE_CHECKING:
    from ...protocol.exposition import Families
    from .quorum_tls import QuorumTls

logger = logging.getLogger(__name__)

DESCRIPTIONS = {
    "quorum": "Run one node of the metadata quorum.",
    "broker": "Run one broker.",
}
EXAMPLES = """\
The file holds Kafka's own property names, as YAML (node.id: 1) or, when it ends in .properties, as key=value
lines.
A variable KAFKA_LOG_SEGMENT_BYTES overrides log.segment.bytes, and --set overrides both. SIGTERM stops the
node in an orderly way.

examples
  ottla {name} -c {name}.yaml
  ottla {name} -c {name}.properties --set log.segment.bytes=1048576 --log-level debug
"""
EXAMPLES_OF_HOSTS = """\
  ottla broker -c broker.yaml --processes 8 --id 10    brokers 10 to 17, one for each core
"""


class Runnable(Protocol):
    """A part of a node's process, such as a node or an HTTP endpoint, that can be started and stopped."""

    async def start(self) -> None:
        """Start the part, and return once it serves."""

    async def stop(self) -> None:
        """Stop the part in an orderly way."""


class RunnableNode(Runnable, Protocol):
    """A quorum node or a broker that can be started, stopped and observed."""

    def families(self) -> Families:
        """Return the node's present metrics; none before it serves."""

    def unready(self) -> str:
        """Return the reason why the node is not ready; empty when it is."""


@runtime_checkable
class HasKeys(Protocol):
    """A part of a node's process that reloads keys and certificates upon SIGHUP."""

    @property
    def has_tls(self) -> bool:
        """True if the part uses TLS."""

    def look_at_keys(self) -> None:
        """Reload the part's keys and certificates from their files."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A help formatter with an explicit width.

    Without it argparse imports archive modules just to ask for the terminal's width.
    """

    def __init__(self, prog: str) -> None:
        width = os.environ.get("COLUMNS", "")
        try:
            columns = int(width) if width.isdecimal() else os.get_terminal_size().columns
        except OSError:
            columns = 80
        super().__init__(prog, width=max(columns, 20) - 2)


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla quorum` or `ottla broker`."""
    options = CommandParser(
        prog=f"ottla {name}",
        description=DESCRIPTIONS[name],
        epilog=EXAMPLES.format(name=name) + (EXAMPLES_OF_HOSTS if name == "broker" else ""),
        formatter_class=_HelpFormatter,
    )
    options.set_defaults(role=name)
    options.add_argument(
        "-c", "--config", type=Path, required=True, metavar="FILE", help="the node's settings"
    )
    options.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting"
    )
    options.add_argument("--log-level", choices=logs.LEVELS, default="warning", help="default: warning")
    options.add_argument("--log-json", action="store_true", help="log lines as JSON instead of key=value")
    options.add_argument("--log-node", default="", metavar="NAME", help="name of the node for each log line")
    options.add_argument(
        "--pid-file", type=Path, metavar="FILE", help="file to keep the process id in while the node runs"
    )
    if name == "quorum":
        options.add_argument(
            "--replace",
            action="store_true",
            help="the folder of this node was lost: join again with an empty one",
        )
        options.add_argument(
            "--add-scram",
            action="append",
            default=[],
            metavar="MECHANISM=[...]",
            help="a user to create with the cluster: 'SCRAM-SHA-512=[name=admin,password-file=FILE]', "
            "also iterations=, salt= and saltedpassword=. Give it to all quorum nodes when a cluster is formed; may be "
            "repeated",
        )
        options.add_argument(
            "--unless-formed",
            action="store_true",
            help="with --add-scram: start also if the cluster is formed already, and add no users then. For "
            "supervisors, which repeat the command",
        )
        restored = "the folder of this node was restored from an older copy on purpose: vote with its content"
    else:
        options.add_argument(
            "--processes",
            type=int,
            metavar="N",
            help="run N brokers of this host under one supervisor, which starts them again when they end. Each takes "
            "the next id and ports, and a folder broker-ID in each folder of log.dirs",
        )
        options.add_argument(
            "--id",
            metavar="ID[,ID...]",
            help="with --processes: the first id, or all ids (default: the first is node.id)",
        )
        restored = (
            "the metadata quorum was restored from copies on purpose: follow it, though it has lost entries"
        )
    options.add_argument("--restored", action="store_true", help=restored)
    return options


def run(arguments: argparse.Namespace) -> int:
    """Run the quorum node or broker until a signal arrives; return 0 after a clean stop."""
    add_scram, unless_formed = _first_users(arguments)
    logs.configure(arguments.log_level, as_json=arguments.log_json, node=arguments.log_node)
    processes = getattr(arguments, "processes", None)
    if processes is None and getattr(arguments, "id", None) is not None:
        raise UsageError("--id goes with --processes; the id of one broker is node.id in its file")
    settings = node_settings(arguments.config, arguments.set)
    with plain_failures(), pid_file(arguments.pid_file):
        if processes is not None:
            from .host.command import run_host

            run_host(arguments, settings.values)
            return 0
        with only_new_garbage_collected(freezes=True):
            node = build(
                arguments.role,
                settings,
                replaces=getattr(arguments, "replace", False),
                restored=arguments.restored,
                add_scram=add_scram,
                unless_formed=unless_formed,
            )
        run_nodes(with_endpoint(settings.values, [node]))
    return 0


def _first_users(arguments: argparse.Namespace) -> tuple[Sequence[str], bool]:
    """Return the values of `--add-scram`, and of `--unless-formed`. Raises UsageError."""
    words: Sequence[str] = getattr(arguments, "add_scram", ())
    unless_formed: bool = getattr(arguments, "unless_formed", False)
    if unless_formed and not words:
        raise UsageError("--unless-formed goes with --add-scram")
    if not words or not (arguments.replace or arguments.restored):
        return words, unless_formed
    if unless_formed:
        return (), False
    raise UsageError("--add-scram is for a new cluster, not for a node that comes back")


def known_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a node in environment variables KAFKA_..., by property name; log a warning for unknown
    ones."""
    from ...protocol.settings.config_keys import node_key, why_ignored

    found = {}
    for name, value in environment_settings(environ).items():
        if node_key(name) is not None or why_ignored(name) is not None or is_of_providers(name):
            found[name] = value
        else:
            logger.warning("%s is no setting: ignored", variable_of(name))
    return found


def node_settings(path: Path, overrides: Iterable[str]) -> ResolvedSettings:
    """Return a node's settings: its file, overridden by the environment, overridden by `overrides` (`--set`).

    Raises CommandFailed and UsageError.
    """
    given = parse_overrides(overrides)
    check_visible(given)
    file = read_settings(path)
    if remark := remark_on_file(path, file):
        logger.warning("%s", remark)
    return resolved(file | known_variables(os.environ) | given)


def resolved(settings: Mapping[str, str]) -> ResolvedSettings:
    """Replace references such as `${env:NAME}` in a node's settings by their values. Raises CommandFailed."""
    return resolve(settings, os.environ, lambda remark: logger.warning("%s", remark))


def with_endpoint(settings: Mapping[str, str], nodes: Sequence[RunnableNode]) -> Sequence[Runnable]:
    """Return the nodes, with the HTTP endpoint around them if metrics.listener configures it. Raises CommandFailed."""
    from .endpoint import EndpointCheck, NodesHere, endpoint_of

    endpoint = endpoint_of(settings, NodesHere(nodes))
    return nodes if endpoint is None else [endpoint, *nodes, EndpointCheck(endpoint)]


def build(
    role: str,
    settings: ResolvedSettings,
    *,
    replaces: bool = False,
    restored: bool = False,
    add_scram: Sequence[str] = (),
    unless_formed: bool = False,
) -> RunnableNode:
    """Build the node of this role without starting it.

    With `replaces` it takes the place of a quorum node whose folder is gone. `restored` says that the quorum, including
    this quorum node's folder, was restored from older copies on purpose. `add_scram` are the first users of a quorum
    that is not formed yet. With `unless_formed` a quorum that is formed ignores them.

    Raises CommandFailed for unusable settings.
    """
    from ...protocol.settings.config_keys import ConfigError, Scope, check_properties

    try:
        values = settings.values
        for note in check_properties(values, Scope.QUORUM if role == "quorum" else Scope.BROKER):
            logger.info("%s", note)
        if role == "quorum":
            from ...metadata_quorum.config import QuorumNodeConfig
            from ...metadata_quorum.node import QuorumNode

            quorum = QuorumNodeConfig.from_properties(values)
            quorum = replace(quorum, tls=_quorum_tls(values, quorum.voters[quorum.node_id][0]))
            if add_scram:
                from .first_users import first_users, is_formed

                if not (unless_formed and is_formed(quorum.directory)):
                    quorum = replace(quorum, first_users=first_users(add_scram, quorum.security.cluster))
            return QuorumNode(replace(quorum, replace_empty=replaces, restored=restored))
        from ...dataplane.broker import Broker
        from ...dataplane.configuration.config import BrokerConfig

        broker = BrokerConfig.from_properties(values)
        from .mirror_sources import ClientSources

        sources = ClientSources(broker.node_id, broker.mirror_allowed_paths)
        return Broker(replace(broker, references=settings.references, restored=restored), sources)
    except ConfigError as error:
        raise CommandFailed(str(error)) from error


def _quorum_tls(values: Mapping[str, str], host: str) -> QuorumTls | None:
    """Load the quorum listener's certificates, and log their remarks; None without TLS. Raises ConfigError."""
    from ...dataplane.security.node_tls import node_tls_settings

    if node_tls_settings(values) is None:
        return None
    from .quorum_tls import quorum_tls  # loaded late: only a quorum with TLS needs it

    tls = quorum_tls(values, host)
    for remark in () if tls is None else tls.remarks:
        logger.warning("%s", remark)
    return tls


def run_nodes(nodes: Sequence[Runnable], *, last: Runnable | None = None) -> None:
    """Start `nodes` in order on one event loop; on SIGTERM or SIGINT stop them in reverse order.

    `last`, if given, is started once the nodes serve, and stopped first.
    """
    import uvloop

    raise_descriptor_limit()
    _log_build()
    with long_passes_freeze(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_nodes([*nodes, *([last] if last else [])]))


def _log_build() -> None:
    """Log the build of this process: as a warning if a part of the codec is in Python, which is slower."""
    build = this_build()
    fields = {"version": build.version, "python": build.python, "codec": build.codec}
    if build.slower:
        logger.warning("starting", extra={"fields": fields | {"slower": build.slower}})
    else:
        logger.info("starting", extra={"fields": fields})


async def _run_nodes(nodes: Sequence[Runnable]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    secured = [node for node in nodes if isinstance(node, HasKeys) and node.has_tls]
    if secured:
        loop.add_signal_handler(signal.SIGHUP, _look_at_keys, secured)
    stopping = asyncio.ensure_future(stop.wait())
    started: list[Runnable] = []
    try:
        for node in nodes:
            started.append(node)
            starting = asyncio.ensure_future(node.start())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
                return
            starting.result()
        # Loaded objects are permanent: a collection that visits them all would stop the loop for tens of ms.
        freeze_all_objects()
        # Off the loop: on a busy machine the kernel takes seconds for it, and peers would count this node as dead.
        await asyncio.to_thread(collapse_into_huge_pages)
        logger.info("started")
        await stopping
        logger.info("stopping")
    finally:
        stopping.cancel()
        for node in reversed(started):
            await node.stop()


def _look_at_keys(nodes: Sequence[HasKeys]) -> None:
    for node in nodes:
        node.look_at_keys()


@contextmanager
def plain_failures() -> Iterator[None]:
    """Turn failures of a node that an operator can correct (ports, folders, disks) into CommandFailed with one line;
    others stay tracebacks."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CommandFailed(f"{where}{error.strerror or error}") from error
    except Exception as error:
        if not isinstance(error, _curable()):
            raise
        raise CommandFailed(str(error)) from error


def _curable() -> tuple[type[Exception], ...]:
    """Return the error types of a quorum node's port and folder, and of a broker's certificates.

    A broker's other correctable errors are OSErrors.
    """
    from ...metadata_quorum.raft.disk import CorruptFile
    from ...metadata_quorum.raft.formation import WrongFolder
    from ...metadata_quorum.server import AddressInUse
    from ...protocol.settings.config_key import ConfigError

    return (ConfigError, CorruptFile, WrongFolder, AddressInUse)
