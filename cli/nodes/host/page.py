"""One metrics page for all brokers of a host, with samples labelled by broker, and the reasons why brokers are not
ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ....protocol.exposition import Family, Metric, MetricKind, exposition
from .supervisor import BrokerProcess

logger = logging.getLogger(__name__)

LABEL: Final = "broker"
ANSWER_TIMEOUT_S: Final = 5.0
UP = Metric("ottla_broker_process_up", MetricKind.GAUGE, "1 if this broker of the host answers.", (LABEL,))
STARTS = Metric(
    "ottla_broker_process_starts_total",
    MetricKind.COUNTER,
    "Number of times that the supervisor has started this broker of the host.",
    (LABEL,),
)


class HostPage:
    """The pages /metrics and /readyz of a host, made of the brokers' pages at each request."""

    def __init__(self, brokers: Sequence[BrokerProcess]) -> None:
        self._brokers = brokers

    async def metrics(self, loop_lag_s: float) -> AsyncGenerator[str, None]:
        """Yield the metrics of all brokers that answer, family by family."""
        asked = await asyncio.gather(*(_ask(broker, "/metrics") for broker in self._brokers))
        pages = {
            broker.node_id: body
            for broker, (status, body) in zip(self._brokers, asked, strict=True)
            if status == 200
        }
        for family in merged(pages):
            yield family
            await asyncio.sleep(0)
        up = [((broker.node_id,), int(broker.node_id in pages)) for broker in self._brokers]
        starts = [((broker.node_id,), broker.starts) for broker in self._brokers]
        for piece in exposition([Family(UP, up), Family(STARTS, starts)]):
            yield piece

    async def unready(self) -> list[str]:
        """Return the reasons why brokers of the host are not ready; empty when all are."""
        asked = await asyncio.gather(*(_ask(broker, "/readyz") for broker in self._brokers))
        return [
            f"{broker.name}: {body.strip() or 'it does not answer'}"
            for broker, (status, body) in zip(self._brokers, asked, strict=True)
            if status != 200
        ]


async def _ask(broker: BrokerProcess, path: str) -> tuple[int, str]:
    """Return HTTP status and body of a broker's page, such as /metrics; status 0 if there is no answer."""
    if broker.socket is None or broker.running is None:
        return 0, ""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await _got(broker.socket, path)
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        logger.debug("%s does not tell %s: %s", broker.name, path, error)
        return 0, ""


async def _got(socket: Path, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()
    finally:
        writer.close()


def merged(pages: Mapping[int, str]) -> Iterator[str]:
    """Merge metrics pages of several brokers, by broker id.

    Yields the text of each metric family once, with a broker label in every sample. Pure.
    """
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, list[str]] = {}
    for node_id, page in pages.items():
        family = ""
        # Labels such as group names may contain other line separators: only a newline ends a line of a page.
        for line in filter(None, page.split("\n")):
            if line.startswith("#"):
                _, kind, family, _ = line.split(" ", 3)
                heads.setdefault(family, {}).setdefault(kind, line)
            else:
                samples.setdefault(family, []).append(_labelled(line, node_id))
    for family, head in heads.items():
        yield "\n".join((*head.values(), *samples.get(family, ()))) + "\n"


def _labelled(sample: str, node_id: int) -> str:
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{{LABEL}="{node_id}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{{LABEL}="{node_id}"}} {value}'
