"""`ottla up`: runs a local cluster in the foreground. The parser's epilog lists the guarantees for scripts."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...protocol.settings.security_protocol import SecurityProtocol
from ..arguments.options import CommandParser
from ..failures import CommandFailed, UsageError
from ..files import FileHeld, lock, sign, write_atomically
from ..nodes.child_processes import describe_exit
from ..nodes.config_providers import has_reference, resolve
from ..nodes.secret_settings import check_visible
from ..nodes.settings import parse_overrides
from ..terminal.progress import ProgressLine, waiting_text
from ..terminal.text import counted, note, say
from .client_address import ADVERTISE_OPTION, LISTEN_OPTION
from .console import CHANGES, READS, LocalConsole
from .console_address import CONSOLE_LISTEN_OPTION
from .layout import (
    OWN_KEYS,
    PORTS_FROM_BASE,
    ClusterLayout,
    Member,
    holds_cluster,
    open_layout,
)
from .ownership import until_exit
from .ports import HOST, first_in_use
from .security import PROTOCOLS, ClusterSecurity
from .supervisor import Supervisor

DEFAULT_DIRECTORY = "ottla-data"
START_TIMEOUT_S = 60.0
PROBE_INTERVAL_S = 0.02
_FOR_THE_OWNER_ALONE = 0o077

EPILOG = """\
Starts the processes, waits until every broker takes part, writes DIR/cluster.json and prints the bootstrap
address. Stays in the foreground; reports when a node dies, with the command that starts it again, and neither
restarts it nor exits. Control-C or
SIGTERM stops brokers first, then the quorum. The same DIR gives the same cluster again: ids, ports and data.
--base-port moves a stopped cluster to other ports. A start that fails leaves DIR as it was.
--secure prints the next steps; cluster.json then has "security": {"protocol", "principal", "client_config", ...}.
--listen lets clients of other machines connect, which needs --secure. Only the brokers' ports for clients leave
loopback; "local_bootstrap" in cluster.json then has addresses on loopback. DIR keeps the address and the name.

DIR/cluster.json: {"bootstrap": "127.0.0.1:p1,...", "quorum": [{"id", "port", "pid", "argv", "cwd", "env",
"metrics", "log", "pid_file"}, ...], "brokers": [the same, ...],
"hooks": {"quorum_leader": "a command that prints the leader's id"}}.
An entry's argv, run in its cwd with its env, starts that node alone; metrics is its Prometheus address.

examples
  ottla up                                      3 quorum nodes and 3 brokers in ./ottla-data
  ottla up --quorum 1 --brokers 1 --combined    everything in one process
  ottla up --data /tmp/c --base-port 9092 --set log.segment.bytes=1048576
  ottla up --secure                             TLS, passwords and ACLs, with the files of clients in DIR/client
  ottla up --secure --listen 10.0.0.1 --base-port 9092    the same for clients of other machines
  ottla up --secure --listen 0.0.0.0 --advertise kafka.example.com
  ottla up --console                            with pages for a browser; --console=changes lets them change the cluster
  ottla up --data /tmp/c --until-exit $$ --temporary    until this shell ends, then removed
"""


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla up`."""
    options = CommandParser(
        prog=f"ottla {name}",
        description="Start a local cluster and keep it in the foreground.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--quorum", type=int, metavar="N", help="quorum nodes: 1, 3 or 5 (3, or as in DIR)")
    options.add_argument("--brokers", type=int, metavar="N", help="brokers (3, or as in DIR)")
    options.add_argument(
        "--data", type=Path, metavar="DIR", help=f"folder of the cluster (./{DEFAULT_DIRECTORY})"
    )
    options.add_argument(
        "--base-port",
        type=int,
        metavar="P",
        help="brokers on P, P+1, ..., quorum on P+100, ... (free ports, or as in DIR)",
    )
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of every node; may be repeated",
    )
    options.add_argument(
        "--combined", action="store_true", help="one quorum node and one broker in this process"
    )
    options.add_argument(
        "--secure",
        nargs="?",
        const=SecurityProtocol.SASL_SSL.value,
        choices=PROTOCOLS,
        metavar="PROTOCOL",
        help="TLS, logins and an authorizer, with a new authority and a first user (SASL_SSL, or as in DIR; "
        "also SASL_PLAINTEXT, or SSL with certificates of clients)",
    )
    options.add_argument(
        LISTEN_OPTION,
        metavar="ADDRESS",
        help="address on which brokers listen for clients (127.0.0.1, or as in DIR); any but loopback needs --secure",
    )
    options.add_argument(
        ADVERTISE_OPTION,
        metavar="NAME",
        help="name or address by which clients reach this machine (the address of --listen, or as in DIR)",
    )
    options.add_argument(
        "--until-exit", type=int, metavar="PID", help="stop when this process ends, however it ends"
    )
    options.add_argument(
        "--temporary", action="store_true", help="with --until-exit: then remove the cluster from DIR"
    )
    options.add_argument(
        "--console",
        nargs="?",
        const=READS,
        choices=(READS, CHANGES),
        help="also serve pages for a browser, and print their address; 'changes' lets them change the cluster",
    )
    options.add_argument(
        CONSOLE_LISTEN_OPTION,
        metavar="HOST:PORT",
        help="address at which the console listens (a free port on 127.0.0.1, or as in DIR)",
    )
    return options


