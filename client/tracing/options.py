"""The option that turns traces on, and the check that their package is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...extras import installation_of
from ..declared_options import optional

if TYPE_CHECKING:
    from .attempts import AttemptTraces
    from .spans import Creation, Handling


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingOptions:
    """Options of traces."""

    tracing: bool = optional(
        False,
        "Whether records and their handling are traced by OpenTelemetry. A sent record gets the W3C trace context as "
        "a header. `async for` over a Consumer, the handler of a Worker, and the block of a ShareTask handle each "
        "record in a span, which is linked to that context. Needs the extra `otel`.",
    )

    def creation(self, client_id: str) -> Creation | None:
        """Return the maker of the spans of created records; None without traces.

        Raises ModuleNotFoundError without opentelemetry-api.
        """
        if not self.tracing:
            return None
        try:
            from .spans import Creation
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        return Creation(client_id)

    def handling(self, client_id: str, group_id: str | None) -> Handling | None:
        """Return the maker of the spans of handled records; None without traces.

        Raises ModuleNotFoundError without opentelemetry-api.
        """
        if not self.tracing:
            return None
        try:
            from .spans import Handling
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        return Handling(client_id, group_id)

    def attempts(self, client_id: str, group_id: str) -> AttemptTraces | None:
        """Return the traces of a worker's attempts; None without traces.

        Raises ModuleNotFoundError without opentelemetry-api.
        """
        if not self.tracing:
            return None
        try:
            from .attempts import AttemptTraces
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        return AttemptTraces(client_id, group_id)


def _missing(error: ModuleNotFoundError) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"tracing=True needs opentelemetry-api: {installation_of('otel')}", name=error.name
    )
