"""A session with a Redfish BMC: what the contract asks for, in terms of resources and actions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from blueprints.bmc import inspection, redfish_readings, redfish_sensors
from blueprints.bmc.contract import Bmc, Boots, Configures, Counts, Identifies, Logs, Measures, Mounts, Polled, Upgrades
from blueprints.bmc.errors import BmcAnswerInvalid, BmcLacks, BmcRefused
from blueprints.bmc.inspection import flat, name_of, paths, text
from blueprints.bmc.redfish_client import Answer, Client, Json
from blueprints.bmc.redfish_tree import UNREADABLE, Tree, links, member
from blueprints.bmc.values import (
    BmcTask,
    BootDevice,
    BootOverride,
    Inventory,
    LogEntry,
    Login,
    Medium,
    PowerAction,
    PowerState,
    SecureBoot,
    Sensor,
)

MOST_ENTRIES = 200

_POWER = {
    "On": PowerState.ON,
    "Paused": PowerState.ON,
    "Off": PowerState.OFF,
    "PoweringOn": PowerState.CHANGING,
    "PoweringOff": PowerState.CHANGING,
}
_RESETS: Mapping[PowerAction, tuple[str, ...]] = {
    PowerAction.ON: ("On", "ForceOn"),
    PowerAction.OFF: ("ForceOff",),
    PowerAction.SHUTDOWN: ("GracefulShutdown",),
    PowerAction.RESET: ("ForceRestart",),
    PowerAction.CYCLE: ("PowerCycle", "FullPowerCycle"),
    PowerAction.NMI: ("Nmi",),
}
"""The kinds of reset that carry out an action, the best first."""
_ASSUMED = ("On", "ForceOff", "GracefulShutdown", "ForceRestart")
"""The kinds of reset that are assumed if the BMC does not list them."""
_RESULT = {PowerAction.ON: PowerState.ON, PowerAction.OFF: PowerState.OFF, PowerAction.SHUTDOWN: PowerState.OFF}
_TARGETS = {
    BootDevice.DISK: "Hdd",
    BootDevice.NETWORK: "Pxe",
    BootDevice.HTTP: "UefiHttp",
    BootDevice.MEDIUM: "Cd",
    BootDevice.SETUP: "BiosSetup",
}
_DEVICES = {**{target: device for device, target in _TARGETS.items()}, "UsbCd": BootDevice.MEDIUM}
_NEEDED = ("Login", "ConfigureComponents", "ConfigureManager")
"""Privileges that are used: the second for power, boot device and settings, the third for media and updates."""


class RedfishSession(Bmc, Boots, Mounts, Measures, Logs, Identifies, Counts, Upgrades, Configures, Polled):
    """A session with a Redfish BMC, for one of its systems."""

    def __init__(self, client: Client, system: str) -> None:
        self._client, self._tree = client, Tree(client, system)
        self._here = f"The BMC at {client.line.where}"

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def inspect(self) -> Inventory:
        """Read all resources that describe the machine."""
        return inspection.inventory(self._tree.everything())

    # Power

    def power(self) -> PowerState:
        """Read the power of the machine."""
        return power_of(self._tree.system())

    def power_poll(self) -> str:
        """Return the path of the system if it can be read with basic authentication; else an empty string.

        A BMC that says that it has no basic authentication (`HTTPBasicAuth` of the AccountService since version 1.10)
        is not tried, because it may count that as a failed login.
        """
        self._tree.system()
        for service in self._tree.resources(paths(self._tree.root.get("AccountService")), []):
            if text(service.get("HTTPBasicAuth")) == "Disabled":
                return ""
        return self._tree.path if self._client.allows_basic(self._tree.path) else ""

    def power_actions(self) -> frozenset[PowerAction]:
        """Return the actions that the BMC offers."""
        system = self._tree.system()
        return frozenset(action for action in PowerAction if self._reset(system, action))

    def switch(self, action: PowerAction) -> None:
        """Ask for a change of power."""
        system, wanted = self._tree.system(), _RESULT.get(action)
        if wanted is not None and power_of(system) is wanted:
            return
        found = self._reset(system, action)
        if found is None:
            offered = ", ".join(one for one in PowerAction if self._reset(system, one)) or "nothing"
            raise BmcLacks(f"{self._here} does not offer the action {action}. It offers: {offered}.")
        try:
            self._client.post(found[0], {"ResetType": found[1]})
        except BmcRefused:
            if wanted is None or self.power() is not wanted:
                raise

    def _reset(self, system: Json, action: PowerAction) -> tuple[str, str] | None:
        """Return address and kind of the reset for an action; None if the BMC has none."""
        target, allowed = self._allowed(system, "#ComputerSystem.Reset", "ResetType")
        for kind in _RESETS[action]:
            if target and kind in (allowed or _ASSUMED):
                return target, kind
        return self._chassis_cycle(system) if action is PowerAction.CYCLE else None

    def _chassis_cycle(self, system: Json) -> tuple[str, str] | None:
        """Return the power cycle of a chassis that has no other system in it."""
        for chassis in self._tree.resources(paths(links(system).get("Chassis")), []):
            target, allowed = self._allowed(chassis, "#Chassis.Reset", "ResetType")
            if target and "PowerCycle" in allowed and paths(links(chassis).get("ComputerSystems")) == [self._tree.path]:
                return target, "PowerCycle"
        return None

    def _allowed(self, place: Json, action: str, parameter: str) -> tuple[str, list[str]]:
        """Return the address of an action, empty if it is not offered, and the values that a parameter may have.

        They are listed with the action or in an ActionInfo; the list is empty if they are nowhere.
        """
        about = member(member(place, "Actions"), action)
        target, inline = about.get("target"), flat(about.get(f"{parameter}@Redfish.AllowableValues"))
        info = about.get("@Redfish.ActionInfo")
        if not isinstance(target, str):
            return "", []
        if inline or not info:
            return target, inline
        for found in self._tree.resources([info] if isinstance(info, str) else paths(info), []):
            listed = found.get("Parameters")
            for one in listed if isinstance(listed, list) else []:
                if isinstance(one, dict) and one.get("Name") == parameter:
                    return target, flat(one.get("AllowableValues"))
        return target, []

    # Boot

    def boot(self) -> BootOverride | None:
        """Read the override. For one boot, some BMCs report it as lasting: compare the device only.

        Raises BmcAnswerInvalid if the machine boots from something that `BootDevice` has no name for.
        """
        boot = member(self._tree.system(), "Boot")
        target = text(boot.get("BootSourceOverrideTarget"))
        enabled = text(boot.get("BootSourceOverrideEnabled"))
        if not target or enabled in ("", "Disabled"):  # the placeholder None is no text
            return None
        if target not in _DEVICES:
            raise BmcAnswerInvalid(f"The machine boots from {target} next, which Drydock does not use.")
        uri = text(boot.get("HttpBootUri")) if _DEVICES[target] is BootDevice.HTTP else ""
        return BootOverride(device=_DEVICES[target], once=enabled == "Once", uri=redfish_readings.without_secrets(uri))

    def set_boot(self, override: BootOverride) -> None:
        """Set or remove the override, and read it back."""
        self._check_boot(override.device)
        if override.device is BootDevice.DEFAULT:
            self._client.set_boot(self._tree.path, "None", "Disabled", "")
        else:
            once = "Once" if override.once else "Continuous"
            self._client.set_boot(self._tree.path, _TARGETS[override.device], once, override.uri)
        system = self._tree.system()
        if "@Redfish.Settings" in system:
            return  # it shows what is to come elsewhere
        found = self.boot()
        device = found.device if found else BootDevice.DEFAULT
        if device is not override.device:
            raise BmcRefused(f"{self._here} accepted {override.device} as the boot device, but reports {device}.")

    def _check_boot(self, device: BootDevice) -> None:
        """Raise BmcLacks if the BMC lists what the machine can boot from, and this is not on the list."""
        offered = flat(member(self._tree.system(), "Boot").get("BootSourceOverrideTarget@Redfish.AllowableValues"))
        if device is not BootDevice.DEFAULT and offered and _TARGETS[device] not in offered:
            raise BmcLacks(f"{self._here} does not offer the boot device {device}. It offers: {', '.join(offered)}.")

    # Virtual media

    def media(self) -> Sequence[Medium]:
        """Return the virtual drives."""
        return [redfish_readings.medium(one) for one in self._drives()]

    def insert(self, slot: str, uri: str) -> None:
        """Insert an image. User and password in its address are given to the BMC as such."""
        drive, (plain, user, password) = self._drive(slot), _parted(uri)
        if redfish_readings.is_inserted(drive):
            if redfish_readings.image(drive) == plain:
                return
            self.eject(slot)
        self._client.insert(drive["@odata.id"], plain, user, password)

    def eject(self, slot: str) -> None:
        """Empty a drive, and read it back."""
        drive = self._drive(slot)
        if not redfish_readings.is_inserted(drive):
            return
        self._client.eject(drive["@odata.id"])
        if redfish_readings.is_inserted(self._client.get(drive["@odata.id"])):
            raise BmcRefused(f"{self._here} did not eject the image in {slot}.")

    def _drives(self) -> list[Json]:
        """Return the virtual drives: those of the system, or else those of its manager, where they were before 2021."""
        system = self._tree.system()
        own = list(self._tree.read(system, "VirtualMedia"))
        found = own or [one for place in self._tree.managers(system) for one in self._tree.read(place, "VirtualMedia")]
        return [one for one in found if paths(one)]

    def _drive(self, slot: str) -> Json:
        drives = {name_of(one): one for one in self._drives()}
        if slot not in drives:
            names = ", ".join(drives) or "none"
            raise BmcLacks(f"{self._here} has no virtual drive {slot!r}. It has: {names}.")
        return drives[slot]

    # Sensors and events

    def sensors(self) -> Sequence[Sensor]:
        """Read all sensors, with the power that the machine draws, if the BMC measures it."""
        return redfish_sensors.read(self._tree)

    def entries(self, since: dt.datetime | None = None) -> Sequence[LogEntry]:
        """Return the newest entries of the system event log. Empty if the BMC keeps none."""
        start = self._event_log()
        return redfish_readings.newest(self._entries(start), since, MOST_ENTRIES) if start else []

    def _event_log(self) -> str:
        """Return the path of the entries of the event log; empty if there is none."""
        system = self._tree.system()
        services = [
            one for place in (*self._tree.managers(system), system) for one in self._tree.read(place, "LogServices", [])
        ]
        ranked = [(rank, one) for one in services if (rank := redfish_readings.log_rank(one)) is not None]
        if not ranked:
            return ""
        best = min(ranked, key=lambda one: one[0])[1]
        return next(iter(paths(best.get("Entries"))), "")

    def _entries(self, start: str) -> Iterator[LogEntry]:
        """Read entries until there are enough of the newest. Logs begin with the newest or with the oldest entry."""
        found: list[LogEntry] = []
        for number, page in enumerate(self._client.pages(start)):
            members = page.get("Members")
            page_entries = list(self._page(members if isinstance(members, list) else []))
            found += page_entries
            count = page.get("Members@odata.count")
            newest_first = len(found) > 1 and redfish_readings.newest(found, None, 1)[0] is not found[-1]
            if newest_first and len(found) >= MOST_ENTRIES:
                break
            if number == 0 and not newest_first and isinstance(count, int) and count > len(found) + MOST_ENTRIES:
                yield from self._last(start, count)
                return
        yield from found

    def _last(self, start: str, count: int) -> Iterator[LogEntry]:
        """Read the end of a long log that begins with its oldest entry."""
        for page in self._client.pages(f"{start}?$skip={count - MOST_ENTRIES}"):
            members = page.get("Members")
            yield from self._page(members if isinstance(members, list) else [])

    def _page(self, members: list[Any]) -> Iterator[LogEntry]:
        for one in members:
            if isinstance(one, dict):
                whole = "Message" in one or "Created" in one
                yield from map(redfish_readings.entry, [one] if whole else self._tree.resources(paths(one), []))

    # The account

    def login(self) -> Login:
        """Return the account. Of one that may not read accounts, only its name is known."""
        user = self._client.username
        try:
            account = self._account(user)
            role = text(account.get("RoleId"))
            privileges = self._privileges(account)
        except UNREADABLE:
            return Login(user=user)
        lacking = [one for one in _NEEDED if one not in privileges] if privileges else []
        return Login(user=user, role=role, privileges=tuple(privileges), missing=tuple(lacking))

    def open_sessions(self) -> int:
        """Count the sessions of the session service."""
        (place, *_) = paths(links(self._tree.root).get("Sessions")) or ("",)
        if not place:
            raise BmcLacks(f"{self._here} does not list its sessions.")
        return sum(1 for _ in self._client.members(place))

    def _account(self, user: str) -> Json:
        for service in self._tree.resources(paths(self._tree.root.get("AccountService")), None):
            for account in self._tree.read(service, "Accounts", []):
                if account.get("UserName") == user:
                    return account
        return {}

    def _privileges(self, account: Json) -> list[str]:
        for role in self._tree.resources(paths(links(account).get("Role")), None):
            return flat(role.get("AssignedPrivileges"))
        return []

    # Firmware

    def start_update(self, uri: str, targets: Sequence[str] = ()) -> BmcTask:
        """Start an update with the action SimpleUpdate."""
        service = next(self._tree.resources(paths(self._tree.root.get("UpdateService")), None), {})
        target, protocols = self._allowed(service, "#UpdateService.SimpleUpdate", "TransferProtocol")
        plain, user, password = _parted(uri)
        scheme = urlsplit(plain).scheme.upper()
        if not target:
            raise BmcLacks(f"{self._here} cannot fetch firmware from an address.")
        if protocols and scheme not in protocols:
            raise BmcLacks(f"{self._here} fetches firmware by {', '.join(protocols)}, not by {scheme or 'nothing'}.")
        body: Json = {"ImageURI": plain, "TransferProtocol": scheme}
        if user:
            self._client.line.secrets |= {password} - {""}
            body |= {"Username": user, "Password": password}
        if targets:
            body["Targets"] = self._components(targets)
        return started(self._client.start(target, body))

    def _components(self, names: Sequence[str]) -> list[str]:
        """Return the paths of components by their stable names. A path stands for itself."""
        known = {
            inspection.component(one)[0]: paths(one)[0]
            for one in self._tree.firmware()
            if paths(one) and inspection.component(one)[1]
        }
        unknown = [name for name in names if not name.startswith("/") and name not in known]
        if unknown:
            raise BmcLacks(
                f"{self._here} has no firmware component {unknown[0]!r}. It has: {', '.join(sorted(known)) or 'none'}."
            )
        return [name if name.startswith("/") else known[name] for name in names]

    def tasks(self) -> Sequence[str]:
        """Return the paths of the tasks of the task service."""
        return self._tree.tasks()

    def task(self, id: str) -> BmcTask:
        """Read a task by its path."""
        try:
            answer = self._client.status(id)
        except BmcLacks:
            return BmcTask(id=id, state="unknown", message="The BMC does not know the task.")
        except BmcRefused as error:
            return BmcTask(id=id, state="failed", message=error.message[:300])
        return redfish_readings.task(answer.body, id, answer.status)

    # Settings of the firmware

    def settings(self) -> Mapping[str, Any]:
        """Return the BIOS attributes, without passwords."""
        found = member(self._bios(), "Attributes")
        return {name: value for name, value in found.items() if "password" not in name.lower()}

    def set_settings(self, changes: Mapping[str, Any]) -> None:
        """Change BIOS attributes for the next boot."""
        bios = self._bios()
        if unknown := sorted(changes.keys() - member(bios, "Attributes").keys()):
            raise BmcLacks(f"The machine has no BIOS attributes {', '.join(unknown)}.")
        about = member(bios, "@Redfish.Settings")
        body: Json = {"Attributes": dict(changes)}
        if "OnReset" in flat(about.get("SupportedApplyTimes")):
            body["@Redfish.SettingsApplyTime"] = {"ApplyTime": "OnReset"}
        pending = paths(about.get("SettingsObject")) or paths(bios)
        self._client.patch(pending[0], body)

    def _bios(self) -> Json:
        where = paths(self._tree.system().get("Bios"))
        if not where:
            raise BmcLacks(f"{self._here} does not show settings of the firmware.")
        return self._client.get(where[0])

    def secure_boot(self) -> SecureBoot | None:
        """Read Secure Boot."""
        where = paths(self._tree.system().get("SecureBoot"))
        try:
            found = self._client.get(where[0]) if where else {}
        except BmcLacks:
            return None
        if not isinstance(found.get("SecureBootEnable"), bool):
            return None
        current = {"Enabled": True, "Disabled": False}.get(str(found.get("SecureBootCurrentBoot")))
        return SecureBoot(enabled=found["SecureBootEnable"], in_force=current, mode=text(found.get("SecureBootMode")))

    def set_secure_boot(self, enabled: bool) -> None:
        """Switch Secure Boot for the next boot."""
        where = paths(self._tree.system().get("SecureBoot"))
        if not where:
            raise BmcLacks(f"{self._here} does not show Secure Boot.")
        self._client.patch(where[0], {"SecureBootEnable": enabled})


def power_of(system: Json) -> PowerState:
    """Return the power that a system reports."""
    return _POWER.get(str(system.get("PowerState")), PowerState.UNKNOWN)


def _parted(uri: str) -> tuple[str, str, str]:
    """Return an address without its user and password, and these. Raises BmcRefused if it is no address."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise BmcRefused("The address of the image is not a valid one.") from None
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return plain, unquote(parts.username or ""), unquote(parts.password or "")


def started(answer: Answer) -> BmcTask:
    """Return the task by the answer to an action. Its own resource outlives its monitor."""
    own = next(iter(paths(answer.body)), "") if "TaskState" in answer.body else ""
    path = own or answer.location
    if not path:
        return BmcTask(id="", state="done", message="The BMC started no task.")
    return redfish_readings.task(answer.body, path, answer.status if answer.body else 202)
