"""`drydock blueprints kinds` and `schema`: what a blueprint may select."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded

FAKE, WIDTH = "fake", 100
"""What the names of kinds for tests begin with; and columns of a table of kinds."""


@guarded
def kinds(
    *, type_: Annotated[str, typer.Option("--type", help="Only of this type.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Also the fake ones, which are for tests.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List the kinds that a blueprint may select. `blueprints schema KIND` says everything about one."""
    found = [one for one in o.client().kinds(type=type_) if all_ or type_ or not one.name.startswith(FAKE)]
    if as_json:
        return output.emit(found)
    columns = [(k.name, k.type, " ".join(k.interfaces)) for k in found]
    taken = sum(max(map(len, column)) + 2 for column in zip(*columns, ("kind", "type", "interfaces"), strict=True))
    rows = [
        (*column, textwrap.shorten(k.description, WIDTH - taken, placeholder=" ..."))
        for column, k in zip(columns, found, strict=True)
    ]
    return output.table(("kind", "type", "interfaces", "description"), rows, empty="No kinds.")


@guarded
def schema(kind: Annotated[str, typer.Argument(metavar="KIND")], *, as_json: o.AsJson = False) -> None:
    """What a kind understands: config, requirements of leases, fields of a registration. --json: JSON Schemas."""
    found = o.client().kind(kind)
    if as_json:
        return output.emit(found)
    output.line(f"{found.name}: {found.description}")
    for title, of in (
        ("config", found.config),
        ("requirements", found.requirements),
        ("registration", found.registration),
    ):
        rows = [
            (n, _type(p), p.get("default"), p.get("description", ""))
            for n, p in (of or {}).get("properties", {}).items()
        ]
        if rows:
            output.line(f"\n{title}")
            output.table(("field", "type", "default", "description"), rows)
    return None


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        return str(of["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in of:
        return "|".join(_type(one) for one in of["anyOf"] if one.get("type") != "null")
    return str(of.get("type", "any"))
