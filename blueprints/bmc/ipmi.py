"""The driver `ipmi`: machines whose BMC speaks IPMI 2.0 over the network (RMCP+, UDP port 623)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationError

from blueprints.bmc.contract import Bmc, BmcDriver, Boots, Identifies, Logs, Measures, Serial
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.ipmi_sol import SolLine
from blueprints.bmc.texts import HostName, serial_of, shown
from blueprints.bmc.values import (
    BootDevice,
    BootOverride,
    Firmware,
    Inventory,
    LogEntry,
    Login,
    PowerAction,
    PowerState,
    Sensor,
)
from blueprints.contract import Fields
from blueprints.identities import is_placeholder, real
from interfaces.console.contract import Line
from interfaces.deadline import Deadline

if TYPE_CHECKING:
    from blueprints.bmc.ipmi_client import Client

MOST_ENTRIES = 200
_LONGEST_NAME, _LONGEST_PASSWORD = 16, 20
_SUITES = {"auto": 0, "3": 1, "17": 256}
"""Cipher suites by the names that pyghmi gives their hash."""
_LEVELS = {"auto": 0, "user": 2, "operator": 3, "administrator": 4}
_ROLES = {2: "User", 3: "Operator", 4: "Administrator"}
_CONTROL = {
    PowerAction.OFF: 0,
    PowerAction.ON: 1,
    PowerAction.CYCLE: 2,
    PowerAction.RESET: 3,
    PowerAction.NMI: 4,
    PowerAction.SHUTDOWN: 5,
}
"""IPMI 2.0, 28.3, Chassis Control."""
_BOOT = {
    BootDevice.DEFAULT: 0,
    BootDevice.NETWORK: 1,
    BootDevice.DISK: 2,
    BootDevice.MEDIUM: 5,
    BootDevice.SETUP: 6,
}
"""IPMI 2.0, table 28-14, Boot Option Parameters, boot flags, byte 2."""
_DEVICES = {number: device for device, number in _BOOT.items()}
_VALID, _PERSISTENT, _UEFI = 0x80, 0x40, 0x20
_UNITS = {"°C": "Cel"}
_DCMI, _POWER_READING, _MEASURING = 0xDC, 18, 0x40
"""The group extension of DCMI, the bytes of a power reading, and the bit in its last byte while power is measured."""
_DRAW = "Power (DCMI)"
_FAULTS = ((0, 0x08), (0, 0x04), (0, 0x02), (2, 0x04), (2, 0x08))
"""Bits of the chassis status: power fault, interlock, overload, drive fault, cooling fault (IPMI 2.0, 28.2)."""


def _fits(most: int) -> Callable[[str], str]:
    def check(text: str) -> str:
        if len(text.encode()) > most or "\0" in text:
            raise ValueError(f"IPMI 2.0 allows at most {most} bytes in UTF-8, without NUL")
        return text

    return check


class Access(Fields):
    """How a BMC is reached over IPMI."""

    address: HostName = Field(description="Host name or IP address of the BMC.")
    port: int = Field(default=623, ge=1, le=65535, description="UDP port.")
    cipher_suite: Literal["auto", "3", "17"] = Field(
        default="auto",
        description="17 (SHA-256) or 3 (SHA-1), both with AES encryption. auto: 17 if the BMC has it, otherwise 3. "
        "Suites without encryption are never used.",
    )
    privilege: Literal["auto", "user", "operator", "administrator"] = Field(
        default="auto",
        description="Privilege level of the session. auto: administrator, or operator if that is refused.",
    )
    uefi: bool = Field(default=True, description="Boot overrides ask for a UEFI boot. False: for a legacy boot.")


class Credential(Fields):
    """An account of a BMC."""

    username: Annotated[str, AfterValidator(_fits(_LONGEST_NAME))] = Field(
        description="Name of the account, at most 16 bytes."
    )
    password: Annotated[str, AfterValidator(_fits(_LONGEST_PASSWORD))] = Field(
        description="Password of the account, at most 20 bytes."
    )


class IpmiSession(Bmc, Boots, Measures, Logs, Identifies, Serial):
    """A session with a BMC over IPMI."""

    def __init__(self, client: Client, access: Access, username: str) -> None:
        self._client, self._access, self._username = client, access, username

    def close(self) -> None:
        """End the session at the BMC. Never raises."""
        self._client.close()

    def inspect(self) -> Inventory:
        """Read the device id, FRU 0, the UUID, the BMC's MAC address and the chassis status."""
        missing: list[str] = []
        device = self._client.ask(6, 1)
        version = _version(device)
        fru: Mapping[str, str] = self._part(missing, "inventory (FRU)", self._client.fru) or {}
        uuid = self._part(missing, "UUID", self._client.guid) or ""
        mac = self._part(missing, "MAC address of the BMC", self._mac) or ""
        vendor = _text(fru, "Manufacturer", "Board manufacturer")
        serial = _text(fru, "Serial Number", "Chassis serial number")
        names = {"dmi_uuid": uuid, "bmc_mac": mac, serial_of(vendor): serial}
        return Inventory(
            vendor=vendor,
            model=_text(fru, "Product name", "Board product name"),
            serial=serial,
            sku=_text(fru, "Model", "Board model"),
            uuid=uuid,
            bmc_version=version,
            health=self._part(missing, "chassis status", self._health) or "",
            identities=real(names),
            firmware=(Firmware(component="bmc", version=version),),
            missing=tuple(missing),
        )

    def power(self) -> PowerState:
        """Read the chassis status. It is never `changing`: during a shutdown, the power is on."""
        return PowerState.ON if self._status()[0] & 1 else PowerState.OFF

    def power_actions(self) -> frozenset[PowerAction]:
        """Return all actions of IPMI. It does not say which of them a BMC lacks; `switch` raises BmcLacks then."""
        return frozenset(_CONTROL)

    def switch(self, action: PowerAction) -> None:
        """Ask for a change of power. An NMI is sent only once, because a second one can spoil the dump of the first."""
        wanted = {PowerAction.ON: PowerState.ON, PowerAction.OFF: PowerState.OFF, PowerAction.SHUTDOWN: PowerState.OFF}
        if action in wanted and self.power() is wanted[action]:
            return
        try:
            self._client.ask(0, 2, [_CONTROL[action]], repeat=action is not PowerAction.NMI)
        except BmcRefused as error:
            code = getattr(error, "completion", 0)
            if code == 0xCC:
                raise BmcLacks(f"The BMC does not offer the action {action}.") from None
            if code == 0xD5:
                raise BmcRefused(f"The BMC refused the action {action} while the power is {self.power()}.") from None
            raise

    def boot(self) -> BootOverride | None:
        """Read the boot flags."""
        data = self._boot_option(9, [5, 0, 0])
        if len(data) < 4:
            raise BmcAnswerInvalid("The BMC's boot flags are cut off.")
        number = data[3] >> 2 & 0xF
        if data[1] & 0x80 or not data[2] & _VALID or not number:
            return None
        if number not in _DEVICES:
            raise BmcLacks(f"The BMC has an override for a boot device (number {number}) that Drydock does not know.")
        return BootOverride(device=_DEVICES[number], once=not data[2] & _PERSISTENT)

    def set_boot(self, override: BootOverride) -> None:
        """Set or clear the boot flags, which otherwise would end after 60 seconds."""
        if override.device not in _BOOT or override.uri:
            raise BmcLacks(f"IPMI cannot select the boot device {override.device}.")
        flags = 0
        if override.device is not BootDevice.DEFAULT:
            flags = _VALID | (0 if override.once else _PERSISTENT) | (_UEFI if self._access.uefi else 0)
        # Some BMCs do not have this parameter, and keep the flags anyway.
        _optional(lambda: self._client.ask(0, 8, [3, 8]))
        self._boot_option(8, [5, flags, _BOOT[override.device] << 2, 0, 0, 0])

    def sensors(self) -> Sequence[Sensor]:
        """Read all sensors that the BMC describes, and the power that the machine draws, if the BMC has DCMI."""
        found = [_sensor(one) for one in self._client.sensors()]
        watts = self._watts()
        if watts is not None:
            found.append(Sensor(name=_DRAW, value=float(watts), unit="W", whole=True))
        return found

    def _watts(self) -> int | None:
        """Ask for the current power of the machine (DCMI 1.5, 6.6.1). None if the BMC does not measure it."""
        try:
            data = self._client.ask(0x2C, 2, [_DCMI, 1, 0, 0])
        except (BmcLacks, BmcRefused, BmcBusy):
            return None
        if len(data) < _POWER_READING or data[0] != _DCMI or not data[17] & _MEASURING:
            return None
        return int.from_bytes(data[1:3], "little")

    def entries(self, since: dt.datetime | None = None) -> Sequence[LogEntry]:
        """Return the newest entries of the system event log. Those without a time are always included."""
        found = [_entry(event, at) for event, at in self._client.log(MOST_ENTRIES)]
        return [one for one in found if since is None or one.at is None or one.at >= since]

    def login(self) -> Login:
        """Return the account with the privilege level that the BMC granted."""
        level = self._client.level
        missing = () if level >= _LEVELS["operator"] else ("operator: change the power and the boot device",)
        privileges = tuple(role.lower() for number, role in _ROLES.items() if number <= level)
        return Login(user=self._username, role=_ROLES.get(level, ""), privileges=privileges, missing=missing)

    def serial(self, deadline: Deadline, *, take: bool) -> Line:
        """Open the console by serial over LAN (SOL)."""
        return SolLine(self._client, deadline, take=take)

    def _boot_option(self, command: int, data: Sequence[int]) -> bytes:
        try:
            return self._client.ask(0, command, data)
        except BmcRefused as error:
            if getattr(error, "completion", 0) in (0x80, 0xCC):
                raise BmcLacks("The BMC does not offer this boot override.") from None
            raise

    def _status(self) -> bytes:
        data = self._client.ask(0, 1)
        if len(data) < 3:
            raise BmcAnswerInvalid("The BMC's chassis status is cut off.")
        return data

    def _health(self) -> Literal["ok", "degraded"]:
        data = self._status()
        return "degraded" if any(data[byte] & bit for byte, bit in _FAULTS) else "ok"

    def _mac(self) -> str:
        """Read the MAC address of the channel that the session uses (IPMI 2.0, 23.2, parameter 5)."""
        data = self._client.ask(0xC, 2, [0xE, 5, 0, 0])
        if len(data) < 7:
            raise BmcAnswerInvalid("The address is cut off.")
        return data[1:7].hex(":")

    def _part(self, missing: list[str], name: str, read: Callable[[], Any]) -> Any:
        """Read a part of the inventory. Notes it as missing if the BMC does not have it or garbles it."""
        try:
            return read()
        except (BmcUnreachable, BmcBusy):
            raise
        except BmcError as error:
            missing.append(f"The {name} could not be read: {error.message}")
            return None


