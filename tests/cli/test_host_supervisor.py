"""The supervisor of a host's brokers: ends, restarts, signals, and the common page of metrics."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.nodes.endpoint import MonitoringEndpoint, NodesHere
from ottla.cli.nodes.host.page import HostPage, merged
from ottla.cli.nodes.host.supervisor import STEADY_S, BrokerProcess, HostSupervisor, Restarts
from ottla.protocol.exposition import Family, Histogram, Metric, MetricKind, exposition

WAIT_S = 60.0
OBEDIENT = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({!r}, 'w').close(); time.sleep(600)"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def broker(node_id: int, program: str, first_words: tuple[str, ...] = ()) -> BrokerProcess:
    return BrokerProcess(node_id, f"broker-{node_id}", [sys.executable, "-c", program], first_words)


def supervisor(*brokers: BrokerProcess) -> HostSupervisor:
    return HostSupervisor(brokers, lambda: None)


def pid_of(process: BrokerProcess) -> int | None:
    return None if process.running is None else process.running.pid


def test_delays_grow_and_begin_anew_after_a_steady_run() -> None:
    delays = Restarts()
    assert [delays.delay_s(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert delays.delay_s(STEADY_S) == 1
    assert delays.delay_s(0.1) == 2


async def test_one_that_was_killed_starts_again_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.cli.nodes.host.supervisor.FIRST_DELAY_S", 0.01)
    killed, other = broker(1, OBEDIENT), broker(2, OBEDIENT)
    host = supervisor(killed, other)
    with caplog.at_level(logging.WARNING):
        await host.start()
        await until(lambda: killed.running and other.running)
        first, others = pid_of(killed), pid_of(other)
        assert killed.running is not None
        killed.running.kill()
        await until(lambda: pid_of(killed) not in (None, first))
    assert (killed.starts, other.starts, pid_of(other)) == (2, 1, others)
    assert f"broker-1 (pid {first}) has ended: killed by SIGKILL. It starts again in" in caplog.text
    await host.stop()
    assert (killed.running, other.running, host.killed) == (None, None, [])


async def test_only_the_first_start_is_told_that_it_was_restored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ottla.cli.nodes.host.supervisor.FIRST_DELAY_S", 0.01)
    seen = tmp_path / "seen"
    process = broker(
        1, f"import sys; open({str(seen)!r}, 'a').write(repr(sys.argv[1:]) + chr(10))", ("--restored",)
    )
    host = supervisor(process)
    await host.start()
    await until(lambda: process.starts >= 3)
    await host.stop()
    assert seen.read_text().splitlines()[:2] == ["['--restored']", "[]"]


async def test_one_that_does_not_obey_is_killed_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ottla.cli.nodes.host.supervisor.STOP_GRACE_S", 0.2)
    deaf = tmp_path / "deaf"
    process = broker(7, DEAF.format(str(deaf)))
    host = supervisor(process)
    await host.start()
    await until(deaf.exists)
    await host.stop()
    assert host.killed == ["broker-7"]


async def test_a_stop_does_not_wait_for_a_process_that_would_start_again_later() -> None:
    process = broker(1, "raise SystemExit(1)")
    host = supervisor(process)
    await host.start()
    await until(lambda: process.starts and process.running is None)
    async with asyncio.timeout(WAIT_S):
        await host.stop()


async def test_signals_reach_all() -> None:
    first, other = broker(1, OBEDIENT), broker(2, OBEDIENT)
    host = supervisor(first, other)
    await host.start()
    await until(lambda: first.running and other.running)
    before = (pid_of(first), pid_of(other))
    host.tell(signal.SIGKILL)
    await until(lambda: pid_of(first) not in before and pid_of(other) not in before)
    await host.stop()


# ---------------------------------------------------------------- one page

DEPTH = Metric("depth", MetricKind.GAUGE, "How deep.", ("topic",))
TIMES = Metric("times", MetricKind.HISTOGRAM, "How long.")
ODD = 'a "b" {c} d'


def page(depth: float) -> str:
    times = Histogram((1.0, 10.0))
    times.observe(depth)
    return "".join(exposition([Family(DEPTH, [(("t",), depth), ((ODD,), 0)]), Family(TIMES, [((), times)])]))


def test_pages_become_one_with_a_label_for_each_broker() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = "".join(merged({1: page(3), 22: page(5)}))
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert list(families) == ["depth", "times"]
    assert text.count("# HELP depth How deep.") == text.count("# TYPE depth gauge") == 1
    depths = {
        (sample.labels["broker"], sample.labels["topic"]): sample.value
        for sample in families["depth"].samples
    }
    assert depths == {("1", "t"): 3, ("1", ODD): 0, ("22", "t"): 5, ("22", ODD): 0}
    counts = {
        sample.labels["broker"]: sample.value
        for sample in families["times"].samples
        if sample.name == "times_count"
    }
    assert counts == {"1": 1, "22": 1}


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_name_that_a_client_has_chosen_ends_no_line(end: str) -> None:
    """Names of groups are labels. A name like this invalidated the page of the whole host."""
    hostile = f"g{end}#"
    text = "".join(merged({1: "".join(exposition([Family(DEPTH, [((hostile,), 7)])]))}))
    assert text.split("\n")[2:] == [f'depth{{broker="1",topic="{hostile}"}} 7', ""]


class Node:
    """A broker that states why it is not ready."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def families(self) -> list[Family]:
        return [Family(DEPTH, [(("t",), 1)])]

    def unready(self) -> str:
        return self.reason


async def test_the_page_tells_who_answers_and_who_is_not_ready(tmp_path: Path) -> None:
    first, other = broker(1, OBEDIENT), broker(2, OBEDIENT)
    host = supervisor(first, other)
    own = []
    for process, reason in ((first, ""), (other, "it is fenced")):
        process.socket = tmp_path / f"{process.node_id}.sock"
        own.append(MonitoringEndpoint("", 0, NodesHere([Node(reason)]), path=process.socket))
        await own[-1].start()
    host_page = HostPage([first, other])
    assert await host_page.unready() == ["broker-1: it does not answer", "broker-2: it does not answer"]
    await host.start()
    await until(lambda: first.running and other.running)
    assert await host_page.unready() == ["broker-2: it is fenced"]
    await own[1].stop()
    (tmp_path / "2.sock").unlink(missing_ok=True)
    text = "".join([piece async for piece in host_page.metrics(0.0)])
    assert 'depth{broker="1",topic="t"} 1' in text
    assert 'depth{broker="2"' not in text
    assert 'ottla_broker_process_up{broker="1"} 1' in text
    assert 'ottla_broker_process_up{broker="2"} 0' in text
    assert 'ottla_broker_process_starts_total{broker="2"} 1' in text
    await host.stop()
    await own[0].stop()
