"""`drydock usage`: what leases have cost."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.core import clock
from drydock.core.units import duration, in_words

if TYPE_CHECKING:
    from leases.client import UsageReport

_WHICH = "Which"
By = Annotated[
    str,
    typer.Option("--by", metavar="WHAT", help="owner, group, lease, blueprint, kind, resource, place, type or market."),
]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="A day, a time (ISO 8601), or such as 7d ago.")]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="The same; now where it is left out.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="As CSV, for a spreadsheet.")]
Owner = Annotated[str, typer.Option("--owner", help="Only of this user.", rich_help_panel=_WHICH)]
Group = Annotated[str, typer.Option("--group", help="Only charged to this group.", rich_help_panel=_WHICH)]
OfLease = Annotated[int | None, typer.Option("--lease", min=1, help="Only of this lease.", rich_help_panel=_WHICH)]
Blueprint = Annotated[str, typer.Option("--blueprint", help="Only of this one.", rich_help_panel=_WHICH)]
Kind = Annotated[str, typer.Option("--kind", help="Only of this kind: ec2, gce, azure.", rich_help_panel=_WHICH)]
Place = Annotated[str, typer.Option("--place", help="Only in this place.", rich_help_panel=_WHICH)]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("usage", rich_help_panel="Leases")(usage)


@guarded
def usage(
    *, by: By = "owner", since: Since = "", until: Until = "", owner: Owner = "", group: Group = "",
    lease: OfLease = None, blueprint: Blueprint = "", kind: Kind = "", place: Place = "", as_csv: AsCsv = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """What leases have cost in the last 30 days, or another span; open ones up to now. Owners see their own.

    [dim]drydock usage --by blueprint --since 7d --csv[/dim]
    """
    asked: dict[str, Any] = {
        "since": _moment(since), "until": _moment(until), "owner": owner, "group": group, "lease": lease,
        "blueprint": blueprint, "kind": kind, "place": place,
    }  # fmt: skip
    found = o.client().usage({name: one for name, one in asked.items() if one not in (None, "")}, by=by)
    if as_json:
        return output.emit(found)
    if as_csv:
        return _csv(found)
    return _tell(found)


def _moment(text: str) -> str | dt.datetime | None:
    """A day begins in this machine's time zone; a span counts back from now."""
    if not text:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return dt.datetime.fromisoformat(text).astimezone()
    if re.fullmatch(r"([0-9.]+[smhdw])+", text):
        return clock.now() - duration(text)
    return text


def _csv(found: UsageReport) -> None:
    from dataclasses import astuple, fields

    from leases.client.values import UsageSum
    from leases.tables import lines

    for line in lines([field.name for field in fields(UsageSum)], (astuple(one) for one in found.groups)):
        output.line(line.removesuffix("\r\n"), end="\r\n")


def _tell(found: UsageReport) -> None:
    rows = [
        (one.id, one.name, one.leases, in_words(round(one.seconds)), f"{one.cost:.4f}", f"{one.hourly:.4f}")
        for one in found.groups
    ]
    output.table(("id", found.by, "leases", "held", "$", "$/hour now"), rows, empty="Nothing that costs was leased.")
    total = found.total
    output.say(f"${total.cost:.2f} from {output.text(found.since)} to {output.text(found.until)}.")
    if total.hourly:
        output.say(f"${total.hourly:.4f} an hour goes on.")
