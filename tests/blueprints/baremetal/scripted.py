"""BMCs in memory that do what a test says, behind a driver `scripted`. Their guest is a real SSH server."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import Field

from blueprints.bmc import registry
from blueprints.bmc.contract import Bmc, BmcDriver, Boots, Configures, Identifies, Logs, Measures, Mounts, Upgrades
from blueprints.bmc.errors import (
    BmcAnswerLost,
    BmcCertificateChanged,
    BmcCertificateUnknown,
    BmcLacks,
    BmcLoginRefused,
    BmcUnreachable,
)
from blueprints.bmc.values import (
    BmcTask,
    BootDevice,
    BootOverride,
    Certificate,
    Firmware,
    Inventory,
    LogEntry,
    Login,
    Medium,
    Nic,
    PowerAction,
    PowerState,
    SecureBoot,
    Sensor,
)
from blueprints.contract import Fields
from blueprints.identities import real
from drydock.core.plugins import Plugins
from tests.blueprints.host_peers import Server
from tests.bmc.guests import Guests

PASSWORD = "correct-horse"
BMCS: dict[str, Machine] = {}
"""The BMCs that can be reached now, by address."""


_TARGETS = {BootDevice.MEDIUM: "Cd", BootDevice.NETWORK: "Pxe", BootDevice.HTTP: "UefiHttp"}


def certificate(digit: str) -> Certificate:
    """A certificate whose fingerprint repeats a digit."""
    return Certificate(fingerprint=digit * 64, subject="CN=bmc", issuer="CN=bmc")


@dataclass(kw_only=True)
class Update:
    """An update of firmware. Each read of its task brings it half of the way."""

    component: str
    version: str
    error: str = ""
    after_power_cycle: bool = False
    restarts: int = 0
    """The number of sessions that the BMC refuses after the update, because it restarts."""
    percent: int = 0


@dataclass
class Machine:
    """A machine with its BMC."""

    address: str
    inventory: Inventory
    guest: Server | Guests | None = None
    state: PowerState = PowerState.ON
    shows: Certificate | None = None
    silent: bool = False
    lies: bool = False
    """The BMC accepts every request and carries out none."""
    soft: bool = True
    password: str = PASSWORD
    privileges_missing: tuple[str, ...] = ()
    override: BootOverride | None = None
    sensors: tuple[Sensor, ...] = ()
    log: tuple[LogEntry, ...] = ()
    asked: list[PowerAction] = field(default_factory=list)
    drives: dict[str, str] | None = None
    """The address of the image in each virtual drive; None if the BMC has no drives. CD drives are named CD1, CD2."""
    loses_media: bool = False
    """The BMC accepts an image, and its drive stays empty."""
    bios: dict[str, Any] = field(default_factory=lambda: {"TurboMode": "Enabled", "SysTime": "1"})
    secure_boot: bool = True
    pending: dict[str, Any] = field(default_factory=dict)
    """Settings that the next start applies."""
    updates: dict[str, Update] | None = None
    """The updates that the BMC can carry out, by address of the image; None if it cannot update."""
    started: list[str] = field(default_factory=list)
    """The addresses of the updates that were started."""
    read: list[str] = field(default_factory=list)
    """The ids of the tasks that were read."""
    loses_answers: bool = False
    """The answer to each start of an update is lost."""
    hides_tasks: bool = False
    """The BMC does not list its tasks."""
    boots: list[dict[str, Any]] = field(default_factory=list)
    """The boot override and the media of each start, in the form of `tests.bmc.machine`."""
    open: int = 0
    most_open: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def to(self, state: PowerState) -> None:
        """Bring the machine to a power, with its guest."""
        if state is self.state:
            return
        self.state = state
        if state is PowerState.ON:
            self._apply()
        if isinstance(self.guest, Guests):
            self._switch(self.guest)
        elif self.guest is not None and state is PowerState.ON:
            self.guest.again()
        elif self.guest is not None:
            self.guest.stop()

    def _apply(self) -> None:
        """Apply what waits for a start of the machine."""
        self.secure_boot = self.pending.pop("secure_boot", self.secure_boot)
        self.bios |= self.pending
        self.pending = {}
        for url in self.started:
            update = (self.updates or {})[url]
            if update.after_power_cycle and update.percent == 100:
                self.install(update)

    def install(self, update: Update) -> None:
        """Let the BMC list the version of an update."""
        kept = tuple(one for one in self.inventory.firmware if one.component != update.component)
        new = Firmware(component=update.component, version=update.version)
        self.inventory = replace(self.inventory, firmware=(*kept, new))

    def _switch(self, guest: Guests) -> None:
        """Start what the boot override and the media say, or end it."""
        if self.state is PowerState.ON:
            chosen = self.override.device if self.override else BootDevice.DEFAULT
            target = _TARGETS.get(chosen, "Hdd")
            inserted = {slot: image for slot, image in (self.drives or {}).items() if image}
            self.boots.append({"BootSourceOverrideTarget": target, "media": inserted})
            if self.override is not None and self.override.once:
                self.override = None
        guest.switched(self.state)

    @contextmanager
    def pretending(self, state: PowerState) -> Iterator[None]:
        """Let the BMC report another power than the machine has, and carry out nothing."""
        was, self.state, self.lies = self.state, state, True
        try:
            yield
        finally:
            self.state, self.lies = was, False


class Session(Bmc, Boots, Measures, Logs, Identifies):
    """A session with a scripted BMC."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        with machine.guard:
            machine.open += 1
            machine.most_open = max(machine.most_open, machine.open)

    def close(self) -> None:
        with self._machine.guard:
            self._machine.open -= 1

    def inspect(self) -> Inventory:
        return self._machine.inventory

    def power(self) -> PowerState:
        return self._machine.state

    def power_actions(self) -> frozenset[PowerAction]:
        lacks = set() if self._machine.soft else {PowerAction.SHUTDOWN}
        return frozenset(PowerAction) - lacks

    def switch(self, action: PowerAction) -> None:
        self._machine.asked.append(action)
        if self._machine.lies or action is PowerAction.NMI:
            return
        if action in (PowerAction.OFF, PowerAction.SHUTDOWN, PowerAction.CYCLE, PowerAction.RESET):
            self._machine.to(PowerState.OFF)
        if action in (PowerAction.ON, PowerAction.CYCLE, PowerAction.RESET):
            self._machine.to(PowerState.ON)

    def boot(self) -> BootOverride | None:
        return self._machine.override

    def set_boot(self, override: BootOverride) -> None:
        if override.device == "setup":
            raise BmcLacks("This BMC cannot boot the setup menu.")
        self._machine.override = None if override.device == "default" else override

    def sensors(self) -> Sequence[Sensor]:
        return self._machine.sensors

    def entries(self, since: dt.datetime | None = None) -> Sequence[LogEntry]:
        return [one for one in self._machine.log if since is None or one.at is None or one.at >= since]

    def login(self) -> Login:
        return Login(
            user="admin", role="Administrator", privileges=("Login", "ConfigureManager"),
            missing=self._machine.privileges_missing,
        )  # fmt: skip


