"""Request bodies, except those for which the engine has models, such as `LeaseRequest`."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, StrictBool, StrictInt, WithJsonSchema

from drydock_client.jobs import LONGEST_STDIN
from leases.operations.machines import LARGEST_DISK_GIB
from leases.validation.fields import SPAN_TEXT, Moment, Word
from leases.validation.requests import LARGEST_GROUP, MemberRequest

_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _octets(given: Any) -> Any:
    if isinstance(given, str):
        try:
            return base64.b64decode(given.encode("ascii"), validate=True)
        except ValueError:
            raise ValueError("it is not valid base64") from None
    raise ValueError("it must be text")


Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=63)]
Holder = Annotated[str, Field(max_length=150)]
Span = Annotated[
    str, WithJsonSchema(SPAN_TEXT | {"description": 'Such as "90s", "2h" or "1h30m".'}), Field(max_length=63)
]
_OCTETS = {"type": "string", "contentEncoding": "base64", "pattern": _BASE64, "maxLength": LONGEST_STDIN * 4 // 3 + 4}
Octets = Annotated[bytes, BeforeValidator(_octets), WithJsonSchema(_OCTETS)]
Seconds = Annotated[float, Strict(), Field(gt=0, le=315_360_000)]
Json = dict[str, Any]
Count = Annotated[StrictInt, Field(ge=0, lt=1 << 31)]
Order = Annotated[StrictInt, Field(ge=-(1 << 31), lt=1 << 31)]


class Body(BaseModel):
    """A JSON object. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class ConsoleInput(Body):
    """What is typed at a console."""

    session: Annotated[str, Field(max_length=36, description="A session that attaching has returned.")]
    sequence: Annotated[StrictInt, Field(ge=1, lt=1 << 62, description="One more than the number of the input before.")]
    content: Annotated[Octets, Field(description="The bytes in base64: at most 8 KiB.")]


class Message(Body):
    """An optional message that explains the request."""

    message: Text = ""


class DryRun(Body):
    """If `dry_run` is true, only report what would be done."""

    dry_run: StrictBool = False


class Extension(Body):
    """Extend a lease either by `ttl`, counted from now, or `until` a time."""

    ttl: Span | None = None
    until: Moment = None


class Hold(Body):
    """The time for which to keep the resource as it is: one day by default."""

    ttl: Span | None = None
    reason: Text = ""


class Group(Body):
    """A request for leases that are granted all together or not at all."""

    leases: Annotated[list[MemberRequest], Field(min_length=1, max_length=LARGEST_GROUP)]
    same: Annotated[
        Literal["", "resource", "parent", "host", "whole"],
        Field(
            description="Place all leases on one `resource`, below one `parent`, or in one `host`: on the host itself "
            "or on the devices in it. With `whole`, also build resources on devices of that host, such as a DPU on a "
            "card. All leases are granted once everything is built."
        ),
    ] = ""
    different: Annotated[
        Literal["", "resource", "parent"],
        Field(description="Place each lease on a different `resource`, or below a different `parent`."),
    ] = ""
    near: Annotated[
        Literal["", "prefer", "require"],
        Field(
            description="Implies `same: host`, and is not allowed with `whole`. With `prefer`, the free devices "
            "nearest one another are chosen; with `require`, the leases wait for devices that share a place narrower "
            "than the host, such as a NUMA node."
        ),
    ] = ""


class Job(Body):
    """A command to run: a list of exact arguments, or one line for a shell."""

    command: Annotated[list[str], Field(min_length=1, max_length=1000)] | Annotated[str, Field(min_length=1)]
    env: Annotated[dict[str, str], Field(max_length=1000)] = {}
    cwd: Annotated[str, Field(max_length=4096)] = ""
    stdin: Annotated[Octets, Field(description=f"Standard input in base64; at most {LONGEST_STDIN} bytes.")] = b""
    apart: Annotated[StrictBool, Field(description="Keep standard error separately.")] = False
    ends_lease: Annotated[StrictBool, Field(description="Release the lease when the job ends.")] = False


class ServerAct(Body):
    """An action on the web server; `test` only checks its configuration."""

    act: Literal["start", "stop", "restart", "reload", "test"]


