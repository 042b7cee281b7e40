"""The machine of a lease: its power, its instance type, and the actions on it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from drydock_client.values.leases import Progress
from drydock_client.values.resources import FailureInfo


@dataclass(frozen=True, kw_only=True)
class MachineInfo:
    """A machine. `lease` is the lease through which the machine was requested, or None for a request by resource."""

    lease: int | None
    resource: int
    name: str
    kind: str
    state: str
    power: str
    """`on` or `off`, if known."""
    power_wanted: str
    """The power state in which the machine is kept, `on` or `off`; empty if its power is left unchanged."""
    instance_type: str = ""
    price: float | None = None
    """Price of the machine in US dollars per hour; None if unknown."""
    cpu_millicores: int = 0
    ram_mib: int = 0
    disk_gib: int = 0
    """Size of the boot disk; 0 if it is the default of the image."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags that were set with `set_tags`."""
    capabilities: tuple[str, ...] = ()
    """The actions that the machine supports: stop-start, reboot, resize-volume, change-type, tags, console-output."""
    progress: Progress | None = None
    """The action under way."""
    act: str = ""
    """The last requested action: reboot, resize, change-type or tag."""
    outcome: str = ""
    """The state of the action in `act`: asked, done or failed."""
    message: str = ""
    at: dt.datetime | None = None
    failure: FailureInfo | None = None
    """The last failed action, including one that is being retried."""


@dataclass(frozen=True, kw_only=True)
class ConsoleInfo:
    """The last 64 KiB of a machine's console output, with secrets removed."""

    resource: int
    text: str
    at: dt.datetime
    """The time at which the output was read."""
    source: str = "provider"
    """Where the output comes from: the `provider` of the machine, or the `record` of what was printed while somebody
    was attached."""
    attachable: bool = False
    """Whether programs can attach to the console, to read and type."""
    attached: tuple[str, ...] = ()
    """The users who are attached."""
    writer: str = ""
    """The user who may type; empty if nobody may."""


@dataclass(frozen=True, kw_only=True)
class ConsolePart:
    """A part of the output of a console, and who is attached."""

    lease: int
    session: str
    """The attachment for which the part was read; empty if it was read without one."""
    state: str
    """`opening`, `open`, or `closed` if this attachment has ended."""
    output: str
    """The bytes, without secrets, in base64."""
    offset: int
    """The offset of the first byte. It is greater than requested if older bytes are no longer kept."""
    next_offset: int
    """The offset of the next part."""
    writing: bool = False
    """Whether this attachment may type."""
    writer: str = ""
    """The user who may type; empty if nobody may."""
    attached: int = 0
    """The number of attachments."""
    typed: int = 0
    """The number of the last input that was accepted from the writer."""
    revision: int = 0
    """Changes with everything but the output. Give it when you read the next part, to be told at once."""
    message: str = ""
    """Why the console is closed, if it is."""


@dataclass(frozen=True, kw_only=True)
class HostKey:
    """A public key of a host, as an OpenSSH line and with its SHA256 fingerprint."""

    key: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Bastion:
    """The jump host through which a lease is reached, with an account and a key of its own."""

    host: str
    port: int
    user: str
    host_keys: tuple[HostKey, ...]


@dataclass(frozen=True, kw_only=True)
class AccessInfo:
    """How to reach a lease by SSH now. Contains no secrets."""

    lease: int
    host: str
    port: int
    user: str
    host_keys: tuple[HostKey, ...]
    valid_until: dt.datetime | None
    """The time at which the lease ends; None if it lasts until it is released."""
    home: str = ""
    command: str = ""
    """The command line that logs in."""
    known_hosts: str = ""
    """Lines for ~/.ssh/known_hosts."""
    ssh_config: str = ""
    """An entry for ~/.ssh/config."""
    own_keys: bool = False
    """Whether the owner gave public keys; otherwise `drydock key` shows the generated private key."""
    bastion: Bastion | None = None
    """The jump host, if there is one."""
