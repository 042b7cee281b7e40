"""The machine of a lease: how it is switched, what it is, what is being done to it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from drydock_client.values.leases import Progress
from drydock_client.values.resources import FailureInfo


@dataclass(frozen=True, kw_only=True)
class MachineInfo:
    """A machine. `lease` is the one that was asked about; None when it was asked about by its own number."""

    lease: int | None
    resource: int
    name: str
    kind: str
    state: str
    power: str
    """on or off, where that is known."""
    power_wanted: str
    """on or off: as it is kept; empty: as it is."""
    instance_type: str = ""
    price: float | None = None
    """Per hour, in US dollars."""
    cpu_millicores: int = 0
    ram_mib: int = 0
    disk_gib: int = 0
    """Of its boot disk; 0: as its image says."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Those that were set with `set_tags`."""
    capabilities: tuple[str, ...] = ()
    """What can be done to it: stop-start, reboot, resize-volume, change-type, tags, console-output."""
    progress: Progress | None = None
    """What is being done to it now."""
    act: str = ""
    """What was asked last: reboot, resize, change-type, tag; and what came of it, as far as that is known."""
    outcome: str = ""
    """asked, done or failed."""
    message: str = ""
    at: dt.datetime | None = None
    failure: FailureInfo | None = None
    """The act that failed last, also one that is repeated by itself."""


@dataclass(frozen=True, kw_only=True)
class ConsoleInfo:
    """What a machine wrote on its console: the newest 64 KiB, without secrets."""

    resource: int
    text: str
    at: dt.datetime
    """When it was read."""


@dataclass(frozen=True, kw_only=True)
class HostKey:
    """One key by which a host is known: as an OpenSSH line, and its SHA256 fingerprint."""

    key: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Bastion:
    """The host to pass through on the way to a lease, where its own account and key are needed."""

    host: str
    port: int
    user: str
    host_keys: tuple[HostKey, ...]


@dataclass(frozen=True, kw_only=True)
class AccessInfo:
    """How a lease is reached by SSH, as of now: the receipt that its owner works with. No secret is in it."""

    lease: int
    host: str
    port: int
    user: str
    host_keys: tuple[HostKey, ...]
    valid_until: dt.datetime | None
    """When the lease ends; None: when it is released."""
    home: str = ""
    command: str = ""
    """A line for a shell."""
    known_hosts: str = ""
    """Lines for ~/.ssh/known_hosts."""
    ssh_config: str = ""
    """An entry for ~/.ssh/config."""
    own_keys: bool = False
    """The owner gave public keys of their own; else `drydock key` shows the private half that was made."""
    bastion: Bastion | None = None
    """The host to pass through first."""
