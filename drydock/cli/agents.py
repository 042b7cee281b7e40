"""`drydock agents`: the programs on hosts that report hardware, and the codes with which they join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.resources import number
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded

if TYPE_CHECKING:
    from drydock_client.values import AgentInfo

Id = Annotated[int, typer.Argument(metavar="AGENT", min=1, help="Number of the agent, as in `drydock agents list`.")]


def add_agents(app: typer.Typer) -> None:
    """Add `drydock agents`."""
    group = o.group(
        list_, "Agents that report the hardware of hosts: list, show, join, install, confirm, order, revoke."
    )
    for name, command in (
        ("list", list_), ("show", show), ("join", join), ("install", install),
        ("confirm", confirm), ("revoke", revoke), ("order", order),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="agents", rich_help_panel="Operators")


@guarded
def list_(
    *,
    blueprint: Annotated[str | None, typer.Option("--blueprint", help="Only agents of this blueprint.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include revoked agents.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """List agents, and the hosts whose agents are missing."""
    found = o.client().agents(blueprint=blueprint, all=all_)
    if as_json:
        return output.emit(found)
    rows = [
        (one.id, one.blueprint, one.place, one.host, one.state, output.ago(one.reported_at) or "never", one.version,
         one.message) for one in found
    ]  # fmt: skip
    headers = ("id", "blueprint", "place", "host", "state", "last report", "version", "problem")
    return output.table(headers, rows, empty="No agents.")


@guarded
def show(agent: Id, *, as_json: o.AsJson = False) -> None:
    """Show an agent and its last orders."""
    _tell(o.client().agent(agent), as_json)


def _tell(info: AgentInfo, as_json: bool) -> None:
    if as_json:
        return output.emit(info)
    output.pairs(
        f"agent {info.id}",
        [
            ("blueprint", info.blueprint), ("place", info.place), ("host", info.host), ("state", info.state),
            ("problem", info.message), ("version", info.version), ("drivers", list(info.drivers)),
            ("interval", f"{info.interval:g} s"), ("joined", info.joined_at), ("last report", info.reported_at),
            ("silent since", info.silent_since), ("revoked", info.revoked_at), ("endpoint", info.endpoint),
            ("certificate", info.fingerprint), ("last call failed", info.call_problem),
            ("announced endpoint", info.offered_endpoint), ("announced certificate", info.offered_fingerprint),
        ],
    )  # fmt: skip
    if info.orders:
        output.line()
        rows = [(one.id, one.action, one.state, output.ago(one.created_at), one.message) for one in info.orders]
        output.table(("order", "action", "state", "given", "message"), rows)
    return None


@guarded
def join(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")],
    *,
    host: Annotated[str, typer.Option("--host", help="Only an agent on this host may use the code.")] = "",
    ttl: Annotated[str | None, typer.Option("--ttl", help="How long the code is valid: at most 1h.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Create a code with which one agent may join a blueprint once. The code is shown only now."""
    made = o.client().create_join_code(blueprint, host=host, ttl=ttl)
    if as_json:
        return output.emit(made)
    output.say(
        f"This code is valid once, until {output.text(made.expires_at)}, for {made.place or 'any host'} of "
        f"{made.blueprint}:"
    )
    return output.line(made.code)


@guarded
def install(
    host: Annotated[str, typer.Argument(metavar="HOST", help="Name or number of the host's resource.")],
    *,
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Address at which the host reaches this server.")
    ] = "",
    blueprint: Annotated[str, typer.Option("--blueprint", help="If several take reports of the host.")] = "",
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Certificates that the agent trusts.", exists=True)
    ] = None,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start the systemd unit.")] = True,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove the agent, its folder and account.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Install the agent on a host over its control connection, have it join, and wait for its hello.

    What fails is undone. Doing it again installs this version anew.

    [dim]drydock agents install node-1 --server https://drydock.example.org[/dim]
    """
    id = number(host)
    if uninstall:
        made = o.client().uninstall_agent(id)
    else:
        trusted = ca.read_text(encoding="utf-8", errors="replace") if ca else ""
        made = o.client().install_agent(id, server=server, blueprint=blueprint, ca=trusted, start=start)
    if as_json:
        return output.emit(made)
    for step in made.steps:
        output.say(step)
    if uninstall:
        return output.line(f"The agent was removed from {host}.")
    return output.line(f"Agent {made.agent} on {host} said hello with version {made.version}.")


@guarded
def confirm(
    agent: Id,
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="As `drydock-agent status` shows it on the agent's host.")
    ],
    *,
    endpoint: Annotated[
        str,
        typer.Option("--endpoint", metavar="HOST:PORT", help="The endpoint that you confirm, as it was announced."),
    ] = "",
    as_json: o.AsJson = False,
) -> None:
    """Trust the endpoint and the certificate that an agent announced, so that the server may call it.

    If the agent announces another endpoint than you give, nothing is trusted. If it has announced the certificate with
    several endpoints, one must be given.
    """
    info = o.client().confirm_agent(agent, fingerprint, endpoint=endpoint)
    output.say(f"The server may now call agent {agent} at {info.endpoint}.")
    _tell(info, as_json)


@guarded
def revoke(agent: Id, *, as_json: o.AsJson = False) -> None:
    """Stop accepting anything from an agent. The resources that it reported serve no new leases."""
    _tell(o.client().revoke_agent(agent), as_json)


@guarded
def order(
    agent: Id,
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="discovery: scan and report; upgrade: install our version.")
    ] = "discovery",
    *,
    as_json: o.AsJson = False,
) -> None:
    """Tell an agent to do something now."""
    found = o.client().order_agent(agent, action=action)
    if as_json:
        return output.emit(found)
    return output.say(f"Order {found.id} ({found.action}): {found.state}.")
