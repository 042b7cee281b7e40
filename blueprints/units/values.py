"""The frozen values that describe the unit of a workload. Each refuses what could not be written as one word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

from drydock.core.errors import InvalidRequest

FOLDER = "/var/lib/drydock-units"
"""Folder on hosts with a subfolder for each account that has a workload. Only root can enter it."""
RUNTIME = "/run/drydock-units"
"""Folder for the state of podman that ends with the boot."""
UNITS = "/run/systemd/system"
"""Units in it end with the boot: a workload never starts twice."""
FIRST_PORT, LAST_PORT = 1024, 65_535
_LARGEST_UID = 65_534
"""The last uid with a range of subordinate uids of its own: `Identity.first_of_range`."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEVICE = re.compile(r"/dev(/[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,63}){1,4}")
_LIST = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?){0,999}")
_PORT = re.compile(r"([0-9]{1,5})/(tcp|udp)")

Protocol = Literal["tcp", "udp"]


@dataclass(frozen=True, kw_only=True, order=True)
class Port:
    """A port of the host that a workload listens on."""

    number: int
    protocol: Protocol = "tcp"

    def __post_init__(self) -> None:
        if not FIRST_PORT <= self.number <= LAST_PORT or self.protocol not in ("tcp", "udp"):
            raise InvalidRequest(
                f"{self.number}/{self.protocol} is not a port that workloads can have; use {FIRST_PORT} to {LAST_PORT} "
                "with tcp or udp.",
                field="ports",
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the port that a text such as `8080/tcp` names. Raises InvalidRequest."""
        found = _PORT.fullmatch(text)
        if found is None:
            raise InvalidRequest(f"{text!r:.40} is not a port; write it like 8080/tcp or 5353/udp.", field="ports")
        return cls(number=int(found[1]), protocol=cast(Protocol, found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.protocol}"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The account of a lease, from which the uids follow that the users of its container are on the host."""

    uid: int
    gid: int

    @property
    def first_of_range(self) -> int:
        """The first of 65536 uids, and gids, that belong to this account alone: no two accounts share one."""
        return self.uid << 16

    @property
    def mappable(self) -> bool:
        """Whether the account has a range of its own: that of a larger uid would exceed the 32 bits of a uid."""
        return 1000 <= self.uid <= _LARGEST_UID and self.gid >= 1000


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The unit of the workload of a lease. `key` is the lease's name, `account` that of its folder on the host.

    Amounts of 0, and empty lists of processors and memory nodes, are no limit.
    """

    key: str
    account: str
    cpu_millicores: int = 0
    ram_mib: int = 0
    cpus: str = ""
    """Processors as a list of ranges, such as `0-15,32-47`."""
    memory_nodes: str = ""
    """NUMA nodes as a list of ranges."""
    devices: tuple[str, ...] = ()
    """Device nodes that the workload may open, besides those that every program needs."""
    ports: tuple[Port, ...] = ()

    def __post_init__(self) -> None:
        for name in ("key", "account"):
            if not _WORD.fullmatch(getattr(self, name)):
                raise InvalidRequest(f"{getattr(self, name)!r:.100} cannot name a unit.", field=name)
        for name in ("cpus", "memory_nodes"):
            if getattr(self, name) and not _LIST.fullmatch(getattr(self, name)):
                raise InvalidRequest(f"{getattr(self, name)!r:.100} is not a list such as 0-3,8.", field=name)
        for path in self.devices:
            if not _DEVICE.fullmatch(path):
                raise InvalidRequest(f"{path!r:.100} is not a path of a device below /dev.", field="devices")
        if min(self.cpu_millicores, self.ram_mib) < 0:
            raise InvalidRequest("The limits of a workload must not be negative.", field="ram_mib")

    @property
    def name(self) -> str:
        """The name of the unit."""
        return f"drydock-lease-{self.key}.service"

    @property
    def comment(self) -> str:
        """The comment of its rules in the host's firewall."""
        return f"drydock {self.key}"

    @property
    def folder(self) -> str:
        """The folder with its jobs and the storage of its podman."""
        return f"{FOLDER}/{self.account}"

    def to_json(self) -> dict[str, Any]:
        """Return the unit as JSON types, for storage."""
        return {
            "key": self.key, "account": self.account, "cpu_millicores": self.cpu_millicores, "ram_mib": self.ram_mib,
            "cpus": self.cpus, "memory_nodes": self.memory_nodes, "devices": list(self.devices),
            "ports": [str(port) for port in self.ports],
        }  # fmt: skip

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return the unit that `to_json` stored."""
        ports = tuple(Port.parse(text) for text in kept["ports"])
        return cls(**{**kept, "devices": tuple(kept["devices"]), "ports": ports})
