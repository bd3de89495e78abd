"""The Grafana dashboard asks only for metrics that nodes export."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ottla.protocol.exposition import MetricKind
from tests.declared_metrics import declared_metrics

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/ottla.json"
OF_NODES = ("ottla.cli.nodes.endpoint", "ottla.dataplane", "ottla.metadata_quorum")
NAME = re.compile(r"\b(?:kafka|ottla|process)_[a-z_]+\b")


def exported() -> set[str]:
    metrics = [metric for package in OF_NODES for metric in declared_metrics(package)]
    assert len({metric.name for metric in metrics}) == len(metrics), "a name is exported twice"
    return {metric.name for metric in metrics} | {
        name + part for name in histograms_exported() for part in ("_bucket", "_sum", "_count")
    }


def histograms_exported() -> set[str]:
    return {
        metric.name
        for package in OF_NODES
        for metric in declared_metrics(package)
        if metric.kind is MetricKind.HISTOGRAM
    }


def queries() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return found + [variable["query"] for variable in dashboard["templating"]["list"]]


def test_every_query_uses_names_that_are_exported() -> None:
    used = {name for query in queries() for name in NAME.findall(query)}
    assert len(used) > 20
    assert used <= exported(), used - exported()


def test_every_histogram_is_shown_by_its_quantiles() -> None:
    shown = {query for query in queries() if query.startswith("histogram_quantile(")}
    for name in histograms_exported():
        assert any(f"{name}_bucket" in query and "by (le" in query for query in shown), name


def test_panels_have_a_place_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells), "panels overlap"
    assert all(place["x"] + place["w"] <= 24 for place in places)
