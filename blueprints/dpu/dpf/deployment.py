"""Config of the deployment of a DPU: what every DPU of a blueprint has, as a DPUDeployment of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from blueprints.contract import Fields
from blueprints.dpf.deployments import Layout
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services import Chart, Service

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,22}[a-z0-9])?$")]
"""Names of services. DPF makes names of at most 63 characters of them."""
_MOST = 50


class ChartGiven(Fields):
    """A Helm chart in exactly one version, which `charts` of the blueprint must allow."""

    repository: str = Field(max_length=2000)
    name: str = Field(max_length=128)
    version: str = Field(max_length=128)


class ServiceGiven(Fields):
    """A service that every DPU has."""

    chart: ChartGiven
    values: Mapping[str, JsonValue] = Field(
        default={}, description="Helm values. Who may read objects in the namespace of DPF sees them."
    )
    labels: Mapping[str, str] = Field(default={}, description="Labels of its pods.")
    interfaces: tuple[str, ...] = Field(default=(), description="Names of interfaces of its pods, for `chains`.")
    resources: Mapping[str, str | int] = Field(
        default={}, description="What its pods need of the card, such as memory or nvidia.com/bf_sf."
    )


class PortGiven(Fields):
    """A port of a switch: an interface of a service, or existing interfaces with these labels on the card."""

    service: str = ""
    interface: str = ""
    labels: Mapping[str, str] = Field(default={}, max_length=50)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if bool(self.service and self.interface) == bool(self.labels) or bool(self.service) != bool(self.interface):
            raise ValueError("A port has `service` and `interface`, or `labels`.")
        return self


class DeploymentConfig(Fields):
    """The deployment of every DPU of a blueprint: image, flavor, services and chains."""

    image: str = Field(max_length=2000, description="Address of the image: .bfb or, for BlueField 4, .iso.")
    flavor: str | Mapping[str, JsonValue] = Field(
        description="Name of an existing DPUFlavor, or the spec of one that is created for each DPU."
    )
    services: Mapping[Name, ServiceGiven] = Field(min_length=1, max_length=_MOST)
    chains: tuple[tuple[PortGiven, ...], ...] = Field(
        default=(), max_length=_MOST, description="Switches on the card, each with the ports that it connects."
    )
    network: str = Field(
        default="mybrsfc", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="NetworkAttachmentDefinition in the DPU cluster for the interfaces of services.",
    )  # fmt: skip

    def parsed(self) -> tuple[Service, ...]:
        """Return the services as those of owners are, sorted by name. Raises InvalidRequest with the field."""
        return tuple(_parsed(name, self.services[name]) for name in sorted(self.services))

    def layout(self) -> Layout:
        """Return what the deployment has on each DPU."""
        chains = tuple(tuple(one.model_dump(exclude_defaults=True) for one in ports) for ports in self.chains)
        resources = {name: dict(one.resources) for name, one in self.services.items() if one.resources}
        return Layout(services=self.parsed(), chains=chains, network=self.network, resources=resources)

    @model_validator(mode="after")
    def _services_can_be_installed(self) -> Self:
        try:
            self.parsed()
        except InvalidRequest as error:
            raise ValueError(f"{error.field}: {error.message}") from error
        return self

    @model_validator(mode="after")
    def _chains_connect_what_is_there(self) -> Self:
        used = set[tuple[str, str]]()
        for number, ports in enumerate(self.chains):
            if not 1 <= len(ports) <= _MOST:
                raise ValueError(f"chains.{number}: a switch has 1 to {_MOST} ports.")
            for one in (port for port in ports if port.service):
                known = self.services.get(one.service)
                if known is None or one.interface not in known.interfaces:
                    raise ValueError(f"chains.{number}: service {one.service} has no interface {one.interface}.")
                if (one.service, one.interface) in used:
                    raise ValueError(f"chains.{number}: {one.service}/{one.interface} is connected twice.")
                used.add((one.service, one.interface))
        return self


def _parsed(name: str, given: ServiceGiven) -> Service:
    try:
        return Service(
            name=name, chart=Chart(**given.chart.model_dump()), values=given.values, labels=given.labels,
            interfaces=given.interfaces,
        )  # fmt: skip
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field=f"services.{name}.{error.field}") from error
