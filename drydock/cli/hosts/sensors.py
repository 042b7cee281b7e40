"""`drydock hosts sensors`: what the sensors of a host measured, and the power that it draws."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.resources import number
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drydock_client.values import SensorReadingInfo, SensorReportInfo

Host = Annotated[str, typer.Argument(metavar="HOST", help="The host's number or name, as a resource.")]
Since = Annotated[
    str,
    typer.Option("--since", metavar="TIME", help="A date, a time (ISO 8601), or a duration before now, such as 7d."),
]
_PAGE = 200
_UNITS = {"Cel": "°C"}
"""Units as people write them."""


def moment(text: str) -> dt.datetime | None:
    """Parse the value of `--since`; None if it is empty. Raises InvalidRequest."""
    found = o.past(text)
    if not isinstance(found, str):
        return found
    try:
        return dt.datetime.fromisoformat(found).astimezone()
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{text!r} is not a valid time.", field="since", hint="Write it like 2026-01-31, 2026-01-31T18:00 or 7d."
        ) from None


@guarded
def sensors(host: Host, *, since: Since = "", as_json: o.AsJson = False) -> None:
    """Show what the sensors of a host measured last, with the lowest and highest values since a time.

    The holder of a lease on the whole host sees what was measured during that lease.

    [dim]drydock hosts sensors alpha --since 24h[/dim]
    """
    found = list(_reports(number(host), moment(since)))
    if as_json:
        return output.emit(found)
    return _tell(found, with_range=bool(since))


def _reports(host: int, since: dt.datetime | None) -> Iterator[SensorReportInfo]:
    """Yield the newest report, or all since a time, reading them in pages."""
    client = o.client()
    page = client.sensors(host, since=since, limit=_PAGE)
    while page:
        yield from page
        page = client.sensors(host, since=since, after=page[-1].id, limit=_PAGE) if since is not None else []


def _tell(found: Sequence[SensorReportInfo], *, with_range: bool) -> None:
    newest = found[-1].readings if found else ()
    ranges = _ranges(found)
    rows: list[tuple[Any, ...]] = [
        (
            one.name, _number(one.value), _UNITS.get(one.unit, one.unit),
            *((_number(end) for end in ranges.get(_key(one), (None, None))) if with_range else ()), one.state,
        )
        for one in newest
    ]  # fmt: skip
    headers = ("sensor", "value", "unit", *(("lowest", "highest") if with_range else ()), "state")
    output.table(headers, rows, empty="No sensors were read.")
    if found:
        draw = found[-1].power_watts
        power = "" if draw is None else f" The host draws {draw:g} W."
        output.say(f"Read at {output.text(found[-1].at)}.{power}")


def _ranges(found: Sequence[SensorReportInfo]) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the lowest and the highest value of each sensor, by name and unit."""
    values: dict[tuple[str, str], list[float]] = {}
    for report in found:
        for one in report.readings:
            if one.value is not None:
                values.setdefault(_key(one), []).append(one.value)
    return {key: (min(some), max(some)) for key, some in values.items()}


def _key(one: SensorReadingInfo) -> tuple[str, str]:
    return one.name, one.unit


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
