"""Server-sent events that update an open page in one browser; a browser that does not read its events is dropped."""

from __future__ import annotations

import asyncio
import json
import logging

from starlette.types import Receive, Scope, Send

from ..bounds import SEND_S, SILENCE_S
from .feeds import FeedReader

logger = logging.getLogger(__name__)


class EventStream:
    """An HTTP answer with server-sent events that continues until the browser leaves, is dropped, or the console stops.

    The event `fragment` has the id and HTML of a changed part of the page. The event `trouble` has the reason why
    updates fail; the reason is empty when updates work again.
    """

    def __init__(self, reader: FeedReader, stopping: asyncio.Event, *, send_s: float = SEND_S) -> None:
        self._reader, self._stopping, self._send_s = reader, stopping, send_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [
            asyncio.create_task(self._speak(send)),
            asyncio.create_task(_until_gone(receive)),
            asyncio.create_task(self._stopping.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] in done and isinstance(tasks[0].exception(), TimeoutError):
                logger.info("a browser did not read its events for %.0f s, and was dropped", self._send_s)
            elif tasks[2] in done:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._reader.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _speak(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            text = await self._next()
            # `send` waits for the browser once all buffers are full.
            async with asyncio.timeout(self._send_s):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _next(self) -> str:
        try:
            async with asyncio.timeout(SILENCE_S):
                fragments, trouble = await self._reader.news()
        except TimeoutError:
            return ": still here\n\n"
        events = [_event("fragment", {"id": name, "html": html}) for name, html in fragments.items()]
        if trouble is not None:
            events.append(_event("trouble", {"text": trouble}))
        return "".join(events)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(name: str, data: dict[str, str]) -> str:
    """Return the text of a server-sent event whose data is JSON. JSON has no line breaks, which would end the event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
