"""A machine in memory, and the driver with which sushy-tools' application shows it as a Redfish system."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sushy_tools import error
from sushy_tools.emulator.resources import vmedia
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver

from blueprints.bmc.values import PowerState

logger = logging.getLogger(__name__)

RESETS = ("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn", "PowerCycle")

_WANTED = {"On": "On", "ForceOn": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}


@dataclass(kw_only=True)
class Drive:
    """A disk of the machine."""

    name: str = "Disk.0"
    serial: str = "S4EWNX0M702341"
    model: str = "MZ7LH960HAJR"
    protocol: str = "SATA"
    media: str = "SSD"
    size_bytes: int = 960_197_124_096


@dataclass(kw_only=True, eq=False)
class Machine:
    """A machine of which a BMC is told. `on_power` is called after each change of its power, in another thread.

    Times are in seconds. A machine that `lies` accepts every change of power, and carries out none; one that `ignores`
    some resets does so with these only. One that `keeps_override` boots from the device for one start ever after.
    """

    name: str = "node-1"
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    vendor: str = "Contoso"
    model: str = "C-1000"
    serial: str = "CN0747517H1A2B"
    memory_gib: int = 64
    processors: int = 2
    macs: tuple[str, ...] = ("52:54:00:12:34:56", "52:54:00:12:34:57")
    drives: list[Drive] = field(default_factory=lambda: [Drive()])
    bios: dict[str, Any] = field(default_factory=lambda: {"BootMode": "Uefi", "TurboMode": "Enabled", "NumCores": 10})
    versions: dict[str, str] = field(default_factory=lambda: {"BiosVersion": "1.3.1"})
    secure_boot: bool | None = False
    resets: tuple[str, ...] = RESETS
    power_state: str = "Off"
    power_delay: float = 0.0
    on_power: Callable[[PowerState], None] | None = None
    lies: bool = False
    ignores: tuple[str, ...] = ()
    keeps_override: bool = False
    ignores_shutdown: bool = False
    refuses_same_power: bool = False
    boot: dict[str, Any] = field(
        default_factory=lambda: {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}
    )
    boots: list[dict[str, Any]] = field(default_factory=list, init=False)
    """The boot source of each start: the override, and the inserted images by drive."""
    asked: list[str] = field(default_factory=list, init=False)
    """All resets that were accepted."""
    media: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    pending_bios: dict[str, Any] = field(default_factory=dict, init=False)
    _timers: list[threading.Timer] = field(default_factory=list, init=False)
    _lock: Any = field(default_factory=threading.RLock, init=False)

    def reset(self, wanted: str) -> None:
        """Carry out a Redfish reset, or start to."""
        if wanted not in self.resets:
            raise error.BadRequest(f"The value {wanted} for the property ResetType is not in the list of values.")
        with self._lock:
            if self.refuses_same_power and _WANTED.get(wanted) == self.power_state:
                raise error.Conflict(f"The machine is already {self.power_state}.")
            self.asked.append(wanted)
            if (
                self.lies
                or wanted in self.ignores
                or wanted == "Nmi"
                or (wanted.startswith("Graceful") and self.ignores_shutdown)
            ):
                return
        if wanted in _WANTED:
            self._change(_WANTED[wanted])
        else:
            self._change("Off", then="On")

    def _change(self, state: str, then: str = "") -> None:
        with self._lock:
            self._cancel()
            if self.power_delay and self.power_state != state:
                self.power_state = f"Powering{state}"
                timer = threading.Timer(self.power_delay, self._reach, (state, then))
                self._timers.append(timer)
                timer.start()
                return
        self._reach(state, then)

    def _reach(self, state: str, then: str) -> None:
        with self._lock:
            changed, self.power_state = self.power_state != state, state
            if state == "On" and changed:
                self._start()
        if changed and self.on_power:
            self.on_power(PowerState(state.lower()))
        if then:
            self._change(then)

    def _start(self) -> None:
        """Use what takes effect at a start: the boot override, and pending settings."""
        images = {slot: it["Image"] for slot, it in self.media.items() if it.get("Inserted")}
        self.boots.append({**self.boot, "media": images})
        self.bios.update(self.pending_bios)
        self.pending_bios = {}
        if self.boot["BootSourceOverrideEnabled"] == "Once" and not self.keeps_override:
            self.boot = {**self.boot, "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}

    def media_changed(self, device: str) -> None:
        """Take note that an image was inserted into a virtual drive, or ejected. Called after the change."""

    def force(self, state: str) -> None:
        """Change the power behind the BMC's back, as a person with a hand on the button does."""
        self._change(state)

    def _cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = [timer for timer in self._timers if timer.is_alive() and timer is not threading.current_thread()]

    def stop(self) -> None:
        """Cancel what is under way."""
        with self._lock:
            self._cancel()
            running = list(self._timers)
        for timer in running:
            timer.join(10)


