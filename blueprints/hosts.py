"""Code shared by all kinds whose resource type is `host`: attributes, requirements, and functions that open interfaces.

All of these kinds accept the same requirements, so a request need not specify a kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from blueprints.answers import Json
from blueprints.contract import Fields, Opener
from blueprints.matching import Match
from blueprints.specs import LeaseView, Spec
from interfaces.contract import Interface
from interfaces.endpoints import Endpoint
from interfaces.registry import REGISTRY
from interfaces.transport import Transport

HOST = "host"
LEASE_VARIABLE = "DRYDOCK_LEASE"
"""Environment variable of every process that a lease's interfaces start. Its value is the lease's key."""

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "aarch64": "arm64"}


def architecture(name: Any) -> Any:
    """Return the common name of an architecture that kernels and clouds name differently: x86_64, arm64, ..."""
    return _ARCHITECTURES.get(name.lower(), name.lower()) if isinstance(name, str) else name


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Architecture = Annotated[str, BeforeValidator(architecture)]
Words = Annotated[tuple[str, ...], BeforeValidator(_several)]
Isolation = Literal["none", "uid", "machine"]
"""The separation between two leases: only folders (`none`), separate uids (`uid`), or separate machines (`machine`)."""


class HostAttributes(Fields):
    """Attributes of a host."""

    arch: Architecture | None = Field(default=None, description="x86_64, arm64, ...")
    os: str | None = Field(default=None, description="linux")
    os_release: str | None = Field(
        default=None, description="Release of the operating system, such as debian-12 or ubuntu-24.04."
    )
    hostname: str | None = Field(default=None, description="Host name, as the host itself reports it.")
    region: str | None = Field(default=None, description="Region of the host.")
    zone: str | None = Field(default=None, description="Zone of the host in its region.")
    vcpus: int | None = Field(default=None, ge=0, description="Total number of vCPUs.")
    ram_mib: int | None = Field(default=None, ge=0, description="Total memory in MiB.")
    isolation: Isolation | None = Field(default=None, description="Isolation between two leases on the host.")


class HostRequirements(Fields):
    """Requirements that a lease may set for its host, besides amounts of capacity."""

    arch: Architecture | None = Field(default=None, description="Architecture.")
    os: str | None = Field(default=None, description="Operating system.")
    os_release: str | None = Field(default=None, description="Release of the operating system, such as debian-12.")
    hostname: str | None = Field(default=None, description="Host name.")
    region: Words | None = Field(default=None, description="Allowed regions.")
    zone: Words | None = Field(default=None, description="Allowed zones.")
    min_vcpus: int | None = Field(default=None, ge=0, description="Minimum number of vCPUs of the host.")
    min_ram_mib: int | None = Field(default=None, ge=0, description="Minimum memory of the host, in MiB.")
    isolation: Words | None = Field(default=None, description="Isolation between two leases: none, uid or machine.")


MATCHES = (
    Match("arch", "=", "arch"),
    Match("os", "=", "os"),
    Match("os_release", "=", "os_release"),
    Match("hostname", "=", "hostname"),
    Match("region", "in", "region"),
    Match("zone", "in", "zone"),
    Match("vcpus", ">=", "min_vcpus"),
    Match("ram_mib", ">=", "min_ram_mib"),
    Match("isolation", "in", "isolation"),
)


def stated(attributes: HostAttributes) -> dict[str, Any]:
    """Return the attributes that are set, as JSON."""
    return attributes.model_dump(mode="json", exclude_none=True)


def observed(found: Json) -> Json:
    """Return the facts about a host that are attributes of hosts."""
    return {name: value for name, value in found.items() if name in HostAttributes.model_fields}


def lease_of(spec: Spec) -> LeaseView:
    """Return the lease that the phase is for. Raises ValueError if the phase has none."""
    if spec.lease is None:
        raise ValueError(f"the phase {spec.phase} has no lease")
    return spec.lease


def endpoint_facts(endpoint: Endpoint) -> Json:
    """Return an endpoint in the form that facts store, equal to the value that is read back from the database."""
    facts: Json = json.loads(json.dumps(endpoint.to_json()))
    return facts


def openers(transport_of: Callable[[LeaseView], Transport], *names: str) -> dict[str, Opener]:
    """Return functions that open these interfaces over the transport to a lease's account."""

    def opener(name: str) -> Opener:
        def opened(lease: LeaseView, still_mine: Callable[[], None]) -> Interface:
            return REGISTRY.open(name, transport_of(lease), still_mine=still_mine, options={})

        return opened

    return {name: opener(name) for name in names}
