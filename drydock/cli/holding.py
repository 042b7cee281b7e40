"""Commands for leases that are there: look, release, extend, beat, hold, retry."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output, waiting, watching
from drydock.cli.errand import CLEANING, seconds
from drydock.cli.exits import REFUSED, Stopped, guarded
from drydock.cli.signals import stoppable
from drydock.core.errors import TimedOut
from drydock.core.units import in_words

if TYPE_CHECKING:
    from leases.client import LeaseInfo

Ids = Annotated[
    list[int], typer.Argument(metavar="LEASE...", parser=o.lease_reference, help="Numbers or names of leases.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, command in (
        ("leases", leases), ("show", show), ("wait", wait), ("release", release), ("extend", extend),
        ("heartbeat", heartbeat), ("hold", hold), ("unhold", unhold), ("retry", retry), ("key", key),
    ):  # fmt: skip
        app.command(name, rich_help_panel="Leases")(command)


@guarded
def leases(
    *, type_: Annotated[str, typer.Option("--type", help="Only of this type.")] = "",
    state: Annotated[list[str] | None, typer.Option("--state", help="Only in this state; repeatable.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    label: Annotated[str, typer.Option("--label", help="KEY or KEY=VALUE.")] = "",
    name: Annotated[str, typer.Option("--name")] = "",
    held: Annotated[bool, typer.Option("--held", help="Also what leases and resources hold themselves.")] = False,
    limit: Annotated[int, typer.Option("--limit")] = 200,
    owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List leases, newest first; without options those that are not over."""
    every = ("pending", "acquired", "active", "released", "destroyed", "broken")
    states = state or (every if all_ else None)
    found = o.client(owner).leases(states=states, type=type_, label=label, name=name, held=held, limit=limit)
    if as_json:
        return output.emit(found)
    rows = [
        (i.id, i.type, i.state, i.reason, i.name, i.owner, i.resource_name, output.ago(i.since), i.until, i.message)
        for i in found
    ]
    output.table(
        ("id", "type", "state", "reason", "name", "owner", "on", "since", "until", "message"), rows, empty="No leases."
    )
    return None


@guarded
def wait(
    leases: Ids, *,
    until: Annotated[
        str, typer.Option("--for", metavar="active|ended|STATE", help="What to wait for; a state is one of a lease.")
    ] = "active",
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="SPAN", help="Stop waiting after this.")] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Wait for leases, showing why they are not there yet.

    Ends with 0, with 5 when the time is over, 6 when one cannot come there any more, 8 when no worker lives.

    With --for ended it ends with the exit code of the first workload that failed, and with 6 when a lease is broken.
    """
    from drydock_client.waiting import ENDED, checked, end_of

    client, limit = o.client(), seconds(timeout)
    checked(until)
    with stoppable(), client.attended() as attended:
        try:
            infos = waiting.until_reached(client, leases, attended, until, limit=limit, quiet=as_json)
        except (TimedOut, Stopped):
            output.say(f"Nothing was released; release with: drydock release {' '.join(map(str, leases))}")
            raise
        ends = [end_of(client, info) for info in infos] if until == ENDED else []
    if as_json:
        output.emit(ends or infos)
    for end in () if as_json else ends:
        cost = f"; it cost ${end.cost:.4f}" if end.usage else ""
        output.say(f"{waiting.sentence(end.lease)}{cost}")
    codes = [watching.code_of(one.workload) if one.workload else REFUSED * (one.state == "broken") for one in infos]
    raise typer.Exit(next((code for code in codes if code), 0) if ends else 0)


@guarded
def show(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Everything about a lease, with what every blueprint said and what happened to it."""
    client = o.client()
    info = client.lease(lease)
    events = client.events(lease=lease, newest=True, limit=50)
    if as_json:
        from leases.client import to_json

        return output.emit({**to_json(info), "events": to_json(events)})
    output.pairs(waiting.sentence(info), _facts(info))
    if info.waiting is not None and info.waiting.siblings:
        group = [(one.lease, one.state, one.resource) for one in info.waiting.siblings]
        output.table(("lease of its group", "state", "resource"), group)
    if info.verdicts:
        rows = [(v.blueprint, v.answer, v.offer, v.sentence) for v in info.verdicts]
        output.table(("blueprint", "answer", "offer", "why"), rows)
    output.table(("at", "what", "took", "who", "message"), [event_row(e) for e in events])
    return None


