"""`drydock dpu chains`: the chains that connect interfaces of a leased DPU."""

from __future__ import annotations

from typing import Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock_client.values import DpuChainInfo

Name = Annotated[str, typer.Argument(metavar="NAME", help="The chain's name.")]


def add_chains(group: typer.Typer) -> None:
    """Add `drydock dpu chains`."""
    commands = typer.Typer(help="Chains on a leased DPU: connect, list, show, remove.", no_args_is_help=True)
    for name, command in (("connect", connect), ("list", list_), ("show", show), ("remove", remove)):
        commands.command(name)(command)
    group.add_typer(commands, name="chains")


@guarded
def connect(
    lease: o.LeaseId, name: Name, *,
    switch: Annotated[
        list[str],
        typer.Option(
            metavar="INTERFACE,...",
            help="Interfaces that one switch connects: p0, pf0, pf0vf3, edge:net1 of a service, or edge:net1@blue "
            "with a network; repeatable.",
        ),
    ],
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Connect interfaces by a chain. The same chain again changes nothing.

    Does not wait until they are connected: `drydock dpu chains show` prints the state.
    """
    switches = [[one.strip() for one in given.split(",")] for given in switch]
    found = o.client().connect_dpu_chain(lease, name, switches=switches)
    output.emit(found) if as_json else output.line(f"{found.name} {found.state}")


@guarded
def list_(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """List the chains of a lease."""
    found = o.client().dpu_chains(lease)
    if as_json:
        return output.emit(found)
    rows = [(one.name, one.state, _switches(one), next(iter(one.messages), "")) for one in found]
    output.table(("name", "state", "switches", "message"), rows, empty="No chains.")
    return None


@guarded
def show(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Show a chain: its state, its switches, and what it waits for."""
    found = o.client().dpu_chain(lease, name)
    if as_json:
        return output.emit(found)
    ports = [("switch", ", ".join(one)) for one in found.switches]
    output.pairs(f"{found.name} {found.state}", [*ports, *(("message", one) for one in found.messages)])
    return None


@guarded
def remove(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a chain. A missing chain is not an error."""
    o.client().remove_dpu_chain(lease, name)
    if as_json:
        output.emit({"removed": name})


def _switches(found: DpuChainInfo) -> str:
    return " ".join(",".join(ports) for ports in found.switches)
