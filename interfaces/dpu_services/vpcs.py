"""The VPC of a leased DPU: virtual networks that connect its interfaces, apart from those of other VPCs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, ClassVar, Self

from drydock.core.errors import Conflict, InvalidRequest
from interfaces.deadline import Deadline
from interfaces.dpu_services.chain import ChainInterface
from interfaces.dpu_services.connections import Connecting, ConnectingBackend, Places, check_places, interface_key
from interfaces.dpu_services.network import blocks_of, range_of
from interfaces.dpu_services.service import check_name

MOST_NETWORKS, MOST_MEMBERS, MOST_BLOCKS = 8, 32, 256
_PLACE = "place of "
"""The beginning of the slot lock of which a DPU has only one."""
_FIELDS = ("name", "subnet", "interfaces", "dhcp", "external", "masquerade")


@dataclass(frozen=True, kw_only=True)
class VirtualNetwork:
    """A virtual network of a VPC: a subnet, whose first address is the gateway, and the interfaces in it.

    With `external`, it is routed to the outside, and with `masquerade` under an address of the VPC. Interfaces are PFs,
    VFs and those of services. They get their addresses by `dhcp`.
    """

    name: str
    subnet: str
    interfaces: tuple[ChainInterface, ...]
    dhcp: bool = True
    external: bool = False
    masquerade: bool = True

    @property
    def range(self) -> IPv4Network:
        """All of its addresses."""
        return IPv4Network(self.subnet)

    @classmethod
    def of(cls, given: Any, field: str) -> Self:
        """Return the virtual network that a mapping of JSON types describes. Raises InvalidRequest with the field."""
        if not isinstance(given, Mapping):
            raise InvalidRequest("A virtual network has a name, a subnet and interfaces.", field=field)
        for name in given:
            if name not in _FIELDS:
                raise InvalidRequest("A virtual network has no such field.", field=f"{field}.{str(name)[:60]}")
        try:
            check_name(given.get("name", ""), "virtual network")
        except InvalidRequest as error:
            raise InvalidRequest(error.message, field=f"{field}.name", hint=error.hint) from None
        ports = given.get("interfaces", ())
        if not isinstance(ports, Sequence) or isinstance(ports, str | bytes) or not 1 <= len(ports) <= MOST_MEMBERS:
            raise InvalidRequest(
                f"A virtual network has a list of 1 to {MOST_MEMBERS} interfaces.", field=f"{field}.interfaces"
            )
        switches = {name: given[name] for name in ("dhcp", "external", "masquerade") if name in given}
        for name, value in switches.items():
            if type(value) is not bool:
                raise InvalidRequest(f"`{name}` must be true or false.", field=f"{field}.{name}")
        return cls(
            name=given["name"], subnet=str(range_of(given.get("subnet"), f"{field}.subnet")), **switches,
            interfaces=tuple(_member(one, f"{field}.interfaces.{number}") for number, one in enumerate(ports)),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the virtual network as a dict of JSON types, which `of` parses."""
        given = {name: getattr(self, name) for name in _FIELDS}
        return {**given, "interfaces": [str(one) for one in self.interfaces]}