class IpmiDriver(BmcDriver):
    """Opens sessions over IPMI."""

    name: ClassVar[str] = "ipmi"
    Access = Access
    Credential = Credential

    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> IpmiSession:
        """Log in. The password is never sent; both sides prove that they know it."""
        try:
            from blueprints.bmc.ipmi_client import Client
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "pyghmi":
                raise
            raise BmcError(
                "The BMC driver ipmi needs a package that is not installed.", hint="Run: pip install 'pyghmi>=1.6'"
            ) from None
        account = _account(credential)
        client = Client(
            access.address,
            access.port,
            account.username,
            account.password,
            suite=_SUITES[access.cipher_suite],
            level=_LEVELS[access.privilege],
            seconds=deadline,
        )
        return IpmiSession(client, access, account.username)

    def identity(self, access: Any) -> str:
        """Return the address and port."""
        return f"{access.address.lower()}:{access.port}"


def _account(credential: Mapping[str, str]) -> Credential:
    try:
        return Credential.model_validate(dict(credential))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise BmcLoginRefused(f"The credential cannot be used: {first['loc'][0]}: {first['msg']}.") from None


def _optional(call: Callable[[], object]) -> None:
    try:
        call()
    except (BmcLacks, BmcRefused):
        return


def _version(device: bytes) -> str:
    if len(device) < 4:
        raise BmcAnswerInvalid("The BMC's device id is cut off.")
    return f"{device[2] & 0x7F}.{device[3]:02x}"


