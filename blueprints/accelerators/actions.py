"""The health check of accelerators, and the interfaces of their leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blueprints.accelerators import access, drafts, reading
from blueprints.accelerators.host import host_of
from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.hostshell import told
from blueprints.layered.within import Within
from blueprints.specs import LeaseView, ResourceView, Spec
from drydock_agent import Hardware
from interfaces.contract import Interface
from interfaces.errors import Unreachable
from interfaces.registry import REGISTRY


@told
def check_health(spec: Spec, memo: Json) -> Answer:
    """Read the host again, and compare the device with what was found before."""
    host = spec.resource.host()
    if host is None:
        return Failed(scope=Scope.STEP, code="no_host", message="The host of the device no longer exists.")
    found = reading.hardware_of(spec.config, host)
    problem, failed = condition(spec.resource, found)
    problem = " ".join(filter(None, (problem, access.keep_closed(spec))))
    if failed and spec.config.on_failure == "break":
        return Failed(scope=Scope.STEP, code="failed", message=problem)
    return Ready(facts={"problem": problem} | ({"leaving": problem} if failed else {}), log=problem)


def condition(resource: ResourceView, found: Hardware) -> tuple[str, bool]:
    """Return what is wrong with a device according to a new report, and whether it can no longer be used."""
    known = resource.facts["device"]
    device = found.device(known["id"])
    if device is None:
        if why := reading.incomplete(found):
            return f"The host could not be read completely: {why}", False
        return f"{known['id']} is not in the host any more.", True
    if device.identities.keys() & known["identities"].keys() and not _is_same(device.identities, known["identities"]):
        return f"Another device is in the place of {known['id']}.", True
    if (why := drafts.why_not(device, found)) and not resource.attributes.get("setup"):
        return why, True
    return " ".join(device.problems), False


def _is_same(now: Mapping[str, str], before: Mapping[str, str]) -> bool:
    return any(now.get(name) == value for name, value in before.items())


def open_interface(name: str) -> Callable[[LeaseView, Callable[[], None]], Interface]:
    """Return a function that opens an interface of the host's lease, with the variables of the device."""

    def opened(lease: LeaseView, still_mine: Callable[[], None]) -> Interface:
        host = host_of(lease)
        if host is None:
            raise Unreachable("The lease of the host has ended.")
        transport = host.interface(name).transport
        outer = Within(transport, "", env=lease.facts.get("environment", {}))
        return REGISTRY.open(name, outer, still_mine=still_mine, options={})

    return opened
