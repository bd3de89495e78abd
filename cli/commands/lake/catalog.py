"""`ottla lake catalog`: the tables' catalog over HTTP, for engines that read."""

from __future__ import annotations

import argparse
import asyncio

from ....console.security import listen_address
from ...failures import CommandFailed, UsageError
from ...nodes import logs
from ...terminal.text import note, say
from .place import lake_of, refusals


def serve_catalog(arguments: argparse.Namespace) -> None:
    """Answer requests of engines until a signal."""
    place = lake_of(arguments, with_catalog=True)
    from ....lake.iceberg.catalogs import open_catalog
    from ....lake.rest_catalog import serve_catalog as serve

    try:
        listen = listen_address(arguments.listen)
    except ValueError as error:
        raise UsageError(f"lake catalog: {error}") from None
    logs.configure("warning")
    with refusals():
        catalog = open_catalog(place)
    try:
        listening = listen.bound()
    except OSError as error:
        raise CommandFailed(f"--listen {arguments.listen}: {error.strerror or error}") from None
    with listening:
        listening.listen()  # A program that reads the address may connect at once.
        say(f"http://{listen.in_url(listening.getsockname()[1])}", flush=True)
        note("the lake's catalog runs; Control-C stops it")
        if not listen.is_loopback:
            note("everybody who reaches this address can read the tables' metadata: there is no login")
        asyncio.run(serve(catalog, listening, loopback_only=listen.is_loopback))
