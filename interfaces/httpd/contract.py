"""The contract of the `httpd` interface, independent of the web server program."""

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
    """The state of the server."""

    STOPPED = "stopped"
    """The server is stopped."""
    RUNNING = "running"
    """The server process is running."""
    FAILED = "failed"
    """The server was started, and its process died."""


@dataclass(frozen=True, kw_only=True)
class HttpdStatus:
    """The status of the server: its state, its process id (0 if it is not running), and its last error if it failed."""

    state: HttpdState
    pid: int = 0
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A part of a log. The next part begins at `next_offset`."""

    content: bytes
    next_offset: int


class Httpd(Interface):
    """A leased web server.

    All methods are idempotent, and raise the errors of the `command` and `filesystem` interfaces.
    """

    name: ClassVar[str] = "httpd"

    @abstractmethod
    def publish(self, path: str, content: bytes | str) -> str:
        """Publish a page atomically and return its address. `path` is relative, without a leading "/"."""

    @abstractmethod
    def publish_tree(self, local: Path, path: str = "") -> Transfer:
        """Publish a local folder, file by file, and return the number of files and bytes copied."""

    @abstractmethod
    def unpublish(self, path: str) -> None:
        """Remove a page or folder. A missing page is not an error."""

    @abstractmethod
    def uri(self, path: str = "") -> str:
        """Return the address of a page."""

    @abstractmethod
    def start(self) -> HttpdStatus:
        """Start the server unless it is running. Raises ConfigRefused, PortTaken."""

    @abstractmethod
    def stop(self) -> HttpdStatus:
        """Stop the server. It is not an error if the server is stopped."""

    @abstractmethod
    def restart(self) -> HttpdStatus:
        """Test the configuration, then stop and start the server.

        If the test fails, raises ConfigRefused, and the server keeps running. Raises PortTaken if another program uses
        the port.
        """

    @abstractmethod
    def reload(self) -> HttpdStatus:
        """Reload the configuration without dropping a request.

        If the new configuration is invalid, raises ConfigRefused, and the old configuration stays in use. Raises
        NotRunning if the server is not running.
        """

    @abstractmethod
    def status(self) -> HttpdStatus:
        """Return the current status."""

    @abstractmethod
    def configure(self, site: Site) -> HttpdStatus:
        """Test and store a new configuration, and reload it if the server is running.

        Raises ConfigRefused, in which case the old configuration is kept.
        """

    @abstractmethod
    def test_config(self) -> None:
        """Test the stored configuration. If it is invalid, raises ConfigRefused with the server's own message."""

    @abstractmethod
    def logs(self, kind: Literal["access", "error"], offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Return at most `limit` bytes of a log, starting at `offset`."""
