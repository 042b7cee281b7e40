"""`drydock blueprints kinds` and `schema`: what a blueprint may select."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded


@guarded
def kinds(*, type_: Annotated[str, typer.Option("--type")] = "", as_json: o.AsJson = False) -> None:
    """List the kinds that a blueprint may select."""
    found = o.client().kinds(type=type_)
    if as_json:
        return output.emit(found)
    rows = [(k.name, k.type, " ".join(k.capabilities), " ".join(k.interfaces), k.description) for k in found]
    return output.table(("kind", "type", "can", "interfaces", "description"), rows)


@guarded
def schema(kind: Annotated[str, typer.Argument(metavar="KIND")], *, as_json: o.AsJson = False) -> None:
    """What a kind understands: config, requirements of leases, fields of a registration. --json: JSON Schemas."""
    found = o.client().kind(kind)
    if as_json:
        return output.emit(found)
    print(f"{found.name}: {found.description}")
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
            print(f"\n{title}")
            output.table(("field", "type", "default", "description"), rows)
    return None


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        return str(of["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in of:
        return "|".join(_type(one) for one in of["anyOf"] if one.get("type") != "null")
    return str(of.get("type", "any"))
