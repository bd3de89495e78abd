"""The packages that Spark pipelines need: a recent enough PySpark, and pyarrow."""

from __future__ import annotations

from ..extras import installation_of

FIRST_VERSION = (4, 2)


def need_pyspark() -> None:
    """Check that PySpark and pyarrow are installed.

    Raises ModuleNotFoundError with the command that installs them, and ImportError if PySpark is too old.
    """
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Spark pipelines need PySpark: {installation_of('spark')}", name="pyspark"
        ) from error
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < FIRST_VERSION:
        raise ImportError(f"PySpark {pyspark.__version__} is too old: format('ottla') needs 4.2 or newer")
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"format('ottla') needs pyarrow: {installation_of('spark')}", name="pyarrow"
        ) from error
