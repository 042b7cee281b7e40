"""The definition of a chain: switches on a DPU, each of which connects some interfaces of the DPU and its services."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from drydock.core.errors import InvalidRequest
from interfaces.dpu_services.service import INTERFACE, check_name

MOST_SWITCHES, MOST_CHAIN_PORTS = 8, 32
_LONGEST = 110
_SHOWN = 100
_PHYSICAL = re.compile(r"p(?P<port>\d{1,2})")
_FUNCTION = re.compile(r"pf(?P<pf>\d{1,2})(vf(?P<vf>\d{1,4}))?")
_NAME = r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"
_OF_SERVICE = re.compile(rf"(?P<service>{_NAME}):(?P<name>{INTERFACE.pattern})(@(?P<network>{_NAME}))?")
_FORMS = (
    "p0 (network port), pf0 (host's function), pf0vf3 (virtual function), edge:net1 (interface of a service), "
    "edge:net1@blue (with an address of a network)"
)


@dataclass(frozen=True, kw_only=True)
class ChainInterface:
    """An interface of a DPU: a network port, a function of its host (PF), a virtual one (VF), or that of a service.

    Exactly one of `port`, `pf` and `service` is given, `vf` only with `pf`, and `name` and `network` only with
    `service`. An interface with a network gets an address of it.
    """

    port: int | None = None
    pf: int | None = None
    vf: int | None = None
    service: str = ""
    name: str = ""
    network: str = ""

    def __str__(self) -> str:
        """Return the interface as owners write it."""
        return self.key + (f"@{self.network}" if self.network else "")

    @property
    def key(self) -> str:
        """The interface without its network."""
        if self.service:
            return f"{self.service}:{self.name}"
        if self.port is not None:
            return f"p{self.port}"
        return f"pf{self.pf}" + (f"vf{self.vf}" if self.vf is not None else "")

    @classmethod
    def parse(cls, text: Any, field: str = "switches") -> Self:
        """Return the interface that a text names. Raises InvalidRequest with the field."""
        given = text if isinstance(text, str) and len(text) <= _LONGEST else ""
        if found := _OF_SERVICE.fullmatch(given):
            return cls(service=found["service"], name=found["name"], network=found["network"] or "")
        if found := _PHYSICAL.fullmatch(given) or _FUNCTION.fullmatch(given):
            numbers = {name: int(number) for name, number in found.groupdict().items() if number is not None}
            made = cls(port=numbers.get("port"), pf=numbers.get("pf"), vf=numbers.get("vf"))
            if str(made) == given:  # p00 would be another name of p0
                return made
        raise InvalidRequest(
            f"{str(text)[:_SHOWN]!r} is not an interface of a DPU.", field=field, hint=f"Use one of: {_FORMS}."
        )


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain on a leased DPU. Raises InvalidRequest, with the field, for anything that cannot be connected.

    `switches` has the interfaces that each switch connects. An interface is in one switch only.
    """

    name: str
    switches: tuple[tuple[ChainInterface, ...], ...]

    def __post_init__(self) -> None:
        check_name(self.name, "chain")
        if not 1 <= len(self.switches) <= MOST_SWITCHES:
            raise InvalidRequest(f"A chain has 1 to {MOST_SWITCHES} switches.", field="switches")
        for number, ports in enumerate(self.switches):
            if len(ports) < 2:
                raise InvalidRequest("A switch connects at least 2 interfaces.", field=f"switches.{number}")
        names = [one.key for one in self.interfaces]
        if len(names) > MOST_CHAIN_PORTS:
            raise InvalidRequest(f"A chain has at most {MOST_CHAIN_PORTS} interfaces.", field="switches")
        if twice := next((one for one in names if names.count(one) > 1), ""):
            raise InvalidRequest(f"The interface {twice} is in the chain twice.", field="switches")

    @property
    def interfaces(self) -> tuple[ChainInterface, ...]:
        """The interfaces of all switches."""
        return tuple(one for ports in self.switches for one in ports)

    @property
    def places(self) -> tuple[tuple[ChainInterface, str], ...]:
        """The interfaces of all switches, each with the field in which it is."""
        return tuple(
            (one, f"switches.{number}.{position}")
            for number, ports in enumerate(self.switches)
            for position, one in enumerate(ports)
        )

    @classmethod
    def of(cls, name: str, switches: Any) -> Self:
        """Return a chain whose interfaces are given as texts. Raises InvalidRequest."""
        if not isinstance(switches, Sequence) or isinstance(switches, str | bytes):
            raise InvalidRequest("The switches of a chain must be a list.", field="switches")
        made = []
        for number, ports in enumerate(switches[: MOST_SWITCHES + 1]):
            field = f"switches.{number}"
            if not isinstance(ports, Sequence) or isinstance(ports, str | bytes):
                raise InvalidRequest("A switch must be a list of interfaces.", field=field)
            given = ports[: MOST_CHAIN_PORTS + 1]
            made.append(tuple(ChainInterface.parse(one, f"{field}.{n}") for n, one in enumerate(given)))
        return cls(name=name, switches=tuple(made))

    def to_json(self) -> dict[str, Any]:
        """Return the chain as a dict of JSON types, which `from_json` parses."""
        return {"name": self.name, "switches": [[str(one) for one in ports] for ports in self.switches]}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the chain that `to_json` wrote. Raises InvalidRequest."""
        return cls.of(str(given.get("name")), given.get("switches"))
