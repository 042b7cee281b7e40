"""`drydock quotas`: how much users and groups may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from leases.client import QuotaInfo


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = o.group(list_, "What users and groups may hold, and for how long: list, set, remove.")
    for name, command in (("list", list_), ("set", set_), ("remove", remove)):
        group.command(name)(command)
    app.add_typer(group, name="quotas", rich_help_panel="Operators")


@guarded
def list_(*, as_json: o.AsJson = False) -> None:
    """List quotas; without being an operator, those that count against yourself."""
    _tell(o.client().quotas(), as_json)


@guarded
def set_(
    limits: Annotated[
        list[str],
        typer.Argument(metavar="LIMIT=N...", help="leases, slots, vcpus, ram, disk, ttl, default-ttl; `none` lifts."),
    ],
    *, user: o.User = "", group: o.Group = "", as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Set some limits of a user or a group; the others stay.

    `ttl` is the longest that a lease may last, `default-ttl` how long one lasts that names no end.

    [dim]drydock quotas set --user ada leases=5 ram=64GiB ttl=30d default-ttl=8h[/dim]
    """
    wanted = {_NAMES.get(name, (name, int))[0]: _limit(name, text) for name, text in o.words(limits, "limits").items()}
    _tell([o.client().set_quota(user=user, group=group, limits=wanted)], as_json)


@guarded
def remove(*, user: o.User = "", group: o.Group = "", as_json: o.AsJson = False) -> None:
    """Lift all limits of a user or a group."""
    o.client().remove_quota(user=user, group=group)
    output.emit({"removed": user or group}) if as_json else output.line(f"{user or group} has no quota any more")


def _tell(found: list[QuotaInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [
        (q.user, q.group, q.max_leases, q.max_slots, _vcpus(q), q.max_ram_mib, q.max_disk_mib, q.max_ttl, q.default_ttl)
        for q in found
    ]
    columns = ("user", "group", "leases", "slots", "vcpus", "ram MiB", "disk MiB", "ttl", "default ttl")
    return output.table(columns, rows, empty="No quotas.")


def _vcpus(one: QuotaInfo) -> str:
    return "" if one.max_cpu_millicores is None else f"{one.max_cpu_millicores / 1000:g}"


def _mebibytes(text: str) -> int:
    from drydock.core.units import mebibytes

    return mebibytes(text)


def _span(text: str) -> float:
    from drydock.core.units import duration

    return duration(text).total_seconds()


_NAMES: dict[str, tuple[str, Callable[[str], float]]] = {
    "leases": ("max_leases", int), "slots": ("max_slots", int),
    "vcpus": ("max_cpu_millicores", lambda text: round(float(text) * 1000)),
    "ram": ("max_ram_mib", _mebibytes), "disk": ("max_disk_mib", _mebibytes),
    "ttl": ("max_ttl", _span), "default-ttl": ("default_ttl", _span),
}  # fmt: skip


def _limit(name: str, text: str) -> float | None:
    if name not in _NAMES:
        raise InvalidRequest(f"There is no limit {name!r}.", field="limits", hint=f"There are: {', '.join(_NAMES)}.")
    if text == "none":
        return None
    try:
        return _NAMES[name][1](text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a number.", field=name) from None