def run(arguments: argparse.Namespace) -> int:
    """Start the local cluster and run it until a stop is requested; return 0 after a clean stop."""
    _check(arguments)
    directory = _usable((arguments.data or Path(DEFAULT_DIRECTORY)).absolute())
    overrides = _overrides(arguments.set)
    existed = directory.exists()
    protocol = None if arguments.secure is None else SecurityProtocol(arguments.secure)
    if protocol is not None:
        os.umask(_FOR_THE_OWNER_ALONE)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot create {directory}: {error.strerror}") from None
    with _locked(directory, keep_folder=existed):
        counts = {"quorum": arguments.quorum, "brokers": arguments.brokers}
        layout = open_layout(
            directory,
            base_port=arguments.base_port,
            protocol=protocol,
            listen=arguments.listen,
            advertise=arguments.advertise,
            **counts,
        )
        _check_own_keys(overrides, layout.own_keys)
        if layout.security is not None:
            os.umask(_FOR_THE_OWNER_ALONE)
        if arguments.combined and (len(layout.quorum), len(layout.brokers)) != (1, 1):
            raise UsageError("--combined is for --quorum 1 --brokers 1")
        layout.cluster_file.unlink(missing_ok=True)
        _check_ports(layout)
        _say(f"data in {directory}")
        with (
            _written(layout, overrides),
            until_exit(arguments.until_exit, layout, temporary=arguments.temporary),
        ):
            first_users = layout.security.first_users() if layout.security and not layout.is_formed else []
            console = (
                None
                if arguments.console is None
                else LocalConsole(layout, arguments.console, arguments.console_listen)
            )
            try:
                if arguments.combined:
                    return _run_combined(layout, arguments, first_users, console)
                return _run_processes(layout, first_users, console)
            finally:
                if console is not None:
                    console.stop()


def publish(
    layout: ClusterLayout,
    environment: dict[str, str],
    directory: str,
    process: Callable[[Member], tuple[int, list[str]]],
    endpoint_of: Callable[[Member], Member] = lambda member: member,
) -> None:
    """Write cluster.json and print the bootstrap address.

    `process` returns a member's pid and argv; `endpoint_of` returns the member whose HTTP endpoint serves its metrics.
    """

    def entry(member: Member) -> dict[str, Any]:
        pid, argv = process(member)
        return {
            "id": member.id,
            "port": member.port,
            "pid": pid,
            "argv": argv,
            "cwd": directory,
            "env": environment,
            "metrics": f"http://{HOST}:{endpoint_of(member).metrics_port}/metrics",
            "log": str(layout.log_file(member)),
            "pid_file": str(layout.pid_file(member)),
        }

    hook = [sys.executable, "-m", "ottla", "cluster", "--data", str(layout.directory), "--quorum-leader"]
    description = {
        "bootstrap": layout.bootstrap,
        "local_bootstrap": layout.local_bootstrap,
        "quorum": [entry(member) for member in layout.quorum],
        "brokers": [entry(member) for member in layout.brokers],
        "hooks": {"quorum_leader": f"cd {shlex.quote(directory)} && {shlex.join(hook)}"},
        "cluster_id": layout.cluster_id,
        "data": str(layout.directory),
    }
    if layout.security is not None:
        description["security"] = layout.security.described()
    write_atomically(layout.cluster_file, json.dumps(description, indent=1) + "\n", mode=0o600)
    say(layout.bootstrap, flush=True)
    if layout.security is not None:
        _tell_newcomers(layout, layout.security)


