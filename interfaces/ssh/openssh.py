"""Configuration for the system's `ssh`: a host with its pinned keys, its bastion, and the login key.

Every value is checked or escaped, so that it cannot become an option, another line, or a token that `ssh` expands.
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
    """The login credentials: an agent with the only key, key files, or the defaults of `ssh`."""

    agent: Path | None = None
    files: tuple[Path, ...] = ()

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The options and their values."""
        if self.agent is not None:
            return [("IdentityAgent", path(self.agent)), ("IdentityFile", "none")]
        only = [("IdentitiesOnly", "yes")] if self.files else []
        return [("IdentityFile", path(file)) for file in self.files] + only


def entry(
    names: Sequence[str], there: SshEndpoint, *, known_hosts: Path, identity: Identity, jump: str = "",
    proxy_command: str = "",
) -> str:  # fmt: skip
    """Return a Host entry for an ssh_config file.

    Host keys are looked up under `names[0]`, so pass that name to `known_hosts_of`. `jump` names the entry of the
    bastion. `proxy_command`, if given, makes the connection instead.
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
    """Return known_hosts lines with the pinned keys of a host, under the given name."""
    return "".join(f"{name} {key}\n" for key in there.host_keys)


def path(file: Path) -> str:
    """Return a path as a value for a configuration file. Raises InvalidRequest if it contains invalid characters."""
    text = one_line(str(file))
    if '"' in text or "${" in text:
        raise InvalidRequest(f"The path {text} cannot be used in an SSH configuration.", field="path")
    return f'"{text.replace("%", "%%")}"'


def one_line(text: str) -> str:
    """Return the text unchanged. Raises InvalidRequest if it has control characters."""
    if not text.isprintable():
        raise InvalidRequest(f"{text!r} cannot be used in an SSH configuration.", field="path")
    return text
