"""`drydock usage` and `drydock budgets`: the cost of leases, and limits on the cost per hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest
from drydock.core.units import in_words

if TYPE_CHECKING:
    from drydock_client.values import BudgetInfo, UsageReport


_WHICH = "Which"

By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="WHAT",
        help="Dimension to sum by: owner, group, lease, blueprint, kind, resource, place, type or market.",
    ),
]

Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Start: a date, a time (ISO 8601), or a duration before now, such as 7d."
    ),
]

Until = Annotated[str, typer.Option("--until", metavar="TIME", help="End, in the same form. Default: now.")]

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")]

Owner = Annotated[str, typer.Option("--owner", help="Only costs for this user.", rich_help_panel=_WHICH)]

Group = Annotated[str, typer.Option("--group", help="Only costs charged to this group.", rich_help_panel=_WHICH)]

OfLease = Annotated[
    int | None, typer.Option("--lease", min=1, help="Only costs for this lease.", rich_help_panel=_WHICH)
]

Blueprint = Annotated[str, typer.Option("--blueprint", help="Only costs for this blueprint.", rich_help_panel=_WHICH)]

Kind = Annotated[str, typer.Option("--kind", help="Only costs for this kind: ec2, gce, azure.", rich_help_panel=_WHICH)]

Place = Annotated[str, typer.Option("--place", help="Only costs in this location.", rich_help_panel=_WHICH)]


def add_usage(app: typer.Typer) -> None:
    """Add `drydock usage`."""
    app.command("usage", rich_help_panel="Leases")(usage)


@guarded
def usage(
    *, by: By = "owner", since: Since = "", until: Until = "", owner: Owner = "", group: Group = "",
    lease: OfLease = None, blueprint: Blueprint = "", kind: Kind = "", place: Place = "", as_csv: AsCsv = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show the costs of leases in the last 30 days or another period, open leases up to now, with measured energy.

    Owners see only their own.

    [dim]drydock usage --by blueprint --since 7d --csv[/dim]
    """
    asked: dict[str, Any] = {
        "since": o.past(since), "until": o.past(until), "owner": owner, "group": group, "lease": lease,
        "blueprint": blueprint, "kind": kind, "place": place,
    }  # fmt: skip
    found = o.client().usage({name: one for name, one in asked.items() if one not in (None, "")}, by=by)
    if as_json:
        return output.emit(found)
    if as_csv:
        return _csv(found)
    return _tell_usage(found)


def _csv(found: UsageReport) -> None:
    from dataclasses import astuple, fields

    from drydock_client.values import UsageSum
    from leases.tables import lines

    for line in lines([field.name for field in fields(UsageSum)], (astuple(one) for one in found.groups)):
        output.line(line.removesuffix("\r\n"), end="\r\n")


def _tell_usage(found: UsageReport) -> None:
    rows = [
        (
            one.id, one.name, one.leases, in_words(round(one.seconds)), f"{one.cost:.4f}", f"{one.hourly:.4f}",
            _kwh(one.energy_wh),
        )
        for one in found.groups
    ]  # fmt: skip
    headers = ("id", found.by, "leases", "held", "$", "$/hour now", "kWh")
    output.table(headers, rows, empty="No lease had a price or measured its energy.")
    total = found.total
    energy = "" if total.energy_wh is None else f" and {_kwh(total.energy_wh)} kWh"
    output.say(f"${total.cost:.2f}{energy} from {output.text(found.since)} to {output.text(found.until)}.")
    if total.hourly:
        output.say(f"Current cost: ${total.hourly:.4f} per hour.")


def _kwh(energy_wh: float | None) -> str:
    return "" if energy_wh is None else f"{energy_wh / 1000:.3f}"


OfBlueprint = Annotated[str, typer.Option("--blueprint", help="The blueprint whose resources are limited.")]


def add_budgets(app: typer.Typer) -> None:
    """Add `drydock budgets`."""
    group = o.group(list_budgets, "Limits on the hourly cost of users, groups and blueprints: list, set, remove.")
    for name, command in (("list", list_budgets), ("set", set_budget), ("remove", remove_budget)):
        group.command(name)(command)
    app.add_typer(group, name="budgets", rich_help_panel="Operators")


@guarded
def list_budgets(*, as_json: o.AsJson = False) -> None:
    """List budgets and current spending. Users who are not operators see the budgets that limit them."""
    _tell_budgets(o.client().budgets(), as_json)


@guarded
def set_budget(
    dollars: Annotated[str, typer.Argument(metavar="DOLLARS", help="US dollars per hour.")], *, user: o.User = "",
    group: o.Group = "", blueprint: OfBlueprint = "", as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Set an hourly budget.

    [dim]drydock budgets set 2.50 --user ada[/dim]
    """
    try:
        amount = float(dollars.removeprefix("$"))
    except ValueError:
        raise InvalidRequest(f"{dollars!r} is not an amount of US dollars.", field="max_hourly") from None
    _tell_budgets([o.client().set_budget(max_hourly=amount, user=user, group=group, blueprint=blueprint)], as_json)


@guarded
def remove_budget(
    *, user: o.User = "", group: o.Group = "", blueprint: OfBlueprint = "", as_json: o.AsJson = False
) -> None:
    """Remove a budget."""
    o.client().remove_budget(user=user, group=group, blueprint=blueprint)
    whose = user or group or blueprint
    output.emit({"removed": whose}) if as_json else output.line(f"{whose} no longer has a budget")


def _tell_budgets(found: list[BudgetInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [
        (b.user, b.group, b.blueprint, *(f"{amount:.4f}" for amount in (b.max_hourly, b.used, b.left)), b.waiting)
        for b in found
    ]
    return output.table(
        ("user", "group", "blueprint", "$/hour", "in use", "left", "waiting"), rows, empty="No budgets."
    )
