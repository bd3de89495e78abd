"""ApiVersions (0-4): what the registered handlers serve, nothing else."""

from __future__ import annotations

import re

from ....protocol.errors import ErrorCode
from ....protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ..handler import Handler, HandlerTable, Request, handles

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def unsupported_version_response(handler: Handler) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that we do not know: our range for it (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(handler)])


class ApiVersionsHandlers:
    """Derives the answer from the handler table, so that it cannot promise what is not there."""

    def __init__(self, table: HandlerTable) -> None:
        self._table = table

    @handles(ApiVersionsRequest, 0, 4)
    def api_versions(self, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
        """All registered APIs. No features are finalised: clients then use the oldest behaviour of each."""
        if request.api_version >= 3 and not (
            _SOFTWARE.fullmatch(message.client_software_name)
            and _SOFTWARE.fullmatch(message.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        return ApiVersionsResponse(api_keys=[_entry(handler) for handler in self._table])


def _entry(handler: Handler) -> ApiVersion:
    return ApiVersion(
        api_key=handler.api_key,
        min_version=handler.advertised_min_version,
        max_version=handler.max_version,
    )
