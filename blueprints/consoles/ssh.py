"""The driver `ssh`: consoles behind an SSH server, such as a terminal server, or a BMC with one over SSH."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from blueprints.accounts.control import ControlAccount
from blueprints.consoles.contract import ConsoleDriver
from blueprints.contract import Fields
from interfaces.console.contract import Line
from interfaces.deadline import Deadline
from interfaces.ssh.serial import SshLine


class Access(ControlAccount):
    """How a console is reached over SSH."""

    user: str = Field(description="The account that leads to the console.")
    command: str = Field(
        default="",
        max_length=500,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description='Command that connects to the console, such as "connect com2" or "console 7". Empty: logging in '
        "leads to it.",
    )


class Credential(Fields):
    """The login to the SSH server."""

    private_key: str = Field(min_length=1, description="OpenSSH private key, without a passphrase.")


class SshConsole(ConsoleDriver):
    """Opens consoles over SSH, in a terminal."""

    name: ClassVar[str] = "ssh"
    Access = Access
    Credential = Credential

    def connect(self, access: Any, credential: Mapping[str, str], *, deadline: Deadline, take: bool) -> Line:
        """Log in with the pinned host key, and run the command. The server decides what it does with another session.

        Raises Unreachable, HostKeyMismatch, AuthenticationRefused, ConnectionLost, DeadlineExceeded.
        """
        return SshLine.opened(access.endpoint(), credential["private_key"], access.command, deadline)
