"""Hosts that operators register by their control account: fields, draft, and comparison with the host."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt

from blueprints.accounts.actions import observe
from blueprints.accounts.config import Accounts
from blueprints.accounts.control import ControlAccount
from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, Ready
from blueprints.hosts import HostAttributes, observed, stated
from blueprints.hostshell import NeedsOperator, told
from blueprints.specs import Draft, ResourceView, Spec
from drydock.core.errors import InvalidRequest

SLOTS = 8


class HostRegistration(ControlAccount):
    """A host as an operator registers it."""

    name: str = Field(default="", description="Name of the host. Empty: the address.")
    slots: int | None = Field(
        default=None,
        ge=1,
        description="Number of leases at the same time. Empty: 8, or 1 if a lease must be alone on the host.",
    )
    cpu_millicores: NonNegativeInt | None = Field(
        default=None, description="Number of vCPUs. Empty: those of the host."
    )
    ram_mib: NonNegativeInt | None = Field(default=None, description="Memory. Empty: that of the host.")
    disk_mib: NonNegativeInt | None = Field(
        default=None, description="Disk space. Empty: that of the disk with the homes."
    )
    attributes: HostAttributes = Field(
        default=HostAttributes(), description="Additional attributes that cannot be found on the host."
    )
    traits: tuple[str, ...] = ()


def registered(config: Accounts, registration: HostRegistration) -> Draft:
    """Return the draft for a registration.

    Raises InvalidRequest if it has more slots than the leases of this config may share.
    """
    place = registration.model_dump(mode="json", include={"address", "port", "user", "host_keys"})
    given = registration.model_dump(mode="json", include={"cpu_millicores", "ram_mib", "disk_mib"}, exclude_none=True)
    return Draft(
        name=registration.name or registration.address,
        identity=f"{registration.address.lower()}:{registration.port}",
        attributes=stated(registration.attributes) | {"isolation": config.isolation},
        capacity=Amounts(slots=_slots(config, registration), **given),
        traits=frozenset(registration.traits),
        facts={**place, "given": sorted(given)},
    )


def applied(draft: Draft, attributes: type[HostAttributes], view: ResourceView) -> Ready:
    """Return the answer that gives a resource its current registration, regardless of the earlier one.

    Attributes that are only found on the host are removed until they are found again.
    """
    found_anew = dict.fromkeys(attributes.model_fields)
    return Ready(
        facts=draft.facts, attributes={**found_anew, **draft.attributes}, traits=draft.traits,
        capacity=capacity(draft.capacity, draft.facts["given"], view.facts),
    )  # fmt: skip


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Connect with the pinned key, and check that the host matches its registration."""
    found = observe(spec)
    wrong = contradictions(spec.resource.attributes, found)
    if wrong:
        raise NeedsOperator(f"The host differs from its registration: {'; '.join(wrong)}.")
    given = spec.resource.facts.get("given", [])
    return Ready(
        facts=found,
        attributes=observed(found),
        capacity=capacity(spec.resource.capacity, given, found),
        log=f"connected as {spec.resource.facts['user']}",
    )


def contradictions(attributes: Json, found: Json) -> list[str]:
    """Return the differences between the host and its registration."""
    return [
        f"{name} is {found[name]}, but was registered as {attributes[name]}"
        for name in ("arch", "os", "os_release", "hostname")
        if attributes.get(name) and name in found and attributes[name] != found[name]
    ]


def capacity(drafted: Amounts, given: list[str], found: Json) -> Amounts:
    """Return the registered amounts; amounts that were omitted are taken from the host."""
    measured = {
        "cpu_millicores": 1000 * found.get("vcpus", 0),
        "ram_mib": found.get("ram_mib", 0),
        "disk_mib": found.get("disk_mib", 0),
    }
    amounts = {name: getattr(drafted, name) if name in given else there for name, there in measured.items()}
    return Amounts(slots=drafted.slots, extra=drafted.extra, **amounts)


def _slots(config: Accounts, registration: HostRegistration) -> int:
    if config.one_at_a_time and (registration.slots or 1) > 1:
        why = "use its only account" if config.accounts == "shared" else "can become root"
        raise InvalidRequest(
            f"Leases on this host {why}, so it can have only one lease at a time.", field="slots", hint="Omit slots."
        )
    return registration.slots or (1 if config.one_at_a_time else SLOTS)
