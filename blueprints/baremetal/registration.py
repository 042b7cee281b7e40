"""The registration of a bare-metal host: its control account, and how its BMC is reached."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from blueprints.accounts import registration as registered_hosts
from blueprints.accounts.control import PINNED, OptionalHostKeys
from blueprints.accounts.registration import HostRegistration
from blueprints.attestation import ExpectedEvidence, check_expected, without_claims
from blueprints.baremetal.config import BareMetalAttributes, Config
from blueprints.bmc.contract import BmcDriver
from blueprints.bmc.registry import driver
from blueprints.bmc.texts import serial_of
from blueprints.consoles import registry as consoles
from blueprints.contract import Fields
from blueprints.hostshell import NeedsOperator
from blueprints.identities import OF_BMC, SWITCH_PORT, Identity, real
from blueprints.networks.contract import Port
from blueprints.specs import Draft, ResourceView
from drydock.core.errors import InvalidRequest, NotFound
from drydock_agent.identity import identity
from interfaces.endpoints import SshEndpoint
from interfaces.keys import new_key_pair

BMC, NO_CONSOLE = "bmc", "none"
"""The driver of a console that the BMC offers, and that of a host without a console."""


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


def _console(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Check the fields of a console with the Access of its driver. Errors name the field, such as `console.address`."""
    if given is None:
        return None
    name = given.get("driver")
    fields = {key: value for key, value in given.items() if key != "driver"}
    if name in (BMC, NO_CONSOLE):
        if fields:
            raise _wrong(f"The console {name} has no further fields; remove {', '.join(sorted(fields))}", name)
        return {"driver": name}
    if not isinstance(name, str) or not name:
        raise _wrong(f"Name the driver of the console: {BMC}, {NO_CONSOLE}, ssh or command", name)
    try:
        found = consoles.driver(name)
    except NotFound as error:
        raise _wrong(f"{error.message} {error.hint}".strip(" ."), name) from None
    access = found.Access.model_validate(fields)
    return {"driver": name, **access.model_dump(mode="json", exclude_unset=True)}


def _wrong(message: str, given: Any) -> ValidationError:
    detail = InitErrorDetails(
        type=PydanticCustomError("driver", "{said}", {"said": message}), loc=("driver",), input=given
    )
    return ValidationError.from_exception_data("bmc", [detail], hide_input=True)


def _interface(text: str) -> str:
    try:
        if "/" not in text:
            raise ValueError(f"{text[:60]!r} has no prefix")
        return str(ipaddress.ip_interface(text))
    except ValueError as error:
        raise ValueError(f"{error}. Write an address with its prefix, as in 10.0.0.7/24.") from None


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError as error:
        raise ValueError(f"{error}. Write an IP address, as in 10.0.0.1.") from None


Ip = Annotated[str, AfterValidator(_ip)]


class RamdiskNetwork(Fields):
    """The static address of a host while it runs the ramdisk."""

    address: Annotated[str, AfterValidator(_interface)] = Field(description="Address with prefix, as in 10.0.0.7/24.")
    gateway: Ip = Field(default="", description="Gateway. Empty: none.")
    dns: tuple[Ip, ...] = Field(default=(), max_length=3, description="Name servers.")
    mac: Annotated[str, AfterValidator(str.lower)] = Field(
        default="",
        pattern=r"^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5})?$",
        description="MAC address of the network port. Empty: the first that has a link.",
    )

    @property
    def ip(self) -> str:
        """Return the address without its prefix."""
        return str(ipaddress.ip_interface(self.address).ip)


def _named(text: str) -> str:
    """Refuse a placeholder in place of a name that a machine is recognized by."""
    if text and not identity(text):
        raise ValueError(f"{text[:60]!r} is a placeholder that many machines have; leave it empty")
    return text


