"""The driver `command`: switches that a program of the operator's controls, on the server that Drydock runs on.

The program is called as `PROGRAM ACTION SWITCH PORT [NETWORK]`. It gets the credential as a JSON object on its standard
input. docs/networks.md is its specification.

Blueprints only name a program. Which ones there are is up to the installation: the files in the folder
`DRYDOCK_NETWORK_COMMANDS` that nobody else can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from blueprints import programs
from blueprints.contract import Fields
from blueprints.networks.contract import Access, NetworkDriver, NetworkName, Port
from blueprints.networks.errors import (
    NetworkAnswerInvalid,
    NetworkBusy,
    NetworkError,
    NetworkLoginRefused,
    NetworkRefused,
    NetworkUnknown,
    NetworkUnreachable,
)
from blueprints.programs import Faults, Name, Program, Target

FOLDER = "DRYDOCK_NETWORK_COMMANDS"
"""The environment variable with the folder of the programs."""
EXITS: Mapping[int, tuple[type[NetworkError], str]] = {
    64: (NetworkUnknown, "does not know the port or the network"),
    69: (NetworkUnreachable, "cannot reach the switch"),
    75: (NetworkBusy, "asks to try again later"),
    76: (NetworkAnswerInvalid, "does not understand the switch's answer"),
    77: (NetworkLoginRefused, "says that the credential was refused"),
}
"""Exit codes with a meaning, after sysexits.h. All others are refusals."""
FAULTS = Faults(
    general=NetworkError, late=NetworkUnreachable, invalid=NetworkAnswerInvalid, refused=NetworkRefused, exits=EXITS
)


class Settings(Fields):
    """How the program is called."""

    program: Name = Field(description=f"Name of a program in the folder {FOLDER} of the installation.")
    ids: dict[NetworkName, Target] = Field(
        default_factory=dict,
        max_length=1000,
        description="What the program gets for each network, such as its VLAN ID. Empty: the names themselves.",
    )


class Credential(Fields):
    """The credential that the program reads from its standard input. Leave out the fields that it does not need."""

    username: str = Field(default="", max_length=1000)
    password: str = Field(default="", max_length=10_000)
    token: str = Field(default="", max_length=10_000)
    private_key: str = Field(default="", max_length=20_000)


class _Read(Fields):
    """The answer to check."""

    networks: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(max_length=4096)


class CommandNetworks(NetworkDriver):
    """Switches networks by the operator's programs."""

    name: ClassVar[str] = "command"
    Settings = Settings
    Credential = Credential

    def ids(self, settings: Any) -> Mapping[str, str] | None:
        """Return what the program gets for each network; None if it gets the names."""
        return settings.ids or None

    def attach(self, access: Access, port: Port, network: str) -> None:
        """Call `attach`, which must succeed if the port is attached already."""
        self._program(access).call("attach", *_words(access, port, network), environment=_about(port))

    def detach(self, access: Access, port: Port, network: str) -> None:
        """Call `detach`, which must succeed if the port is not attached."""
        self._program(access).call("detach", *_words(access, port, network), environment=_about(port))

    def check(self, access: Access, port: Port) -> frozenset[str]:
        """Call `check`, and translate what it prints to the names of networks."""
        found = self._program(access).read(_Read, "check", port.switch, port.port, environment=_about(port))
        names = {there: name for name, there in access.settings.ids.items()}
        return frozenset(names.get(one, one) for one in found.networks)

    def _program(self, access: Access) -> Program:
        """Look the program up. Raises NetworkError if the installation does not allow it."""
        return Program(
            path=programs.allowed(access.settings.program, FOLDER, NetworkError, "the control of networks"),
            faults=FAULTS, deadline=access.deadline, seconds_in="DRYDOCK_NETWORK_SECONDS",
            given={name: value for name, value in access.credential.items() if value},
        )  # fmt: skip


def _words(access: Access, port: Port, network: str) -> tuple[str, str, str]:
    ids = access.settings.ids
    if ids and network not in ids:
        raise NetworkUnknown(f"The network {network} is not among the ids in the settings of the driver.")
    return port.switch, port.port, ids.get(network, network)


def _about(port: Port) -> dict[str, str]:
    return {"DRYDOCK_NETWORK_MAC": port.mac} if port.mac else {}
