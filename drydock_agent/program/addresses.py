"""Addresses on which the agent and drivers listen: HOST:PORT, or unix:/PATH for a Unix socket."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import socket
from typing import Any

from drydock_agent.program.errors import AgentError

_TCP = re.compile(r"\A(?:\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253})):(?P<port>[0-9]{1,5})\Z")
_UNIX = re.compile(r"\Aunix:(?P<path>/[^\0\n]{1,99})\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """An address. `path` is that of a Unix socket; otherwise `host` and `port` are set."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, port_zero: bool = False) -> Address:
        """Parse an address. Raises AgentError."""
        if found := _UNIX.match(text):
            return cls(path=found["path"])
        match = _TCP.match(text)
        port = int(match["port"]) if match else 0
        if match is None or port > 65_535 or not (port or port_zero):
            raise AgentError(f"{text!r:.80} is not an address such as 127.0.0.1:1337, [::1]:1337 or unix:/PATH.")
        return cls(host=match["six"] or match["name"], port=port)

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the address."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether the address stands for all addresses of this machine."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104

    @property
    def family(self) -> socket.AddressFamily:
        """The family of its sockets."""
        if self.path:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def bound(self) -> Any:
        """The address in the form of the socket module. `localhost` is 127.0.0.1, whatever a resolver says."""
        return self.path or ("127.0.0.1" if self.host == "localhost" else self.host, self.port)
