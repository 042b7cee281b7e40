"""Declarations of a blueprint about its devices: numbers of VFs, MIG layouts, attachment of network functions."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from blueprints.contract import Fields
from drydock_agent import Device, Hardware, Readiness

Attach = Literal["netns", "vfio", "none"]
VFIO = "vfio-pci"
NETWORK = ("nic", "vf")
"""Classes of devices that are attached to leases by their network interfaces."""
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
_DRIVER = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})?")
_PROFILE = re.compile(r"[0-9]g\.[0-9]{1,3}gb(\+[a-z0-9.+-]{1,16})?")


def _mac(text: str) -> str:
    if not _MAC.fullmatch(text.lower()) or text == "00:00:00:00:00:00":
        raise ValueError(f"{text!r} is not the MAC address of a single interface, such as 02:00:5e:00:53:01")
    return text.lower()


def driver_name(text: str) -> str:
    """Return the name of a kernel driver, or an empty string. Raises ValueError for anything else."""
    if not _DRIVER.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a kernel driver")
    return text


def _profile(text: str) -> str:
    if not _PROFILE.fullmatch(text.lower()):
        raise ValueError(f"{text!r} is not a MIG profile, such as 1g.5gb")
    return text.lower()


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_interface(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address with the length of its prefix, such as 192.0.2.7/24") from None


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Pattern = Annotated[str, BeforeValidator(_lower)]
Driver = Annotated[str, AfterValidator(driver_name)]


class Matching(Fields):
    """The devices that a declaration is for. Without patterns, all of them."""

    address: Pattern = Field(default="*", description="PCI address; * stands for any characters.")
    model: Pattern = Field(default="*", description="Model; * stands for any characters.")

    def matches(self, address: str, model: str) -> bool:
        """Return whether the declaration is for a device."""
        return fnmatchcase(address.lower(), self.address) and fnmatchcase(model.lower(), self.model)


class Vfs(Matching):
    """The number of VFs of network cards."""

    count: int = Field(ge=0, le=65535, description="Number of VFs of each card.")
    driver: Driver = Field(default="", description="Driver of the VFs, such as vfio-pci. Empty: the kernel's choice.")


class Mig(Matching):
    """The MIG layout of GPUs."""

    profiles: tuple[Annotated[str, AfterValidator(_profile)], ...] = Field(
        max_length=16, description="MIG profile of each slice. Empty: MIG mode is off."
    )


class Network(Matching):
    """How network cards and VFs are attached to a lease, and the settings of VFs during a lease."""

    attach: Attach = Field(
        default="none",
        description="netns: their interfaces are moved into a network namespace of the lease's account. vfio: the "
        "account gets the node of their IOMMU group. none: a lease is only a reservation.",
    )
    mac: Annotated[str, AfterValidator(_mac)] | None = Field(default=None, description="MAC address during a lease.")
    vlan: int | None = Field(default=None, ge=0, le=4094, description="VLAN of VFs during a lease; 0: none.")
    min_mbits: int | None = Field(default=None, ge=0, description="Guaranteed rate of VFs in Mbit/s during a lease.")
    max_mbits: int | None = Field(default=None, ge=0, description="Maximum rate of VFs in Mbit/s; 0: no limit.")
    trust: bool | None = Field(default=None, description="Whether the card trusts VFs during a lease.")
    spoofchk: bool | None = Field(default=None, description="Whether the card checks the source addresses of VFs.")
    addresses: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(
        default=(), description="IP addresses in the network namespace, such as 192.0.2.7/24."
    )
    gateway: Annotated[str, AfterValidator(_address)] = Field(
        default="", description="Gateway of the default route in the network namespace."
    )


class Declared(Protocol):
    """The part of the config that this module reads."""

    @property
    def vfs(self) -> tuple[Vfs, ...]:
        """Numbers of VFs."""

    @property
    def mig(self) -> tuple[Mig, ...]:
        """MIG layouts."""

    @property
    def networks(self) -> tuple[Network, ...]:
        """Attachments."""

    @property
    def setup(self) -> tuple[str, ...]:
        """Addresses of devices that can be set up."""


_Kind = TypeVar("_Kind", bound=Matching)


def first(declared: Iterable[_Kind], address: str, model: str) -> _Kind | None:
    """Return the first declaration for a device, or None."""
    return next((one for one in declared if one.matches(address, model)), None)


def model_of(device: Device) -> str:
    """Return the name of a device to which patterns apply."""
    return device.name or device.device_name


def outdated(config: Declared, hardware: Hardware, device: Device) -> str:
    """Return how the layout of a ready card differs from what the config declares, or an empty string."""
    if device.readiness is not Readiness.READY:
        return ""
    model, parts = model_of(device), [one for one in hardware.devices if one.part_of == device.id]
    if device.device_class == "nic" and device.total_vfs and (vfs := first(config.vfs, device.id, model)):
        if len(device.vfs) != vfs.count:
            return f"It has {len(device.vfs)} VFs; its blueprint declares {vfs.count}."
        other = [one for one in parts if vfs.driver and one.driver != vfs.driver]
        return f"The driver of {other[0].id} is not {vfs.driver}, as its blueprint declares." if other else ""
    mode = device.attributes.get("mig")
    if device.device_class == "gpu" and mode in ("Enabled", "Disabled") and (
        (mig := first(config.mig, device.id, model)) is not None
    ):  # fmt: skip
        there = [str(one.attributes.get("mig_profile", "")).lower() for one in parts]
        # Without the profiles of its slices a layout cannot be compared.
        if all(there) and not is_layout(mode == "Enabled", there, mig.profiles):
            return f"Its MIG layout is {in_words(mode == 'Enabled', there)}; {in_words_declared(mig.profiles)}."
    return ""


def is_layout(enabled: bool, there: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a GPU has the wanted slices, in any order, and MIG mode only with slices."""
    return enabled == bool(wanted) and Counter(there) == Counter(wanted)


