"""Values for commands, jobs, files, web servers and DPU services of a lease."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    exit_code: int
    signal: int = 0
    duration: float = 0.0
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """A job: a command on a leased host that runs independently of the program that started it."""

    id: int
    lease: int
    command: Sequence[str] | str
    state: str
    exit_code: int | None
    message: str
    ends_lease: bool
    cancelling: bool
    created_at: dt.datetime
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    apart: bool = False
    """Whether the job's standard error is kept separately."""


@dataclass(frozen=True, kw_only=True)
class JobPart:
    """A part of a job's output. The next part begins at `next_offset`.

    If `over` is true, the job has ended and this part is the last one.
    """

    content: bytes
    next_offset: int
    over: bool
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """An entry in a folder of a lease. `kind` is as in `interfaces.files.Kind`, `permissions` an int such as 0o644."""

    name: str
    kind: str
    size: int
    permissions: int
    modified_at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """The status of a leased web server: `stopped`, `running` or `failed`. If it failed, `detail` says why."""

    state: str
    pid: int
    detail: str
    uri: str


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A part of a web server's log. The next part begins at `next_offset`."""

    content: bytes
    next_offset: int


@dataclass(frozen=True, kw_only=True)
class DpuChart:
    """A Helm chart in exactly one version. `repository` begins with `oci://` or `https://`."""

    repository: str
    name: str
    version: str


@dataclass(frozen=True, kw_only=True)
class DpuPort:
    """A port of a DPU service. `protocol` is TCP or UDP."""

    name: str
    port: int
    protocol: str = "TCP"


@dataclass(frozen=True, kw_only=True)
class DpuCredentialInfo:
    """A credential for the cluster of a leased DPU: `pending`, `ready`, `shown`, `expired` or `removing`.

    `messages` say why it is still pending.
    """

    name: str
    state: str
    expires_at: dt.datetime
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DpuChainInfo:
    """A chain on a leased DPU: `pending`, `ready` or `removing`.

    `switches` has the interfaces that each switch connects, such as `p0`, `pf0`, `pf0vf3` or `edge:net1`. `messages`
    say what it waits for.
    """

    name: str
    state: str
    switches: tuple[tuple[str, ...], ...]
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DpuNetworkInfo:
    """A network of a leased DPU: `pending`, `ready` or `removing`.

    It has either a `subnet` that its nodes share, or a `network` that is divided into subnets with `prefix`.
    """

    name: str
    state: str
    messages: tuple[str, ...] = ()
    subnet: str = ""
    gateway: str = ""
    addresses: int | None = None
    network: str = ""
    prefix: int | None = None
    gateway_index: int | None = None
    mtu: int | None = None


@dataclass(frozen=True, kw_only=True)
class DpuVolumeInfo:
    """A volume of a leased DPU: `pending`, `ready` or `removing`.

    `mode` is `block` or `filesystem`. It is attached by a `function` of the card, `pf` or `vf`, which is plugged in for
    it with `hotplug`. `attached` has by which device the host has it: `device`, `pci_address`, `nvme_namespace` and
    `filesystem_tag`, as far as DPF reports them.
    """

    name: str
    state: str
    policy: str
    size_gib: int
    mode: str
    access: str
    function: str
    hotplug: bool
    attached: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DpuVirtualNetwork:
    """A virtual network of a VPC of a leased DPU: a subnet, and the interfaces in it.

    Interfaces are such as `pf0`, `pf0vf3` or `edge:net1`. With `external`, it is routed to the outside, and with
    `masquerade` under an address of the VPC.
    """

    name: str
    subnet: str
    interfaces: tuple[str, ...]
    dhcp: bool = True
    external: bool = False
    masquerade: bool = True


@dataclass(frozen=True, kw_only=True)
class DpuVpcInfo:
    """The VPC of a leased DPU: `pending`, `ready` or `removing`.

    `isolation` is its isolation class. With `routed`, its virtual networks reach one another.
    """

    name: str
    state: str
    isolation: str
    routed: bool
    networks: tuple[DpuVirtualNetwork, ...]
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DpuServiceInfo:
    """A service on a leased DPU: `pending`, `ready`, `failed` or `removing`.

    It is ready if all of its pods are. Otherwise, `messages` say what it waits for or why it failed.
    """

    name: str
    state: str
    messages: tuple[str, ...]
    pods: int
    pods_ready: int
    chart: DpuChart
    ports: tuple[DpuPort, ...] = ()
    labels: Mapping[str, str]
    values: Mapping[str, Any] | None = None
    """The Helm values; None in lists."""
    interfaces: tuple[str, ...] = ()
    """Names of network interfaces of its pods, which chains connect."""
    of_blueprint: bool = False
    """Whether every DPU of the blueprint has it. It cannot be changed or removed, and its values are not shown."""
