"""The kind `dpf_cluster`: a DPUCluster, of which each DPU leases one slot for life."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from blueprints.amounts import Amounts
from blueprints.answers import Health, Ready
from blueprints.contract import Discovers, Fields, Kind, Plan, Step
from blueprints.dpf import Server, dialect_of
from blueprints.dpf import config as server
from blueprints.kube import Object, connect
from blueprints.matching import Match
from blueprints.specs import BlueprintView, Draft, Problem

_NODES = 1000
"""Nodes of a cluster that does not say how many it may have (the default of the CRD)."""


class Config(Server):
    """Config of a blueprint of kind dpf_cluster."""

    only: tuple[str, ...] = Field(
        default=(), description="Names of the clusters to lease. Empty: all of the namespace."
    )


class Attributes(Fields):
    """Attributes of a DPU cluster."""

    cluster: str | None = Field(default=None, description="Name of the DPUCluster.")
    manager: str | None = Field(default=None, description="What runs its control plane: kamaji, static or another.")


class Requirements(Fields):
    """Requirements that a lease may set for a DPU cluster."""

    cluster: str | None = Field(default=None, description="Name of the DPUCluster.")
    manager: str | None = Field(default=None, description="What runs its control plane: kamaji, static or another.")


class DpfCluster(Kind, Discovers):
    """The DPUClusters of a namespace."""

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
        return [_draft(one) for one in found if not config.only or one.name in config.only]

    def destroy(self) -> Plan:
        """Return the plan that hands the cluster back. It was not built by us, so it is left as it is."""
        return (Step(name="leave", act=lambda spec, memo: Ready()),)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used and has DPF."""
        return server.problems(blueprint, ("DPUCluster",))


def _draft(found: Object) -> Draft:
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
    )  # fmt: skip


def _health(found: Object) -> Health:
    if found.phase == "Ready":
        return Health(state="ok")
    return Health(state="failed", reason=f"DPUCluster {found.name} is {found.phase or 'new'}.")
