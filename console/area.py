"""The interface between the console and an area of it.

A module in `pages/` has a constant AREA. The console finds it and gives it addresses and a place in the navigation.
Views are functions `async (Visit) -> Rendered`: they ask `visit.admin`, and a pure function turns the answers into the
template's model. An action is two functions: one returns the form, the other plans the change and returns its preview.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Generic, TypeVar

from ..client.admin import Admin
from ..client.connections.metadata import TopicInfo
from ..client.foreign_names import Secret
from .bounds import ROWS_MAX
from .charts import SPAN, SPANS, Span
from .formats import link
from .live.sampler import WATCHED_S, Sampler
from .live.shared_readings import SharedReadings
from .schemas.decoding import Decoder
from .sorting import Column, Sorted, in_order

T = TypeVar("T")


class BadQuestion(ValueError):
    """A request whose address or form has a missing or invalid value. The message says what is allowed."""


class NotThere(Exception):
    """The topic, group, broker or other thing that a page's address names does not exist."""


class Outdated(Exception):
    """A change of the cluster is refused, since the cluster's state differs from the preview that the user saw.

    The message names the difference.
    """


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """One page of a long table: its rows, its number from 1, and the total numbers of pages and rows.

    `address` returns the URL of the page with a given number.
    """

    rows: Sequence[T]
    number: int
    pages: int
    total: int
    address: Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A browser's request for a page: path, query and form, with the clients of the cluster that answer it."""

    admin: Admin
    sampler: Sampler
    readings: SharedReadings
    connection: Mapping[str, Any]
    """Keyword arguments for a Consumer or a Producer of this cluster."""
    may_change: bool
    path: str
    schemas: Decoder | None = None
    """The decoder of values; None without a schema registry."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    """The fields of a submitted form; the last value of a name counts."""

    @property
    def address(self) -> str:
        """The path and query of the requested page, as a relative URL."""
        return link(self.path, **self.query)

    def text(self, name: str, default: str = "") -> str:
        """Return a form field, else the query parameter of this name, else `default`, without surrounding spaces."""
        return self.form.get(name, self.query.get(name, default)).strip()

    def required(self, name: str) -> str:
        """Return a form field or query parameter that must not be empty. Raises BadQuestion."""
        if not (value := self.text(name)):
            raise BadQuestion(f"{name!r} is missing")
        return value

    def exact(self, name: str) -> str:
        """Return the query parameter `name`, such as a group's name, with its surrounding spaces.

        Without the spaces it would name another thing. Raises BadQuestion if it is missing.
        """
        if not (value := self.query.get(name, "")):
            raise BadQuestion(f"{name!r} is missing")
        return value

    def confirm(self, name: str, what: str = "name") -> None:
        """Raise BadQuestion unless the user typed `name`, the name of the thing to delete or change, into the form
        field `again`. The error calls the name `what`."""
        again = self.form.get("again", "")
        if name not in (again, again.strip()):
            raise BadQuestion(f"the {what} is {name}, not {again!r}")

    async def topic(self, name: str, *, age_max_s: float = WATCHED_S) -> TopicInfo:
        """Return the topic of this name from a snapshot that is at most `age_max_s` old. Raises NotThere, and
        KafkaError."""
        for age_s in (age_max_s, 0.0):  # The topic may be younger than the snapshot.
            snapshot = await self.sampler.snapshot(age_max_s=age_s)
            for topic in snapshot.topics:
                if topic.name == name:
                    return topic
        raise NotThere(f"there is no topic {name!r}")

    async def topics_as_shown(self, *shown: TopicInfo) -> list[TopicInfo]:
        """Return the present descriptions of the topics that a preview showed.

        Raises Outdated if a topic was deleted and another one has its name, and KafkaError.
        """
        topics = await self.admin.describe_topics([topic.name for topic in shown])
        for before, topic in zip(shown, topics, strict=True):
            if topic.id != before.id:
                raise Outdated(f"topic {topic.name} was deleted, and another one was created under its name")
        return topics

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a form field or query parameter as a whole number from `least` to `most`; `default` if it is missing.

        Raises BadQuestion.
        """
        value = self.text(name)
        if not value and default is not None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise BadQuestion(f"{name!r} is a whole number, not {value[:40]!r}") from None
        if not least <= number <= most:
            raise BadQuestion(f"{name!r} is {least} to {most}, not {number}")
        return number

    def sorted(
        self,
        rows: Sequence[T],
        columns: Sequence[Column[T]],
        default: str,
        *,
        parameter: str = "sort",
        page: str = "page",
        at: str = "",
    ) -> Sorted[T]:
        """Return all rows of a table in the order that the query parameter `parameter` asks for, such as `-size`.

        `default` is the order without this parameter. Another order begins with the table's first page, which the
        query parameter `page` counts. Its URL leads to the element with the id `at`, if this is not empty. Raises
        BadQuestion.
        """
        others = {name: value for name, value in self.query.items() if name not in (parameter, page)}

        def address(order: str) -> str:
            return link(self.path, **others, **{parameter: order}) + (f"#{at}" if at else "")

        order = self.query.get(parameter, "") or default
        try:
            return in_order(rows, columns, order, default=default, parameter=parameter, address=address)
        except ValueError as error:
            raise BadQuestion(str(error)) from None

    def span(self) -> Span:
        """Return the span of time that the page's charts show: the query parameter `span`. Raises BadQuestion."""
        name = self.query.get("span", "") or SPAN
        if name not in SPANS:
            raise BadQuestion(f"'span' is one of {', '.join(SPANS)}, not {name[:40]!r}")
        others = {name: value for name, value in self.query.items() if name != "span"}
        return Span(name, lambda wanted: link(self.path, **others, span=wanted))

    def paged(self, items: Sequence[T], *, parameter: str = "page", rows_max: int = ROWS_MAX) -> Paged[T]:
        """Return one page of a table.

        The query parameter `parameter` is its number, from 1; beyond the last page it is the last page.
        """
        pages = max(1, -(-len(items) // rows_max))
        number = min(self.number(parameter, 1, least=1), pages)
        others = {name: value for name, value in self.query.items() if name != parameter}
        return Paged(
            items[(number - 1) * rows_max : number * rows_max],
            number,
            pages,
            len(items),
            lambda wanted: link(self.path, **others, **{parameter: wanted}),
        )


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer to render as a page: its title, the file name of its template in `templates/`, and the template's
    `model`."""

    title: str
    template: str
    model: object = None


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes for the user to save as a file. Browsers never display them."""

    content: bytes | AsyncIterator[bytes]
    filename: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A read-only page of an area.

    With `refresh_s` its fragments are rendered again every `refresh_s` seconds while a browser has the page open.
    """

    path: str
    show: Callable[[Visit], Awaitable[Rendered | Download]]
    refresh_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """An input field of an HTML form.

    `kind` is text, number, lines (a text area), choice, check, boxes (a check box `NAME CHOICE` for each choice) or
    hidden. The `value` of boxes has the checked choices, with commas between.

    `labels` are the texts of choices that differ from their values. `placeholder` stands in an empty field, and
    `suggestions` are values that a browser offers while the user types.
    """

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    hint: str = ""
    choices: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    placeholder: str = ""
    suggestions: Sequence[str] = ()
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A form's field as a table row with its key.

    `facts` are the type, unit and allowed values. `otherwise` is the value that holds while the field is empty, with
    its source. `meaning` is the effect of the value.
    """

    field: FormField
    facts: str
    otherwise: str
    meaning: str


@dataclass(frozen=True, slots=True)
class FieldTable:
    """A table of form fields with a heading, which a user can fold unless `is_open` is None.

    `what` is the heading of the column with the keys.
    """

    title: str
    rows: Sequence[FieldRow]
    is_open: bool | None = None
    what: str = "setting"


@dataclass(frozen=True, slots=True)
class Form:
    """An HTML form that asks the user for the values of a change, such as the settings of a topic.

    `text` explains the change. `tables` follow the fields. `links` lead to other forms: URLs by their texts.
    """

    title: str
    fields: Sequence[FormField]
    text: str = ""
    tables: Sequence[FieldTable] = ()
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A line of a change's preview: the name of a value, and its text before and after the change.

    `before` is None if nothing exists yet, `after` is None if nothing will remain. `is_changed` is False for a line
    about a value that stays as it is.
    """

    what: str
    before: str | None
    after: str | None
    is_changed: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a change of the cluster: a notice for the user, and the URL of the page that shows the new
    state.

    `secret` is a password that the change has made. One answer shows it, and the console keeps no copy.
    """

    notice: str
    address: str
    secret: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A planned change of the cluster, with the preview that its user confirms.

    `command` is the shell command that makes the same change, `warning` names effects that cannot be undone.
    `is_validated` is True if the cluster has checked that the change would work.

    `carry_out` does exactly what `differences` show, even if the state has changed: its arguments are bound when the
    change is planned, and the form is not read again. It raises Outdated if `differences` no longer hold, and
    KafkaError.
    """

    title: str
    differences: Sequence[Difference]
    carry_out: Callable[[Visit], Awaitable[Done]]
    command: str = ""
    warning: str = ""
    is_validated: bool = False


def check_as_shown(shown: Sequence[Difference], now: Sequence[Difference]) -> None:
    """Compare the lines of a preview that the user saw with the lines for the cluster's present state.

    Raises Outdated for the first line that differs.
    """
    for before, after in zip_longest(shown, now):
        if before != after:
            line = before or after
            was, is_now = (_in_words(difference) for difference in (before, after))
            raise Outdated(f"{line.what}: the preview showed {was}, and it is {is_now} now")


def _in_words(line: Difference | None) -> str:
    if line is None:
        return "unchanged"
    return f"{line.before or 'nothing'} that becomes {line.after or 'nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A form at `path` with which users change the cluster.

    `form` returns the empty form. `plan` asks the cluster whether the change would work, and returns the change without
    making it. `form` and `plan` raise BadQuestion for an invalid form, and KafkaError with the cluster's answer.
    """

    path: str
    form: Callable[[Visit], Awaitable[Form]]
    plan: Callable[[Visit], Awaitable[Change]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A part of the console with one entry in the navigation, which leads to its first view.

    All its paths are `/name` or begin with `/name/`. `place` orders the navigation. `probe` asks for a feature that
    only some clusters have: the area is hidden where the cluster does not support it.
    """

    name: str
    title: str
    place: int
    parts: Sequence[View | Action]
    probe: Callable[[Admin], Awaitable[object]] | None = None
