"""The worker of `ottla lake run`: it finds the topics to write, and runs each group of tables until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from ..client.admin import Admin
from ..client.backoff import Backoff
from ..client.connections.cluster import Cluster
from ..client.consuming.assigned import FetchOptions
from ..client.consuming.options import ConsumerConnection, FetchingOptions
from ..client.options import group_of
from ..client.security.options import SecurityOptions
from ..client.security.security import security_of
from ..protocol.errors import KafkaError
from ..protocol.exposition import Families
from .cluster_view import LakeView
from .complaints import Complaints
from .epochs import new_epoch
from .failures import TableRefused, WorkerFenced
from .hold_offsets import HoldOffsets
from .iceberg.catalogs import LakePlace, open_catalog
from .iceberg.tables import MAY_PASS, Overtaken
from .metrics import TableProgress, families
from .settings import TableSettings, check_apart, grouped
from .table_group import TableGroup
from .topic_table import Consent, TopicTable
from .window_reader import ReadTopic

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-lake"
LOOK_S: Final = 30.0
"""Seconds between looks at the topics' settings."""
RETRY_MAX_MS: Final = 60_000
AT_ONCE: Final = 2
"""Groups that read or commit at the same time; it bounds the worker's memory."""
FETCH_BYTES: Final = 4 * 1024 * 1024
_FAILURES: Final = (KafkaError, Overtaken, NoSuchTableError, TableRefused, *MAY_PASS)


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The options of a worker."""

    connection: Mapping[str, Any]
    """Options of Ottla's clients."""
    place: LakePlace
    topics: Sequence[str] = ()
    """Topics to write; without any, all topics whose settings enable it."""
    once: bool = False
    """Whether the worker ends when it has written all records that were there."""
    consent: Consent = field(default_factory=Consent)