class DpuServiceChart(Body):
    """A Helm chart that the config of the blueprint allows, in exactly one version."""

    repository: Annotated[str, Field(max_length=2000, description="Begins with oci:// or https://.")]
    name: Annotated[str, Field(max_length=128)]
    version: Annotated[str, Field(max_length=128)]


class DpuServicePort(Body):
    """A port of a DPU service."""

    name: Annotated[str, Field(max_length=15)]
    port: Annotated[StrictInt, Field(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP"] = "TCP"


class DpuService(Body):
    """A service on a DPU. Drydock sets namespace, cluster and node."""

    chart: DpuServiceChart
    values: Annotated[
        Json | None,
        Field(description="Helm values: at most 64 KiB, 20 levels deep, without null and without node selectors."),
    ] = None
    ports: Annotated[list[DpuServicePort], Field(max_length=32)] = []
    labels: Annotated[
        dict[str, str] | None, Field(max_length=32, description="Labels of the pods, not of reserved domains.")
    ] = None
    interfaces: Annotated[
        list[Annotated[str, Field(max_length=15)]],
        Field(max_length=8, description="Names of network interfaces of the pods, which chains connect."),
    ] = []


class DpuChain(Body):
    """A chain on a DPU: switches, each with the interfaces that it connects. Drydock sets node and cluster."""

    switches: Annotated[
        list[Annotated[list[Annotated[str, Field(max_length=110)]], Field(max_length=32)]],
        Field(
            min_length=1, max_length=8,
            description="Interfaces are `p0` (a network port), `pf0` (the host's function), `pf0vf3` (a virtual "
            "function), `edge:net1` (an interface of a service) and `edge:net1@blue` (with an address of a network).",
        ),
    ]  # fmt: skip


class DpuNetwork(Body):
    """A network of a DPU: a subnet, or a network that is divided. Drydock sets node and cluster."""

    subnet: Annotated[str, Field(max_length=18, description="A range that nodes share, such as 10.20.1.0/24.")] = ""
    gateway: Annotated[str, Field(max_length=15, description="Address of its gateway; by default the first one.")] = ""
    addresses: Annotated[StrictInt | None, Field(description="Addresses of a node, 16 by default.")] = None
    network: Annotated[str, Field(max_length=18, description="A range that is divided, such as 10.20.0.0/20.")] = ""
    prefix: Annotated[StrictInt | None, Field(description="Prefix of the subnet of a node.")] = None
    gateway_index: Annotated[StrictInt | None, Field(description="Number of the gateway's address in it.")] = None
    mtu: Annotated[StrictInt | None, Field(description="MTU of the interfaces. DPF 24.10 cannot set it.")] = None


class DpuVolume(Body):
    """A volume of a DPU. Drydock sets the host to which it is attached."""

    policy: Annotated[str, Field(max_length=253, description="Storage policy that the blueprint allows.")]
    size_gib: Annotated[StrictInt, Field(description="Size in GiB.")]
    mode: Literal["block", "filesystem"] = "block"
    access: Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"] = "ReadWriteOnce"
    function: Annotated[Literal["pf", "vf"], Field(description="What the card emulates for it in the host.")] = "pf"
    hotplug: Annotated[
        StrictBool | None, Field(description="Whether the function is plugged in for it: by default a `pf` is.")
    ] = None


class DpuVirtualNetwork(Body):
    """A virtual network of a VPC."""

    name: Annotated[str, Field(max_length=40)]
    subnet: Annotated[str, Field(max_length=18, description="Such as 10.30.1.0/24. Its first address routes.")]
    interfaces: Annotated[
        list[Annotated[str, Field(max_length=110)]],
        Field(
            min_length=1, max_length=32,
            description="Interfaces in it: `pf0` (the host's function), `pf0vf3` (a virtual function) and `edge:net1` "
            "(an interface of a service).",
        ),
    ]  # fmt: skip
    dhcp: Annotated[StrictBool, Field(description="Give the interfaces their addresses by DHCP.")] = True
    external: Annotated[StrictBool, Field(description="Route it to the outside.")] = False
    masquerade: Annotated[StrictBool, Field(description="With `external`: under an address of the VPC.")] = True


class DpuVpc(Body):
    """A VPC of a DPU, which is in one VPC at most. Drydock sets node and tenant."""

    isolation: Annotated[str, Field(max_length=253, description="Isolation class that the blueprint allows.")]
    networks: Annotated[list[DpuVirtualNetwork], Field(min_length=1, max_length=8)]
    routed: Annotated[StrictBool, Field(description="Whether its virtual networks reach one another.")] = False


class DpuCredential(Body):
    """How long a credential of a DPU is valid, from 10 minutes to the limit of the blueprint's config."""

    ttl: Span


class Reason(Body):
    """An optional reason for the request."""

    reason: Text = ""


class NeededMessage(Body):
    """A required message that explains the request."""

    message: Annotated[str, Field(min_length=1, max_length=2000)]


class NeededReason(Body):
    """A required reason for the request."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class ActArguments(Body):
    """The arguments of an act, as the list of acts describes them."""

    arguments: Json = {}


class Empty(Body):
    """An empty object."""


class AskAuthorization(Body):
    """A request for permission to use a blueprint, with an optional message for the operators."""

    blueprint: Name
    message: Text = ""


class NewToken(Body):
    """A token to create.

    Its scope (`read`, `lease`, or `operate` for operators) cannot exceed that of the token used to create it.
    """

    name: Name
    scope: Literal["read", "lease", "operate"] = "lease"
    ttl: Annotated[
        Span | None,
        Field(description="How long the token is valid. Default: 90 days, or less if limited."),
    ] = None
    user: Annotated[Holder | None, Field(description="For operators: the user of the token.")] = None


class NewJoinCode(Body):
    """A code with which one agent may join a blueprint."""

    blueprint: Name
    host: Annotated[
        str, Field(max_length=255, description="Name or id of the host that may use it. Empty: any host.")
    ] = ""
    ttl: Annotated[Span | None, Field(description="How long the code is valid: at most, and by default, 1 h.")] = None


class NewAgent(Body):
    """Where an agent that is installed on a host joins."""

    server: Annotated[str, Field(max_length=500, description="Address at which the host reaches this server.")]
    blueprint: Annotated[str, Field(max_length=63, description="Empty: the only one that takes reports of it.")] = ""
    ca: Annotated[str, Field(max_length=262_144, description="Certificates in PEM that the agent trusts.")] = ""
    start: Annotated[StrictBool, Field(description="Whether to start it as a systemd unit.")] = True


class NewAgentOrder(Body):
    """An order for an agent."""

    action: Literal["discovery", "upgrade"] = "discovery"


class Attestation(Body):
    """The nonce and the measurements that a quote must contain. Without a nonce, the server creates one."""

    kind: Annotated[
        Literal["tdx", "tpm"],
        Field(description="tdx: a confidential virtual machine. tpm: the TPM of an enrolled host."),
    ] = "tdx"
    nonce: Annotated[
        str, Field(pattern="^([0-9A-Fa-f]{2}){16,64}$|^$", description="16 to 64 bytes in hexadecimal digits.")
    ] = ""
    mr_td: Annotated[
        list[Annotated[str, Field(pattern="^[0-9A-Fa-f]{96}$")]],
        Field(max_length=16, description="The accepted values of MR_TD in hexadecimal digits. Empty: any."),
    ] = []
    pcr: Annotated[
        list[Annotated[str, Field(pattern="^[0-9]{1,2}=([0-9A-Fa-f]{64}){1,2}$|^[0-9]{1,2}=[0-9A-Fa-f]{96}$")]],
        Field(max_length=24, description="Expected values of PCRs, as in 7=65CA.... Others: as enrolled."),
    ] = []


class Disk(Body):
    """The new size of the boot disk, which can only grow."""

    disk_gib: Annotated[StrictInt, Field(ge=1, le=LARGEST_DISK_GIB)]


class Type(Body):
    """The provider's name for the new instance type, as listed by `offers` for the machine's zone."""

    type_name: Annotated[str, Field(min_length=1, max_length=128)]


class Tags(Body):
    """Tags to set; other tags are not changed. Names that begin with `drydock` are reserved."""

    tags: Annotated[dict[str, Annotated[str, Field(max_length=255)]], Field(min_length=1, max_length=20)]


# What only operators send


class Power(Body):
    """The power action for a resource."""

    wanted: Literal["on", "off", "cycle"]


class HostAddress(Body):
    """The address and SSH port of a host."""

    address: Annotated[str, Field(min_length=1, max_length=255)]
    port: Annotated[StrictInt, Field(ge=1, le=65535)] = 22


class BlueprintChange(Body):
    """Changes to a blueprint. Fields that are null or missing are left unchanged; `clear` names the fields to empty."""

    kind: Name | None = None
    config: Json | None = None
    order: Order | None = None
    audience: Literal["everyone", "authorized"] | None = None
    max_resources: Count | None = None
    min_ready: Count | None = None
    max_builds: Count | None = None
    max_outdated: Count | None = None
    idle_timeout: Span | Seconds | None = None
    max_lifetime: Span | Seconds | None = None
    check_interval: Span | Seconds | None = None
    discovery_interval: Span | Seconds | None = None
    default_ttl: Annotated[
        Span | Seconds | None, Field(description="Default duration of leases that specify no end.")
    ] = None
    max_ttl: Annotated[
        Span | Seconds | None, Field(description="Maximum duration of leases. Operators can exceed it.")
    ] = None
    note: Text | None = None
    clear: Annotated[list[Name], Field(max_length=20)] = []


class NewBlueprint(BlueprintChange):
    """A blueprint to add."""

    name: Name
    kind: Name
    config: Json = {}
    enabled: StrictBool = True


class Decision(Body):
    """Authorize a user or a group to use a blueprint, or decline a request. Give either `user` or `group`."""

    blueprint: Name
    allow: Annotated[StrictBool, Field(description="false declines the request or withdraws the authorization.")] = True
    user: Holder = ""
    group: Holder = ""
    message: Text = ""


class Quota(Body):
    """Limits for a user or a group. Null removes a limit; limits that are left out are unchanged."""

    user: Holder = ""
    group: Holder = ""
    max_leases: Count | None = None
    max_slots: Count | None = None
    max_cpu_millicores: Count | None = None
    max_ram_mib: Count | None = None
    max_disk_mib: Count | None = None
    max_extra: Annotated[
        dict[Word, Count | None] | None,
        Field(description="Maximum of each additional class, such as gpu. Null removes one limit, or all."),
    ] = None
    default_ttl: Annotated[
        Span | Seconds | None, Field(description="Default duration of leases that specify no end.")
    ] = None
    max_ttl: Annotated[
        Span | Seconds | None, Field(description="Maximum duration of leases. Operators can exceed it.")
    ] = None


class Budget(Body):
    """The maximum hourly cost for a user, for a group, or for everything that a blueprint has built."""

    user: Holder = ""
    group: Holder = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""
    max_hourly: Annotated[float, Strict(), Field(ge=0, le=1e9, description="US dollars per hour.")]


class NewCredential(Body):
    """Secrets to store under a name. They can never be read back."""

    name: Name
    secrets: Json
    note: Text = ""


class CredentialChange(Body):
    """Secrets that replace all stored ones, or a new note."""

    secrets: Json | None = None
    note: Text | None = None


class OwnCredential(Body):
    """Secrets that belong to one resource. They can never be read back; null removes them."""

    secrets: Json | None = None


class Chosen(Body):
    """Restrict the action to a type or a blueprint."""

    type: Annotated[str, Field(max_length=63)] = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""


class OfBlueprint(Body):
    """Restrict the action to a blueprint."""

    blueprint: Annotated[str, Field(max_length=63)] = ""


class Registration(Body):
    """The registration fields defined by the blueprint's kind. `kinds` returns their schema."""

    model_config = ConfigDict(extra="allow")


UserName = Annotated[str, Field(min_length=1, max_length=150)]
GroupNames = Annotated[list[UserName], Field(max_length=100)]
Password = Annotated[
    str | None,
    Field(max_length=1000, description="The new password. null: generate one, which is returned only in this answer."),
]


class NewUser(Body):
    """A user to add. An operator can see and change everything, and administers users."""

    user: UserName
    operator: StrictBool = False
    groups: GroupNames = []
    password: Password = None


class NewPassword(Body):
    """A new password for a user."""

    password: Password = None


class GroupChange(Body):
    """Groups to join and to leave. Missing groups to join are created."""

    add: GroupNames = []
    remove: GroupNames = []
