"""The kind `dpf_cluster`: a DPUCluster, of which each DPU leases one slot for life.

Clusters are discovered, registered with the secret that has their kubeconfig, or built with a control plane that kamaji
runs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from blueprints.amounts import Amounts
from blueprints.answers import Health, Json
from blueprints.contract import Builds, Checks, Discovers, Kind, Lists, Plan, Registers, Step, Updates, Watches
from blueprints.dpf import clusters, dialect_of, watches
from blueprints.dpf import config as server
from blueprints.dpf.access import INSTALLATION
from blueprints.dpu.dpf_cluster import actions, labels
from blueprints.dpu.dpf_cluster import config as schema
from blueprints.kube import Dialect, KubeError, Object, connect
from blueprints.matching import Match, misses
from blueprints.specs import Asked, BlueprintView, Draft, Owned, Problem
from blueprints.watches import Ending, WatchNews, WatchPlace

_LONG = 86_400.0
MATCHES = (Match("cluster", "=", "cluster"), Match("manager", "=", "manager"))


class DpfCluster(Kind, Builds, Registers, Discovers, Checks, Lists, Updates, Watches):
    """The DPUClusters of a namespace. Changed labels are written while DPUs are in them, as they disturb none."""

    name: ClassVar[str] = "dpf_cluster"
    resource_type: ClassVar[str] = "dpu_cluster"
    Config, Requirements, Attributes = schema.Config, schema.Requirements, schema.Attributes
    Registration = schema.Registration
    matches = MATCHES
    idle_timeout: ClassVar[dt.timedelta | None] = dt.timedelta(hours=1)
    discovery_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=2)

    def discover(self, blueprint: BlueprintView) -> Sequence[Draft]:
        """Return the DPUClusters that Drydock has not created. Raises KubeError."""
        config: schema.Config = blueprint.config
        with connect(blueprint.credentials[config.credential]) as cluster:
            dialect = dialect_of(cluster)
            found = cluster.list(dialect.type(clusters.KIND), config.namespace)
        # What Drydock has created is a resource already, of this blueprint or of another one.
        others = (one for one in found if INSTALLATION not in one.labels)
        return [_draft(one, config.labels) for one in others if not config.only or one.name in config.only]

    def register(self, config: schema.Config, given: schema.Registration) -> Draft:
        """Return the draft for a registered cluster. Calls no server."""
        return Draft(
            name=given.name, identity=f"{config.namespace}/{given.name}",
            attributes={"cluster": given.name, "manager": clusters.STATIC}, capacity=Amounts(slots=given.max_nodes),
        )  # fmt: skip

    def drafts(self, config: schema.Config, asked: Asked | None) -> Sequence[Draft]:
        """Return the draft of the cluster that the config builds, if it meets the request."""
        if config.build is None:
            return ()
        made = Draft(attributes={"manager": clusters.KAMAJI}, capacity=Amounts(slots=config.build.max_nodes))
        if asked is None:
            return (made,)
        wanted = asked.requirements.model_dump(mode="json")
        fits = asked.amounts.fits_in(made.capacity) and not misses(MATCHES, made.attributes, wanted)
        return (made,) if fits else ()

    def build(self) -> Plan:
        """Return the plan that creates the cluster, or checks a registered one, and waits until it is ready."""
        return (
            Step(name="endpoint", act=actions.take_endpoint),
            Step(name="create", act=actions.create),
            Step(name="label", act=labels.write),
            Step(name="ready", act=actions.wait, deadline=_LONG),
            Step(name="kubeconfig", act=actions.read_kubeconfig),
        )

    def check(self) -> Plan:
        """Return the plan that checks that the cluster is there and ready."""
        return (Step(name="look", act=actions.look),)

    def update(self) -> Plan:
        """Return the plan that writes the labels of the config, and removes those of an earlier one."""
        return (Step(name="label", act=labels.write, deadline=_LONG),)

    def disruption(self, before: Any, after: Any) -> str:
        """Return an empty string: labels disturb no DPU, and a changed `build` is for clusters that are built later."""
        return ""

    def destroy(self) -> Plan:
        """Return the plan that deletes the DPUCluster if Drydock created it, and else removes our labels from it."""
        return (
            Step(name="leave", act=labels.remove, deadline=_LONG),
            Step(name="delete", act=actions.delete, deadline=_LONG),
        )

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return the DPUClusters of this installation.

        The name of one that was created for a registration is not its key, which is then taken from a label.
        """
        config: schema.Config = blueprint.config
        with connect(blueprint.credentials[config.credential]) as cluster:
            type_ = dialect_of(cluster).type(clusters.KIND)
            found = cluster.list(type_, config.namespace, labels=f"{INSTALLATION}={installation}")
        return [_owned(one) for one in found if not one.deleting]

    def watched(self, config: schema.Config) -> Sequence[WatchPlace]:
        """Return the DPUClusters of the namespace."""
        return watches.places(config, (clusters.KIND,))

    def watch(
        self, blueprint: BlueprintView, place: str, installation: str, bookmark: str, ending: Ending
    ) -> Iterator[WatchNews]:
        """Yield the changes of DPUClusters of ours. Those of others have no proof, and are polled."""
        return watches.watch(blueprint, place, installation, bookmark, ending)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used, has DPF, and has the fields of the cluster to build."""
        found = server.problems(blueprint, (clusters.KIND,))
        config: schema.Config = blueprint.config
        if found or config.build is None:
            return found
        try:
            with connect(blueprint.credentials[config.credential]) as cluster:
                dialect = dialect_of(cluster)
        except KubeError as error:
            return [Problem(message=str(error), field="credential")]
        return [
            Problem(message=f"The DPUCluster cannot be created: {one}", field="build")
            for one in dialect.missing(_example(config, dialect)).sentences()
        ]


def _example(config: schema.Config, dialect: Dialect) -> Json:
    assert config.build is not None
    vip = next((str(one.vip) for one in config.build.endpoints), "")
    return clusters.manifest(
        dialect, "example", config.namespace, type_=clusters.KAMAJI, max_nodes=config.build.max_nodes,
        version=config.build.version, keepalived=actions.keepalived(config, vip),
    )  # fmt: skip


def _owned(found: Object) -> Owned:
    tags = {key: value for key, value in found.labels.items() if key.startswith("drydock-")}
    key = tags.pop(clusters.KEY, found.name)
    return Owned(key=key, tags=tags, facts={"name": found.name}, named=key == found.name)


def _draft(found: Object, wanted: Mapping[str, str]) -> Draft:
    lacking = sorted(name for name, value in wanted.items() if found.labels.get(name) != value)
    return Draft(
        name=found.name, identity=f"{found.namespace}/{found.name}", identities=actions.identities(found),
        attributes={"cluster": found.name, "manager": str(found.spec.get("type") or "")},
        capacity=Amounts(slots=clusters.slots(found, actions.DEFAULT_NODES)), facts=clusters.facts(found),
        refused=f"DPUCluster {found.name} is being deleted." if found.deleting else "", health=_health(found),
        outdated=f"DPUCluster {found.name} lacks the labels {', '.join(lacking)}." if lacking else "",
    )  # fmt: skip


def _health(found: Object) -> Health:
    if found.phase == "Ready":
        return Health(state="ok")
    return Health(state="failed", reason=f"DPUCluster {found.name} is {found.phase or 'new'}.")
