"""`drydock dpu networks`: ranges of addresses for the interfaces of services on a leased DPU."""

from __future__ import annotations

from typing import Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock_client.values import DpuNetworkInfo

Name = Annotated[str, typer.Argument(metavar="NAME", help="The network's name.")]


def add_networks(group: typer.Typer) -> None:
    """Add `drydock dpu networks`."""
    commands = typer.Typer(help="Networks of a leased DPU: create, list, show, remove.", no_args_is_help=True)
    for name, command in (("create", create), ("list", list_), ("show", show), ("remove", remove)):
        commands.command(name)(command)
    group.add_typer(commands, name="networks")


@guarded
def create(
    lease: o.LeaseId, name: Name, *,
    subnet: Annotated[str, typer.Option(metavar="RANGE", help="A subnet, such as 10.20.1.0/24.")] = "",
    gateway: Annotated[str, typer.Option(metavar="ADDRESS", help="Its gateway; by default its first address.")] = "",
    addresses: Annotated[int | None, typer.Option(help="Addresses of it for the DPU; 16 by default.")] = None,
    network: Annotated[str, typer.Option(metavar="RANGE", help="A range that is divided into subnets.")] = "",
    prefix: Annotated[int | None, typer.Option(help="Prefix of the subnets.")] = None,
    gateway_index: Annotated[int | None, typer.Option(help="Number of the gateway's address in its subnet.")] = None,
    mtu: Annotated[int | None, typer.Option(help="MTU of the interfaces.")] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Create a network: a --subnet, or a --network that is divided. The same network again changes nothing."""
    found = o.client().create_dpu_network(
        lease, name, subnet=subnet, gateway=gateway, addresses=addresses, network=network, prefix=prefix,
        gateway_index=gateway_index, mtu=mtu,
    )  # fmt: skip
    output.emit(found) if as_json else output.line(f"{found.name} {found.state}")


@guarded
def list_(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """List the networks of a lease."""
    found = o.client().dpu_networks(lease)
    if as_json:
        return output.emit(found)
    rows = [(one.name, one.state, _range(one), next(iter(one.messages), "")) for one in found]
    output.table(("name", "state", "range", "message"), rows, empty="No networks.")
    return None


@guarded
def show(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Show a network: its state, its range, and what it waits for."""
    found = o.client().dpu_network(lease, name)
    if as_json:
        return output.emit(found)
    output.pairs(
        f"{found.name} {found.state}",
        [
            ("subnet", found.subnet), ("gateway", found.gateway), ("addresses", found.addresses),
            ("network", found.network), ("prefix", found.prefix), ("gateway index", found.gateway_index),
            ("mtu", found.mtu), *(("message", one) for one in found.messages),
        ],
    )  # fmt: skip
    return None


@guarded
def remove(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a network. A missing network is not an error."""
    o.client().remove_dpu_network(lease, name)
    if as_json:
        output.emit({"removed": name})


def _range(found: DpuNetworkInfo) -> str:
    return found.subnet or f"{found.network} in /{found.prefix}"