@dataclass(frozen=True, kw_only=True)
class Vpc:
    """A VPC on a leased DPU. Raises InvalidRequest, with the field, for anything that cannot be created.

    `isolation` is an isolation class of the operator. With `routed`, its virtual networks reach one another.
    """

    name: str
    isolation: str
    networks: tuple[VirtualNetwork, ...]
    routed: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "VPC")
        if not isinstance(self.isolation, str) or not self.isolation:
            raise InvalidRequest("Give the isolation class of the VPC.", field="isolation")
        if type(self.routed) is not bool:
            raise InvalidRequest("`routed` must be true or false.", field="routed")
        if not 1 <= len(self.networks) <= MOST_NETWORKS:
            raise InvalidRequest(f"A VPC has 1 to {MOST_NETWORKS} virtual networks.", field="networks")
        if twice := _twice(one.name for one in self.networks):
            raise InvalidRequest(f"The virtual network {twice} is in the VPC twice.", field="networks")
        if len(self.places) > MOST_MEMBERS:
            raise InvalidRequest(f"A VPC has at most {MOST_MEMBERS} interfaces.", field="networks")
        if twice := _twice(one.key for one, _ in self.places):
            raise InvalidRequest(f"The interface {twice} is in the VPC twice.", field="networks")
        blocks = [one for network in self.networks for one in blocks_of(network.range)]
        if len(blocks) > MOST_BLOCKS:
            raise InvalidRequest(
                f"The virtual networks of a VPC have {MOST_BLOCKS * 256} addresses at most, in blocks of 256.",
                field="networks",
            )
        if twice := _twice(str(one) for one in blocks):
            raise InvalidRequest(f"Two virtual networks have addresses of the block {twice}.", field="networks")

    @property
    def places(self) -> Places:
        """The interfaces of all virtual networks, each with the field in which it is."""
        return [
            (one, f"networks.{number}.interfaces.{position}")
            for number, network in enumerate(self.networks)
            for position, one in enumerate(network.interfaces)
        ]

    @classmethod
    def of(cls, name: str, networks: Any, *, isolation: str, routed: bool = False) -> Self:
        """Return a VPC whose virtual networks are given as JSON. Raises InvalidRequest."""
        if not isinstance(networks, Sequence) or isinstance(networks, str | bytes):
            raise InvalidRequest("The virtual networks of a VPC must be a list.", field="networks")
        given = networks[: MOST_NETWORKS + 1]
        made = tuple(VirtualNetwork.of(one, f"networks.{number}") for number, one in enumerate(given))
        return cls(name=name, isolation=isolation, routed=routed, networks=made)

    def to_json(self) -> dict[str, Any]:
        """Return the VPC as a dict of JSON types, which `from_json` parses."""
        networks = [one.to_json() for one in self.networks]
        return {"name": self.name, "isolation": self.isolation, "routed": self.routed, "networks": networks}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the VPC that `to_json` wrote. Raises InvalidRequest."""
        try:
            return cls.of(**given)
        except TypeError as error:
            raise InvalidRequest(f"The VPC is invalid: {error}.") from error


class VpcBackend(ConnectingBackend[Vpc]):
    """Carries out the writes of VPCs."""

    isolations: Sequence[str]
    """The isolation classes of the config."""
    ranges: Sequence[str]
    """The ranges of addresses of the config."""


class Vpcs(Connecting[Vpc, VpcBackend]):
    """The VPC of one lease. A DPU is in one VPC at most, also if several leases are on it."""

    noun: ClassVar[str] = "VPC"
    most: ClassVar[int] = 1

    def check(self, definition: Vpc, backend: VpcBackend) -> None:
        """Raise InvalidRequest, with the field, for what the config or the DPU does not have."""
        if definition.isolation not in backend.isolations:
            hint = f"Allowed: {', '.join(backend.isolations[:20])}."
            raise InvalidRequest(
                "The config of the blueprint does not allow this isolation class.", field="isolation", hint=hint
            )
        for number, network in enumerate(definition.networks):
            if not any(network.range.subnet_of(IPv4Network(one)) for one in backend.ranges):
                raise InvalidRequest(
                    "The config of the blueprint does not allow this range.", field=f"networks.{number}.subnet",
                    hint=f"Allowed: {', '.join(backend.ranges[:20])}.",
                )  # fmt: skip
        check_places(definition.places, backend.limits)

    def keys(self, definition: Vpc, backend: VpcBackend) -> Sequence[str]:
        """Return the place of the DPU in a VPC, its interfaces, and the blocks of its ranges."""
        return [
            f"{_PLACE}{backend.dpu}/in a VPC",
            *(interface_key(one, backend) for one, _ in definition.places),
            *(f"range of addresses/{one}" for network in definition.networks for one in blocks_of(network.range)),
        ]

    def _refuse(self, key: str, holder: str) -> None:
        if not holder and key.startswith(_PLACE):
            raise Conflict(
                "The DPU is in a VPC of another lease.",
                hint="A DPU is in one VPC at most. Wait until that lease has ended.",
            )
        super()._refuse(key, holder)

    def check_needs(self, definition: Vpc, deadline: Deadline) -> None:
        """Raise InvalidRequest unless the services of its interfaces exist and have them."""
        self.check_services(definition.places, deadline)


def _twice(names: Iterable[str]) -> str:
    """Return the first name that is there twice, or an empty string."""
    seen = set[str]()
    for one in names:
        if one in seen:
            return one
        seen.add(one)
    return ""


def _member(text: Any, field: str) -> ChainInterface:
    found = ChainInterface.parse(text, field)
    if found.port is not None:
        raise InvalidRequest(f"The network port {found} cannot be in a virtual network.", field=field)
    if found.network:
        raise InvalidRequest("A virtual network gives out its own addresses.", field=field)
    return found
