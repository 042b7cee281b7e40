"""The health check of accelerators, and the interfaces of their leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blueprints.accelerators import access, drafts, health, images
from blueprints.accelerators.host import hardware_of, host_of, incomplete
from blueprints.answers import Answer, Failed, Health, Json, Ready, Scope
from blueprints.contract import DeclaredAct, Step
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
    found = hardware_of(spec.config, host)
    problem, failed = condition(spec.resource, found)
    problem = " ".join(filter(None, (problem, access.keep_closed(spec))))
    if failed and spec.config.on_failure == "break":
        return Failed(scope=Scope.STEP, code="failed", message=problem)
    if failed or incomplete(found):
        return Ready(facts={"problem": problem} | ({"leaving": problem} if failed else {}), log=problem)
    return _judged(spec, found, problem)


def _judged(spec: Spec, found: Hardware, problem: str) -> Ready:
    """Return the health of a device that can be read. Only errors since a lease began end or concern that lease."""
    id, facts = spec.resource.facts["device"]["id"], spec.resource.facts
    leases = spec.resource.lease_facts()
    before = facts.get("errors") or next((one["errors"] for one in leases if "errors" in one), None)
    known = before or health.reference(found, id)
    findings = [*health.conditions(found, id), *health.since(found, id, known)]
    if facts.get("programming") == images.UNDEFINED:
        findings.append(health.Finding("failed", "The FPGA was left half-programmed. Program it again."))
    now = health.judged(findings)
    keeps: Json = {"problem": " ".join(filter(None, (problem, now.reason if now.reason not in problem else "")))}
    if "errors" not in facts:
        keeps["errors"] = known
    if now.state == "failed" and leases:
        new = [health.judged(health.since(found, id, one.get("errors") or known)) for one in leases]
        told = next((one.reason for one in new if one.state == "failed"), "")
        if not told or spec.config.on_failure == "tell":
            # No other lease gets the device meanwhile. What cannot be repaired then is found by cleaning.
            now = Health(state="degraded", reason=now.reason)
            keeps |= {"leaving": told} if told else {}
    return Ready(facts=keeps, health=now, log=keeps["problem"])


@told
def begin(spec: Spec, memo: Json) -> Answer:
    """Note the errors that a device had before a lease, and refuse a device that has failed since its last check."""
    host, known = spec.resource.host(), spec.resource.facts["device"]
    if host is None:
        return Failed(scope=Scope.OFFER, code="no_host", message=f"{spec.resource.name} is in no host any more.")
    found = hardware_of(spec.config, host, only=health.drivers_of(known["class"]))
    before = spec.resource.facts.get("errors")
    errors = health.since(found, known["id"], before) if before else []
    now = health.judged([*health.conditions(found, known["id"]), *errors])
    if now.state == "failed":
        return Failed(scope=Scope.OFFER, code="failed", message=f"{spec.resource.name} has failed: {now.reason}")
    return Ready(facts={"errors": health.reference(found, known["id"])})


def repaired_act() -> DeclaredAct:
    """Return the act with which an operator says that a device has been repaired."""
    return DeclaredAct(
        name="repaired", summary="Record that the device has been repaired, so that earlier errors no longer count.",
        plan=lambda: (Step(name="read", act=forget_errors),), holders="keep",
    )  # fmt: skip


@told
def forget_errors(spec: Spec, memo: Json) -> Answer:
    """Make the errors that the device has now the reference of the resource."""
    host, known = spec.resource.host(), spec.resource.facts["device"]
    if host is None:
        return Failed(scope=Scope.STEP, code="no_host", message="The host of the device no longer exists.")
    found = hardware_of(spec.config, host, only=health.drivers_of(known["class"]))
    if found.device(known["id"]) is None:
        return Failed(scope=Scope.STEP, code="not_found", message=f"{known['id']} is not in the host any more.")
    return Ready(facts={"errors": health.reference(found, known["id"])})


def condition(resource: ResourceView, found: Hardware) -> tuple[str, bool]:
    """Return what is wrong with a device according to a new report, and whether it can no longer be used."""
    known = resource.facts["device"]
    device = found.device(known["id"])
    if device is None:
        if why := incomplete(found):
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
