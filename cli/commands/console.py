"""`ottla console`: serves web pages about a cluster to browsers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...console.requirements import require_extra
from ..arguments.options import CommandParser, add_connection, command_parser
from ..connection.precedence import connection_of
from ..failures import CommandFailed, UsageError
from ..nodes import logs
from ..run_client import run_client
from ..terminal.text import note, say

LISTEN = "127.0.0.1:9280"


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla console`."""
    options = command_parser(
        f"ottla {name}",
        "Serve pages about a cluster, of Ottla or of Apache Kafka, until Control-C.",
        "  ottla console -b localhost:9092\n"
        "  ottla console --profile production --listen 127.0.0.1:8000\n"
        "  ottla console --allow-changes --metrics http://127.0.0.1:9644/metrics\n"
        "  ottla console --schema-registry http://127.0.0.1:8081\n"
        "  ottla console --listen 0.0.0.0:9280 --public https://console.example.com --token-file token\n"
        "  ottla console --login -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512",
    )
    add_connection(options)
    options.add_argument(
        "--listen",
        default=LISTEN,
        metavar="HOST:PORT",
        help=f"address to listen at ({LISTEN}); port 0 takes any free port",
    )
    options.add_argument(
        "--public",
        action="append",
        default=[],
        metavar="URL",
        help="another address under which browsers reach the console, such as that of a proxy; may be repeated",
    )
    options.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that browsers must show (default: a random token, which is printed)",
    )
    options.add_argument(
        "--show-token",
        action="store_true",
        help="with --token-file: print the address with the token, for a browser to open",
    )
    options.add_argument(
        "--login",
        action="store_true",
        help="people sign in with a user and a password of the cluster, and act as that user; there is no token",
    )
    options.add_argument("--allow-changes", action="store_true", help="allow changes of the cluster")
    options.add_argument(
        "--open", action="store_true", help="open the address in the browser of this machine"
    )
    options.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="URL",
        help="a broker's metrics endpoint, for rates of bytes; repeated for each broker",
    )
    options.add_argument(
        "--metrics-token-file",
        type=Path,
        metavar="FILE",
        help="file with the bearer token of these endpoints",
    )
    options.add_argument(
        "--schema-registry",
        metavar="URL",
        help="address of a schema registry, for keys and values in Avro and Protobuf",
    )
    options.add_argument(
        "--schema-registry-login-file",
        type=Path,
        metavar="FILE",
        help="file with USER:PASSWORD for the schema registry",
    )
    return options


def run(arguments: argparse.Namespace) -> int:
    """Serve the console's web pages until the process is stopped.

    Raises CommandFailed if the console's dependencies are missing, UsageError for options that do not fit together.
    """
    try:
        require_extra(with_schemas=arguments.schema_registry is not None)
    except ModuleNotFoundError as error:
        raise CommandFailed(str(error)) from None
    from ...console.security import listen_address
    from ...console.serving import ConsoleSettings, serve

    if arguments.show_token and arguments.token_file is None:
        raise UsageError(
            "--show-token goes with --token-file: a token that the console makes is shown anyway"
        )
    for address in arguments.metrics:
        if not address.startswith(("http://", "https://")):
            raise UsageError(f"--metrics takes http://HOST:PORT/metrics or https://..., not {address!r}")
    try:
        settings = ConsoleSettings(
            connection=_connection(arguments),
            listen=listen_address(arguments.listen),
            public=arguments.public,
            token=_secret(arguments.token_file),
            shows_token=arguments.show_token,
            has_login=arguments.login,
            may_change=arguments.allow_changes,
            metrics=arguments.metrics,
            metrics_token=_secret(arguments.metrics_token_file),
            schema_registry=_registry(arguments.schema_registry),
            schema_registry_login=_secret(arguments.schema_registry_login_file),
        )
    except ValueError as error:
        raise UsageError(f"console: {error}") from None
    logs.configure("warning")

    def tell(address: str) -> None:
        say(address, flush=True)
        note("the console runs; Control-C stops it")
        if arguments.open:
            import webbrowser

            webbrowser.open(address)

    run_client(serve(settings, tell), waits_for=None)
    return 0


def _registry(address: str | None) -> str | None:
    """Return the URL of the schema registry after a check.

    Raises ValueError; its text never repeats the URL, which may contain a password.
    """
    from ...console.schemas.registry import registry_address

    if address is None:
        return None
    try:
        return registry_address(address)
    except ValueError as error:
        raise ValueError(f"--schema-registry: {error}") from None


def _connection(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the console's connection to the cluster; with `--login`, without the user of a profile."""
    if not arguments.login:
        return connection_of(arguments)
    given = connection_of(arguments, asks_password=False)
    return {name: value for name, value in given.items() if not name.startswith("sasl_plain_")}


def _secret(file: Path | None) -> str | None:
    """Return the secret in the first line of a file, or None without a file. Raises OSError."""
    return None if file is None else file.read_text().strip().partition("\n")[0].strip()
