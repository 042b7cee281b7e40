"""The kind `dpf_cluster`: a DPUCluster, of which each DPU leases one slot for life."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator

from blueprints.amounts import Amounts
from blueprints.answers import Health
from blueprints.contract import Discovers, Fields, Kind, Plan, Step, Updates
from blueprints.dpf import Server, dialect_of
from blueprints.dpf import config as server
from blueprints.dpu.dpf_cluster import labels
from blueprints.kube import Object, connect
from blueprints.matching import Match
from blueprints.specs import BlueprintView, Draft, Problem

_NODES = 1000
"""Nodes of a cluster that does not say how many it may have (the default of the CRD)."""
_LONG = 7 * 86_400.0


class Config(Server):
    """Config of a blueprint of kind dpf_cluster."""

    only: tuple[str, ...] = Field(
        default=(), description="Names of the clusters to lease. Empty: all of the namespace."
    )
    labels: Mapping[str, str] = Field(
        default={}, max_length=32, description="Labels that Drydock keeps on the DPUClusters, for selectors of DPF."
    )

    @field_validator("labels")
    @classmethod
    def _names(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        """Check the labels as Kubernetes does, and refuse those that DPF, Kubernetes or Drydock itself writes."""
        for key, value in given.items():
            prefix, slash, name = key.rpartition("/")
            if not _NAME.match(name) or (slash and not _PREFIX.match(prefix)):
                raise ValueError(f"{key!r} is not a valid name of a label.")
            if value and not _NAME.match(value):
                raise ValueError(f"The value of the label {key!r} is not valid.")
            if _RESERVED.search(prefix) or name.startswith("drydock-"):
                raise ValueError(f"The label {key!r} is written by DPF, Kubernetes or Drydock itself.")
        return given


_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_PREFIX = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_RESERVED = re.compile(r"(^|\.)(nvidia\.com|kubernetes\.io|k8s\.io)\Z")
"""Prefixes of labels that DPF and Kubernetes write
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""


class Attributes(Fields):
    """Attributes of a DPU cluster."""

    cluster: str | None = Field(default=None, description="Name of the DPUCluster.")
    manager: str | None = Field(default=None, description="What runs its control plane: kamaji, static or another.")


class Requirements(Fields):
    """Requirements that a lease may set for a DPU cluster."""

    cluster: str | None = Field(default=None, description="Name of the DPUCluster.")
    manager: str | None = Field(default=None, description="What runs its control plane: kamaji, static or another.")


class DpfCluster(Kind, Discovers, Updates):
    """The DPUClusters of a namespace. Changed labels are written while DPUs are in them, as they disturb none."""

    name: ClassVar[str] = "dpf_cluster"
    resource_type: ClassVar[str] = "dpu_cluster"
    Config, Requirements, Attributes = Config, Requirements, Attributes
    matches = (Match("cluster", "=", "cluster"), Match("manager", "=", "manager"))
    discovery_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)

    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Return the DPUClusters that exist. Raises KubeError."""
        config: Config = blueprint.config
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            found = cluster.list(dialect.type("DPUCluster"), config.namespace)
        return [_draft(one, config.labels) for one in found if not config.only or one.name in config.only]

    def update(self) -> Plan:
        """Return the plan that writes the labels of the config, and removes those of an earlier one."""
        return (Step(name="label", act=labels.write, deadline=_LONG),)

    def disruption(self, before: Any, after: Any) -> str:
        """Return an empty string: nothing in the config disturbs the DPUs in a cluster."""
        return ""

    def destroy(self) -> Plan:
        """Return the plan that hands the cluster back: it was not built by us, so only our labels are removed."""
        return (Step(name="leave", act=labels.remove, deadline=_LONG),)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used and has DPF."""
        return server.problems(blueprint, ("DPUCluster",))


def _draft(found: Object, wanted: Mapping[str, str]) -> Draft:
    lacking = sorted(name for name, value in wanted.items() if found.labels.get(name) != value)
    size = found.spec.get("maxNodes")
    return Draft(
        name=found.name, identity=f"{found.namespace}/{found.name}",
        attributes={"cluster": found.name, "manager": str(found.spec.get("type") or "")},
        capacity=Amounts(slots=size if type(size) is int and 0 < size <= 3000 else _NODES),
        facts={
            "name": found.name, "namespace": found.namespace, "kubeconfig": str(found.spec.get("kubeconfig") or ""),
            "version": str(found.status.get("version") or found.spec.get("version") or ""),
        },
        refused=f"DPUCluster {found.name} is being deleted." if found.deleting else "", health=_health(found),
        outdated=f"DPUCluster {found.name} lacks the labels {', '.join(lacking)}." if lacking else "",
    )  # fmt: skip


def _health(found: Object) -> Health:
    if found.phase == "Ready":
        return Health(state="ok")
    return Health(state="failed", reason=f"DPUCluster {found.name} is {found.phase or 'new'}.")