class LakeWorker:
    """A worker. `run` writes tables until `stop`, or until all is written with the option `once`."""

    def __init__(self, options: LakeOptions) -> None:
        """Raises ValueError for options of connections that cannot be used."""
        self._options = options
        connection = dict(options.connection)
        self._connection = {"client_id": CLIENT_ID, **connection}
        self._fetching = _fetch_options(self._connection)
        self._cluster = _cluster(self._connection)
        self._admin = Admin(**self._connection)
        self._view = LakeView(self._admin)
        self._hold = HoldOffsets(self._view)
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._stopping = asyncio.Event()
        self._runs: dict[tuple[TableSettings, ...], asyncio.Task[bool]] = {}
        self._complaints = Complaints(logger)
        self._progress: dict[str, TableProgress] = {}

    def families(self) -> Families:
        """Return the present metrics of the tables."""
        return families(self._progress.values(), time.monotonic())

    def unready(self) -> str:
        """Return the reason why the worker does not work yet; empty once it has reached the cluster."""
        return "" if self._view.cluster_id else "the worker has not reached the cluster yet"

    def stop(self, *, at_once: bool = False) -> None:
        """Begin to stop: rounds that have begun are completed; with `at_once` they are cancelled."""
        self._stopping.set()
        if at_once:
            for run in self._runs.values():
                run.cancel()

    async def run(self) -> bool:
        """Write tables. Returns whether every table was written without an error that ended it.

        Raises KafkaError if no broker can be reached at the start, and errors of the catalog's configuration.
        """
        catalog = await asyncio.to_thread(open_catalog, self._options.place, create=True)
        async with self._admin, self._cluster:
            await self._view.start()
            return await (self._once(catalog) if self._options.once else self._until_stopped(catalog))

    async def _once(self, catalog: Catalog) -> bool:
        settings, is_whole = await self._settings()
        if not settings:
            logger.warning("no topic has ottla.lake.enable=true: there is nothing to write")
        for members in grouped(settings):
            self._runs[members] = asyncio.create_task(self._write_once(members, catalog))
        ended = await asyncio.gather(*self._runs.values())
        return is_whole and all(ended)

    async def _until_stopped(self, catalog: Catalog) -> bool:
        while not self._stopping.is_set():
            try:
                settings, _ = await self._settings()
                await self._follow(settings, catalog)
            except KafkaError as error:
                self._complaints.add("settings", f"the topics' settings cannot be read: {error.message}")
            await self._pause(LOOK_S)
        ended = await asyncio.gather(*self._runs.values(), return_exceptions=True)
        return all(result is True for result in ended)

    async def _follow(self, settings: Sequence[TableSettings], catalog: Catalog) -> None:
        """Start groups that are new, and end those whose settings have changed, or which are not enabled any more."""
        wanted = grouped(settings)
        for table in self._progress.keys() - {given.table for given in settings}:
            del self._progress[table]
        for members in [members for members in self._runs if members not in wanted]:
            run = self._runs.pop(members)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        for members in wanted:
            if members not in self._runs:
                self._runs[members] = asyncio.create_task(self._write_on(members, catalog))

    async def _settings(self) -> tuple[list[TableSettings], bool]:
        """Return the settings of the tables to write, and whether no topic had to be left out."""
        settings, errors = await self._view.tables(self._options.topics)
        try:
            check_apart(settings)
        except TableRefused as error:
            errors["tables"] = str(error)
            settings = []
        for topic, reason in errors.items():
            self._complaints.add(topic, f"topic {topic} is not written: {reason}")
        return settings, not errors

    # ------------------------------------------------------------ one group

    async def _write_once(self, members: tuple[TableSettings, ...], catalog: Catalog) -> bool:
        try:
            async with self._gate:
                group = await self._opened(members, catalog)
                await self._hold.opened(group.tables)
                has_more = True
                while has_more:
                    has_more = await group.round() and not self._stopping.is_set()
                    await self._hold.written(group.tables)
        except (*_FAILURES, WorkerFenced) as error:
            self._failed(members, f"{_named(members)}: {_reason(error)}")
            return False
        return True

    async def _write_on(self, members: tuple[TableSettings, ...], catalog: Catalog) -> bool:
        """Write rounds until the worker stops. After a failure the tables are opened again, where they stand then."""
        backoff = Backoff(RETRY_MAX_MS)
        while not self._stopping.is_set():
            try:
                async with self._gate:
                    group = await self._opened(members, catalog)
                await self._hold.opened(group.tables)
                while not self._stopping.is_set():
                    async with self._gate:
                        has_more = await group.round()
                    await self._hold.written(group.tables)
                    backoff.reset()
                    self._succeeded(members)
                    if not has_more:
                        await self._pause(min(member.commit_ms for member in members) / 1000)
            except WorkerFenced as error:
                self._failed(members, f"{error}; this worker leaves it alone")
                return False
            except _FAILURES as error:
                self._failed(members, f"{_named(members)}: {_reason(error)}; it is tried again")
                await self._pause(backoff.next_s())
            except Exception:
                # One table with an unforeseen error must not end the others, nor itself in silence.
                logger.exception("%s: an unforeseen error; it is tried again", _named(members))
                self._note_failing(members, True)
                await self._pause(backoff.next_s())
        return True

    async def _opened(self, members: tuple[TableSettings, ...], catalog: Catalog) -> TableGroup:
        topics = await self._view.topics([member.topic for member in members])
        tables = [
            TopicTable(
                member,
                catalog,
                ReadTopic(self._cluster, self._fetching, member.topic, topics.ids[member.topic]),
                self._view.cluster_id,
                self._options.consent,
                self._progress_of(member.table),
            )
            for member in members
        ]
        group = TableGroup(members[0].group, tables, catalog, self._view)
        await group.open(
            {
                member.table: await new_epoch(self._connection, member.table, self._view.cluster_id)
                for member in members
            }
        )
        return group

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _progress_of(self, table: str) -> TableProgress:
        return self._progress.setdefault(table, TableProgress(table))

    def _failed(self, members: Sequence[TableSettings], text: str) -> None:
        self._note_failing(members, True)
        self._complaints.add(members[0].table, text)

    def _succeeded(self, members: Sequence[TableSettings]) -> None:
        self._note_failing(members, False)
        self._complaints.end(members[0].table)

    def _note_failing(self, members: Sequence[TableSettings], is_failing: bool) -> None:
        for member in members:
            self._progress_of(member.table).is_failing = is_failing


def _named(members: Sequence[TableSettings]) -> str:
    return ", ".join(member.table for member in members)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, KafkaError) else str(error) or type(error).__name__


def _fetch_options(connection: Mapping[str, Any]) -> FetchOptions:
    fetching = FetchingOptions(max_partition_fetch_bytes=FETCH_BYTES, auto_offset_reset="none")
    return fetching.of_fetcher(group_of(ConsumerConnection, connection))


def _cluster(connection: Mapping[str, Any]) -> Cluster:
    security = {
        name: value for name, value in connection.items() if name in SecurityOptions.__dataclass_fields__
    }
    names = ("bootstrap_servers", "client_id", "request_timeout_ms")
    return Cluster(
        **{name: connection[name] for name in names if name in connection},
        security=security_of(SecurityOptions(**security)),
    )
