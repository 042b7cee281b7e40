"""Config of blueprints of kind dpf_cluster, and what an operator registers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from blueprints.contract import Fields
from blueprints.dpf import Server

_OBJECT = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
_SECRET = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_PREFIX = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_RESERVED = re.compile(r"(^|\.)(nvidia\.com|kubernetes\.io|k8s\.io)\Z")
"""Prefixes of labels that DPF and Kubernetes write
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""
_VERSION = Annotated[str, Field(max_length=63, pattern=r"^(v?\d+\.\d+(\.\d+)?([-+][A-Za-z0-9.+-]+)?)?$")]


class Endpoint(Fields):
    """An address for the control plane of one cluster, which keepalived announces."""

    vip: IPv4Address = Field(description="Virtual address of the control plane.")
    interface: str = Field(min_length=1, max_length=15, description="Network interface on which it is announced.")
    router: int = Field(ge=1, le=255, description="Virtual router id of VRRP, unique in the network.")
    nodes: Mapping[str, str] = Field(default={}, description="Labels of the nodes that may announce it. Empty: any.")


class Built(Fields):
    """A DPU cluster with a control plane that kamaji runs."""

    max_nodes: int = Field(default=1000, ge=1, le=3000, description="DPUs that a cluster may have: its slots.")
    version: _VERSION = Field(
        default="", description="Version of Kubernetes. Servers whose DPUClusters have this field require it."
    )
    endpoints: tuple[Endpoint, ...] = Field(
        default=(),
        max_length=100,
        description="Addresses for control planes; each cluster takes one. Empty: the load balancer chooses.",
    )

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        for name in ("vip", "router"):
            found = [getattr(one, name) for one in self.endpoints]
            if len(set(found)) < len(found):
                raise ValueError(f"endpoints: each needs a {name} of its own.")
        return self


class Config(Server):
    """Config of a blueprint of kind dpf_cluster."""

    only: tuple[str, ...] = Field(
        default=(), description="Names of the clusters to lease. Empty: all of the namespace."
    )
    labels: Mapping[str, str] = Field(
        default={}, max_length=32, description="Labels that Drydock keeps on the DPUClusters, for selectors of DPF."
    )
    build: Built | None = Field(default=None, description="The cluster to build if there is no room. Empty: none.")
    build_timeout: float = Field(
        default=1800.0, gt=0, le=86_400, description="Seconds that a cluster may stay in one phase until it is ready."
    )

    @field_validator("labels")
    @classmethod
    def _names(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        """Check the labels as Kubernetes does, and refuse those that DPF, Kubernetes or Drydock itself writes."""
        for key, value in given.items():
            prefix, slash, name = key.rpartition("/")
            if not _LABEL.match(name) or (slash and not _PREFIX.match(prefix)):
                raise ValueError(f"{key!r} is not a valid name of a label.")
            if value and not _LABEL.match(value):
                raise ValueError(f"The value of the label {key!r} is not valid.")
            if _RESERVED.search(prefix) or name.startswith("drydock-"):
                raise ValueError(f"The label {key!r} is written by DPF, Kubernetes or Drydock itself.")
        return given


class Registration(Fields):
    """A DPU cluster as an operator registers it."""

    name: _OBJECT = Field(description="Name of the DPUCluster. It is created, of type static, if it does not exist.")
    kubeconfig: _SECRET = Field(description="Name of the secret with its kubeconfig, in the namespace of DPF.")
    max_nodes: int = Field(
        default=1000, ge=1, le=3000, description="DPUs that it may have, if it is created. An existing one says it."
    )
    version: _VERSION = Field(
        default="", description="Version of Kubernetes. Servers whose DPUClusters have this field require it."
    )


class Attributes(Fields):
    """Attributes of a DPU cluster."""

    cluster: str | None = Field(default=None, description="Name of the DPUCluster.")
    manager: str | None = Field(default=None, description="What runs its control plane: kamaji, static or another.")


class Requirements(Fields):
    """Requirements that a lease may set for a DPU cluster."""

    cluster: str | None = Field(default=None, description="Name of the DPUCluster.")
    manager: str | None = Field(default=None, description="What runs its control plane: kamaji, static or another.")
