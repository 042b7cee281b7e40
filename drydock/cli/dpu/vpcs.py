"""`drydock dpu vpcs`: the VPC of a leased DPU, with its virtual networks."""

from __future__ import annotations

from typing import Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest
from drydock_client.values import DpuVirtualNetwork

Name = Annotated[str, typer.Argument(metavar="NAME", help="The VPC's name.")]


def add_vpcs(group: typer.Typer) -> None:
    """Add `drydock dpu vpcs`."""
    commands = typer.Typer(help="The VPC of a leased DPU: create, list, show, remove.", no_args_is_help=True)
    for name, command in (("create", create), ("list", list_), ("show", show), ("remove", remove)):
        commands.command(name)(command)
    group.add_typer(commands, name="vpcs")


@guarded
def create(
    lease: o.LeaseId, name: Name, *,
    isolation: Annotated[str, typer.Option(metavar="CLASS", help="Isolation class that the blueprint allows.")],
    network: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=SUBNET=INTERFACE,...",
            help="A virtual network with its interfaces, such as blue=10.30.1.0/24=pf0vf1,edge:net1; repeatable.",
        ),
    ],
    external: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Route this network to the outside; repeatable.")
    ] = None,
    no_masquerade: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Keep the addresses of interfaces in this external network; repeatable."),
    ] = None,
    no_dhcp: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="No DHCP in this network; repeatable.")
    ] = None,
    routed: Annotated[bool, typer.Option("--routed", help="Let its virtual networks reach one another.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Create a VPC with virtual networks. The same VPC again changes nothing.

    Does not wait until it is ready: `drydock dpu vpcs show` prints the state.
    """
    given = [_network(one) for one in network]
    known = {one for one, _, _ in given}
    for option, of in (("external", external), ("no-masquerade", no_masquerade), ("no-dhcp", no_dhcp)):
        if unknown := next((one for one in of or () if one not in known), ""):
            raise InvalidRequest(f"--{option}: the VPC has no network {unknown}.", field=option)
    off = {"dhcp": no_dhcp or (), "masquerade": no_masquerade or ()}
    made = [
        DpuVirtualNetwork(
            name=one, subnet=subnet, interfaces=ports, external=one in (external or ()),
            **{field: one not in names for field, names in off.items()},
        )
        for one, subnet, ports in given
    ]  # fmt: skip
    found = o.client().create_dpu_vpc(lease, name, isolation=isolation, networks=made, routed=routed)
    output.emit(found) if as_json else output.line(f"{found.name} {found.state}")


@guarded
def list_(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """List the VPCs of a lease, of which there is one at most."""
    found = o.client().dpu_vpcs(lease)
    if as_json:
        return output.emit(found)
    rows = [
        (one.name, one.state, " ".join(_shown(part) for part in one.networks), next(iter(one.messages), ""))
        for one in found
    ]
    output.table(("name", "state", "networks", "message"), rows, empty="No VPCs.")
    return None


@guarded
def show(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Show a VPC: its state, its virtual networks, and what it waits for."""
    found = o.client().dpu_vpc(lease, name)
    if as_json:
        return output.emit(found)
    said = [("isolation", found.isolation), ("routed", "yes" if found.routed else "no")]
    for one in found.networks:
        words = (
            "" if one.dhcp else "no DHCP", "external" if one.external else "",
            "" if one.masquerade or not one.external else "no masquerade",
        )  # fmt: skip
        said.append(("network", " ".join(filter(None, (_shown(one), *words)))))
    output.pairs(f"{found.name} {found.state}", [*said, *(("message", one) for one in found.messages)])
    return None


@guarded
def remove(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a VPC with its virtual networks. A missing VPC is not an error."""
    o.client().remove_dpu_vpc(lease, name)
    if as_json:
        output.emit({"removed": name})


def _network(given: str) -> tuple[str, str, tuple[str, ...]]:
    parts = given.split("=")
    if len(parts) != 3 or not all(parts):
        raise InvalidRequest(
            f"{given!r} is not of the form NAME=SUBNET=INTERFACE,...", field="network",
            hint="Such as blue=10.30.1.0/24=pf0vf1,pf0vf2.",
        )  # fmt: skip
    name, subnet, ports = parts
    return name, subnet, tuple(one.strip() for one in ports.split(","))


def _shown(one: DpuVirtualNetwork) -> str:
    return f"{one.name}={one.subnet}={','.join(one.interfaces)}"
