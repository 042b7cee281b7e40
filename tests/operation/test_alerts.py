"""Alert rules and dashboard: every expression is PromQL over figures that `/metrics` tells, with these labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from drydock.probes import OWN_METRICS, PREFIX
from leases.reasons import Reason
from leases.reports.figures import FIGURES
from leases.states import LeaseState, ResourceState
from tests.operation.deployment import DEPLOY

LABELS = {f"{PREFIX}{one.name}": set(one.labels) for one in FIGURES}
LABELS |= {f"{PREFIX}{name}": set() for name in OWN_METRICS} | {f"{PREFIX}build_info": {"version"}}
STATES = {*LeaseState, *ResourceState}
WATCHES = {"working", "failing", "unwatched"}
VALUES = {
    "state": {*STATES, *WATCHES}, "to": STATES, "reason": {*Reason},
    "of": {"lease", "resource"}, "quantile": {"0.5", "0.95", "1.0"},
    "waits_for": {"operator", "leases", "maintenance"}, "what": {"step", "expiry", "discovery"},
    "why": {"drained", "quarantined", "maintenance", "failing", "suspected", "vanished", "stopped"},
    "stage": {"running", "owed", "failing"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _database():
    """Files alone are looked at."""


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> dict[str, Any]:
    return dict(json.loads((DEPLOY / "grafana" / "drydock.json").read_text()))


EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in rules()] + [
    (panel["title"], target["expr"]) for panel in board()["panels"] for target in panel["targets"]
]


def selectors(node: Any, grouped: frozenset[str] = frozenset()) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every selector of an expression, with the labels by which it is grouped further out."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node, grouped
    by = frozenset(node.modifier.labels) if isinstance(node, promql_parser.AggregateExpr) and node.modifier else grouped
    inner = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for child in [*inner, *(getattr(node, "args", None) or [])]:
        if isinstance(child, promql_parser.Expr):
            yield from selectors(child, by)


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_expressions_name_figures_that_there_are(name, expression):
    parsed = promql_parser.parse(expression)
    found = list(selectors(parsed))
    assert found, expression
    for selector, grouped in found:
        assert selector.name in LABELS, selector.name
        matched = {one.name: one.value for one in selector.matchers.matchers}
        assert grouped | set(matched) <= LABELS[selector.name], selector.name
        for label, value in matched.items():
            assert value.startswith("$") or value in VALUES[label], f"{label}={value}"


def test_a_figure_that_is_not_told_is_noticed():
    for wrong in (
        "drydock_leases_total",
        'sum by (owner) (drydock_leases{state="active"})',
        'drydock_leases{state="up"}',
    ):
        with pytest.raises(AssertionError):
            test_expressions_name_figures_that_there_are("", wrong)
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum by (type drydock_leases")


def test_every_alert_says_what_to_do():
    """Its labels are those its words use, and the page that it names has the heading."""
    page = (DEPLOY.parent / "docs" / "how-to" / "operate.md").read_text()
    headings = {re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in page.splitlines() if line.startswith("#")}  # fmt: skip
    seen = [rule["alert"] for rule in rules()]
    assert len(seen) == len(set(seen))
    for rule in rules():
        assert rule["annotations"]["runbook"] in headings, rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert re.fullmatch(r"\d+[smhd]", rule["for"])
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        for selector, grouped in selectors(promql_parser.parse(rule["expr"])):
            assert told <= (grouped or LABELS[selector.name]), rule["alert"]


def test_the_dashboard_hangs_together():
    found = board()
    variables = {one["name"]: one for one in found["templating"]["list"]}
    for one in variables.values():
        if one["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", one["definition"]).groups()
            assert label in LABELS[metric]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(found["panels"])))
    assert used == set(variables)
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    cells = [(x, y) for panel in found["panels"] for at in [panel["gridPos"]]
             for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]  # fmt: skip
    assert len(cells) == len(set(cells)), "panels overlap"
    assert max(x for x, _ in cells) < 24


def test_every_figure_is_shown_or_watched():
    shown = {
        selector.name for _, expression in EXPRESSIONS for selector, _ in selectors(promql_parser.parse(expression))
    }
    assert set(LABELS) - shown <= {"drydock_build", "drydock_build_info"}
