"""HTML templates of pages.

Every value in them is escaped, and the macros in `parts.html` are available in all templates. A block whose name begins
with `live_` is a fragment: an element with an equal id, which is replaced while the page is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import formats

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
LIVE: Final = "live_"
_PARTS: Final = "parts.html"


class Templates:
    """A renderer of HTML pages, and of their fragments that change, from the templates in a folder."""

    def __init__(self, folder: Path = HERE / "templates") -> None:
        self._environment = Environment(
            loader=FileSystemLoader(folder),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=formats.shown,
        )
        for filter_ in (
            formats.exact,
            formats.size,
            formats.count,
            formats.rate,
            formats.byte_rate,
            formats.duration,
            formats.moment,
            formats.numbers,
        ):
            self._environment.filters[filter_.__name__] = filter_
        self._environment.globals["link"] = formats.link
        shared = self._environment.get_template(_PARTS).module
        self._environment.globals |= {
            name: part for name, part in vars(shared).items() if not name.startswith("_")
        }

    def page(self, template: str, context: Mapping[str, object]) -> str:
        """Render a template with the values in `context`, and return the HTML of the whole page."""
        return self._environment.get_template(template).render(context)

    def fragments(self, template: str, context: Mapping[str, object]) -> dict[str, str]:
        """Return the fragments of a page that change while it is open: HTML by element id."""
        found = self._environment.get_template(template)
        known = found.new_context(dict(context))
        # Before its first text a template runs the definitions outside its blocks.
        next(found.root_render_func(known), None)
        return {
            name: Markup("").join(map(Markup, block(known))).strip()
            for name, block in found.blocks.items()
            if name.startswith(LIVE)
        }
