"""Costs of wide fetch sessions for their broker: the longest turn of its loop, and CPU for an answer.

    python -m benchmarks.fetch_sessions [--sessions N] [--partitions N] [--record FILE]

Each session has every partition of one topic. All sessions are opened at once, then all wait for records at once. One
record comes, and all are answered; this happens twice. The first wait checks each partition once more. Finally all ask
again at once without a wait.

Each step is shown with the longest turn: the CPU that the broker's main thread uses until a bystander's ApiVersions is
answered. So it is independent of other load on the machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ottla
import ottla.sync
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.headers import decode_response, encode_request

from .churn import resident_mb
from .clusters import ottla_cluster
from .long_turns import SETTINGS, connect, main_thread_cpu_s, read_frame, watch
from .rounds import record

VERSION = 12
TOPIC = "wide"


def request(partitions: int, *, session: tuple[int, int], max_wait_ms: int) -> bytes:
    """Make a request for `partitions` partitions from their beginnings. `session` is the id and the epoch."""
    session_id, session_epoch = session
    places = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    message = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=TOPIC, partitions=places)] if places else [],
    )
    return encode_request(message, VERSION, 1, "session")


def answer(sock: socket.socket) -> FetchResponse:
    frame = read_frame(sock)
    assert frame is not None
    told = decode_response(FetchRequest, frame, VERSION)[1]
    assert not told.error_code, told
    return told


def wait_until_led(bootstrap: str, partitions: int) -> None:
    """Wait until the broker leads every partition; sessions opened earlier would get later updates."""
    with connect(bootstrap) as sock:
        while True:
            sock.sendall(request(partitions, session=(0, -1), max_wait_ms=0))
            if not any(one.error_code for topic in answer(sock).responses for one in topic.partitions):
                return
            time.sleep(0.1)


class Sessions:
    """Connections with one session each, which has every partition."""

    def __init__(self, bootstrap: str, sessions: int, partitions: int) -> None:
        self.sockets = [connect(bootstrap) for _ in range(sessions)]
        self.opening = request(partitions, session=(0, 0), max_wait_ms=0)
        self.ids: list[int] = []
        self.epoch = 0

    def open(self) -> None:
        for sock in self.sockets:
            sock.sendall(self.opening)
        self.ids = [answer(sock).session_id for sock in self.sockets]
        assert all(self.ids), "a session was not granted"

    def ask(self, max_wait_ms: int) -> None:
        self.epoch += 1
        for sock, session_id in zip(self.sockets, self.ids, strict=True):
            sock.sendall(request(0, session=(session_id, self.epoch), max_wait_ms=max_wait_ms))

    def answers(self) -> list[FetchResponse]:
        return [answer(sock) for sock in self.sockets]


def measured(
    bootstrap: str, pid: int, sessions: int, partitions: int, produce: Callable[[], object]
) -> list[dict[str, object]]:
    """Return a row for each step."""
    peaks = multiprocessing.Array("d", 2)
    watching = multiprocessing.Process(target=watch, args=(bootstrap, pid, peaks), daemon=True)
    watching.start()
    rows: list[dict[str, object]] = []
    asked = Sessions(bootstrap, sessions, partitions)

    def step(name: str, work: Callable[[], object]) -> None:
        time.sleep(0.3)
        before_mb, before_s = resident_mb(pid), main_thread_cpu_s(pid)
        peaks[0], peaks[1] = 0.0, before_mb
        work()
        cpu_s = main_thread_cpu_s(pid) - before_s
        time.sleep(0.1)
        rows.append(
            {
                "step": name, "sessions": sessions, "partitions": partitions,
                "turn_ms": round(peaks[0] * 1000, 1), "cpu_ms_per_answer": round(cpu_s * 1000 / sessions, 2),
                "more_mb": round(peaks[1] - before_mb, 1),
            }
        )  # fmt: skip

    def wait_for_a_record() -> None:
        asked.ask(max_wait_ms=60_000)
        produce()
        told = asked.answers()
        counts = {sum(len(topic.partitions) for topic in one.responses) for one in told}
        assert counts == {1}, f"answers name {counts} partitions"

    def ask_at_once() -> None:
        asked.ask(max_wait_ms=0)
        asked.answers()

    try:
        step("open", asked.open)
        step("wait, one record comes", wait_for_a_record)
        step("the same again", wait_for_a_record)
        step("ask, not waiting", ask_at_once)
    finally:
        watching.terminate()
        watching.join()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ottla_cluster(Path(folder), brokers=1, quorum=1, settings=SETTINGS) as cluster,
        ottla.sync.Admin(bootstrap_servers=cluster.bootstrap) as admin,
        ottla.sync.Producer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        admin.create_topics([ottla.NewTopic(TOPIC, args.partitions, 1)])

        def produce() -> None:
            producer.send(TOPIC, b"x", partition=0)
            producer.flush()

        wait_until_led(cluster.bootstrap, args.partitions)
        rows = measured(cluster.bootstrap, cluster.brokers[0].pid, args.sessions, args.partitions, produce)
    table = Table("step", "sessions", "partitions", "longest turn, ms", "CPU, ms an answer", "memory, MB")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
    if args.record is not None:
        record(args.record, rows=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
