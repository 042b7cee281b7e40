"""The page of events: every kind that the code writes is in it, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from drydock.reference import events
from leases.models import Event
from leases.reasons import Reason

ROOT = Path(__file__).parents[2]
WORDS = {
    "act.": {"asked", "cancelling", "done", "failed", "cancelled"},
    "authorization.": {"authorized", "declined"},
    "blueprint.": {"enabled", "disabled", "drained", "undrained"},
    "credential.": {"added", "changed"},
    "machine.": {"asked", "done", "failed"},
    "resource.": {"drained", "undrained", "quarantined"},
    "user.": {"added", "password_set", "disabled", "enabled", "groups_changed"},
    "lease.": {kind.removeprefix("lease.") for kind in events.reasons()},
}
"""What stands in the place of a name where a kind is put together."""


def kinds() -> set[str]:
    """Every first argument of `record_event(...)`, with what it is put together from; and those of `Event(kind=)`."""
    found: set[str] = set()
    for package in ("leases", "blueprints", "drydock"):
        for file in (ROOT / package).rglob("*.py"):
            every = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
            for call in every:
                if getattr(call.func, "id", "") == "Event":
                    found |= {kind for given in call.keywords if given.arg == "kind" for kind in of(given.value)}
            calls = (node for node in every if node.args)
            for call in calls:
                if "record_event" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
                    found |= of(call.args[0])
                elif getattr(call.args[0], "id", "") == "record_event" and len(call.args) > 1:
                    found |= of(call.args[1])
    return found


def of(kind: ast.expr) -> set[str]:
    """The kinds that an expression may give."""
    while isinstance(kind, ast.Subscript):
        kind = kind.value
    if isinstance(kind, ast.Constant):
        return {str(kind.value)}
    if isinstance(kind, ast.IfExp):
        return of(kind.body) | of(kind.orelse)
    assert isinstance(kind, ast.JoinedStr), ast.unparse(kind)
    head = kind.values[0]
    assert isinstance(head, ast.Constant), ast.unparse(kind)
    return {f"{head.value}{word}" for word in WORDS[str(head.value)]}


@pytest.mark.parametrize("_database", [None])
def test_every_kind_that_is_written_is_told(_database):
    assert kinds() == set(events.EVENTS) | set(events.reasons())


def test_what_happens_to_a_lease_is_in_the_page(blueprint, ask, until):
    blueprint()
    until(ask(), state="active")
    known = {*events.transitions(), *events.reasons(), *events.EVENTS}
    seen = set(Event.objects.values_list("kind", flat=True))
    assert {"lease.pending", "lease.active", "resource.active", "step.done"} <= seen <= known


def test_the_page_is_current():
    assert (ROOT / "docs" / "events.md").read_text() == events.page(), "run: make docs"


@pytest.mark.parametrize("_database", [None])
def test_every_reason_is_given_by_something():
    code = "".join(
        file.read_text() for file in (ROOT / "leases").rglob("*.py") if file.name not in ("reasons.py", "eventspage.py")
    )
    given = [rf"\bReason\.{reason.name}\b|_wanted = '{reason}'" for reason in Reason if reason]
    assert [one for one in given if not re.search(one, code)] == []
