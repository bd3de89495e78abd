"""Tables in the order that an address asks for, and links to other orders and to other spans of charts."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from ottla.console.area import BadQuestion, Visit
from ottla.console.charts import SPANS
from ottla.console.rendering import Templates
from ottla.console.sorting import Column, Sorted

Row = tuple[str, int | None]

ROWS: list[Row] = [("d", 2), ("a", None), ("c", 7), ("e", None), ("b", 2)]
COLUMNS = (
    Column[Row]("name", "topic", lambda row: row[0]),
    Column[Row]("size", "size", lambda row: row[1], is_number=True, descending_first=True),
)


def visit(**query: str) -> Visit:
    nothing = cast(Any, None)
    return Visit(
        admin=nothing,
        sampler=nothing,
        readings=nothing,
        connection={},
        may_change=False,
        path="/topics",
        query=query,
    )


def rows(order: str) -> str:
    shuffled = random.Random(order).sample(ROWS, len(ROWS))
    return "".join(name for name, _ in visit(sort=order).sorted(shuffled, COLUMNS, "name").rows)


def test_unknown_values_come_last_and_equal_ones_in_order_of_names() -> None:
    assert rows("name") == "abcde"
    assert rows("-name") == "edcba"
    assert rows("size") == "bdcae"
    assert rows("-size") == "cbdae"


def test_without_a_wish_the_default_order_holds() -> None:
    found = visit().sorted(ROWS, COLUMNS, "-size")
    assert [name for name, _ in found.rows] == ["c", "b", "d", "a", "e"]
    assert (found.order, found.default) == ("-size", "-size")


@pytest.mark.parametrize("order", ["colour", "-", "--size", "size,name", "-colour" * 100])
def test_an_unknown_column_is_refused_with_the_allowed_ones(order: str) -> None:
    with pytest.raises(BadQuestion, match=r"'sort' is one of name, size, with - before it for descending"):
        visit(sort=order).sorted(ROWS, COLUMNS, "name")


def headings(found: Sorted[Row]) -> str:
    context = {"found": found}
    environment = Templates()._environment
    return environment.from_string("{{ headings(found) }}{{ kept_order(found) }}").render(context)


def test_a_heading_leads_to_its_order_and_keeps_the_search_but_not_the_page() -> None:
    head = headings(visit(q="ord", page="3", sort="size").sorted(ROWS, COLUMNS, "name"))
    assert '<th scope="col"><a href="/topics?q=ord&amp;sort=name">topic</a></th>' in head
    assert (
        '<th scope="col" class="number" aria-sort="ascending"><a href="/topics?q=ord&amp;sort=-size">' in head
    )
    assert '<input type="hidden" name="sort" value="size">' in head


def test_a_column_without_a_key_is_only_shown() -> None:
    columns = (*COLUMNS, Column[Row]("owner", "owner"))
    assert '<th scope="col">owner</th>' in headings(visit().sorted(ROWS, columns, "name"))
    with pytest.raises(BadQuestion, match="one of name, size, with"):
        visit(sort="owner").sorted(ROWS, columns, "name")
    unnamed = (Column[Row]("owner", "owner"), COLUMNS[1])
    assert visit().sorted(ROWS, unnamed, "size").rows == [ROWS[0], ROWS[4], ROWS[2], ROWS[1], ROWS[3]]


def test_the_first_click_on_numbers_shows_the_largest_first() -> None:
    head = headings(visit().sorted(ROWS, COLUMNS, "name", at="table"))
    assert 'aria-sort="ascending"><a href="/topics?sort=-name#table">topic' in head
    assert 'href="/topics?sort=-size#table">size' in head
    assert "hidden" not in head


def test_pages_and_spans_keep_the_order() -> None:
    asked = visit(sort="-size", span="6h")
    assert asked.paged(ROWS, rows_max=2).address(2) == "/topics?sort=-size&span=6h&page=2"
    assert asked.span().address("1h") == "/topics?sort=-size&span=1h"


def test_a_span_is_one_of_some() -> None:
    assert (visit().span().name, visit().span().seconds) == ("10m", 600)
    assert visit(span="24h").span().seconds == 86_400
    with pytest.raises(BadQuestion, match="'span' is one of 10m, 1h, 6h, 24h, not '2h'"):
        visit(span="2h").span()
    links = Templates()._environment.from_string("{{ spans(span) }}").render(span=visit(span="1h").span())
    assert links.count("<a ") == len(SPANS)
    assert '<a href="/topics?span=1h" aria-current="true">1h</a>' in links
