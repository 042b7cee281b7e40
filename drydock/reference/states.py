"""Generates docs/states.md from the state tables in `leases.states`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import StrEnum
from typing import Any

from drydock.core.states import StateTable
from leases.states import LEASE, RESOURCE, LeaseState, ResourceState

_HEAD = """# States

`make docs` generates this page from `leases/states.py`. The triggers of the database refuse all other transitions.
Leases and resources also have a reason (a code from `leases/reasons.py`) and a message.
"""


def page() -> str:
    """Return the content of the page."""
    return "\n".join([_HEAD, *_section(LEASE, LeaseState), *_section(RESOURCE, ResourceState)]) + "\n"


def _section(table: StateTable[Any], states: type[StrEnum]) -> list[str]:
    rows = [f"| `{state.value}` | {text} |" for state, text in meanings(states).items()]
    return [f"## {table.name.capitalize()}", "", "```mermaid", table.diagram(), "```", "",
            "| state | meaning |", "|---|---|", *rows, ""]  # fmt: skip


def meanings(states: type[StrEnum]) -> dict[StrEnum, str]:
    """Return the docstring below each member, read from the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(states))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[StrEnum, str] = {}
    for line, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(line, ast.Assign) and isinstance(following, ast.Expr):
            (target,) = line.targets
            assert isinstance(target, ast.Name)
            assert isinstance(following.value, ast.Constant)
            found[states[target.id]] = " ".join(str(following.value.value).split())
    return found


if __name__ == "__main__":
    print(page(), end="")