class MountingSession(Session, Mounts, Configures):
    """A session with a scripted BMC that has virtual drives, and shows settings of the firmware."""

    @property
    def _drives(self) -> dict[str, str]:
        assert self._machine.drives is not None
        return self._machine.drives

    def media(self) -> Sequence[Medium]:
        return [
            Medium(slot=slot, cd=slot.startswith("CD"), image=image, inserted=bool(image))
            for slot, image in self._drives.items()
        ]

    def insert(self, slot: str, uri: str) -> None:
        assert slot in self._drives
        self._drives[slot] = "" if self._machine.loses_media else uri

    def eject(self, slot: str) -> None:
        self._drives[slot] = ""

    def settings(self) -> Mapping[str, Any]:
        return self._machine.bios

    def set_settings(self, changes: Mapping[str, Any]) -> None:
        self._machine.pending |= changes

    def secure_boot(self) -> SecureBoot | None:
        return SecureBoot(enabled=self._machine.secure_boot)

    def set_secure_boot(self, enabled: bool) -> None:
        self._machine.pending["secure_boot"] = enabled


class UpgradingSession(MountingSession, Upgrades):
    """A session with a scripted BMC that updates firmware."""

    def start_update(self, uri: str, targets: Sequence[str] = ()) -> BmcTask:
        assert self._machine.updates is not None
        assert uri in self._machine.updates, uri
        self._machine.started.append(uri)
        if self._machine.loses_answers:
            raise BmcAnswerLost("The BMC did not answer within 10 s.")
        return BmcTask(id=uri, state="running", percent=0)

    def tasks(self) -> Sequence[str] | None:
        return None if self._machine.hides_tasks else ["/tasks/earlier", *self._machine.started]

    def task(self, id: str) -> BmcTask:
        assert self._machine.updates is not None
        update = self._machine.updates[id]
        self._machine.read.append(id)
        if update.error:
            return BmcTask(id=id, state="failed", message=update.error)
        update.percent += 50
        if update.percent < 100:
            return BmcTask(id=id, state="running", percent=update.percent, message="Flashing")
        if not update.after_power_cycle:
            self._machine.install(update)
        return BmcTask(id=id, state="done", percent=100)


