"""The draft of a registered host, and a comparison of the registration with what is measured on the host."""

from __future__ import annotations

from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.hosts import stated
from blueprints.specs import Draft, ResourceView
from blueprints.sshhost.config import Config, Registration
from drydock.core.errors import InvalidRequest

SLOTS = 8


def registered(config: Config, registration: Registration) -> Draft:
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


def known(resource: ResourceView) -> Json:
    """Return the registration of a host that was registered before registrations were stored."""
    place = {name: resource.facts[name] for name in ("address", "port", "user", "host_keys") if name in resource.facts}
    given = {name: getattr(resource.capacity, name) for name in resource.facts.get("given", [])}
    slots, traits = resource.capacity.slots, sorted(resource.traits)
    return {"name": resource.name, "slots": slots, "traits": traits, **place, **given}


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


def _slots(config: Config, registration: Registration) -> int:
    if config.one_at_a_time and (registration.slots or 1) > 1:
        why = "use its only account" if config.accounts == "shared" else "can become root"
        raise InvalidRequest(
            f"Leases on this host {why}, so it can have only one lease at a time.", field="slots", hint="Omit slots."
        )
    return registration.slots or (1 if config.one_at_a_time else SLOTS)
