"""The host of an accelerator: the lease of an account there, and the way to its control account."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Need, NeededLease, Ready, Scope, Wait
from blueprints.hosts import HOST, lease_of
from blueprints.hostshell import HostShell
from blueprints.specs import LeaseView, Spec
from drydock.core.errors import InvalidRequest
from drydock_agent.pci import address


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
