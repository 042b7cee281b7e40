"""`drydock lease` and `drydock explain`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output, watching
from drydock.cli.errand import Errand, seconds
from drydock.cli.exits import REFUSED, guarded
from drydock.cli.signals import stoppable
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from leases.client import Client


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("lease", rich_help_panel="Leases")(lease)
    app.command("explain", rich_help_panel="Leases")(explain)


@guarded
def lease(
    type_: o.Type, command: o.Command = None, *,
    vcpus: o.Vcpus = None, ram: o.Ram = None, disk: o.Disk = None, slots: o.Slots = None, extra: o.Extra = None,
    exclusive: o.Exclusive = False, require: o.Require = None, trait: o.Trait = None, forbid_trait: o.Forbid = None,
    prefer_trait: o.Prefer = None, blueprint: o.Blueprints = None, exclude_blueprint: o.Exclude = None,
    ttl: o.Ttl = None, until: o.Until = None, wait_limit: o.WaitLimit = None, heartbeat_limit: o.Heartbeat = None,
    priority: o.Priority = 0, name: o.Name = "", label: o.Label = None, key: o.Key = None,
    public_key: o.PublicKey = None, serve_again: o.ServeAgain = False, choose: o.Choose = "", charge: o.Charge = None,
    count: Annotated[
        int,
        typer.Option("--count", "--group-size", min=1, max=100, help="Number of leases, all granted together or none."),
    ] = 1,
    same: Annotated[str, typer.Option(help="With --count: they share `resource` or `parent`.")] = "",
    different: Annotated[str, typer.Option(help="With --count: each on a `resource` or `parent` of its own.")] = "",
    wait: Annotated[str | None, typer.Option("--wait", metavar="SPAN", help="Stop waiting after this.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it leased, and say how to use it.")] = False,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Give our standard input to the command.")] = False,
    cwd: Annotated[str, typer.Option(help="Where the command runs, from the lease's home.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="For the command.")] = None,
    run: o.Run = None, container: o.Container = "", metrics: o.Metrics = False,
    owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Lease something, run a command there, release it.

    Waits until it is there, showing why it is not yet; runs COMMAND and ends with its exit code.

    It is released whatever happens: the end of the command, Ctrl-C, an error; unless --keep.

    Without a command it is held until Ctrl-C.

    With --run or --container the lease itself does it, once, and ends with it: this program only shows what it says,
    and ends with its exit code. With --keep it does not wait for that: `drydock watch LEASE` does.

    [dim]drydock lease host --vcpus 2 --ttl 2h -- uname -a[/dim]
    """
    given = o.request(
        type_, vcpus=vcpus, ram=ram, disk=disk, slots=slots, extra=extra, exclusive=exclusive, require=require,
        traits=trait, forbidden_traits=forbid_trait, preferred_traits=prefer_trait, allowed_blueprints=blueprint,
        excluded_blueprints=exclude_blueprint, ttl=ttl, until=until, wait_limit=wait_limit,
        heartbeat_limit=heartbeat_limit, priority=priority, name=name, label=label, key=key, public_key=public_key,
        serve_again=serve_again, choose=choose, charge=charge, metrics=metrics,
    )  # fmt: skip
    _give_heartbeat(given, heartbeat_limit, keeps=keep or bool(run or container))
    if work := watching.workload(run, container, command or [], cwd, o.variables(env), stdin=stdin):
        given["workload"] = work
    errand = (watching.WorkloadErrand if work else Errand)(
        command=command or [], keep=keep, limit=seconds(wait), quiet=as_json, cwd=cwd, env=o.variables(env),
        stdin=sys.stdin.buffer.read() if stdin else b"",
    )  # fmt: skip
    with stoppable():
        client = o.client(owner)
        if command and not work:
            _refuse_without_commands(client, given)
        with client.attended() as attended:
            code = errand.run(client, attended, lambda: _ask(client, given, count, same, different))
    raise typer.Exit(code)


HEARTBEAT = "60s"
"""What a command's lease has that is not kept, where nothing else is said: a killed program leaves nothing behind."""


def _give_heartbeat(given: dict[str, Any], wanted: str | None, *, keeps: bool) -> None:
    """A heartbeat limit for a lease that lasts as long as this program; `none` asks for none."""
    if wanted == "none":
        del given["heartbeat_limit"]
    elif wanted is None and not keeps:
        given["heartbeat_limit"] = HEARTBEAT


def _refuse_without_commands(client: Client, given: dict[str, Any]) -> None:
    """Raises InvalidRequest, before anything is asked for, where no lease of this type could run the command."""
    found = {kind.name: kind.interfaces for kind in client.kinds(type=given["type"])}
    named = given.get("allowed_blueprints")
    usable = [one for one in client.blueprints(type=given["type"]) if named is None or one.name in named]
    having = [found[one.kind] for one in usable if one.kind in found] or list(found.values())
    if having and not any("command" in interfaces for interfaces in having):
        others = ", ".join(sorted(set().union(*having)))
        raise InvalidRequest(
            f"A lease on a {given['type']} runs no commands; its interfaces are: {others}.", field="command",
            hint=f"Leave the command out: drydock lease {given['type']} --keep",
        )  # fmt: skip


def _ask(client: Client, given: dict[str, Any], count: int, same: str, different: str) -> list[int]:
    if count == 1:
        return [client.request(given).id]
    key, name = given.pop("idempotency_key", None), given.get("name")
    each = [{**given, "name": f"{name}-{number}"} if name else given for number in range(1, count + 1)]
    return [info.id for info in client.request_group(each, same=same, different=different, key=key)]


@guarded
def explain(
    type_: o.Type, *,
    vcpus: o.Vcpus = None, ram: o.Ram = None, disk: o.Disk = None, slots: o.Slots = None, extra: o.Extra = None,
    exclusive: o.Exclusive = False, require: o.Require = None, trait: o.Trait = None, forbid_trait: o.Forbid = None,
    prefer_trait: o.Prefer = None, blueprint: o.Blueprints = None, exclude_blueprint: o.Exclude = None,
    ttl: o.Ttl = None, until: o.Until = None, priority: o.Priority = 0, choose: o.Choose = "", charge: o.Charge = None,
    owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """What would come of a request now, and what every blueprint says to it. Nothing is written."""
    given = o.request(
        type_, vcpus=vcpus, ram=ram, disk=disk, slots=slots, extra=extra, exclusive=exclusive, require=require,
        traits=trait, forbidden_traits=forbid_trait, preferred_traits=prefer_trait, allowed_blueprints=blueprint,
        excluded_blueprints=exclude_blueprint, ttl=ttl, until=until, priority=priority, choose=choose, charge=charge,
        label=None, public_key=None, key=None,
    )  # fmt: skip
    found = o.client(owner).explain(given)
    if as_json:
        output.emit(found)
    else:
        output.pairs(
            f"{found.outcome}: {found.message}",
            [("waiting before", found.waiting_before or None), ("again at", found.retry_at), ("offer", found.offer)],
        )
        rows = [(v.blueprint, v.answer, v.offer, v.sentence) for v in found.verdicts]
        output.table(("blueprint", "answer", "offer", "why"), rows, empty="No blueprint was asked.")
    if found.outcome == "refuse":
        raise typer.Exit(REFUSED)
