"""Draws the allowed imports in docs/ARCHITECTURE.md from `.importlinter`: `python -m tests.render_layers`."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- layers: begin -->", "<!-- layers: end -->"


def drawings() -> Iterator[str]:
    """Yield each contract of layers as a Mermaid flowchart; an upper layer may import a lower one."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    for section in contracts.values():
        if section.get("type") != "layers":
            continue
        layers = [
            [name.strip(" ()").removeprefix("ottla.") for name in re.split(r"[|:]", line)]
            for line in section["layers"].split("\n")
            if line.strip()
        ]
        yield f"**{section['name']}.**\n\n```mermaid\nflowchart TD"
        for above, below in pairwise(layers):
            yield f"    {' & '.join(above)} --> {' & '.join(below)}"
        yield "```\n"


def render(page: str) -> str:
    """Return the page with its drawings brought up to date."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    drawn = "\n".join(drawings())
    return f"{before}{BEGIN}\n{drawn}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
