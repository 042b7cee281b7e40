"""The driver `command`: machines that a program of the operator's controls, on the server that Drydock runs on.

The program is called as `PROGRAM ACTION ADDRESS`. It gets the credential as a JSON object on its standard input, and
answers with a JSON object on its standard output. docs/bmc.md is its specification.

Registrations only name a program. Which ones there are is up to the installation: the files in the folder
`DRYDOCK_BMC_COMMANDS` that nobody else can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from blueprints import programs
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
from blueprints.bmc.texts import serial_of
from blueprints.bmc.values import Inventory, Nic, PowerAction, PowerState
from blueprints.contract import Fields
from blueprints.identities import real
from blueprints.programs import Faults, Name, Program, Target
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
FAULTS = Faults(general=BmcError, late=BmcUnreachable, invalid=BmcAnswerInvalid, refused=BmcRefused, exits=EXITS)


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

    def __init__(self, program: Program, address: str) -> None:
        self._program, self._address = program, address

    def close(self) -> None:
        """Do nothing, because no process outlives a call."""

    def inspect(self) -> Inventory:
        """Call `inspect`. A program that does not offer it describes nothing."""
        try:
            found = self._program.read(_Machine, "inspect", self._address)
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
        return self._program.read(_Power, "power-status", self._address).power

    def power_actions(self) -> frozenset[PowerAction]:
        """Call `power-status`, whose answer may list the actions. Without a list, all are tried."""
        return self._program.read(_Power, "power-status", self._address).actions

    def switch(self, action: PowerAction) -> None:
        """Call the program with the action, which must succeed if the machine already has the power."""
        self._program.call(VERBS[action], self._address)


class CommandDriver(BmcDriver):
    """Controls machines by the operator's programs."""

    name: ClassVar[str] = "command"
    Access = Access
    Credential = Credential

    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> CommandSession:
        """Look the program up. Raises BmcError if the installation does not allow it. Calls nothing."""
        program = Program(
            path=allowed(access.program), faults=FAULTS, deadline=Deadline(deadline), seconds_in="DRYDOCK_BMC_SECONDS",
            given={name: value for name, value in credential.items() if value},
        )  # fmt: skip
        return CommandSession(program, access.address)

    def identity(self, access: Any) -> str:
        """Return the program and the address."""
        return f"{access.program}:{access.address}"


def allowed(name: str) -> Path:
    """Return the path of a program that the installation allows. Raises BmcError."""
    return programs.allowed(name, FOLDER, BmcError, "the control of machines")
