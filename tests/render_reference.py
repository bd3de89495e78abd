"""The pages of docs/reference/, made from signatures, docstrings, declared options and parsers;
`python -m tests.render_reference` writes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

import ottla
from ottla.client.admin.options import ADMIN_OPTIONS
from ottla.client.consuming.options import CONSUMER_OPTIONS
from ottla.client.declared_options import DeclaredOption
from ottla.client.exactly_once.options import EXACTLY_ONCE_OPTIONS
from ottla.client.producing.options import PRODUCER_OPTIONS, WRITER_OPTIONS
from ottla.client.security.options import SecurityOptions
from ottla.client.sharing.options import SHARE_OPTIONS
from ottla.client.worker.options import WORKER_OPTIONS
from tests.reference import command_line, spark
from tests.reference.markdown import code, paragraph, table
from tests.reference.options import COLUMNS, option_row, option_tables
from tests.reference.python import call_text, calls, class_text, value_text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "`make reference` makes this page from the code, and a test compares both.\n"
CLIENTS = (
    ottla.Producer,
    ottla.Consumer,
    ottla.Admin,
    ottla.ExactlyOnce,
    ottla.Worker,
    ottla.TransactionWriter,
    ottla.Transaction,
    ottla.ConsumedBatch,
    ottla.ShareConsumer,
    ottla.ShareTask,
    ottla.Backup,
)
SECURITY = tuple(option for option in PRODUCER_OPTIONS if option.group is SecurityOptions)


def render() -> dict[str, str]:
    """Return the text of each page by its name."""
    return {
        "README.md": index(),
        "producer.md": client_page(ottla.Producer, PRODUCER_OPTIONS),
        "consumer.md": client_page(ottla.Consumer, CONSUMER_OPTIONS),
        "admin.md": client_page(ottla.Admin, ADMIN_OPTIONS),
        "exactly-once.md": client_page(ottla.ExactlyOnce, EXACTLY_ONCE_OPTIONS),
        "worker.md": client_page(ottla.Worker, WORKER_OPTIONS),
        "share-consumer.md": client_page(ottla.ShareConsumer, SHARE_OPTIONS),
        "share-task.md": client_page(ottla.ShareTask, ()),
        "transaction-writer.md": client_page(ottla.TransactionWriter, WRITER_OPTIONS),
        "transaction.md": client_page(ottla.Transaction, ()),
        "consumed-batch.md": client_page(ottla.ConsumedBatch, ()),
        "backup.md": client_page(ottla.Backup, ()),
        "security.md": security(),
        "values.md": page(
            "Values and functions",
            "This page has the values that the clients take and return, and the other public names of `ottla`.",
            *(part for name in values() for part in named(name)),
        ),
        "errors.md": errors(),
        "spark.md": page(
            'Options of `format("ottla")`',
            "This page has the options of the source and the sink. [SPARK.md](../SPARK.md) explains their use. Names "
            "are taken in any case. Options that begin with `kafka.` are the client's: those of "
            "[secured clusters](security.md) are taken, too, with dots, such as `kafka.ssl.cafile`.",
            spark.text(),
        ),
        "command-line.md": page(
            "All commands and options",
            "This page has every command, action and option of `ottla`. [CLI.md](../CLI.md) explains them by "
            "examples. `ottla COMMAND --help` shows the same in a terminal.",
            command_line.text(),
        ),
    }


def page(title: str, *parts: str) -> str:
    """Return the text of a page."""
    text = "\n".join([f"# {title}\n", paragraph(parts[0]), MADE, *parts[1:]])
    return text.rstrip() + "\n"


def client_page(kind: type, options: Iterable[DeclaredOption]) -> str:
    """Return the page of a client: its text, its options if it has some, and its calls."""
    name, options = kind.__name__, tuple(options)
    has = "option and call" if options else "call"
    body = list(class_text(kind, level=3))
    tables = ["## Options\n", *option_tables(options)] if options else []
    return page(
        f"`ottla.{name}`",
        f"This page has every {has} of `ottla.{name}`. Each is in `ottla.sync.{name}`, too, for programs without an "
        "event loop, which do not await calls.",
        *body[:1],
        *tables,
        "## Calls\n",
        *body[1:2],
        *waits(name),
        *body[2:],
    )


def waits(name: str) -> Iterable[str]:
    """Yield a sentence with the calls that have a timeout in the synchronous class alone, if there are some."""
    waiting, blocking = calls(getattr(ottla, name)), calls(getattr(ottla.sync, name))
    limited = [
        code(call)
        for call, function in blocking.items()
        if has_timeout(function) and not has_timeout(waiting[call])
    ]
    if limited:
        yield paragraph(
            f"Of `ottla.sync.{name}`, these calls have one more argument, `timeout_ms`, the longest wait for the call: "
            f"{', '.join(limited)}."
        )


def has_timeout(call: object) -> bool:
    """Return whether a method has an argument `timeout_ms`."""
    return inspect.isfunction(call) and "timeout_ms" in inspect.signature(call).parameters


def security() -> str:
    """Return the page of the options that every client has for secured clusters."""
    return page(
        "Options of secured clusters",
        "This page has the options for TLS and logins, which all clients take. "
        "[CLIENT.md](../CLIENT.md#clusters-that-are-secured) explains their use.",
        table(COLUMNS, map(option_row, SECURITY)),
    )


def is_error(name: str) -> bool:
    """Return whether a public name is an exception."""
    found = getattr(ottla, name)
    return isinstance(found, type) and issubclass(found, Exception)


def values() -> list[str]:
    """Return the public names that are neither clients nor errors."""
    others = {client.__name__ for client in CLIENTS} | {"ErrorCode", "sync"}
    return [name for name in ottla.__all__ if name not in others and not is_error(name)]


def named(name: str) -> Iterable[str]:
    """Yield the text of a public name: a class, a function or a number."""
    found = getattr(ottla, name)
    yield f"## {name}\n"
    if inspect.isfunction(found):
        yield from call_text(name, found)
    elif isinstance(found, type):
        yield from value_text(found)
    else:
        yield f"The number {code(str(found))}.\n"


def errors() -> str:
    """Return the page of exceptions and error codes."""
    names = sorted(filter(is_error, ottla.__all__), key=lambda name: (name != "KafkaError", name))
    parts = [part for name in names for part in error_text(getattr(ottla, name))]
    rows = ((code(each.name), str(each.value), "yes" if each.retriable else "") for each in ottla.ErrorCode)
    return page(
        "Errors",
        "This page has the exceptions of `ottla`, and the codes that they carry. "
        "[CLIENT.md](../CLIENT.md#rules-for-all-calls) explains how to treat them.",
        *parts,
        "## Error codes\n",
        "Codes from -1 on are Kafka's. Lower codes are for failures that the client itself found. A retriable code may "
        "go away by itself.\n",
        table(("code", "number", "retriable"), rows),
    )


def error_text(kind: type) -> Iterable[str]:
    """Yield the text of an exception, and the exception that it is a kind of."""
    yield f"## {kind.__name__}\n"
    base = kind.__mro__[1]
    yield f"A kind of {code(base.__name__)}.\n"
    yield from value_text(kind)


def index() -> str:
    """Return the first page, which links to all others."""
    return page(
        "Reference",
        "This page lists the pages of the reference. Each of them names everything of its kind, made from the code.",
        table(("page", "content"), ROWS),
    )


ROWS = (
    ("[producer.md](producer.md)", "`Producer`: every option and call"),
    ("[consumer.md](consumer.md)", "`Consumer`: every option and call"),
    ("[admin.md](admin.md)", "`Admin`: every option and call"),
    ("[exactly-once.md](exactly-once.md)", "`ExactlyOnce`: every option and call"),
    ("[worker.md](worker.md)", "`Worker`: every option and call"),
    ("[share-consumer.md](share-consumer.md)", "`ShareConsumer`: every option and call"),
    ("[share-task.md](share-task.md)", "`ShareTask`: every call"),
    ("[transaction-writer.md](transaction-writer.md)", "`TransactionWriter`: every option and call"),
    ("[transaction.md](transaction.md)", "`Transaction`: every call"),
    ("[consumed-batch.md](consumed-batch.md)", "`ConsumedBatch`: every call"),
    ("[backup.md](backup.md)", "`Backup`: every call"),
    ("[security.md](security.md)", "options of TLS and logins, common to all clients"),
    ("[values.md](values.md)", "values that the clients take and return"),
    ("[errors.md](errors.md)", "exceptions and error codes"),
    ("[spark.md](spark.md)", '`format("ottla")`: every option of the source and the sink'),
    ("[command-line.md](command-line.md)", "every command, action and option of `ottla`"),
    ("[CONFIGURATION.md](../CONFIGURATION.md)", "every setting of topics, nodes, groups and client metrics"),
    ("[METRICS.md](../METRICS.md)", "every metric of every node"),
    ("[SUPPORT.md](../SUPPORT.md)", "every API and version of the protocol"),
)


def write() -> None:
    """Write the pages, and remove pages that no longer exist."""
    made = render()
    FOLDER.mkdir(exist_ok=True)
    for old in {path.name for path in FOLDER.glob("*.md")} - made.keys():
        (FOLDER / old).unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write()
