"""The longest turn of a broker's loop, and its memory, for the worst request of every API.

    python -m benchmarks.long_turns [--elements N ...] [--record FILE]

For each array of a request, a request is sent in which the array has N elements that name nothing that exists. Another
connection sends ApiVersions continuously: the CPU that the broker's main thread uses until the answer bounds the
longest turn, independently of other load on the machine. The table also has the peak of additional resident memory, the
size of the request, and its result.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import pkgutil
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import ottla.protocol.messages
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.wire.schema import Message
from tests.worst_requests import requests, widest

from .churn import resident_mb
from .clusters import ottla_cluster
from .rounds import record

ELEMENTS = (9_000, 20_000, 90_000)
ANSWER_TIMEOUT_S = 120.0
SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.replication.factor": "1"}
_PROBE = ApiVersionsRequest(client_software_name="probe", client_software_version="1")

for _module in pkgutil.iter_modules(ottla.protocol.messages.__path__):
    importlib.import_module(f"ottla.protocol.messages.{_module.name}")


def main_thread_cpu_s(pid: int) -> float:
    """Return the CPU seconds that the main thread has used so far."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.partition(":")
    return socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S)


def read_frame(sock: socket.socket) -> bytes | None:
    """Return the next answer; None if the broker closes the connection."""
    data = bytearray()
    needed = 4
    while len(data) < needed:
        received = sock.recv(min(needed - len(data), 1 << 20))
        if not received:
            return None
        data += received
        if len(data) == 4:
            needed += struct.unpack(">i", data)[0]
    return bytes(data[4:])


def watch(bootstrap: str, pid: int, peaks: Any) -> None:
    """Send requests continuously; `peaks` are the most CPU seconds for one answer, and the most resident memory."""
    sock, question = connect(bootstrap), encode_request(_PROBE, 3, 1, "probe")
    while True:
        began_s = main_thread_cpu_s(pid)
        sock.sendall(question)
        read_frame(sock)
        peaks[0] = max(peaks[0], main_thread_cpu_s(pid) - began_s)
        peaks[1] = max(peaks[1], resident_mb(pid))
        time.sleep(0.002)


def served(bootstrap: str) -> dict[int, int]:
    """Return the newest version of each API."""
    with connect(bootstrap) as sock:
        sock.sendall(encode_request(_PROBE, 3, 1, "served"))
        frame = read_frame(sock)
        assert frame is not None
        answer = decode_response(ApiVersionsRequest, frame, 3)[1]
    return {entry.api_key: entry.max_version for entry in answer.api_keys}


def prepare(bootstrap: str) -> None:
    """Wait until the broker coordinates groups."""
    question = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    with connect(bootstrap) as sock:
        while True:
            sock.sendall(encode_request(question, 4, 1, "prepare"))
            frame = read_frame(sock)
            assert frame is not None
            if not decode_response(FindCoordinatorRequest, frame, 4)[1].coordinators[0].error_code:
                return
            time.sleep(0.2)


def worst(versions: dict[int, int], elements: int) -> Iterator[tuple[str, int, Message]]:
    """Yield the name, the version and the request of each case."""
    for request_class in requests():
        version = versions.get(request_class.schema.api_key)
        if version is None:
            continue
        name = request_class.__name__.removesuffix("Request")
        for path, message in widest(request_class, version, elements):
            if isinstance(message, FetchRequest):
                message.max_wait_ms, message.session_epoch = 0, -1
                message.replica_state.replica_id = -1
            yield f"{name} {'.'.join(field.name for field in path)}", version, message


def ask(bootstrap: str, frame: bytes) -> str:
    """Send a request, and return a description of the result."""
    with connect(bootstrap) as sock:
        try:
            sock.sendall(frame)
            answer = read_frame(sock)
        except ConnectionError:
            answer = None
        except TimeoutError:
            return "no answer"
    return "hung up" if answer is None else f"{len(answer) / 1e6:.2f} MB"


def measure(bootstrap: str, pid: int, elements: int) -> Iterator[dict[str, object]]:
    """Yield a row for each request."""
    peaks = multiprocessing.Array("d", 2)
    watching = multiprocessing.Process(target=watch, args=(bootstrap, pid, peaks), daemon=True)
    watching.start()
    try:
        for name, version, message in worst(served(bootstrap), elements):
            frame = encode_request(message, version, 1, "worst")
            time.sleep(0.2)
            before_mb = resident_mb(pid)
            peaks[0], peaks[1] = 0.0, before_mb
            outcome = ask(bootstrap, frame)
            time.sleep(0.1)
            yield {
                "request": name, "elements": elements, "request_mb": round(len(frame) / 1e6, 2),
                "turn_ms": round(peaks[0] * 1000), "more_mb": round(peaks[1] - before_mb), "answer": outcome,
            }  # fmt: skip
    finally:
        watching.terminate()
        watching.join()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--elements", type=int, nargs="+", default=ELEMENTS)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ottla_cluster(Path(folder), brokers=1, quorum=1, settings=SETTINGS) as cluster,
    ):
        prepare(cluster.bootstrap)
        for elements in args.elements:
            rows += measure(cluster.bootstrap, cluster.brokers[0].pid, elements)
    table = Table("request", "elements", "MB", "longest turn, ms", "memory, MB", "answer")
    for row in sorted(rows, key=lambda row: -int(str(row["turn_ms"]))):
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
    if args.record is not None:
        record(args.record, rows=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
