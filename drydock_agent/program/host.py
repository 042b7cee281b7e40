"""This host, as the agent describes it to the server: its hardware, identities, drivers and boot."""

from __future__ import annotations

import dataclasses
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

from drydock_agent import Drivers, FolderTree, Hardware, load_drivers, local_tree, scan
from drydock_agent.messages import AgentStatus, DriverInfo, DriverStatus, Hello, timestamp
from drydock_agent.package import version
from drydock_agent.program.drivers import SeparateDrivers
from drydock_agent.program.errors import AgentError
from drydock_agent.scan import CAPTURED

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PARTS = ("sys", "proc", "drydock-tools")
_SUBJECT = "driver "


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThisHost:
    """The machine on which the agent runs, or a captured tree that stands for it."""

    root: str = ""
    """Folder of a captured tree; empty for this machine."""
    drivers: Drivers = dataclasses.field(default_factory=load_drivers)
    separate: SeparateDrivers | None = None
    """The drivers that are programs of their own; None if the agent takes none."""
    endpoint: str = ""
    """The address HOST:PORT on which the agent listens for the server; empty if it does not listen."""
    certificate: str = ""
    """The certificate of that endpoint in PEM."""

    def __post_init__(self) -> None:
        if self.root and not any((Path(self.root) / one).is_dir() for one in _PARTS):
            raise AgentError(f"{self.root} is not a captured tree: it has none of the folders {', '.join(_PARTS)}.")

    def hardware(self) -> Hardware:
        """Scan the hardware, and ask the separate drivers for theirs."""
        if self.separate is not None:
            self.separate.ask()
        tree = FolderTree(self.root) if self.root else local_tree(self.drivers)
        return scan(tree, drivers=self._every(), traits=(CAPTURED,) if self.root else ())

    def hello(self, name: str, hardware: Hardware) -> Hello:
        """Return the hello of an agent on this host."""
        return Hello(
            status=AgentStatus.READY, name=name, agent_version=version(), boot_id=boot_id(), time=now(),
            identities=hardware.host.identities, drivers=tuple(_drivers(self._every(), hardware)),
            endpoint=self.endpoint, certificate=self.certificate,
        )  # fmt: skip

    def _every(self) -> Drivers:
        return self.drivers if self.separate is None else self.separate.with_own(self.drivers)


def boot_id() -> str:
    """Return the id of the current boot, or an empty string if it is unknown."""
    try:
        return _BOOT.read_text().strip()[:100]
    except OSError:
        return ""


def host_name() -> str:
    """Return the name of this host, with characters that names must not have replaced by hyphens."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("._-")[:253] or "localhost"


def now() -> str:
    """Return the time in the form of messages."""
    return timestamp(datetime.now(UTC))


def _drivers(drivers: Drivers, hardware: Hardware) -> list[DriverInfo]:
    """Return all drivers; those that the scan warns about failed."""
    failed = {
        one.subject.removeprefix(_SUBJECT): one.message for one in hardware.warnings if one.subject.startswith(_SUBJECT)
    }
    loaded = {one.name: one.classes for one in drivers.drivers}
    return [
        DriverInfo(
            name=name, type=tuple(loaded.get(name, ())), message=" ".join(failed.get(name, "").split())[:500],
            status=DriverStatus.FAILED if name in failed else DriverStatus.READY,
        ) for name in sorted({*loaded, *failed})
    ]  # fmt: skip
