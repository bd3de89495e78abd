"""Names of exceptions' classes, for readers of dead letters and of traces. Pure."""

from __future__ import annotations


def error_type(error: BaseException) -> str:
    """Return the name of an exception's class, with its module unless it is built in. Exceptions of Ottla have the
    name by which programs import them."""
    kind = type(error)
    package = "ottla" if kind.__module__.startswith("ottla.") else kind.__module__
    return kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}"
