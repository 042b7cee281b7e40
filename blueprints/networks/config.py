"""The part of a config about networks: the driver, and the networks for each purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from blueprints.contract import Fields
from blueprints.networks.contract import NetworkDriver, NetworkName
from blueprints.networks.registry import driver
from drydock.core.errors import NotFound

Purpose = Literal["provisioning", "cleaning", "tenant"]


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class Networks(Fields):
    """The networks of the machines of a blueprint. A machine is in at most one of them at any time."""

    driver: str = Field(description="Driver of the switches: command, none, or one of another package.")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the driver, such as the program of the driver command."
    )
    provisioning: NetworkName | Literal[""] = Field(
        default="", description="Network in which machines are enrolled and deployed. Only with a ramdisk."
    )
    cleaning: NetworkName | Literal[""] = Field(
        default="", description="Network in which machines are erased after a lease. Only with a ramdisk."
    )
    tenant: Annotated[tuple[NetworkName, ...], BeforeValidator(_several)] = Field(
        default=(), max_length=100, description="Networks that leases may choose. The first is the default."
    )
    timeout: float = Field(
        default=10, gt=0, le=12, description="Time within which a switch must answer a call, in seconds."
    )

    @field_validator("driver")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        try:
            return driver(name).name
        except NotFound as error:
            raise ValueError(f"{error.message} {error.hint}".strip(" .")) from None

    @field_validator("settings")
    @classmethod
    def _are_known(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Check the settings with those of the driver. Errors name the field, such as `network.settings.program`."""
        if (name := info.data.get("driver")) is None:
            return given
        return driver(name).Settings.model_validate(given).model_dump(mode="json", exclude_unset=True)

    @model_validator(mode="after")
    def _do_not_overlap(self) -> Self:
        if not self.used.switches:
            if self.names or self.settings:
                raise ValueError(f"the driver {self.driver} switches no networks; remove everything but the driver")
            return self
        if not self.tenant:
            raise ValueError("tenant requires a network: name at least one that leases are in")
        if twice := _twice({name: name.lower() for name in self.names}, self.names):
            raise ValueError(f"{twice} is named twice; provisioning, cleaning and tenant must be different networks")
        ids = self.used.ids(self.parsed)
        if ids is None:
            return self
        if missing := [name for name in self.names if name not in ids]:
            raise ValueError(
                f"{missing[0]} is not among the ids of the settings, which have {', '.join(ids) or 'none'}"
            )
        if twice := _twice({name: ids[name].lower().lstrip("0") for name in self.names}, self.names):
            raise ValueError(f"{twice} has the id {ids[twice]} of another of these networks; they must not overlap")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all networks."""
        return (*filter(None, (self.provisioning, self.cleaning)), *self.tenant)

    @property
    def used(self) -> NetworkDriver:
        """Return the driver."""
        return driver(self.driver)

    @property
    def parsed(self) -> Any:
        """Return the settings as an instance of the driver's Settings."""
        return self.used.Settings.model_validate(self.settings)


def _twice(keys: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the first name whose key an earlier name has; empty if there is none."""
    seen: set[str] = set()
    for name in names:
        if keys[name] in seen:
            return name
        seen.add(keys[name])
    return ""
