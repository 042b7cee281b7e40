"""`drydock blueprints`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import blueprint_config, kinds, output
from drydock.cli import options as o
from drydock.cli.exits import guarded
from drydock.cli.standing import end, state, tell

if TYPE_CHECKING:
    from leases.client import BlueprintInfo

Name = Annotated[str, typer.Argument(metavar="BLUEPRINT")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = o.group(list_, "Instructions to build: list, add, change, check, enable, disable, drain, remove.")
    for name, command in (
        ("list", list_), ("show", show), ("add", blueprint_config.add), ("change", blueprint_config.change),
        ("check", check), ("enable", enable),
        ("disable", disable), ("drain", drain), ("undrain", undrain), ("remove", remove), ("kinds", kinds.kinds),
        ("schema", kinds.schema), ("forget", forget),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="blueprints", rich_help_panel="Operators")


@guarded
def list_(*, type_: Annotated[str, typer.Option("--type")] = "", as_json: o.AsJson = False) -> None:
    """List blueprints in the order in which they are tried."""
    found = o.client().blueprints(type=type_)
    if as_json:
        return output.emit(found)
    rows = [
        (b.name, b.kind, b.type, state(b), b.audience, _there(b), b.building or "", _remarks(b))
        for b in found
    ]  # fmt: skip
    empty = "No blueprints yet. This machine: drydock blueprints add this local_host"
    return output.table(
        ("name", "kind", "type", "state", "audience", "there", "building", "remarks"), rows, empty=empty
    )


def _there(info: BlueprintInfo) -> str:
    return str(info.there) if info.max_resources is None else f"{info.there}/{info.max_resources}"


def _remarks(info: BlueprintInfo) -> str:
    return "; ".join(str(error["message"]) for error in info.errors) or info.note


@guarded
def show(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Everything about a blueprint."""
    tell(o.client().blueprint(blueprint), as_json, full=True)


@guarded
def check(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Look, without creating anything, whether it could work."""
    info = o.client().switch_blueprint(blueprint, "check")
    if not as_json and not info.problems:
        output.say("no problem found")
    end(info, as_json)


@guarded
def enable(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Check it, and let it serve."""
    end(o.client().switch_blueprint(blueprint, "enable"), as_json)


@guarded
def disable(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Let it serve nobody; what is leased stays leased."""
    tell(o.client().switch_blueprint(blueprint, "disable"), as_json)


@guarded
def drain(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Build nothing new, and remove idle resources."""
    tell(o.client().switch_blueprint(blueprint, "drain"), as_json)


@guarded
def undrain(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Let it serve again."""
    tell(o.client().switch_blueprint(blueprint, "undrain"), as_json)


@guarded
def remove(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a blueprint that no resource and no lease needs any more. Its history stays."""
    o.client().remove_blueprint(blueprint)
    output.emit({"removed": blueprint}) if as_json else output.line(f"{blueprint} is removed")


@guarded
def forget(blueprint: Annotated[str, typer.Argument(metavar="[BLUEPRINT]")] = "", *, as_json: o.AsJson = False) -> None:
    """Forget remembered failures, so that they are tried again at once."""
    cleared = o.client().clear_errors(blueprint=blueprint)
    output.emit({"cleared": cleared}) if as_json else output.line(f"{cleared} forgotten")
