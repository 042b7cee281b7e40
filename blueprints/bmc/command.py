"""The driver `command`: machines that a program of the operator's controls, on the server that Drydock runs on.

The program is called as `PROGRAM ACTION ADDRESS`. It gets the credential as a JSON object on its standard input, and
answers with a JSON object on its standard output. docs/bmc.md is its specification.

Registrations only name a program. Which ones there are is up to the installation: the files in the folder
`DRYDOCK_BMC_COMMANDS` that nobody else can change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, NonNegativeInt, ValidationError

from blueprints.bmc.command_process import finished
from blueprints.bmc.contract import Bmc, BmcDriver
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.texts import serial_of, shown
from blueprints.bmc.values import Inventory, Nic, PowerAction, PowerState
from blueprints.contract import Fields
from blueprints.identities import real
from interfaces.deadline import Deadline

FOLDER = "DRYDOCK_BMC_COMMANDS"
"""The environment variable with the folder of the programs."""
VERBS: Mapping[PowerAction, str] = {
    PowerAction.ON: "power-on",
    PowerAction.OFF: "power-off",
    PowerAction.SHUTDOWN: "shutdown",
    PowerAction.RESET: "reset",
    PowerAction.CYCLE: "cycle",
    PowerAction.NMI: "nmi",
}
EXITS: Mapping[int, tuple[type[BmcError], str]] = {
    64: (BmcLacks, "does not offer the action"),
    69: (BmcUnreachable, "cannot reach the machine's controller"),
    75: (BmcBusy, "asks to try again later"),
    76: (BmcAnswerInvalid, "does not understand the controller's answer"),
    77: (BmcLoginRefused, "says that the credential was refused"),
}
"""Exit codes with a meaning, after sysexits.h. All others are refusals."""
Printed = TypeVar("Printed", bound=Fields)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _plain(text: str) -> str:
    if text in (".", "..") or "//" in text:
        raise ValueError("this is not a name or address")
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), AfterValidator(_plain)]
Target = Annotated[str, Field(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._:/@,=+%\[\]-]{0,199}$"), AfterValidator(_plain)]


class Access(Fields):
    """How one machine is controlled by a program."""

    program: Name = Field(description=f"Name of a program in the folder {FOLDER} of the installation.")
    address: Target = Field(
        description="What the program gets as the address: a host, an outlet such as strip-3/7, or whatever it expects."
    )


class Credential(Fields):
    """The credential that the program reads from its standard input. Leave out the fields that it does not need."""

    username: str = Field(default="", max_length=1000)
    password: str = Field(default="", max_length=10_000)
    token: str = Field(default="", max_length=10_000)


class _Power(Fields):
    """The answer to power-status."""

    power: PowerState
    actions: frozenset[PowerAction] = frozenset(PowerAction)


class _Port(Fields):
    """A network port in the answer to inspect."""

    name: str = Field(max_length=200)
    mac: str = Field(pattern=r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")


_Short = Annotated[str, Field(max_length=200)]


class _Machine(Fields):
    """The answer to inspect."""

    vendor: _Short = ""
    model: _Short = ""
    serial: _Short = ""
    sku: _Short = ""
    uuid: _Short = ""
    bios_version: _Short = ""
    bmc_version: _Short = ""
    arch: _Short = ""
    cpus: NonNegativeInt | None = None
    threads: NonNegativeInt | None = None
    memory_mib: NonNegativeInt | None = None
    health: Literal["", "ok", "degraded", "failed"] = ""
    nics: tuple[_Port, ...] = Field(default=(), max_length=200)


class CommandSession(Bmc):
    """Calls the program, each time within what is left of the deadline."""

    def __init__(self, path: Path, access: Access, credential: Mapping[str, str], deadline: Deadline) -> None:
        self._path, self._access, self._deadline = path, access, deadline
        self._credential = {name: value for name, value in credential.items() if value}

    def close(self) -> None:
        """Do nothing, because no process outlives a call."""

    def inspect(self) -> Inventory:
        """Call `inspect`. A program that does not offer it describes nothing."""
        try:
            found = self._read(_Machine, "inspect")
        except BmcLacks as error:
            return Inventory(missing=(error.message,))
        names = {"dmi_uuid": found.uuid, serial_of(found.vendor): found.serial}
        macs = tuple(one for nic in found.nics for one in real({"mac": nic.mac}))
        return Inventory(
            **found.model_dump(exclude={"nics", "uuid"}),
            uuid=found.uuid.lower(),
            identities=(*real(names), *dict.fromkeys(macs)),
            nics=tuple(Nic(name=nic.name, mac=nic.mac.lower()) for nic in found.nics),
        )

    def power(self) -> PowerState:
        """Call `power-status`."""
        return self._read(_Power, "power-status").power

    def power_actions(self) -> frozenset[PowerAction]:
        """Call `power-status`, whose answer may list the actions. Without a list, all are tried."""
        return self._read(_Power, "power-status").actions

    def switch(self, action: PowerAction) -> None:
        """Call the program with the action, which must succeed if the machine already has the power."""
        self._call(VERBS[action])

    def _read(self, model: type[Printed], verb: str) -> Printed:
        output = self._call(verb)
        try:
            return model.model_validate_json(output)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            what = shown(f"{where}: {first['msg']}" if where else first["msg"], self._credential.values())
            raise BmcAnswerInvalid(f"{self._named(verb)} printed no valid answer: {what}.") from None

    def _call(self, verb: str) -> bytes:
        if self._deadline.expired:
            raise BmcUnreachable(f"{self._named(verb)} was not called, because no time was left.")
        words = [str(self._path), verb, self._access.address]
        try:
            done = finished(words, self._credential, self._deadline)
        except OSError as error:
            raise BmcError(f"{self._named(verb)} cannot be started: {error.strerror}.") from None
        if done.late:
            raise BmcUnreachable(f"{self._named(verb)} took longer than {self._deadline.seconds:.3g} s, and was ended.")
        if done.too_long:
            raise BmcAnswerInvalid(f"{self._named(verb)} printed more than 1 MiB, and was ended.")
        if done.code:
            raise self._failed(verb, done.code, done.errors)
        return done.output

    def _failed(self, verb: str, code: int, errors: bytes) -> BmcError:
        ended = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        kind, what = EXITS.get(code, (BmcRefused, ended))
        said = shown(errors, self._credential.values())
        return kind(f"{self._named(verb)} {what}" + (f": {said}" if said else "."))

    def _named(self, verb: str) -> str:
        return f"The program {self._access.program} ({verb} {self._access.address})"


class CommandDriver(BmcDriver):
    """Controls machines by the operator's programs."""

    name: ClassVar[str] = "command"
    Access = Access
    Credential = Credential

    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> CommandSession:
        """Look the program up. Raises BmcError if the installation does not allow it. Calls nothing."""
        return CommandSession(_allowed(access.program), access, credential, Deadline(deadline))

    def identity(self, access: Any) -> str:
        """Return the program and the address."""
        return f"{access.program}:{access.address}"


