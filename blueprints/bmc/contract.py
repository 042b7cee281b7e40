"""The contract of BMC drivers: how a session is opened, and what it can do."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from blueprints.bmc.values import (
    BmcTask,
    BootOverride,
    Certificate,
    Inventory,
    LogEntry,
    Login,
    Medium,
    PowerAction,
    PowerState,
    SecureBoot,
    Sensor,
)
from blueprints.contract import Fields
from interfaces.console.contract import Line
from interfaces.deadline import Deadline


class Bmc(ABC):
    """An open session with one BMC, used by one thread at a time.

    Every method makes a bounded number of calls, and ends within the deadline of the session. It raises `BmcError`.
    """

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the session at the BMC, which allows only a few. Never raises."""

    @abstractmethod
    def inspect(self) -> Inventory:
        """Return what the BMC knows about its machine. Parts that cannot be read are named in `missing`."""

    @abstractmethod
    def power(self) -> PowerState:
        """Read the power of the machine."""

    @abstractmethod
    def power_actions(self) -> frozenset[PowerAction]:
        """Return the actions that the BMC offers."""

    @abstractmethod
    def switch(self, action: PowerAction) -> None:
        """Ask for a change of power. Returns once the BMC has accepted it; read `power` to see its effect.

        Raises BmcLacks if the BMC does not offer the action. Asking for a power that the machine already has succeeds.
        """


class Boots(ABC):
    """The session can choose what the machine boots from."""

    @abstractmethod
    def boot(self) -> BootOverride | None:
        """Read the override that is in force; None if there is none."""

    @abstractmethod
    def set_boot(self, override: BootOverride) -> None:
        """Set the override, or remove it with `BootDevice.DEFAULT`. Raises BmcLacks."""


class Mounts(ABC):
    """The session can insert virtual media."""

    @abstractmethod
    def media(self) -> Sequence[Medium]:
        """Return the virtual drives."""

    @abstractmethod
    def insert(self, slot: str, uri: str) -> None:
        """Insert the image at an address into a drive. Replaces an inserted image; does nothing if it is this one."""

    @abstractmethod
    def eject(self, slot: str) -> None:
        """Empty a drive. Succeeds if it is empty."""


class Measures(ABC):
    """The session can read sensors."""

    @abstractmethod
    def sensors(self) -> Sequence[Sensor]:
        """Read all sensors."""


class Logs(ABC):
    """The session can read the system event log."""

    @abstractmethod
    def entries(self, since: dt.datetime | None = None) -> Sequence[LogEntry]:
        """Return the newest entries, at most 200, oldest first, without those before `since`."""


class Identifies(ABC):
    """The session can say what its account may do."""

    @abstractmethod
    def login(self) -> Login:
        """Return the account and its privileges."""


class Counts(ABC):
    """The session can count the sessions that are open at the BMC."""

    @abstractmethod
    def open_sessions(self) -> int:
        """Return the number of open sessions of all users, with this one. Raises BmcLacks."""


class Upgrades(ABC):
    """The session can update firmware."""

    @abstractmethod
    def start_update(self, uri: str, targets: Sequence[str] = ()) -> BmcTask:
        """Start an update from the image at an address, of these components or those that the image names.

        Raises BmcAnswerLost if the update may have begun nevertheless, so that it is not started a second time. All
        other errors mean that it has not begun.
        """

    @abstractmethod
    def task(self, id: str) -> BmcTask:
        """Read a task that was started by this or an earlier session.

        A task that the BMC does not know is `unknown`, which says nothing about its result.
        """

    def tasks(self) -> Sequence[str] | None:
        """Return the ids of the tasks that the BMC lists now, of updates and of others; None if it does not list them.

        After a lost answer, the task of an update is found among those that were not listed before it.
        """
        return None


class Configures(ABC):
    """The session can read and change settings of the machine's firmware."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the BIOS attributes by name, as the BMC names them."""

    @abstractmethod
    def set_settings(self, changes: Mapping[str, Any]) -> None:
        """Change BIOS attributes. They take effect at the next boot."""

    @abstractmethod
    def secure_boot(self) -> SecureBoot | None:
        """Read Secure Boot; None if the machine does not have it."""

    @abstractmethod
    def set_secure_boot(self, enabled: bool) -> None:
        """Switch Secure Boot for the next boot."""


class Polled(ABC):
    """The session can say how the power is read later without a session; see `PollsPower`."""

    @abstractmethod
    def power_poll(self) -> str:
        """Return what `PollsPower.poll_power` needs to read the power of this machine.

        Empty if this BMC cannot be asked that way, which may take one login that the BMC refuses. Raises BmcError if
        that cannot be found out now.
        """


class Serial(ABC):
    """The session can open the serial console of the machine."""

    @abstractmethod
    def serial(self, deadline: Deadline, *, take: bool) -> Line:
        """Open the console over this session, which stays open until the line is closed, whatever its own deadline.

        Use the session for nothing else, and close it after the line. If `take` is true, another session of the console
        is ended. Raises ConsoleBusy, BmcLacks, BmcError.
        """


class LoginGuard(ABC):
    """Counts the logins at a BMC that locks accounts. A session that has one never sends a password uncounted."""

    @abstractmethod
    def begin(self) -> str:
        """Return the name of a login that may be tried now. Raises BmcLoginsSpent."""

    @abstractmethod
    def accepted(self, attempt: str) -> None:
        """Note that the BMC accepted a login, or did not judge it."""

    @abstractmethod
    def refused(self, attempt: str = "") -> None:
        """Note that the BMC refused a login or, without `attempt`, a session that it had opened before."""


class BmcDriver(ABC):
    """Opens sessions with BMCs of one protocol. Stateless.

    A driver is found by its entry point in the group `drydock.bmc_drivers`, and needs only this package.
    """

    name: ClassVar[str]
    Access: ClassVar[type[Fields]] = Fields
    """How one BMC is reached: address, port, path of the system, pinned fingerprint. Part of a registration."""
    Credential: ClassVar[type[Fields] | None] = None
    """The secrets of one BMC, or of all; None if the protocol has none."""

    @abstractmethod
    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> Bmc:
        """Open a session that ends after `deadline` seconds at most.

        `access` is an instance of `Access`, and `credential` has the fields of `Credential`. Raises BmcError: nothing
        is sent to a BMC whose certificate is not trusted.
        """

    @abstractmethod
    def identity(self, access: Any) -> str:
        """Return the name by which this BMC is unique, such as its address and port. Makes no call."""

    def certificate(self, access: Any, *, deadline: float) -> Certificate | None:
        """Read the certificate that the BMC presents, without sending anything to it. None if it uses no TLS.

        Raises BmcUnreachable.
        """
        return None


class PollsPower(ABC):
    """The driver can read the power with a single request, without a session. For checks of many machines at rest."""

    @abstractmethod
    def poll_power(self, access: Any, credential: Mapping[str, str], known: str, *, deadline: float) -> PowerState:
        """Read the power of a machine. `known` is the value of `Polled.power_poll` for the same BMC and account.

        Takes at most `deadline` seconds. May be called by several threads. Raises BmcError.
        """


CAPABILITIES: Mapping[str, type] = {
    base.__name__.lower(): base
    for base in (Boots, Mounts, Measures, Logs, Identifies, Counts, Upgrades, Configures, Polled, Serial)
}
"""The optional capabilities of sessions, by name. Every session reads the power and inspects the machine."""


def capabilities(session: Bmc) -> frozenset[str]:
    """Return what a session can do, which follows from the classes that it implements."""
    return frozenset(name for name, base in CAPABILITIES.items() if isinstance(session, base))