class Systems(AbstractSystemsDriver):
    """The driver of sushy-tools over machines in memory."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = {machine.uuid: machine for machine in machines}

    driver = "<machines in memory>"

    @property
    def systems(self) -> list[str]:
        return list(self.machines)

    def machine(self, identity: str) -> Machine:
        if identity not in self.machines:
            raise error.NotFound(f"There is no system {identity}.")
        return self.machines[identity]

    def uuid(self, identity: str) -> str:
        return self.machine(identity).uuid

    def name(self, identity: str) -> str:
        return self.machine(identity).name

    def get_power_state(self, identity: str) -> str:
        return self.machine(identity).power_state

    def set_power_state(self, identity: str, state: str) -> None:
        self.machine(identity).reset(state)

    def get_boot_device(self, identity: str) -> str:
        return self.machine(identity).boot["BootSourceOverrideTarget"]

    def set_boot_device(self, identity: str, boot_source: str) -> None:
        # As sushy-tools knows nothing of overrides for one start, this one remains.
        self.machine(identity).boot = {
            "BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": boot_source,
        }  # fmt: skip

    def get_boot_mode(self, identity: str) -> str:
        return "UEFI"

    def set_boot_mode(self, identity: str, boot_mode: str) -> None:
        pass

    def get_secure_boot(self, identity: str) -> bool:
        secure = self.machine(identity).secure_boot
        if secure is None:
            raise error.NotFound("There is no Secure Boot.")
        return secure

    def set_secure_boot(self, identity: str, secure: bool) -> None:
        self.machine(identity).secure_boot = secure

    def get_total_memory(self, identity: str) -> int:
        return self.machine(identity).memory_gib

    def get_total_cpus(self, identity: str) -> int:
        return self.machine(identity).processors

    def get_bios(self, identity: str) -> dict[str, Any]:
        if not (bios := self.machine(identity).bios):
            raise error.NotSupportedError("There is no BIOS resource.")
        return bios

    def set_bios(self, identity: str, attributes: dict[str, Any]) -> None:
        machine = self.machine(identity)
        if unknown := set(attributes) - set(machine.bios):
            raise error.BadRequest(f"The property {sorted(unknown)[0]} is not in the list of valid properties.")
        machine.pending_bios.update(attributes)

    def get_versions(self, identity: str) -> dict[str, str]:
        return self.machine(identity).versions

    def set_versions(self, identity: str, firmware_versions: dict[str, str]) -> None:
        self.machine(identity).versions.update(firmware_versions)

    def get_nics(self, identity: str) -> list[dict[str, str]]:
        return [{"id": f"NIC.{i}", "mac": mac} for i, mac in enumerate(self.machine(identity).macs, 1)]

    def get_processors(self, identity: str) -> list[dict[str, Any]]:
        count = self.machine(identity).processors
        about = {"vendor": "Contoso", "model": "Contoso 9000", "cores": 16, "threads": 32}
        return [{"id": f"CPU{i}", "Id": f"CPU{i}", "socket": f"CPU {i}", **about} for i in range(count)]

    def get_http_boot_uri(self, identity: str) -> str:
        return self.machine(identity).boot.get("HttpBootUri", "")


class Media(vmedia.BaseDriver):
    """Virtual drives that remember what was inserted, and fetch nothing."""

    def __init__(self, systems: Systems) -> None:
        self.systems = systems
        self._config: dict[str, Any] = {}
        self._logger = logger
        self._device_types = {
            "Cd": {"Name": "Virtual CD", "MediaTypes": ["CD", "DVD"]},
            "Usb": {"Name": "Virtual Removable Media", "MediaTypes": ["Floppy", "USBStick"]},
        }

    def _get_device(self, identity: str, device: str) -> dict[str, Any]:
        if device not in self._device_types:
            raise error.NotFound(f"There is no drive {device}.")
        media = self.systems.machine(identity).media
        return media.setdefault(device, dict(self._device_types[device]))

    def insert_image(
        self, identity: str, device: str, image_url: str, inserted: bool = True, write_protected: bool = True,
        username: str | None = None, password: str | None = None,
    ) -> str:  # fmt: skip
        it = self._get_device(identity, device)
        if it.get("Inserted"):
            raise error.BadRequest(f"The drive {device} already has an image inserted.")
        it |= {"Image": image_url, "ImageName": "image.iso", "Inserted": inserted, "WriteProtected": write_protected}
        self.systems.machine(identity).media_changed(device)
        return image_url

    def eject_image(self, identity: str, device: str) -> None:
        it = self._get_device(identity, device)
        if not it.get("Inserted"):
            raise error.BadRequest(f"The drive {device} is empty.")
        it |= {"Image": "", "ImageName": "", "Inserted": False, "WriteProtected": False}
        self.systems.machine(identity).media_changed(device)
