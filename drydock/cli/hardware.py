"""`drydock hardware`: what is inside this machine, and what of it is ready for leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from drydock_agent import Device, Hardware

Root = Annotated[
    str, typer.Option("--root", metavar="FOLDER", help="Read this captured tree (with sys and proc) instead of /.")
]

All = Annotated[bool, typer.Option("--all", help="Include bridges and other functions that leases do not use.")]

_ROLES = {
    "display_only": "The device only drives a display, so it cannot be leased.",
    "integrated_gpu": "The device is part of the processor, so it cannot be leased.",
    "management": "The function manages its card, so it cannot be leased.",
    "platform_crypto": "The device belongs to the platform, so it cannot be leased.",
}

_COLOURS = {
    "ready": "green",
    "setup_required": "yellow",
    "reboot_required": "yellow",
    "unsupported": "dim",
    "not leased": "dim",
}


def add_hardware(app: typer.Typer) -> None:
    """Add `drydock hardware`."""
    group = typer.Typer(help="Hardware: show that of this machine, set up devices of hosts.", no_args_is_help=True)
    group.command("scan")(hardware_scan)
    group.command("show")(hardware_show)
    group.command("setup")(hardware_setup)
    group.callback()(_group)
    app.add_typer(group, name="hardware", rich_help_panel="Operators")


def _group() -> None:
    """Show the hardware of this machine, and set up devices of hosts."""


@guarded
def hardware_scan(*, root: Root = "", all_: All = False, as_json: o.AsJson = False) -> None:
    """List the devices of this machine, whether each is ready for leases, and why not.

    Needs no database, and changes nothing. Programs such as nvidia-smi run for at most 20 seconds each.

    [dim]drydock hardware scan[/dim]
    """
    found = _scanned(root)
    if as_json:
        return output.emit(found.to_json())
    shown = [one for one in found.devices if all_ or one.kind not in ("bridge", "other") or one.device_class]
    output.COLOURS.update(_COLOURS)
    headers = ("device", "class", "model", "driver", "numa", "iommu", "state", "why")
    output.table(headers, [_row(one) for one in shown], empty="No accelerators, network cards or disks were found.")
    output.say(_summary(found, len(found.devices) - len(shown)))
    _warn(found)
    return None


@guarded
def hardware_show(
    id: Annotated[str, typer.Argument(metavar="DEVICE", help="The PCI address, or ADDRESS/PART for a slice.")],
    *,
    root: Root = "",
    as_json: o.AsJson = False,
) -> None:
    """Show everything that is known about a device of this machine.

    [dim]drydock hardware show 0000:06:00.0[/dim]
    """
    from drydock_agent.pci import address
    from drydock_agent.wire import encoded

    found = _scanned(root)
    place, slash, part = id.partition("/")
    device = found.device((address(place) or place) + slash + part)
    if device is None:
        hint = "`drydock hardware scan --all` lists the devices."
        raise NotFound(f"This machine has no device {id!r}.", hint=hint)
    if as_json:
        return output.emit(encoded(device))
    output.pairs(f"{device.id}  {_model(device)}", _facts(device))
    _warn(found)
    return None


@guarded
def hardware_setup(
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="Name or id of the device.")],
    *,
    driver: Annotated[
        str, typer.Option("--driver", metavar="NAME", help="Kernel driver, vfio-pci or none; else the kernel's choice.")
    ] = "",
    vfs: Annotated[int | None, typer.Option("--vfs", metavar="N", help="Create this number of VFs instead.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it has ended.")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Bind a kernel driver to a device of a host, or create its VFs: the act `setup`, while no lease uses it.

    [dim]drydock hardware setup "nic 0000:3b:00.0" --vfs 4[/dim]
    """
    from drydock.cli.resources import act

    given = [f"driver={driver}"] if driver else []
    given += [] if vfs is None else [f"vfs={vfs}"]
    act(resource, "setup", given, wait=wait, yes=yes, as_json=as_json)


def _scanned(root: str) -> Hardware:
    from pathlib import Path

    from drydock_agent import FolderTree, load_drivers, local_tree, scan
    from drydock_agent.scan import CAPTURED

    drivers = load_drivers()
    if not root:
        return scan(local_tree(drivers), drivers=drivers)
    if not any((Path(root) / one).is_dir() for one in ("sys", "proc", "drydock-tools")):
        raise InvalidRequest(
            f"{root} is not a captured tree: it has none of the folders sys, proc and drydock-tools.", field="root"
        )
    return scan(FolderTree(root), drivers=drivers, traits=() if Path(root).resolve() == Path("/") else (CAPTURED,))


def _model(device: Device) -> str:
    ids = ":".join(filter(None, (device.vendor_id, device.device_id)))
    return device.name or " ".join(filter(None, (device.vendor_name, device.device_name))) or ids


def _why(device: Device) -> str:
    return " ".join([_ROLES.get(device.role, device.reason), *device.problems])


def _row(device: Device) -> tuple[Any, ...]:
    return (
        device.id, device.device_class or device.kind, _model(device), device.driver,
        "" if device.numa_node is None else device.numa_node, "" if device.iommu_group is None else device.iommu_group,
        "not leased" if device.role in _ROLES else device.readiness or "", _why(device),
    )  # fmt: skip


def _summary(found: Hardware, hidden: int) -> str:
    candidates = [one for one in found.devices if one.role in ("lease_candidate", "part")]
    ready = sum(one.readiness == "ready" for one in candidates)
    counted = f"{ready} of {len(candidates)} accelerators and parts are ready."
    left_out = f" --all shows {hidden} other functions." if hidden else ""
    return f"{counted}{left_out}{' This is a captured tree.' if found.traits else ''}"


def _warn(found: Hardware) -> None:
    for one in found.warnings:
        output.say(f"Warning: {one.subject}: {one.message}")


def _facts(device: Device) -> list[tuple[str, Any]]:
    link = device.link
    lanes = f"x{link.width} of x{link.max_width}" if link and link.width and link.max_width else ""
    speed = f"{link.speed:g} of {link.max_speed:g} GT/s" if link and link.speed and link.max_speed else ""
    facts: list[tuple[str, Any]] = [
        ("state", device.readiness), ("why", _why(device)), ("class", device.device_class), ("kind", device.kind),
        ("role", device.role), ("part of", device.part_of), ("health", device.health),
        ("memory", f"{device.memory_mib / 1024:.1f} GiB" if device.memory_mib else ""), ("driver", device.driver),
        ("ids", f"{device.vendor_id}:{device.device_id}" if device.vendor_id else ""), ("PCI class", device.pci_class),
        ("subsystem", ":".join(filter(None, (device.subsystem_vendor_id, device.subsystem_device_id)))),
        ("NUMA node", "" if device.numa_node is None else device.numa_node), ("CPUs", device.local_cpus),
        ("IOMMU group", "" if device.iommu_group is None else device.iommu_group),
        ("group members", list(device.iommu_members)), ("behind", device.parent or device.root),
        ("link", " ".join(filter(None, (lanes, speed)))), ("VFs", list(device.vfs)),
        ("VFs possible", "" if device.total_vfs is None else device.total_vfs), ("nodes", list(device.nodes)),
    ]  # fmt: skip
    for title, pairs in (("firmware", device.firmware), ("identity", device.identities), ("", device.attributes)):
        facts += [(f"{title} {key}".strip().replace("_", " "), value) for key, value in pairs.items()]
    return [(name, list(value) if isinstance(value, tuple) else value) for name, value in facts]
