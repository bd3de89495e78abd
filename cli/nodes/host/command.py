"""`ottla broker --processes N` in the foreground: SIGTERM or SIGINT stops all brokers, and a second signal kills
them."""

from __future__ import annotations

import argparse
import asyncio
import logging
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ....dataplane.configuration.config import BrokerConfig
from ....dataplane.storage.meta_properties import FILE_NAME
from ....protocol.settings.config_keys import ConfigError
from ...failures import CommandFailed
from ..child_processes import die_with_parent
from ..endpoint import EndpointCheck, MonitoringEndpoint, endpoint_of
from .page import HostPage
from .process_settings import ProcessSettings, process_settings
from .supervisor import BrokerProcess, HostSupervisor

logger = logging.getLogger(__name__)


def run_host(arguments: argparse.Namespace, values: Mapping[str, str]) -> None:
    """Run several brokers of one host, each in a process, until a signal arrives.

    `values` are the settings that they share.

    Raises CommandFailed and UsageError for unusable settings before any broker starts, and CommandFailed at the end if
    a broker had to be killed.
    """
    settings = process_settings(values, arguments.processes, arguments.id, platform.node())
    has_tls = _check(values, settings)
    before_exec = die_with_parent("--processes")
    with _sockets(values) as sockets:
        brokers = [_process(arguments, process, sockets) for process in settings]
        supervisor = HostSupervisor(brokers, before_exec)
        endpoint = endpoint_of(values, HostPage(brokers))
        asyncio.run(_serve(supervisor, endpoint, has_tls=has_tls))
    if supervisor.killed:
        raise CommandFailed(f"{', '.join(supervisor.killed)} did not stop, and was killed")


def _check(values: Mapping[str, str], settings: Sequence[ProcessSettings]) -> bool:
    """Check the shared settings as a broker will, and return whether they have keys to reload.

    The settings of the brokers differ only in numbers, so one check is enough. Raises CommandFailed.
    """
    for process in settings:
        for folder in process.folders:
            if (folder.parent / FILE_NAME).exists():
                raise CommandFailed(
                    f"{folder.parent} holds the data of a broker that ran alone. With --processes the data of "
                    f"{process.name} is in {folder}: move it there, or choose other log.dirs"
                )
    try:
        config = BrokerConfig.from_properties({**values, **settings[0].own})
    except ConfigError as error:
        raise CommandFailed(str(error)) from error
    return config.quorum.tls is not None or any(listener.tls is not None for listener in config.listeners)


@contextmanager
def _sockets(values: Mapping[str, str]) -> Iterator[Path | None]:
    """Yield a private folder for the Unix sockets at which the brokers serve metrics; None without metrics.listener."""
    if not values.get("metrics.listener", "").strip():
        yield None
        return
    try:
        folder = tempfile.TemporaryDirectory(prefix="ottla-host-", ignore_cleanup_errors=True)
    except OSError as error:
        raise CommandFailed(
            f"metrics.listener needs a folder for sockets, and there is none in {tempfile.gettempdir()} (TMPDIR): "
            f"{error.strerror}"
        ) from None
    with folder as name:
        yield Path(name)


def _process(arguments: argparse.Namespace, settings: ProcessSettings, sockets: Path | None) -> BrokerProcess:
    words = [sys.executable, "-m", "ottla", "broker", "-c", str(arguments.config)]
    words += ["--log-node", settings.name, "--log-level", arguments.log_level]
    if arguments.log_json:
        words.append("--log-json")
    if arguments.pid_file is not None:
        words += ["--pid-file", f"{arguments.pid_file}.{settings.node_id}"]
    socket = None if sockets is None else sockets / f"{settings.node_id}.sock"
    own = dict(settings.own) | ({"metrics.listener": f"unix:{socket}"} if socket else {})
    for override in (*arguments.set, *(f"{key}={value}" for key, value in own.items())):
        words += ["--set", override]
    restored = ["--restored"] if arguments.restored else []
    return BrokerProcess(settings.node_id, settings.name, words, restored, socket)


async def _serve(supervisor: HostSupervisor, endpoint: MonitoringEndpoint | None, *, has_tls: bool) -> None:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def stop() -> None:
        if asked.is_set():
            supervisor.kill()
        asked.set()

    def look_at_keys() -> None:
        if endpoint is not None:
            endpoint.look_at_keys()
        if has_tls:
            supervisor.tell(signal.SIGHUP)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if has_tls or (endpoint is not None and endpoint.has_tls):
        loop.add_signal_handler(signal.SIGHUP, look_at_keys)
    try:
        if endpoint is not None:
            await endpoint.start()
            await EndpointCheck(endpoint).start()
        await supervisor.start()
        await asked.wait()
        logger.info("stopping")
    finally:
        await supervisor.stop()
        if endpoint is not None:
            await endpoint.stop()
