"""The host of an accelerator: its hardware, the lease of an account there, and the way to its control account.

The hardware is read with one script over the control account. Nothing is installed on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blueprints.accelerators.config import Config
from blueprints.answers import Answer, Failed, Json, Need, NeededLease, Ready, Scope, Wait
from blueprints.hosts import HOST, lease_of
from blueprints.hostshell import HostShell
from blueprints.specs import HostView, LeaseView, Spec
from drydock.core.errors import InvalidRequest
from drydock_agent import Hardware, Limits, load_drivers, parse_fetched, scan, script
from drydock_agent.fetch import FetchFailed
from drydock_agent.pci import address
from drydock_agent.scan import CAPTURED
from interfaces.command.shell import ShellCommand
from interfaces.errors import InterfaceError

_LIMITS = Limits(total_bytes=16 << 20, entries=100_000)
_MOST_OUTPUT = 24 << 20
_NO_FOLDER = 2
"""Exit code of the script if the root of the captured tree cannot be entered."""


class ScanFailed(InterfaceError):
    """The hardware of a host could not be read."""

    code = "scan_failed"


def hardware_of(config: Config, host: HostView, *, only: Sequence[str] = ()) -> Hardware:
    """Return the hardware of a host, or of the captured tree that the config names; `only` what these drivers find.

    Raises ScanFailed, InterfaceError, or what the host's kind raises.
    """
    transport = host.connect()
    if transport is None:
        raise ScanFailed(f"Drydock has no control account on {host.name}, so it cannot search the host for devices.")
    drivers = load_drivers()
    if only:
        drivers = replace(drivers, drivers=tuple(one for one in drivers.drivers if one.name in only))
    command = ShellCommand(transport, still_mine=lambda: None)
    result = command.run(
        ["/bin/sh", "-s", *filter(None, [config.captured])], stdin=script(drivers, limits=_LIMITS).encode(),
        timeout=config.scan_seconds, max_output=_MOST_OUTPUT,
    )  # fmt: skip
    if result.exit_code == _NO_FOLDER and config.captured:
        raise ScanFailed(f"{config.captured} is not a folder that can be read on {host.name}.")
    try:
        tree = parse_fetched(result.text, limits=_LIMITS)
    except FetchFailed as error:
        said = result.error_text.strip()[-200:]
        raise ScanFailed(f"The devices of {host.name} could not be read: {said or error}") from None
    if result.truncated:
        tree.warn("tree", f"The host printed more than {_MOST_OUTPUT >> 20} MiB.")
    return scan(tree, drivers=drivers, traits=(CAPTURED,) if config.captured else ())


def incomplete(found: Hardware) -> str:
    """Return why devices may be missing from what was read, or an empty string."""
    return next((one.message for one in found.warnings if one.subject == "tree"), "")


def have_host(spec: Spec, memo: Json) -> Answer:
    """Have an account on the host that the device is in: that of the group's lease on it, or one of its own."""
    lease = lease_of(spec)
    if HOST in lease.parents:
        return Ready()
    host = spec.resource.host()
    if host is None:
        return Failed(scope=Scope.OFFER, code="no_host", message=f"{spec.resource.name} is no longer part of a host.")
    member = next((one for one in lease.members() if one.resource.id == host.id), None)
    if member is None:
        return Need(leases=(NeededLease(name=HOST, type=HOST, on_resources=(host.id,)),))
    if not member.active:
        return Wait(after=0.5, sentence=f"The group's lease on {host.name} is being set up.")
    return Ready(facts={"stands_on": member.id})


def host_of(lease: LeaseView) -> LeaseView | None:
    """Return the lease whose account on the host the device belongs to, or None if it has ended."""
    if HOST in lease.parents:
        return lease.parents[HOST]
    return next((one for one in lease.members() if one.id == lease.facts.get("stands_on")), None)


def pci_function(spec: Spec) -> str:
    """Return the PCI address of the device. Raises InvalidRequest if its id is not one.

    The id comes from a report, which an agent that was taken over can forge, and root uses it as a part of paths.
    """
    id: str = spec.resource.facts["device"]["id"]
    if address(id) != id:
        raise InvalidRequest(
            f"{id!r:.60} is not a PCI address such as 0000:3b:00.0, so nothing is done with the device as root."
        )
    return id


def shell(spec: Spec) -> HostShell | None:
    """Return a shell for the control account of the device's host, or None if the host is gone."""
    host = spec.resource.host()
    transport = host.connect() if host is not None else None
    return HostShell(transport, spec.deadline) if transport is not None else None
