"""`drydock budgets`: what users, groups and blueprints may cost an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from leases.client import BudgetInfo

OfBlueprint = Annotated[str, typer.Option("--blueprint", help="All that this blueprint has built.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = o.group(list_, "What users, groups and blueprints may cost an hour: list, set, remove.")
    for name, command in (("list", list_), ("set", set_), ("remove", remove)):
        group.command(name)(command)
    app.add_typer(group, name="budgets", rich_help_panel="Operators")


@guarded
def list_(*, as_json: o.AsJson = False) -> None:
    """List budgets and what is spent of them; without being an operator, those that bound yourself."""
    _tell(o.client().budgets(), as_json)


@guarded
def set_(
    dollars: Annotated[str, typer.Argument(metavar="DOLLARS", help="An hour.")], *, user: o.User = "",
    group: o.Group = "", blueprint: OfBlueprint = "", as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Set what may be spent an hour.

    [dim]drydock budgets set 2.50 --user ada[/dim]
    """
    try:
        amount = float(dollars.removeprefix("$"))
    except ValueError:
        raise InvalidRequest(f"{dollars!r} is not an amount.", field="max_hourly") from None
    _tell([o.client().set_budget(max_hourly=amount, user=user, group=group, blueprint=blueprint)], as_json)


@guarded
def remove(*, user: o.User = "", group: o.Group = "", blueprint: OfBlueprint = "", as_json: o.AsJson = False) -> None:
    """Let any amount be spent."""
    o.client().remove_budget(user=user, group=group, blueprint=blueprint)
    whose = user or group or blueprint
    output.emit({"removed": whose}) if as_json else output.line(f"{whose} has no budget any more")


def _tell(found: list[BudgetInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [
        (b.user, b.group, b.blueprint, *(f"{amount:.4f}" for amount in (b.max_hourly, b.used, b.left)), b.waiting)
        for b in found
    ]
    return output.table(
        ("user", "group", "blueprint", "$/hour", "in use", "left", "waiting"), rows, empty="No budgets."
    )
