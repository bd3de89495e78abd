"""Ottla: public names. The code stands in the folders beside this one (client/, dataplane/, ...)."""

from pathlib import Path as _Path

_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "protocol").is_dir():
    __path__.append(str(_checkout))  # running from a checkout: ottla.client is ../client

__version__ = "0.1.0"