def in_words(enabled: bool, profiles: Sequence[str]) -> str:
    """Return a MIG layout as text."""
    return (", ".join(sorted(profiles)) or "empty") if enabled else "off"


def in_words_declared(profiles: Sequence[str]) -> str:
    """Return the declared MIG layout as a clause."""
    return f"its blueprint declares {in_words(bool(profiles), profiles)}"


def awaits_setup(config: Declared, device: Device) -> str:
    """Return why a device needs setup, if it does and the blueprint allows it; otherwise an empty string."""
    needs = device.readiness is Readiness.SETUP_REQUIRED and device.role in ("lease_candidate", "part", "")
    return (device.reason or "The device needs setup.") if needs and allows_setup(config, device.id) else ""


def allows_setup(config: Declared, address: str) -> bool:
    """Return whether the blueprint allows a device to be set up."""
    return any(fnmatchcase(address.lower(), pattern.lower()) for pattern in config.setup)


def attach_of(config: Declared, device: Device) -> Attach:
    """Return how a device is attached to leases."""
    if device.device_class in NETWORK and (found := first(config.networks, device.id, model_of(device))):
        return found.attach
    return "vfio" if device.driver == VFIO else "none"


def not_attachable(config: Declared, hardware: Hardware, device: Device) -> str:
    """Return why a device cannot be attached to a lease as its blueprint declares, or an empty string."""
    how = attach_of(config, device)
    if how == "vfio" and device.driver != VFIO:
        return f"Its blueprint attaches it by vfio, but the kernel driver {device.driver} is bound to it."
    if how == "netns" and device.driver == VFIO:
        return f"Its blueprint attaches it by network namespace, but it is bound to {VFIO}."
    if how != "vfio":
        return ""
    if device.iommu_group is None:
        return f"It is bound to {VFIO}, but the host has no IOMMU group for it."
    for member in others_of_group(hardware, device):
        driver = getattr(hardware.device(member), "driver", "")
        if driver not in ("", VFIO):
            return f"{member} of the same IOMMU group is in use by the kernel driver {driver}."
    return ""


def others_of_group(hardware: Hardware, device: Device) -> list[str]:
    """Return the other devices of a device's IOMMU group, without bridges, which are not passed through."""
    there = (hardware.device(one) for one in device.iommu_members if one != device.id)
    return [one.id for one in there if one is not None and one.kind != "bridge"]
