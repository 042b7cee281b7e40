"""Configuration for the system's `ssh`: one host by its pinned keys, its bastion, and the key to log in with.

Every value is checked or escaped, so that none becomes an option, a further line, or a token that `ssh` expands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drydock.core.errors import InvalidRequest
from interfaces.endpoints import SshEndpoint

_FIXED = (
    ("GlobalKnownHostsFile", "/dev/null"),
    ("StrictHostKeyChecking", "yes"),
    ("UpdateHostKeys", "no"),
    ("PreferredAuthentications", "publickey"),
    ("ForwardAgent", "no"),
    ("ForwardX11", "no"),
    ("ControlPath", "none"),
    ("ServerAliveInterval", "15"),
    ("ServerAliveCountMax", "3"),
)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What to log in with: an agent that has the only key, else files, else what `ssh` tries by itself."""

    agent: Path | None = None
    files: tuple[Path, ...] = ()

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Options and their values."""
        if self.agent is not None:
            return [("IdentityAgent", path(self.agent)), ("IdentityFile", "none")]
        only = [("IdentitiesOnly", "yes")] if self.files else []
        return [("IdentityFile", path(file)) for file in self.files] + only


def entry(
    names: Sequence[str], there: SshEndpoint, *, known_hosts: Path, identity: Identity, jump: str = "",
    proxy_command: str = "",
) -> str:  # fmt: skip
    """An entry of a configuration file. The first name is also the one under which `known_hosts_of` lists the keys.

    `jump` names the entry of the bastion; `proxy_command` is a line for the shell that connects instead.
    """
    lines = [
        ("HostName", there.host.replace("%", "%%")), ("Port", str(there.port)), ("User", there.user),
        ("HostKeyAlias", names[0]), ("UserKnownHostsFile", path(known_hosts)), *_FIXED, *identity.lines,
    ]  # fmt: skip
    if proxy_command:
        lines.append(("ProxyCommand", one_line(proxy_command).replace("%", "%%")))
    elif jump:
        lines.append(("ProxyJump", jump))
    return f"Host {' '.join(names)}\n" + "".join(f"    {option} {value}\n" for option, value in lines)


def known_hosts_of(name: str, there: SshEndpoint) -> str:
    """Lines of a known_hosts file: the pinned keys of a host under this name."""
    return "".join(f"{name} {key}\n" for key in there.host_keys)


def path(file: Path) -> str:
    """A path as a value of a configuration file. Raises InvalidRequest for one that cannot be written there."""
    text = one_line(str(file))
    if '"' in text or "${" in text:
        raise InvalidRequest(f"The path {text} cannot be used in a configuration of ssh.", field="path")
    return f'"{text.replace("%", "%%")}"'


def one_line(text: str) -> str:
    """The text as it is. Raises InvalidRequest when it has control characters."""
    if not text.isprintable():
        raise InvalidRequest(f"{text!r} cannot be used in a configuration of ssh.", field="path")
    return text