def _text(fru: Mapping[str, str], *names: str) -> str:
    """Return the first of these texts that is no placeholder, on one line of at most 300 characters."""
    return next((shown(text) for name in names if (text := fru.get(name, "")) and not is_placeholder(text)), "")


def _sensor(reading: Any) -> Sensor:
    gone = bool(getattr(reading, "unavailable", None))
    value = None if gone or reading.value is None else round(float(reading.value), 6)
    unit = (reading.units or "").strip()
    return Sensor(
        name=shown(str(reading.name)),
        value=value,
        unit=_UNITS.get(unit, unit) if value is not None else "",
        state="unknown" if gone else _severity(reading.health),
    )


def _entry(event: Mapping[str, Any], at: dt.datetime | None) -> LogEntry:
    said = [event.get("component"), event.get("event"), event.get("event_data")]
    if event.get("deassertion"):
        said.append("(ended)")
    if not any(said) and "oemdata" in event:
        said = [f"OEM record {bytes(event['oemdata']).hex()}"]
    message = shown(" ".join(str(one) for one in said if one) or "unknown event")
    return LogEntry(
        id=str(event.get("record_id", "")), message=message, severity=_severity(event.get("severity", 0)), at=at
    )


def _severity(health: int) -> Literal["ok", "warning", "critical"]:
    """Convert pyghmi's health: 1 is a warning, 2 and 4 are critical."""
    return "critical" if health & 6 else "warning" if health & 1 else "ok"
