"""Reading of submitted HTML forms, with limits on their time, bytes and number of fields."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from .area import BadQuestion
from .bounds import FIELDS_MAX, FORM_BYTES_MAX, QUESTION_S


async def fields_of(request: Request) -> dict[str, str]:
    """Read the body of a submitted HTML form, and return its fields by name.

    Raises BadQuestion for a malformed or too large form, and for one that takes longer than QUESTION_S seconds.
    """
    try:
        async with asyncio.timeout(QUESTION_S):
            return await _fields_of(request)
    except TimeoutError:
        raise BadQuestion(f"it took longer than {QUESTION_S:g} s to arrive") from None
    except ClientDisconnect:
        raise BadQuestion("the browser went away meanwhile") from None


async def _fields_of(request: Request) -> dict[str, str]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            raise BadQuestion(f"a form has {FORM_BYTES_MAX} bytes at most")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise BadQuestion(f"this is no form: {error}") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
