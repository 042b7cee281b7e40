"""The definition of a network: a range of addresses for interfaces of services, which their chains give out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Self

from drydock.core.errors import InvalidRequest
from interfaces.dpu_services.service import check_name

BLOCK = 24
"""Prefix of the blocks of addresses of which each is a slot lock. A smaller range takes the whole block."""
LARGEST, SMALLEST = 16, 30
"""Prefixes of the largest and the smallest range."""
SMALLEST_MTU, LARGEST_MTU = 1280, 9216
_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network of services on a leased DPU. Raises InvalidRequest, with the field, for anything that cannot be given.

    `subnet` is one subnet that all nodes share, of which each gets `addresses`; `gateway` is by default its first
    address. `network` is divided into subnets with `prefix`, one for each node, whose gateway is its address number
    `gateway_index`. Exactly one of the two is given.
    """

    name: str
    subnet: str = ""
    gateway: str = ""
    addresses: int | None = None
    network: str = ""
    prefix: int | None = None
    gateway_index: int | None = None
    mtu: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "network")
        if bool(self.subnet) == bool(self.network):
            raise InvalidRequest("Give either a subnet or a network.", field="subnet")
        if self.subnet:
            self._check_subnet()
        else:
            self._check_network()
        if self.mtu is not None:
            _whole(self.mtu, SMALLEST_MTU, LARGEST_MTU, "mtu")

    @property
    def range(self) -> IPv4Network:
        """All of its addresses."""
        return IPv4Network(self.subnet or self.network)

    @property
    def field(self) -> str:
        """The field that has its range."""
        return "subnet" if self.subnet else "network"

    def blocks(self) -> Iterator[str]:
        """Yield the blocks of addresses that it takes, by their first address."""
        yield from blocks_of(self.range)

    def check_within(self, ranges: Sequence[str]) -> None:
        """Raise InvalidRequest, with the field, unless all addresses are in one of these ranges."""
        if not any(self.range.subnet_of(IPv4Network(one)) for one in ranges):
            hint = f"Allowed: {', '.join(ranges[:20])}."
            raise InvalidRequest("The config of the blueprint does not allow this range.", field=self.field, hint=hint)

    def _check_subnet(self) -> None:
        for name in ("prefix", "gateway_index"):
            if getattr(self, name) is not None:
                raise InvalidRequest(f"`{name}` is for a network that is divided, not for a subnet.", field=name)
        found = range_of(self.subnet, "subnet")
        object.__setattr__(self, "subnet", str(found))
        given = self.gateway or str(found.network_address + 1)
        try:
            gateway = IPv4Address(given)
        except ValueError:
            raise InvalidRequest(f"{given[:_SHOWN]!r} is not an IPv4 address.", field="gateway") from None
        if gateway not in found or gateway in (found.network_address, found.broadcast_address):
            raise InvalidRequest(f"The gateway {gateway} is not an address of {found}.", field="gateway")
        object.__setattr__(self, "gateway", str(gateway))
        if self.addresses is None:
            object.__setattr__(self, "addresses", min(16, found.num_addresses - 3))
        _whole(self.addresses, 1, found.num_addresses - 3, "addresses")

    def _check_network(self) -> None:
        for name in ("gateway", "addresses"):
            if getattr(self, name):
                raise InvalidRequest(f"`{name}` is for a subnet, not for a network that is divided.", field=name)
        found = range_of(self.network, "network")
        object.__setattr__(self, "network", str(found))
        if self.prefix is None:
            raise InvalidRequest("Give the prefix of the subnets of the nodes.", field="prefix")
        _whole(self.prefix, found.prefixlen, SMALLEST, "prefix")
        if self.gateway_index is not None:
            _whole(self.gateway_index, 1, (1 << (32 - self.prefix)) - 2, "gateway_index")

    def to_json(self) -> dict[str, Any]:
        """Return the network as a dict of JSON types, which `from_json` parses."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the network that `to_json` wrote. Raises InvalidRequest."""
        try:
            return cls(**given)
        except TypeError as error:
            raise InvalidRequest(f"The network is invalid: {error}.") from error


def blocks_of(found: IPv4Network) -> Iterator[str]:
    """Yield the blocks of addresses that a range takes, by their first address."""
    whole = found if found.prefixlen <= BLOCK else found.supernet(new_prefix=BLOCK)
    yield from (str(one.network_address) for one in whole.subnets(new_prefix=BLOCK))


def range_of(text: Any, field: str) -> IPv4Network:
    """Return the range that a text names. Raises InvalidRequest with the field."""
    try:
        found = IPv4Network(text)
    except (ValueError, TypeError):
        hint = "Such as 10.20.1.0/24, without bits of a host."
        raise InvalidRequest(f"{str(text)[:_SHOWN]!r} is not an IPv4 range.", field=field, hint=hint) from None
    if not LARGEST <= found.prefixlen <= SMALLEST:
        raise InvalidRequest(f"The prefix of a range is from {LARGEST} to {SMALLEST}.", field=field)
    return found


def _whole(value: Any, least: int, most: int, field: str) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidRequest(f"`{field}` must be a whole number from {least} to {most}.", field=field)