class Access(Fields):
    """How a scripted BMC is reached."""

    address: str = Field(min_length=1)
    port: int = Field(default=443, ge=1, le=65535)
    fingerprint: str = ""


class Credential(Fields):
    """Its login."""

    username: str
    password: str


class Scripted(BmcDriver):
    """Opens sessions with the machines of `BMCS`."""

    name = "scripted"
    Access = Access
    Credential = Credential

    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> Bmc:
        assert 0 < deadline <= 600
        machine = BMCS.get(access.address)
        if machine is None or machine.silent:
            raise BmcUnreachable(f"The BMC {access.address} did not answer.")
        shown = machine.shows
        if shown is not None and not access.fingerprint:
            raise BmcCertificateUnknown(shown)
        if shown is not None and shown.fingerprint != access.fingerprint:
            raise BmcCertificateChanged(shown, access.fingerprint)
        if credential["password"] != machine.password:
            raise BmcLoginRefused("The BMC refused the login.")
        if machine.updates is not None:
            return self._upgrading(machine)
        return Session(machine) if machine.drives is None else MountingSession(machine)

    def _upgrading(self, machine: Machine) -> Bmc:
        for update in (machine.updates or {}).values():
            if update.percent == 100 and update.restarts:
                update.restarts -= 1
                raise BmcUnreachable("The BMC restarts.")
        machine.drives = machine.drives or {}
        return UpgradingSession(machine)

    def identity(self, access: Any) -> str:
        return f"{access.address}:{access.port}"


@contextmanager
def machine(
    address: str, guest: Server | Guests | None = None, *, serial: str = "SN1", **more: Any
) -> Iterator[Machine]:
    """A machine whose BMC has an address. At the end it is on again, as its guest was before."""
    inventory = Inventory(
        vendor="Contoso", model="R1", serial=serial, uuid="11111111-2222-3333-4444-" + f"{hash(serial) % 10**12:012d}",
        bios_version="1.0", bmc_version="2.0", health="ok", identities=real({"serial:Contoso": serial}),
        nics=(Nic(name="1", mac="02:00:00:00:00:01"),), firmware=(Firmware(component="BIOS", version="1.0"),),
    )  # fmt: skip
    made = BMCS[address] = Machine(address, inventory, guest, **more)
    try:
        yield made
    finally:
        del BMCS[address]
        made.to(PowerState.OFF if isinstance(guest, Guests) else PowerState.ON)
        assert made.open == 0, "a session was left open"


def changed(made: Machine, **more: Any) -> None:
    """Let the BMC describe its machine differently."""
    made.inventory = replace(made.inventory, **more)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the driver for a test."""
    there = Plugins(group=registry.GROUP, objects={"scripted": Scripted}, sources={"scripted": "tests"})
    monkeypatch.setattr(registry, "installed", lambda: there)
