"""HTTP routes of the console's areas: pages and forms are answered within QUESTION_S seconds, and rendered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ..protocol.errors import KafkaError
from .area import Action, Area, BadQuestion, Change, Download, Form, Outdated, Rendered, View, Visit
from .bounds import QUESTION_S
from .change_log import ChangeLog
from .failing import EXPECTED, Failure, failure_of
from .formats import link
from .forms import fields_of
from .live.feeds import TooManyStreams
from .live.streams import EventStream
from .notices import Notices
from .rendering import Templates
from .schemas.decoding import Decoder
from .sessions import session_of

EVENTS: Final = "/events"
"""The prefix of a page's path for its event stream."""
APPLY: Final = "apply"
"""The value of the field `step` in a form whose preview was seen."""
FORM_VALUE: Final = "form_value"
PREVIEW: Final = "preview"
"""The field with the number of the preview that was seen."""
_READ_ONLY = Failure(
    403,
    "This console only reads",
    "start it with 'ottla console --allow-changes' or 'ottla up --console=changes' to create, alter, trim and delete",
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """The objects that all pages share, whatever the session."""

    may_change: bool
    templates: Templates
    notices: Notices
    schemas: Decoder | None


@dataclass(frozen=True, slots=True)
class PreviewPage:
    """The data that the template of a preview shows: the planned change and the preview's number.

    `outdated` is the reason why an earlier preview of this change was not carried out, or empty.
    """

    change: Change
    number: str
    outdated: str


class Routes:
    """The HTTP handlers of the pages and forms of areas."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts

    def routes(self, areas: Sequence[Area]) -> list[BaseRoute]:
        """Return the HTTP routes of all pages, event streams and forms of these areas.

        Raises ValueError for a path outside its area.
        """
        routes: list[BaseRoute] = []
        for area in areas:
            for part in area.parts:
                if part.path != f"/{area.name}" and not part.path.startswith(f"/{area.name}/"):
                    raise ValueError(f"{part.path} does not belong to area {area.name!r}")
                if isinstance(part, View):
                    routes.append(Route(part.path, self._view(area, part)))
                    if part.refresh_s is not None:
                        routes.append(Route(EVENTS + part.path, self._events(area, part, part.refresh_s)))
                else:
                    routes.append(Route(part.path, self._form(area, part)))
                    routes.append(Route(part.path, self._change(area, part), methods=["POST"]))
        return routes

    async def refused(self, request: Request, failure: Failure, area: Area | None = None) -> Response:
        """Return an HTML page that shows the heading and reason of a failure."""
        visit = self._visit(request, request.url.path)
        rendered = Rendered(failure.heading, "failure.html", failure)
        return await self._page(request, area, visit, rendered, status=failure.status)

    # ------------------------------------------------------------ views

    def _view(self, area: Area, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = self._visit(request, view.path)
            try:
                shown = await _bounded(view.show(visit))
            except EXPECTED as error:
                return await self.refused(request, failure_of(error), area)
            if isinstance(shown, Download):
                return _download(shown)
            return await self._page(request, area, visit, shown, is_live=view.refresh_s is not None)

        return answer

    def _events(self, area: Area, view: View, refresh_s: float) -> Callable[[Request], Awaitable[Any]]:
        async def answer(request: Request) -> Any:
            if request.method == "HEAD":
                return PlainTextResponse("", media_type="text/event-stream")
            visit, session = self._visit(request, view.path), session_of(request)

            async def produce() -> Mapping[str, str]:
                shown = await _bounded(view.show(visit))
                assert isinstance(shown, Rendered)
                return self._parts.templates.fragments(shown.template, self._context(area, visit, shown))

            try:
                reader = session.feeds.open(visit.address, _understood(produce), refresh_s)
            except TooManyStreams as error:
                return PlainTextResponse(f"{error}\n", status_code=503)
            return EventStream(reader, session.ended)

        return answer

    # ------------------------------------------------------------ changes

    def _form(self, area: Area, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not self._parts.may_change:
                return await self.refused(request, _READ_ONLY, area)
            return await self._asked(request, area, action, self._visit(request, action.path))

        return answer

    def _change(self, area: Area, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not self._parts.may_change:
                return await self.refused(request, _READ_ONLY, area)
            try:
                fields = await fields_of(request)
            except BadQuestion as error:
                failure = Failure(400, "The form did not arrive whole", str(error))
                return await self.refused(request, failure, area)
            if not session_of(request).is_own_form(fields.pop(FORM_VALUE, "")):
                failure = Failure(403, "This form is not the console's", "reload the page, and try again")
                return await self.refused(request, failure, area)
            step, number = fields.pop("step", ""), fields.pop(PREVIEW, "")
            visit = self._visit(request, action.path, fields)
            try:
                if step == APPLY:
                    return await self._carried_out(request, area, action, visit, number)
                if step == "again":
                    return await self._asked(request, area, action, visit)
                return await self._previewed(request, area, action, visit)
            except (*EXPECTED, ValueError) as error:
                failure = failure_of(BadQuestion(str(error)) if isinstance(error, ValueError) else error)
                return await self._asked(request, area, action, visit, problem=failure)

        return answer

    async def _previewed(
        self, request: Request, area: Area, action: Action, visit: Visit, outdated: str = ""
    ) -> Response:
        """Plan the change that a form asks for, and return the page with its preview.

        `outdated` is the reason why an earlier preview was refused, or empty.
        """
        change = await _bounded(action.plan(visit))
        shown = PreviewPage(change, session_of(request).previews.keep(change, visit), outdated)
        rendered = Rendered(change.title, "preview.html", shown)
        return await self._page(request, area, visit, rendered, status=409 if outdated else 200)

    async def _asked(
        self, request: Request, area: Area, action: Action, visit: Visit, problem: Failure | None = None
    ) -> Response:
        try:
            form: Form = await _bounded(action.form(visit))
        except EXPECTED as error:
            return await self.refused(request, failure_of(error), area)
        rendered = Rendered(form.title, "form.html", form)
        status = 200 if problem is None else problem.status
        return await self._page(request, area, visit, rendered, status=status, problem=problem)

    async def _carried_out(
        self, request: Request, area: Area, action: Action, visit: Visit, number: str
    ) -> Response:
        """Carry out the change of a preview, and redirect the browser to the page with the result.

        A secret that the change has made is in this answer instead, so that no URL and no later page has it.

        Each attempt, even a refused one, leaves a line in the log.
        """
        log = ChangeLog(request, action.path, visit)
        try:
            change = session_of(request).previews.take(number, visit)
            done = await _bounded(change.carry_out(visit))
        except Outdated as error:
            log.tell(f"outdated: {error}")
            return await self._previewed(request, area, action, visit, outdated=str(error))
        except Exception as error:
            log.tell(f"{type(error).__name__}: {error}")
            raise
        log.tell(done.notice)
        if done.secret is not None:
            return await self._page(request, area, visit, Rendered(change.title, "secret.html", done))
        joined = "&" if "?" in done.address else "?"
        address = f"{done.address}{joined}done={self._parts.notices.keep(done.notice)}"
        return RedirectResponse(address, status_code=303)

    # ------------------------------------------------------------ pages

    def _visit(self, request: Request, path: str, form: Mapping[str, str] | None = None) -> Visit:
        session = session_of(request)
        query = {name: value for name, value in request.query_params.items() if name != "done"}
        return Visit(
            admin=session.admin,
            sampler=session.sampler,
            readings=session.readings,
            connection=session.connection,
            may_change=self._parts.may_change,
            path=path,
            schemas=self._parts.schemas,
            query=query,
            form=form or {},
        )

    def _context(self, area: Area | None, visit: Visit, rendered: Rendered) -> dict[str, object]:
        return {"area": area, "visit": visit, "title": rendered.title, "model": rendered.model}

    async def _page(
        self,
        request: Request,
        area: Area | None,
        visit: Visit,
        rendered: Rendered,
        *,
        status: int = 200,
        is_live: bool = False,
        problem: Failure | None = None,
    ) -> Response:
        session = session_of(request)
        context = self._context(area, visit, rendered) | {
            "areas": await session.offers.areas(),
            "cluster": session.connection.get("bootstrap_servers", ""),
            "user": session.user,
            "events": link(EVENTS + visit.path, **visit.query) if is_live else "",
            "form_value": session.form_value,
            "notice": self._parts.notices.text(request.query_params.get("done", "")),
            "problem": problem,
        }
        return HTMLResponse(self._parts.templates.page(rendered.template, context), status_code=status)


async def _bounded(question: Awaitable[T]) -> T:
    async with asyncio.timeout(QUESTION_S):
        return await question


def _understood(
    produce: Callable[[], Awaitable[Mapping[str, str]]],
) -> Callable[[], Awaitable[Mapping[str, str]]]:
    """Wrap the rendering of a live page, so that an address that has become invalid shows its reason on the open page.

    An example is the page of a topic that was deleted meanwhile.
    """

    async def made() -> Mapping[str, str]:
        try:
            return await produce()
        except (KafkaError, TimeoutError):
            raise
        except EXPECTED as error:
            raise TimeoutError(failure_of(error).reason) from error

    return made


def _download(download: Download) -> Response:
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in download.filename)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    kind = "application/octet-stream"
    if isinstance(download.content, bytes):
        return Response(download.content, media_type=kind, headers=headers)
    return StreamingResponse(download.content, media_type=kind, headers=headers)
