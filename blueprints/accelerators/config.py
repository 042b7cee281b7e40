"""Config of blueprints of kind accelerators, attributes of accelerators, and requirements of leases."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from blueprints.accelerators.bitstreams import Image, checked
from blueprints.accelerators.classes import Class
from blueprints.accelerators.layouts import Attach, Mig, Network, Vfs
from blueprints.contract import Fields
from blueprints.devices import Node
from blueprints.hosts import Words
from blueprints.matching import Match
from blueprints.specs import HostView
from drydock.core.errors import InvalidRequest

Isolation = Literal["groups", "nodes", "none"]
"""How the nodes of a device are kept from other accounts of its host: by device control groups, by their ownership and
mode only, or not at all."""


class Config(Fields):
    """Config of a blueprint of kind accelerators. By default, everything in every host that is ready for use."""

    blueprints: tuple[str, ...] = Field(
        default=(), description="Names of the blueprints whose hosts are searched. Empty: all blueprints of hosts."
    )
    hosts: tuple[str, ...] = Field(
        default=("*",), description="Names of the hosts that are searched; * stands for any characters."
    )
    classes: tuple[Class, ...] = Field(default=get_args(Class), description="Classes of devices that are leased.")
    reports: Literal["read", "sent"] = Field(
        default="read", description="read: Drydock itself searches the hosts. sent: agents on the hosts send reports."
    )
    captured: str = Field(
        default="",
        description="Folder on the first host with a captured tree, which is read instead of the host. For tests and "
        "demonstrations: leases get no device nodes, unless `nodes` names some.",
    )
    nodes: Mapping[str, tuple[str, ...]] = Field(
        default={}, description="Device nodes on the host that stand for captured devices, by id of the device."
    )
    isolation: Isolation = Field(
        default="nodes",
        description="Weakest isolation of device nodes with which devices are leased. groups: device control groups on "
        "the host. nodes: ownership of the nodes. none: also where other accounts can open them.",
    )
    tools: str = Field(
        default="",
        description="Folder on the hosts with nvidia-smi, if it is not in PATH, such as /run/nvidia/driver/usr/bin.",
    )
    compute_mode: Literal["Default", "Exclusive_Process", "Prohibited"] | None = Field(
        default=None, description="Compute mode of NVIDIA GPUs after a lease. Without it: as it was before the lease."
    )
    power_limit_watts: int | None = Field(
        default=None, gt=0, description="Power limit of NVIDIA GPUs after a lease. Without it: as before the lease."
    )
    clocks: Literal["reset", "keep"] = Field(
        default="reset", description="Whether locked clocks of NVIDIA GPUs are undone after a lease, or kept."
    )
    reset: Literal["never", "if_needed", "always"] = Field(
        default="if_needed",
        description="Whether NVIDIA GPUs are reset after a lease: never, if memory stays in use, or always.",
    )
    on_failure: Literal["tell", "break"] = Field(
        default="break", description="What happens to a lease whose device fails: its owner is told, or it breaks."
    )
    images: Mapping[str, Image] = Field(
        default={},
        description="FPGA images by name: those that leases can ask for, and a blank one for each interface id.",
    )
    vfs: tuple[Vfs, ...] = Field(default=(), description="Numbers of VFs of network cards. The first match counts.")
    mig: tuple[Mig, ...] = Field(default=(), description="MIG layouts of NVIDIA GPUs. The first match counts.")
    networks: tuple[Network, ...] = Field(
        default=(), description="Attachment and settings of network cards and VFs. The first match counts."
    )
    setup: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="PCI addresses of devices that operators can set up (act setup); * stands for any characters.",
    )
    scan_seconds: float = Field(default=60.0, gt=0, le=300, description="Time that reading one host may take.")

    @field_validator("images")
    @classmethod
    def _images(cls, images: Mapping[str, Image]) -> Mapping[str, Image]:
        return checked(images)

    @field_validator("nodes")
    @classmethod
    def _paths(cls, nodes: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        for path in (path for paths in nodes.values() for path in paths):
            try:
                Node(path=path)
            except InvalidRequest:
                raise ValueError(f"{path!r} is not a path of a device node below /dev") from None
        return nodes

    @model_validator(mode="after")
    def _captures(self) -> Self:
        if self.captured and not Path(self.captured).is_absolute():
            raise ValueError("captured must be an absolute path")
        if self.tools and not Path(self.tools).is_absolute():
            raise ValueError("tools must be an absolute path")
        if self.captured and self.reports == "sent":
            raise ValueError("captured and reports: sent exclude each other")
        if self.nodes and not self.captured:
            raise ValueError("nodes are only for captured devices")
        return self

    def covers(self, host: HostView) -> bool:
        """Return whether devices in this host are leased."""
        known = not self.blueprints or host.blueprint in self.blueprints
        return known and any(fnmatchcase(host.name, pattern) for pattern in self.hosts)


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _lower_words(value: Any) -> Any:
    return [_lower(one) for one in (value if isinstance(value, list | tuple) else [value])]


Lower = Annotated[str, BeforeValidator(_lower)]
LowerWords = Annotated[Words, BeforeValidator(_lower_words)]


def _fields(name: str, doc: str, fields: dict[str, Any]) -> type[Fields]:
    """Return a class of fields. `class` is a keyword of Python, so it cannot be a class statement."""
    return create_model(name, __base__=Fields, __module__=__name__, __doc__=doc, **fields)


Attributes = _fields(
    "Attributes",
    "Attributes of an accelerator.",
    {
        "class": (Class | None, Field(default=None, description="Class of the device.")),
        "vendor": (str | None, Field(default=None, description="Short name of the vendor, or its PCI id.")),
        "model": (str | None, Field(default=None, description="Model, as its driver or the list of PCI ids names it.")),
        "models": (tuple[str, ...] | None, Field(default=None, description="Names by which a lease can require it.")),
        "memory_mib": (int | None, Field(default=None, description="Memory of the device in MiB.")),
        "compute_capability": (float | None, Field(default=None, description="CUDA compute capability.")),
        "driver": (str | None, Field(default=None, description="Kernel driver.")),
        "driver_version": (str | None, Field(default=None, description="Version of the driver.")),
        "driver_versions": (tuple[str, ...] | None, Field(default=None, description="The version and its beginnings.")),
        "numa_node": (int | None, Field(default=None, description="NUMA node of the host.")),
        "firmware": (tuple[str, ...] | None, Field(default=None, description="Firmware: name and version of each.")),
        "address": (str | None, Field(default=None, description="PCI address; for a slice, ADDRESS/PART.")),
        "link": (str | None, Field(default=None, description="PCIe link: present and maximum width, maximum speed.")),
        "profile": (str | None, Field(default=None, description="MIG profile of a slice.")),
        "images": (tuple[str, ...] | None, Field(default=None, description="Images that fit the FPGA.")),
        "health": (str | None, Field(default=None, description="ok or degraded, if it is known.")),
        "attach": (Attach | None, Field(default=None, description="Attachment of a network card or VF to leases.")),
        "setup": (str | None, Field(default=None, description="Why the device needs setup before it can be leased.")),
        "root": (str | None, Field(default=None, description="Root bus.")),
        "behind": (str | None, Field(default=None, description="PCI bridge above the device.")),
    },
)
Requirements = _fields(
    "Requirements",
    "Requirements that a lease may set for its accelerator.",
    {
        "class": (LowerWords | None, Field(default=None, description="Allowed classes: gpu, vf, fpga, ...")),
        "vendor": (LowerWords | None, Field(default=None, description="Allowed vendors: nvidia, amd, intel, ...")),
        "model": (Lower | None, Field(default=None, description="Model, or one word of it, such as A100.")),
        "memory_mib": (int | None, Field(default=None, ge=0, description="Minimum memory of the device in MiB.")),
        "compute_capability": (float | None, Field(default=None, ge=0, description="Minimum CUDA compute capability.")),
        "driver_version": (Lower | None, Field(default=None, description="Version of the driver, or its beginning.")),
        "numa_node": (int | None, Field(default=None, ge=0, description="NUMA node.")),
        "firmware": (Lower | None, Field(default=None, description="A firmware version, or its name and version.")),
        "profile": (Lower | None, Field(default=None, description="MIG profile of a slice, such as 1g.10gb.")),
        "image": (Lower | None, Field(default=None, description="Image with which the FPGA is programmed.")),
        "attach": (Attach | None, Field(default=None, description="Attachment of a network card or VF.")),
    },
)

MATCHES = (
    Match("class", "in", "class"),
    Match("vendor", "in", "vendor"),
    Match("models", "contains", "model"),
    Match("memory_mib", ">=", "memory_mib"),
    Match("compute_capability", ">=", "compute_capability"),
    Match("driver_versions", "contains", "driver_version"),
    Match("numa_node", "=", "numa_node"),
    Match("firmware", "contains", "firmware"),
    Match("profile", "=", "profile"),
    Match("images", "contains", "image"),
    Match("attach", "=", "attach"),
)
