"""The public names of Ottla, which `__init__.pyi` lists. The code is in the folders beside this one (client/, ...).

from ottla import Consumer, KafkaError, Producer

A name is imported when it is first used: brokers and quorum nodes import this package, too, and need no client code.
`ottla.sync` has the clients for programs without an event loop.
"""

from pathlib import Path as _Path

from lazy_loader import attach_stub as _attach_stub

from .version import __version__ as __version__

_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "protocol").is_dir():
    __path__.append(str(_checkout))  # running from a checkout: ottla.client is ../client

_imported, __dir__, __all__ = _attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name at its first use. Raises AttributeError with the nearest public name for any other name."""
    if name in __all__:
        return _imported(name)
    from ottla.protocol.nearest import nearest

    meant = nearest(name, __all__)
    # For `from ottla import` Python itself adds a suggestion, since 3.12.
    raise AttributeError(f"ottla has no {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