def _allowed(name: str) -> Path:
    """Return the path of a program that the installation allows."""
    chosen = os.environ.get(FOLDER, "")
    if not chosen:
        raise BmcError(
            "This installation allows no programs for the control of machines.",
            hint=f"Set {FOLDER} to a folder with the programs.",
        )
    folder = Path(chosen)
    if not folder.is_absolute():
        raise BmcError(f"{FOLDER} must be an absolute path.")
    for place in (folder, *folder.parents):
        _check_folder(place)
    path = folder / name
    try:
        found = path.lstat()
    except OSError:
        raise BmcError(f"There is no program {name} in {folder}.") from None
    if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
        raise BmcError(f"{path} is not an executable file.", hint="Links are not followed.")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_WRITE:
        raise BmcError(f"Others can change {path}.", hint="It must belong to root or Drydock's user: chmod go-w.")
    return path


def _check_folder(folder: Path) -> None:
    try:
        found = folder.lstat()
    except OSError as error:
        raise BmcError(f"The folder {folder} of {FOLDER} cannot be read: {error.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise BmcError(f"{folder} in {FOLDER} is not a folder.", hint="Links are not followed.")
    # In a sticky folder such as /tmp, others cannot rename what is not theirs.
    open_to_others = found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX
    if found.st_uid not in (0, os.geteuid()) or open_to_others:
        raise BmcError(
            f"Others can change the folder {folder}.", hint="It must belong to root or Drydock's user: chmod go-w."
        )
