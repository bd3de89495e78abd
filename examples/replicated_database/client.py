"""The database's client: it finds the master of a key, and reports if an outcome is uncertain. Also a command:
`--help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

from .changes import Row, Statement, Value
from .lines import Said, dialled
from .master import Doubtful, Placed
from .replica import View

PATIENCE_S = 60.0
PAUSE_S = 0.1
ANSWER_S = 30.0
"""Longest time for an answer, unless the node hangs."""
FIND_S = 3.0


class Rejected(Exception):
    """A refused request that has changed nothing, for example a row that the table does not allow."""


class Found(NamedTuple):
    """Rows, and the position in the log at which they were read."""

    rows: list[Row]
    placed: Placed


class Database:
    """A database that is reached through the nodes at these addresses. Each node knows where the masters are.

    Each request opens a separate connection.
    """

    def __init__(
        self, nodes: Sequence[str], patience_s: float = PATIENCE_S, answer_s: float = ANSWER_S
    ) -> None:
        """Set the nodes and timeouts.

        `patience_s`: how long to look for a master; `answer_s`: how long to wait for its answer, as it may hang.
        """
        self._answer_s = answer_s
        self._nodes = list(nodes)
        self._patience_s = patience_s
        self._masters: dict[str, str] = {}

    async def write(self, *statements: Statement) -> list[Placed]:
        """Run all statements in one transaction, in any partitions. Return once the write survives a loss of the nodes.

        Every later read at a master sees the write. Raises Rejected, and Doubtful if the outcome is unknown.
        """
        answer = await self._of_master(
            statements[0].key, {"write": [statement._asdict() for statement in statements]}
        )
        return [Placed(*place) for place in answer["placed"]]

    async def read(self, key: str, sql: str, *args: Value) -> Found:
        """Query the partition of `key` at its master: linearizable. Raises the same errors as `write`."""
        answer = await self._of_master(key, {"read": {"key": key, "sql": sql, "args": list(args)}})
        return Found(answer["rows"], Placed(*answer["placed"]))

    async def view(self, node: str, sql: str, *args: Value) -> View:
        """Query all partitions of this node. Raises Doubtful if the node is unreachable or has not caught up."""
        return View(**await _asked(node, {"view": {"sql": sql, "args": list(args)}}, self._answer_s))

    async def _of_master(self, key: str, request: Said) -> Said:
        """Ask the master of `key`; repeat the request while it is certain that no change has happened."""
        deadline = time.monotonic() + self._patience_s
        while True:
            master = self._masters.pop(key, None)
            try:
                if master is None:
                    master = await self._find(key)
                answer = await _asked(master, request, self._answer_s)
            except _NotHere as error:
                if time.monotonic() > deadline:
                    raise Rejected(f"{key!r} has no master: {error}") from error
                await asyncio.sleep(PAUSE_S)
            else:
                self._masters[key] = master
                return answer

    async def _find(self, key: str) -> str:
        """Return the address of the master that the group has assigned, from any node that answers."""
        for node in self._nodes:
            with suppress(Doubtful, Rejected):
                found = (await _asked(node, {"where": key}, FIND_S))["master"]
                if found is not None:
                    return str(found)
        raise _NotHere("no node knows one")


class _NotHere(Doubtful):
    """An error before any change; another node may know the master."""


async def _asked(node: str, request: Said, timeout_s: float) -> Said:
    async with AsyncExitStack() as stack:
        try:
            line = await stack.enter_async_context(dialled(node))
        except ConnectionError as error:
            raise _NotHere(f"{node}: {error}") from error
        try:
            async with asyncio.timeout(timeout_s):
                answer = await line.ask(request)
        except (ConnectionError, TimeoutError) as error:
            raise Doubtful(f"{node}: {error or 'no answer in time'}") from error
    match answer.get("error"):
        case None:
            return answer
        case "not here":
            raise _NotHere(answer["message"])
        case "refused":
            raise Rejected(answer["message"])
    raise Doubtful(answer["message"])


def main() -> None:
    """Send one request, and print its answer as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.replicated_database.client", description=__doc__
    )
    parser.add_argument("--nodes", default="127.0.0.1:7001", help="host:port of nodes, with commas between")
    parser.add_argument("what", choices=("write", "read", "view"))
    parser.add_argument("key", help="whose partition; for a view the address of a node")
    parser.add_argument("sql", help="with ? for each of the arguments")
    parser.add_argument("args", nargs="*", type=_value)
    options = parser.parse_args()
    database = Database(options.nodes.split(","))

    async def ask() -> object:
        match options.what:
            case "write":
                return await database.write(Statement(options.key, options.sql, options.args))
            case "read":
                return (await database.read(options.key, options.sql, *options.args))._asdict()
            case _:
                return (await database.view(options.key, options.sql, *options.args))._asdict()

    try:
        print(json.dumps(asyncio.run(ask())))
    except Rejected as error:
        sys.exit(f"nothing has changed: {error}")
    except Doubtful as error:
        sys.exit(f"in doubt: {error}")


def _value(text: str) -> Value:
    return int(text) if text.lstrip("-").isdecimal() else text


if __name__ == "__main__":
    main()
