"""How a blueprint stands, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from drydock.cli import output
from drydock.cli.exits import REFUSED

if TYPE_CHECKING:
    from leases.client import BlueprintInfo


def state(info: BlueprintInfo) -> str:
    """In a word."""
    return "drained" if info.drained else "enabled" if info.enabled else "disabled"


def tell(info: BlueprintInfo, as_json: bool, *, full: bool = False) -> None:
    """Say how a blueprint stands, with its problems; `full`: everything about it."""
    if as_json:
        return output.emit(info)
    facts: list[tuple[str, object]] = [
        ("kind", info.kind), ("type", info.type), ("config", dict(info.config)), ("audience", info.audience),
        ("order", info.order), ("generation", info.generation), ("there", info.there), ("building", info.building),
        ("max", info.max_resources), ("ready", info.min_ready or None), ("idle timeout", info.idle_timeout),
        ("max lifetime", info.max_lifetime), ("check interval", info.check_interval),
        ("default lease", info.default_ttl), ("longest lease", info.max_ttl), ("note", info.note),
    ]  # fmt: skip
    shown = facts if full else [("idle timeout", info.idle_timeout)]
    output.pairs(f"{info.name} is {state(info)}", shown)
    for found in (*info.problems, *info.errors):
        where = found.get("field") or found.get("key") or ""
        word = "problem" if found.get("fatal", True) else "remark"
        output.line(f"  {word}: {where + ': ' if where else ''}{found['message']}")
    if info.drained:
        output.line(f"  let it serve again: drydock blueprints undrain {info.name}")
    elif not info.enabled:
        mended = " once the problem is solved" if any(found.get("fatal", True) for found in info.problems) else ""
        output.line(f"  enable it{mended}: drydock blueprints enable {info.name}")
    return None


def end(info: BlueprintInfo, as_json: bool) -> None:
    """Say how it stands, and end with REFUSED when its check found something fatal."""
    tell(info, as_json)
    if any(problem["fatal"] for problem in info.problems):
        raise typer.Exit(REFUSED)