def _tell_newcomers(layout: ClusterLayout, security: ClusterSecurity) -> None:
    ports = layout.client_address.needed_ports(broker.port for broker in layout.brokers)
    note("\n".join(security.told(layout.bootstrap, ports)))


def _run_combined(
    layout: ClusterLayout, arguments: argparse.Namespace, first_users: list[str], console: LocalConsole | None
) -> int:
    """Run the quorum node and the broker in this process, and return the exit code.

    The argv of either node in cluster.json starts both again.
    """
    from .combined import run_combined

    supervisor = Supervisor(layout)
    again = [sys.executable, "-m", "ottla", "up", "--combined", "--data", str(layout.directory)]
    for override in arguments.set:
        again += ["--set", override]
    if arguments.until_exit is not None:
        again += ["--until-exit", str(arguments.until_exit)]
    if arguments.temporary:
        again.append("--temporary")

    def announce(pid: int) -> None:
        publish(
            layout,
            supervisor.environment,
            supervisor.directory,
            lambda member: (pid, again),
            lambda member: layout.brokers[0],
        )
        if console is not None:
            console.start(supervisor.environment, supervisor.directory)

    return run_combined(layout, first_users, announce)


def _run_processes(layout: ClusterLayout, first_users: list[str], console: LocalConsole | None) -> int:
    supervisor = Supervisor(layout, first_users)
    supervisor.watch_signals()
    try:
        supervisor.start(layout.members)
        _wait_until_ready(layout, supervisor)
        if not supervisor.stopping:
            publish(layout, supervisor.environment, supervisor.directory, supervisor.process)
            brokers = counted(len(layout.brokers), "broker")
            _say(f"{brokers}, {counted(len(layout.quorum), 'quorum node')} run; Control-C stops them")
            if console is not None:
                console.start(supervisor.environment, supervisor.directory)
        while not supervisor.stopping:
            for child in supervisor.wait(None):
                if not supervisor.stopping:
                    end = describe_exit(child.exit_code)
                    _say(f"{child.member.name} (pid {child.pid}) died: {end}")
                    again = supervisor.shell_command(child.member)
                    _say(f"in another terminal, this starts {child.member.name} again: {again}")
    finally:
        supervisor.stop()
    return 0


def _wait_until_ready(layout: ClusterLayout, supervisor: Supervisor) -> None:
    """Return when every broker reports that all brokers have joined, or when a stop is requested."""
    from .readiness import brokers_seen_by

    wanted = {member.id for member in layout.brokers}
    waiting = list(layout.brokers)
    began_s = time.monotonic()
    deadline = began_s + START_TIMEOUT_S
    with ProgressLine() as line:
        while waiting and not supervisor.stopping:
            for child in supervisor.wait(PROBE_INTERVAL_S):
                reason = supervisor.last_words(child.member) or "it left no message"
                end = describe_exit(child.exit_code)
                raise CommandFailed(f"{child.member.name} died while starting ({end}): {reason}")
            waiting = [member for member in waiting if not wanted <= brokers_seen_by(layout, member)]
            if not waiting:
                return
            names = ", ".join(member.name for member in waiting)
            line.show(f"ottla up: {waiting_text(names, time.monotonic() - began_s)}")
            if time.monotonic() > deadline:
                words = supervisor.last_words(waiting[0]) or "it left no message"
                raise CommandFailed(f"{names} not ready after {START_TIMEOUT_S:.0f} s. Last line: {words}")


def _check_ports(layout: ClusterLayout) -> None:
    """Raise CommandFailed if a node of this cluster that still runs, or another program, has a port of the cluster."""
    owners = {address: member for member in layout.members for address in layout.addresses(member)}
    taken = first_in_use(owners)
    if taken is None:
        return
    member = owners[taken]
    host, port = taken
    pid = layout.running(member)
    raise CommandFailed(
        f"{member.name} still runs (pid {pid}): stop it first if it was started by its own command; of an 'ottla up' "
        "that was killed it is about to end"
        if pid is not None
        else f"port {port} on {host} is in use by another program, and {member.name} needs it: choose other ports "
        "for the whole cluster with --base-port"
    )


