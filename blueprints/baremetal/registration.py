"""The registration of a bare-metal host: its control account, and how its BMC is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from blueprints.accounts.registration import HostRegistration
from blueprints.baremetal.config import BareMetalAttributes
from blueprints.bmc.contract import BmcDriver
from blueprints.bmc.registry import driver
from blueprints.contract import Fields
from blueprints.hostshell import NeedsOperator
from blueprints.specs import ResourceView
from drydock.core.errors import NotFound


def _bmc(given: dict[str, Any]) -> dict[str, Any]:
    """Check the fields of a BMC with the Access of its driver. Errors name the field, such as `bmc.address`."""
    name = given.get("driver")
    if not isinstance(name, str) or not name:
        raise _wrong("Name the driver of the BMC, such as redfish or ipmi", name)
    try:
        found = driver(name)
    except NotFound as error:
        raise _wrong(f"{error.message} {error.hint}".strip(" ."), name) from None
    access = found.Access.model_validate({key: value for key, value in given.items() if key != "driver"})
    return {"driver": name, **access.model_dump(mode="json", exclude_unset=True)}


def _wrong(message: str, given: Any) -> ValidationError:
    detail = InitErrorDetails(
        type=PydanticCustomError("driver", "{said}", {"said": message}), loc=("driver",), input=given
    )
    return ValidationError.from_exception_data("bmc", [detail], hide_input=True)


class Registration(HostRegistration):
    """A bare-metal host as an operator registers it."""

    bmc: Annotated[dict[str, Any], AfterValidator(_bmc)] = Field(
        description='How the BMC is reached: {"driver": "redfish", "address": ...}, with the fields of the driver.'
    )
    serial: str = Field(
        default="",
        max_length=255,
        description="Serial number that the BMC must report, or its service tag. Empty: any.",
    )
    uuid: str = Field(
        default="", max_length=64, description="UUID that the BMC must report for the machine. Empty: any."
    )
    attributes: BareMetalAttributes = Field(
        default=BareMetalAttributes(), description="Additional attributes that cannot be found on the host."
    )


@dataclass(frozen=True, kw_only=True)
class Controller:
    """A BMC: its driver, how it is reached, and the login."""

    driver: BmcDriver
    access: Fields
    credential: Mapping[str, str]

    @property
    def identity(self) -> str:
        """Return the name by which the BMC is unique."""
        return self.driver.identity(self.access)


def controller_of(resource: ResourceView) -> Controller:
    """Return the BMC of a registered host, with the certificate that an operator has confirmed.

    Raises NeedsOperator if the driver is not installed here, or if the registration or the credential lacks something.
    """
    given = dict(resource.registration.get("bmc") or {})
    name = given.pop("driver", "")
    try:
        found = driver(name)
        access: Fields = found.Access.model_validate(given)
    except (NotFound, ValidationError) as error:
        raise NeedsOperator(f"The BMC of the registration cannot be used: {_said(error)}") from None
    pinned = resource.facts.get("bmc_pin", {})
    if pinned.get("bmc") == found.identity(access) and getattr(access, "fingerprint", None) == "":
        access = access.model_copy(update={"fingerprint": pinned["sha256"]})
    return Controller(driver=found, access=access, credential=_credential(resource, found))


def _credential(resource: ResourceView, used: BmcDriver) -> dict[str, str]:
    """Return the login with the fields that the driver knows. The host's own credential takes precedence."""
    if used.Credential is None:
        return {}
    config = resource.blueprint.config
    known = resource.credential_or(config.bmc_credential)
    chosen = {name: value for name, value in known.items() if name in used.Credential.model_fields}
    try:
        used.Credential.model_validate(chosen)
    except ValidationError as error:
        where = f"credential {config.bmc_credential!r}" if config.bmc_credential else "host's own credential"
        raise NeedsOperator(
            f"The login of the BMC is incomplete: {_said(error)}",
            hint=f"Set the {where}, or store one for this host.",
        ) from None
    return chosen


def _said(error: NotFound | ValidationError) -> str:
    """Return what is wrong, without any input, which can be a secret."""
    if isinstance(error, NotFound):
        return f"{error.message} {error.hint}".strip()
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors())
