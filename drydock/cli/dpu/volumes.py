"""`drydock dpu volumes`: storage that a leased DPU gives to its host."""

from __future__ import annotations

from typing import Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded

Name = Annotated[str, typer.Argument(metavar="NAME", help="The volume's name.")]


def add_volumes(group: typer.Typer) -> None:
    """Add `drydock dpu volumes`."""
    commands = typer.Typer(help="Volumes of a leased DPU: create, list, show, remove.", no_args_is_help=True)
    for name, command in (("create", create), ("list", list_), ("show", show), ("remove", remove)):
        commands.command(name)(command)
    group.add_typer(commands, name="volumes")


@guarded
def create(
    lease: o.LeaseId, name: Name, *,
    policy: Annotated[str, typer.Option(help="Storage policy that the blueprint allows.")],
    size: Annotated[int, typer.Option(metavar="GIB", help="Size in GiB.")],
    mode: Annotated[str, typer.Option(help="block or filesystem.")] = "block",
    access: Annotated[
        str, typer.Option(help="ReadWriteOnce, ReadOnlyMany or ReadWriteMany.")
    ] = "ReadWriteOnce",
    function: Annotated[str, typer.Option(help="The function that the card emulates in the host: pf or vf.")] = "pf",
    hotplug: Annotated[
        bool | None, typer.Option("--hotplug/--no-hotplug", help="Hot-plug the function. Default: yes for a pf.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Create a volume and attach it to the host of the DPU. The same volume again changes nothing.

    Does not wait until it is attached: `drydock dpu volumes show` prints the state and the device.
    """
    found = o.client().create_dpu_volume(
        lease, name, policy=policy, size_gib=size, mode=mode, access=access, function=function, hotplug=hotplug
    )
    output.emit(found) if as_json else output.line(f"{found.name} {found.state}")


@guarded
def list_(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """List the volumes of a lease."""
    found = o.client().dpu_volumes(lease)
    if as_json:
        return output.emit(found)
    rows = [
        (one.name, one.state, f"{one.size_gib} GiB", one.policy, next(iter(one.attached.values()), ""),
         next(iter(one.messages), ""))
        for one in found
    ]  # fmt: skip
    output.table(("name", "state", "size", "policy", "device", "message"), rows, empty="No volumes.")
    return None


@guarded
def show(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Show a volume: its state, its device in the host, and what it waits for."""
    found = o.client().dpu_volume(lease, name)
    if as_json:
        return output.emit(found)
    output.pairs(
        f"{found.name} {found.state}",
        [
            ("size", f"{found.size_gib} GiB"), ("policy", found.policy), ("mode", found.mode),
            ("access", found.access), ("function", f"{found.function}{' (plugged in)' if found.hotplug else ''}"),
            *((key.replace("_", " "), value) for key, value in found.attached.items()),
            *(("message", one) for one in found.messages),
        ],
    )  # fmt: skip
    return None


@guarded
def remove(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Detach and remove a volume, with its data. A missing volume is not an error."""
    o.client().remove_dpu_volume(lease, name)
    if as_json:
        output.emit({"removed": name})