class Registration(HostRegistration):
    """A bare-metal host as an operator registers it."""

    host_keys: OptionalHostKeys = Field(
        default=(), description=f"{PINNED} Omit them if Drydock deploys the host: it then makes the keys."
    )
    ramdisk_network: RamdiskNetwork | None = Field(
        default=None, description="Static address in the ramdisk. Empty: by DHCP, which must give it `address`."
    )
    bmc: Annotated[dict[str, Any], AfterValidator(_bmc)] = Field(
        description='How the BMC is reached: {"driver": "redfish", "address": ...}, with the fields of the driver.'
    )
    console: Annotated[dict[str, Any] | None, AfterValidator(_console)] = Field(
        default=None,
        description='How the serial console is reached: {"driver": "ssh", "address": ...}, with the fields of the '
        'driver; {"driver": "none"} if there is none. Empty: by the BMC, if its driver offers that.',
    )
    serial: Annotated[str, AfterValidator(_named)] = Field(
        default="",
        max_length=255,
        description="Serial number that the BMC must report, or its service tag. Empty: any.",
    )
    uuid: Annotated[str, AfterValidator(_named)] = Field(
        default="", max_length=64, description="UUID that the BMC must report for the machine. Empty: any."
    )
    ports: tuple[Port, ...] = Field(
        default=(),
        max_length=16,
        description='The ports of switches to which the host is connected: [{"switch": "leaf-3", "port": '
        '"Ethernet1/12"}]. Needed if the blueprint has `network`.',
    )
    attributes: BareMetalAttributes = Field(
        default=BareMetalAttributes(), description="Additional attributes that cannot be found on the host."
    )
    attestation: ExpectedEvidence | None = Field(
        default=None,
        description="What the evidence of the host must show, if the blueprint asks for evidence. Empty: what it shows "
        "when it is enrolled.",
    )

    @field_validator("ports")
    @classmethod
    def _are_different(cls, ports: tuple[Port, ...]) -> tuple[Port, ...]:
        for number, port in enumerate(ports):
            if any(port.name == other.name or port.mac == other.mac != "" for other in ports[:number]):
                raise ValueError(f"the {port}, or its MAC address, is there twice; name each port once")
        return ports

    @model_validator(mode="after")
    def _is_a_place(self) -> Self:
        try:
            self.endpoint() if self.host_keys else _without_key(self)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return self


def _without_key(given: Registration) -> None:
    """Check address and account of a host whose key is not known yet, with some key."""
    key = new_key_pair().public
    SshEndpoint(host=given.address, port=given.port, user=given.user, host_keys=(key,))


def registration_of(resource: ResourceView) -> Registration:
    """Return the current registration of a host."""
    return Registration.model_validate(resource.registration)


def check_registration(config: Config, given: Registration) -> None:
    """Refuse a registration that does not fit the config. Raises InvalidRequest."""
    if config.ramdisk is None and not given.host_keys:
        raise InvalidRequest(
            "Enter the host's public key lines: Drydock connects to no host without a pinned key.",
            field="host_keys",
            hint="They can be omitted only in a blueprint with a ramdisk, which deploys hosts with keys of its own.",
        )
    if config.ramdisk is not None and (given.slots or 1) > 1:
        raise InvalidRequest(
            "An image is deployed for each lease, so the host can have only one lease at a time.", field="slots",
            hint="Omit slots.",
        )  # fmt: skip
    check_expected(config.attestation, given.attestation)
    if not config.switches_networks:
        return
    if not given.ports:
        raise InvalidRequest(
            "Enter the ports of switches to which the host is connected: Drydock moves it between networks.",
            field="ports", hint='Such as [{"switch": "leaf-3", "port": "Ethernet1/12"}].',
        )  # fmt: skip
    if (given.slots or 1) > 1:
        raise InvalidRequest(
            "The host is in the network of its lease, so it can have only one lease at a time.", field="slots",
            hint="Omit slots.",
        )  # fmt: skip


def drafted(config: Config, given: Registration) -> Draft:
    """Return the draft for a registration. One that Drydock deploys has no host key yet. Raises InvalidRequest."""
    check_registration(config, given)
    plain = registered_hosts.registered(config, given)
    made = replace(plain, identities=identities(given), traits=without_claims(plain.traits))
    attributes = made.attributes
    if config.network is not None and config.switches_networks:
        attributes = {**attributes, "networks": list(config.network.tenant)}
    if config.ramdisk is None:
        return replace(made, attributes=attributes)
    attributes = {**attributes, "images": list(config.images)}
    return replace(made, attributes=attributes, facts={**made.facts, "host_keys": []})


def identities(given: Registration) -> tuple[Identity, ...]:
    """Return the names by which a registration is unique: its BMC and, if given, UUID, serial number and switch ports.

    BMCs of different drivers are different names, because a program or an address to wake is no address of a BMC.
    """
    bmc = dict(given.bmc)
    name = bmc.pop("driver")
    used = driver(name)
    vendor = given.attributes.vendor
    named = real(
        {
            OF_BMC: f"{name} {used.identity(used.Access.model_validate(bmc))}",
            "dmi_uuid": given.uuid,
            **({serial_of(vendor): given.serial} if vendor else {}),
        }
    )
    return (*named, *(Identity(namespace=SWITCH_PORT, value=port.name) for port in given.ports))


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
        raise NeedsOperator(f"The BMC of the registration cannot be used: {said(error)}") from None
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
            f"The login of the BMC is incomplete: {said(error)}",
            hint=f"Set the {where}, or store one for this host.",
        ) from None
    return chosen


def said(error: NotFound | ValidationError) -> str:
    """Return what is wrong, without any input, which can be a secret."""
    if isinstance(error, NotFound):
        return f"{error.message} {error.hint}".strip()
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors())