@contextmanager
def _written(layout: ClusterLayout, overrides: dict[str, str]) -> Iterator[None]:
    """Write the files of the cluster's folder; if the cluster then fails to start, restore the folder."""
    before = layout.found()
    try:
        if replaced := layout.write(overrides):
            names = ", ".join(layout.client_address.names)
            _say(f"new certificates of {', '.join(replaced)}, for {names}; the authority and the users stay")
        yield
    except BaseException:
        if not layout.cluster_file.exists():
            layout.restore(before)
        raise


def _check(arguments: argparse.Namespace) -> None:
    if arguments.quorum not in (None, 1, 3, 5):
        raise UsageError(f"--quorum takes 1, 3 or 5, not {arguments.quorum}")
    if arguments.brokers is not None and not 1 <= arguments.brokers <= 100:
        raise UsageError(f"--brokers takes 1 to 100, not {arguments.brokers}")
    if arguments.base_port is not None and not 1 <= arguments.base_port <= 65535 - PORTS_FROM_BASE:
        raise UsageError(f"--base-port takes 1 to {65535 - PORTS_FROM_BASE}, not {arguments.base_port}")
    if arguments.until_exit is not None and arguments.until_exit < 1:
        raise UsageError(f"--until-exit takes the id of a process, not {arguments.until_exit}")
    if arguments.console_listen is not None and arguments.console is None:
        raise UsageError(f"{CONSOLE_LISTEN_OPTION} goes with --console")
    if arguments.temporary and arguments.until_exit is None:
        raise UsageError("--temporary goes with --until-exit: when that process ends DIR is cleared")
    if arguments.combined:
        arguments.quorum = arguments.quorum or 1
        arguments.brokers = arguments.brokers or 1


def _usable(directory: Path) -> Path:
    """Return the cluster's folder if its path can stand in the settings of nodes. Raises UsageError."""
    text = os.fsencode(directory).decode("utf-8", "replace")
    if text != str(directory):
        raise UsageError(f"--data {text}: its name is not UTF-8, and settings could not name it")
    if "," in text:  # With a comma, nodes would store data in two other folders.
        raise UsageError(f"--data {text}: log.dirs has commas between folders, so there is none in a name")
    if has_reference(text):
        raise UsageError(f"--data {text}: settings would take that for a reference to a value elsewhere")
    return directory


def _overrides(words: list[str]) -> dict[str, str]:
    """Parse the --set settings of nodes.

    Raises UsageError for an unknown setting and for one that `ottla up` determines itself.
    """
    from ...protocol.settings.config_keys import ConfigError, Scope, check_properties

    overrides = parse_overrides(words)
    check_visible(overrides)
    _check_own_keys(overrides, OWN_KEYS)
    try:
        check_properties(resolve(overrides, os.environ, _say).values, Scope.BROKER | Scope.QUORUM)
    except ConfigError as error:
        raise UsageError(f"--set: {error}") from error
    return overrides


def _check_own_keys(overrides: Mapping[str, str], own: Iterable[str]) -> None:
    for key in own:
        if key in overrides:
            raise UsageError(f"--set {key}: ottla up decides this itself")


def _say(text: str) -> None:
    note(f"ottla up: {text}")


@contextmanager
def _locked(directory: Path, *, keep_folder: bool) -> Iterator[None]:
    """Lock the cluster's folder for this process, and remove a folder that was created for a failed start.

    Raises CommandFailed if another `ottla up` holds the lock.
    """
    try:
        file = (directory / "up.lock").open("a+")
    except OSError as error:
        raise CommandFailed(f"cannot write in {directory}: {error.strerror}") from None
    with file:
        try:
            lock(file)
        except FileHeld as held:
            raise CommandFailed(f"{directory} is in use by another ottla up (pid {held.owner})") from None
        try:
            sign(file)
            yield
        except BaseException:
            if not holds_cluster(directory):
                (directory / "up.lock").unlink(missing_ok=True)
                if not keep_folder:
                    with suppress(OSError):
                        directory.rmdir()
            raise
