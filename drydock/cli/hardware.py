"""`drydock hardware`: what is inside this machine or another host, and what of it is ready for leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import Conflict, InvalidRequest, NotFound, TimedOut

if TYPE_CHECKING:
    from drydock_agent import Device, Hardware
    from drydock_client.protocol import Client
    from drydock_client.values import DeviceInfo, HardwareInfo, HardwareScanInfo

Root = Annotated[
    str, typer.Option("--root", metavar="FOLDER", help="Read this captured tree (with sys and proc) instead of /.")
]

All = Annotated[bool, typer.Option("--all", help="Include bridges and other functions that leases do not use.")]

_COLOURS = {
    "ready": "green",
    "setup_required": "yellow",
    "reboot_required": "yellow",
    "unsupported": "dim",
    "not leased": "dim",
    "ok": "green",
    "silent": "red",
    "failing": "red",
    "unread": "yellow",
}

Blueprint = Annotated[str, typer.Option("--blueprint", help="Only what this blueprint found.")]

PATIENCE = 120.0
"""The longest time in seconds that --wait waits for a report."""


_CANDIDATES = ("lease_candidate", "part")
_HELP = "Show the hardware of this machine or of a host (accelerators, network cards, disks), and set devices up."


def add_hardware(app: typer.Typer) -> None:
    """Add `drydock hardware`."""
    group = typer.Typer(help=_HELP, no_args_is_help=True)
    group.command("list")(hardware_list)
    group.command("scan")(hardware_scan)
    group.command("show")(hardware_show)
    group.command("setup")(hardware_setup)
    group.callback()(_group)
    app.add_typer(group, name="hardware", rich_help_panel="Operators")


def _group() -> None:
    """Show the hardware of this machine or of a host (accelerators, network cards, disks), and set devices up."""


@guarded
def hardware_list(
    *,
    blueprint: Blueprint = "",
    host: Annotated[str, typer.Option("--host", help="Only the host with this name or id.")] = "",
    as_json: o.AsJson = False,
) -> None:
    """List hosts with the devices that were last reported: how many are ready, and what is wrong.

    Owners see only the devices that their leases hold.

    [dim]drydock hardware list[/dim]
    """
    found = o.client().hardware_reports(host=host, blueprint=blueprint)
    if as_json:
        return output.emit(found)
    output.COLOURS.update(_COLOURS)
    rows = [
        (
            one.name, one.host or one.place, one.blueprint, one.state, output.ago(one.reported_at) or "never",
            _counted(one), one.message,
        )
        for one in found
    ]  # fmt: skip
    headers = ("host", "id", "blueprint", "state", "last report", "ready", "problem")
    return output.table(headers, rows, empty="No hardware of hosts was reported.")


def _counted(info: HardwareInfo) -> str:
    return ", ".join(
        f"{states.get('ready', 0)} of {sum(states.values())} {name}" for name, states in sorted(info.counts.items())
    )


@guarded
def hardware_scan(
    host: Annotated[
        str, typer.Argument(metavar="[HOST]", help="Name or id of a host, whose hardware is reported again.")
    ] = "",
    *,
    blueprint: Blueprint = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the report of the host, and show it.")] = False,
    root: Root = "",
    all_: All = False,
    as_json: o.AsJson = False,
) -> None:
    """List the devices of this machine, whether each is ready for leases, and why not.

    Needs no database, and changes nothing. Programs such as nvidia-smi run for at most 20 seconds each.

    With HOST, request a new report about that host instead: its agent is ordered to send one, or a worker reads it.

    [dim]drydock hardware scan[/dim]
    [dim]drydock hardware scan node-1 --wait[/dim]
    """
    if host:
        return _scan_host(host, blueprint, root, wait=wait, all_=all_, as_json=as_json)
    if wait or blueprint:
        raise InvalidRequest("--wait and --blueprint need a host.", hint="drydock hardware scan HOST --wait")
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
    first: Annotated[
        str, typer.Argument(metavar="[HOST]", help="Name or id of a host. Without it, this machine's device is shown.")
    ],
    second: Annotated[
        str, typer.Argument(metavar="[DEVICE]", help="The PCI address, or ADDRESS/PART for a slice.")
    ] = "",
    *,
    blueprint: Blueprint = "",
    root: Root = "",
    all_: All = False,
    as_json: o.AsJson = False,
) -> None:
    """Show the devices of a host as last reported, or everything that is known about one device.

    Owners see only the devices that their leases hold.

    [dim]drydock hardware show 0000:06:00.0[/dim]
    [dim]drydock hardware show node-1[/dim]
    [dim]drydock hardware show node-1 0000:06:00.0[/dim]
    """
    from drydock_agent.wire import encoded

    if second or not _is_device(first):
        return _show_host(first, second, blueprint, root, all_=all_, as_json=as_json)
    id, found = first, _scanned(root)
    device = found.device(_device_id(id))
    if device is None:
        hint = "`drydock hardware scan --all` lists the devices."
        raise NotFound(f"This machine has no device {id!r}.", hint=hint)
    if as_json:
        return output.emit(encoded(device))
    output.pairs(f"{device.id}  {device.model}", _facts(device))
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


def _is_device(text: str) -> bool:
    from drydock_agent.pci import address

    return bool(address(text.partition("/")[0]))


def _device_id(text: str) -> str:
    from drydock_agent.pci import address

    place, slash, part = text.partition("/")
    return (address(place) or place) + slash + part


def _report(client: Client, host: str, blueprint: str, root: str) -> HardwareInfo:
    """Return the report about a host. Raises NotFound, and InvalidRequest if several blueprints report about it."""
    if root:
        raise InvalidRequest("--root is for this machine. Leave out the host.", field="root")
    found = client.hardware_reports(host=host, blueprint=blueprint)
    if not found:
        raise NotFound(
            f"No hardware of host {host!r} was reported.", field="host", hint="`drydock hardware list` lists the hosts."
        )
    if len(found) > 1:
        names = ", ".join(f"{one.blueprint} (host {one.host or one.place})" for one in found)
        raise InvalidRequest(
            f"There are several reports about {host!r}: {names}.", field="host",
            hint="Choose one with the host's id and --blueprint.",
        )  # fmt: skip
    return found[0]


def _show_host(host: str, device: str, blueprint: str, root: str, *, all_: bool, as_json: bool) -> None:
    client = o.client()
    info = client.hardware_report(_report(client, host, blueprint, root).id)
    if not device:
        return _tell_host(info, all_=all_, as_json=as_json)
    found = next((one for one in info.devices if one.id == _device_id(device)), None)
    if found is None:
        hint = f"`drydock hardware show {host} --all` lists the devices."
        raise NotFound(f"Host {info.name} has no device {device!r} that you may see.", field="device", hint=hint)
    if as_json:
        return output.emit(found)
    return output.pairs(f"{found.id}  {found.model}", _device_facts(found))


def _tell_host(info: HardwareInfo, *, all_: bool, as_json: bool) -> None:
    if as_json:
        return output.emit(info)
    shown = [one for one in info.devices if all_ or one.kind not in ("bridge", "other") or one.device_class]
    output.COLOURS.update(_COLOURS)
    headers = ("device", "class", "model", "driver", "numa", "iommu", "state", "resource", "leases", "why")
    output.table(headers, [_info_row(one) for one in shown], empty="No accelerators, network cards or disks.")
    candidates = [one for one in info.devices if one.role in _CANDIDATES]
    ready = sum(one.readiness == "ready" and one.health != "failed" for one in candidates)
    hidden = len(info.devices) - len(shown)
    said = [
        f"{info.name}, by blueprint {info.blueprint}: {ready} of {len(candidates)} accelerators and parts are ready.",
        f"Last report: {output.ago(info.reported_at) or 'never'}.",
        f"--all shows {hidden} other functions." if hidden else "", "This is a captured tree." if info.captured else "",
    ]  # fmt: skip
    output.say(" ".join(filter(None, said)))
    for one in (info.message, *info.warnings):
        if one:
            output.say(f"Warning: {one}")
    return None


def _info_row(one: DeviceInfo) -> tuple[Any, ...]:
    from drydock_agent.pci import NOT_LEASED

    return (
        one.id, one.device_class or one.kind, one.model, one.driver, "" if one.numa_node is None else one.numa_node,
        "" if one.iommu_group is None else one.iommu_group, "not leased" if one.role in NOT_LEASED else one.readiness,
        "" if one.resource is None else f"{one.resource} ({one.resource_state})", list(one.leases), one.reason,
    )  # fmt: skip


def _device_facts(one: DeviceInfo) -> list[tuple[str, Any]]:
    facts = one.facts
    shown: list[tuple[str, Any]] = [
        ("state", one.readiness), ("why", one.reason), ("resource", one.resource), ("resource is", one.resource_state),
        ("leases", list(one.leases)), ("class", one.device_class), ("kind", one.kind), ("role", one.role),
        ("part of", one.part_of), ("health", one.health),
        ("memory", f"{one.memory_mib / 1024:.1f} GiB" if one.memory_mib else ""), ("driver", one.driver),
        ("ids", ":".join(filter(None, (facts.get("vendor_id"), facts.get("device_id"))))),
        ("NUMA node", "" if one.numa_node is None else one.numa_node),
        ("IOMMU group", "" if one.iommu_group is None else one.iommu_group),
        ("group members", facts.get("iommu_members")), ("behind", facts.get("parent") or facts.get("root")),
        ("link", one.link), ("VFs", facts.get("vfs")), ("VFs possible", facts.get("total_vfs")),
        ("nodes", facts.get("nodes")),
    ]  # fmt: skip
    for title in ("firmware", "identities", "attributes"):
        word = {"identities": "identity", "attributes": ""}.get(title, title)
        for key, value in (facts.get(title) or {}).items():
            shown.append((f"{word} {key}".strip().replace("_", " "), value))
    return [(name, value) for name, value in shown if value not in (None, "", [])]


def _scan_host(host: str, blueprint: str, root: str, *, wait: bool, all_: bool, as_json: bool) -> None:
    client = o.client()
    report = _report(client, host, blueprint, root)
    asked = client.scan_hardware(report.id)
    if not wait:
        if as_json:
            return output.emit(asked)
        what = f"order {asked.order} to its agent" if asked.order is not None else "a discovery by a worker"
        return output.say(f"Requested a report about {report.name}: {what}. `drydock hardware show {host}` shows it.")
    with client.attended() as attended:
        _await(client, asked, attended.look)
    return _tell_host(client.hardware_report(report.id), all_=all_, as_json=as_json)


def _await(client: Client, asked: HardwareScanInfo, look: Any) -> None:
    """Wait until a scan is over. Raises Conflict if it failed, and TimedOut."""
    from drydock.core import clock

    until = clock.monotonic() + PATIENCE
    while clock.monotonic() < until:
        look()
        over, problem = _outcome(client, asked)
        if problem:
            raise Conflict(f"The hardware could not be read: {problem}")
        if over:
            return
        clock.sleep(0.2)
    raise TimedOut(f"No report came within {PATIENCE:g} s.", hint="`drydock hardware list` shows the last one.")


def _outcome(client: Client, asked: HardwareScanInfo) -> tuple[bool, str]:
    """Return whether a scan is over, and why it failed."""
    if asked.agent is None:
        info = client.hardware_report(asked.report)
        over = info.next_at != asked.next_at
        return over, info.message if over and info.state == "failing" else ""
    orders = client.agent(asked.agent).orders
    order = next((one for one in orders if one.id == asked.order), None)
    if order is None or order.state in ("failed", "expired"):
        return True, (order.message if order else "") or "the agent did not carry out the order in time"
    return order.state == "done", ""


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


def _why(device: Device) -> str:
    from drydock_agent.pci import NOT_LEASED

    return " ".join([NOT_LEASED.get(device.role, device.reason), *device.problems])


def _row(device: Device) -> tuple[Any, ...]:
    from drydock_agent.pci import NOT_LEASED

    return (
        device.id, device.device_class or device.kind, device.model, device.driver,
        "" if device.numa_node is None else device.numa_node, "" if device.iommu_group is None else device.iommu_group,
        "not leased" if device.role in NOT_LEASED else device.readiness or "", _why(device),
    )  # fmt: skip


def _summary(found: Hardware, hidden: int) -> str:
    candidates = [one for one in found.devices if one.role in _CANDIDATES]
    ready = sum(one.readiness == "ready" for one in candidates)
    counted = f"{ready} of {len(candidates)} accelerators and parts are ready."
    left_out = f" --all shows {hidden} other functions." if hidden else ""
    return f"{counted}{left_out}{' This is a captured tree.' if found.traits else ''}"


def _warn(found: Hardware) -> None:
    for one in found.warnings:
        output.say(f"Warning: {one.subject}: {one.message}")


def _facts(device: Device) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = [
        ("state", device.readiness), ("why", _why(device)), ("class", device.device_class), ("kind", device.kind),
        ("role", device.role), ("part of", device.part_of), ("health", device.health),
        ("memory", f"{device.memory_mib / 1024:.1f} GiB" if device.memory_mib else ""), ("driver", device.driver),
        ("ids", f"{device.vendor_id}:{device.device_id}" if device.vendor_id else ""), ("PCI class", device.pci_class),
        ("subsystem", ":".join(filter(None, (device.subsystem_vendor_id, device.subsystem_device_id)))),
        ("NUMA node", "" if device.numa_node is None else device.numa_node), ("CPUs", device.local_cpus),
        ("IOMMU group", "" if device.iommu_group is None else device.iommu_group),
        ("group members", list(device.iommu_members)), ("behind", device.parent or device.root),
        ("link", str(device.link or "")), ("VFs", list(device.vfs)),
        ("VFs possible", "" if device.total_vfs is None else device.total_vfs), ("nodes", list(device.nodes)),
    ]  # fmt: skip
    for title, pairs in (("firmware", device.firmware), ("identity", device.identities), ("", device.attributes)):
        facts += [(f"{title} {key}".strip().replace("_", " "), value) for key, value in pairs.items()]
    return [(name, list(value) if isinstance(value, tuple) else value) for name, value in facts]