def event_row(event: object) -> tuple[object, ...]:
    """An event as a row of a table."""
    from leases.client import EventInfo

    assert isinstance(event, EventInfo)
    return (event.at, event.kind, event.duration, event.actor, event.message or event.reason)


def _facts(info: LeaseInfo) -> list[tuple[str, object]]:
    sizes = {
        "slots": info.slots, "cpu_millicores": info.cpu_millicores, "ram_mib": info.ram_mib, "disk_mib": info.disk_mib,
    }  # fmt: skip
    return [
        ("type", info.type), ("name", info.name), ("owner", info.owner), ("resource", info.resource),
        ("blueprint", info.blueprint), ("sizes", {k: v for k, v in sizes.items() if v} | dict(info.extra)),
        ("exclusive", info.exclusive), ("requirements", dict(info.requirements)), ("labels", dict(info.labels)),
        ("until", info.until), ("heartbeat limit", info.heartbeat_limit), ("group", info.group),
        ("builds take about", in_words(info.progress.estimate) if info.progress and info.progress.estimate else None),
        ("held until", info.hold_until if info.held else None), ("replaced by", info.replaced_by),
        ("interfaces", list(info.interfaces)), *watching.facts(info), *told(info.facts),
    ]  # fmt: skip


def told(facts: Mapping[str, object]) -> list[tuple[str, object]]:
    """Facts that a person reads; --json has the others, too."""
    return [(name, value) for name, value in facts.items() if not isinstance(value, dict)]


@guarded
def release(
    lease: Ids, *,
    wait: Annotated[bool, typer.Option(help="Wait until it is cleaned, where a worker of ours does it.")] = True,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Release leases, or cancel those that wait. Releasing one that has ended is fine."""
    client = o.client()
    infos = [client.release(pk) for pk in lease]
    if wait and any(not info.over for info in infos):
        with client.attended() as attended:
            if attended.look() and attended.private:
                # In a pipe the last word, below, says it all.
                waiting.until_over(client, lease, attended, limit=CLEANING, quiet=as_json or not sys.stderr.isatty())
        infos = [client.lease(pk) for pk in lease]
    _tell(infos, as_json)


def _tell(infos: list[LeaseInfo], as_json: bool) -> None:
    if as_json:
        output.emit(infos if len(infos) != 1 else infos[0])
    else:
        for info in infos:
            output.line(waiting.sentence(info))


@guarded
def extend(
    lease: o.LeaseId, ttl: Annotated[str | None, typer.Argument(metavar="SPAN", help='From now: "2h".')] = None, *,
    until: o.Until = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Let a lease last longer: SPAN from now, or --until a time."""
    info = o.client().extend(lease, ttl=ttl, until=o.moment(until))
    output.emit(info) if as_json else output.line(f"lease {lease} lasts until {output.text(info.until)}")


@guarded
def heartbeat(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Say that you live, for a lease with a heartbeat limit."""
    o.client().heartbeat(lease)
    if as_json:
        output.emit({"lease": lease, "heartbeat": True})


@guarded
def hold(
    lease: o.LeaseId, *,
    ttl: Annotated[str | None, typer.Option("--ttl", help="How long; a day when nothing is said.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever wonders.")] = "", as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Keep its resource as it is after the end of the lease, for debugging; you can still use it."""
    info = o.client().hold(lease, ttl=ttl, reason=reason)
    if as_json:
        return output.emit(info)
    output.line(f"lease {lease} is held until {output.text(info.hold_until) or 'unhold'}")
    if info.active_at is not None:
        output.say(f"you can go on using it, also after its end, until then or `drydock unhold {lease}`")
    return None


@guarded
def unhold(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """End a hold; a lease that has ended is cleaned now."""
    _tell([o.client().unhold(lease)], as_json)


@guarded
def retry(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Try again now what waits for its next try."""
    _tell([o.client().retry(lease)], as_json)


@guarded
def key(lease: o.LeaseId) -> None:
    """Print the lease's generated private key. Its owner alone may, and it is recorded."""
    output.line(o.client().private_key(lease), end="")
