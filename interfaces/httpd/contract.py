"""What a leased web server does, whatever the program behind it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

from interfaces.contract import Interface
from interfaces.filesystem.contract import Transfer
from interfaces.httpd.site import Site


class HttpdState(Enum):
    """Where the server stands."""

    STOPPED = "stopped"
    """It does not run, and nobody asked that it should."""
    RUNNING = "running"
    """Its process is alive."""
    FAILED = "failed"
    """It was started and is gone without having been stopped."""


@dataclass(frozen=True, kw_only=True)
class HttpdStatus:
    """The state, the number of its process (0 when there is none), and what it said last when it failed."""

    state: HttpdState
    pid: int = 0
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A part of a log; read on at `next_offset`."""

    content: bytes
    next_offset: int


class Httpd(Interface):
    """All methods may be repeated, and raise what `command` and `filesystem` raise."""

    name: ClassVar[str] = "httpd"

    @abstractmethod
    def publish(self, path: str, content: bytes | str) -> str:
        """Put a page in place in one step; returns its address. `path` is relative, without a leading "/"."""

    @abstractmethod
    def publish_tree(self, local: Path, path: str = "") -> Transfer:
        """Put a folder of this program's machine in place, file by file."""

    @abstractmethod
    def unpublish(self, path: str) -> None:
        """Take a page or folder away; one that is not there is no error."""

    @abstractmethod
    def uri(self, path: str = "") -> str:
        """The address of a page."""

    @abstractmethod
    def start(self) -> HttpdStatus:
        """Start it; one that runs is left alone. Raises ConfigRefused, PortTaken."""

    @abstractmethod
    def stop(self) -> HttpdStatus:
        """Stop it; one that does not run is no error."""

    @abstractmethod
    def restart(self) -> HttpdStatus:
        """Test the configuration, stop, start. Raises ConfigRefused (it then still runs), PortTaken."""

    @abstractmethod
    def reload(self) -> HttpdStatus:
        """Take up the configuration without dropping a request. Raises ConfigRefused, and then what ran
        before still serves; NotRunning."""

    @abstractmethod
    def status(self) -> HttpdStatus:
        """How it stands, looked at now."""

    @abstractmethod
    def configure(self, site: Site) -> HttpdStatus:
        """Test another configuration, keep it, and take it up if the server runs. Raises ConfigRefused and
        then the one before stays."""

    @abstractmethod
    def test_config(self) -> None:
        """Raise ConfigRefused, with the server's own words, when the kept configuration is bad."""

    @abstractmethod
    def logs(self, kind: Literal["access", "error"], offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """At most `limit` bytes of a log from `offset`."""
