"""The steps of a DPU cluster: created or found, ready, with a kubeconfig, checked, and deleted if it is ours."""

from __future__ import annotations

import datetime as dt

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Health, Json, Need, NeededLock, Ready, Scope, Wait
from blueprints.dpf import Site, clusters, kube_told, opened
from blueprints.dpf.access import INSTALLATION
from blueprints.dpf.phases import why
from blueprints.dpu.dpf_cluster.config import Config, Registration
from blueprints.identities import Identity, real
from blueprints.kube import SECRET, Object, has_labels
from blueprints.specs import Spec
from drydock.core import clock

DEFAULT_NODES = 1000
"""Nodes of a cluster that does not say how many it may have (the default of the CRD)."""
UID = "dpu_cluster_uuid"
"""The namespace of the identity by which several blueprints recognize a cluster."""
_ENDPOINT = "endpoint"
_LOOK = 3.0
_BUILT, _REGISTERED, _DISCOVERED = "built", "registered", "discovered"


def take_endpoint(spec: Spec, memo: Json) -> Answer:
    """Take one of the addresses of the config, which no other cluster may use."""
    config: Config = spec.config
    if spec.resource.origin != _BUILT or config.build is None or not config.build.endpoints:
        return Ready()
    if _ENDPOINT in spec.locks:
        return Ready()
    candidates = tuple(str(one.vip) for one in config.build.endpoints)
    return Need(locks=(NeededLock(name=_ENDPOINT, scope="dpu_cluster_vip", candidates=candidates),))


@kube_told
def create(spec: Spec, memo: Json) -> Answer:
    """Create the DPUCluster, adopt it after a lost answer, or use one of others that is registered or discovered."""
    if spec.resource.origin == _DISCOVERED:
        return Ready()
    with opened(spec) as site:
        if spec.resource.origin == _REGISTERED:
            return _registered(site, spec)
        manifest = _built(site, spec)
        if isinstance(manifest, Failed):
            return manifest
        found = site.ensure(manifest)
    return Ready(facts=clusters.facts(found), attributes={"cluster": found.name})


def _built(site: Site, spec: Spec) -> Json | Failed:
    config: Config = spec.config
    if config.build is None:
        message = "The config of the blueprint has no `build` any more, so no cluster is created."
        return Failed(scope=Scope.BLUEPRINT, code="cluster_not_built", message=message)
    manifest = clusters.manifest(
        site.dialect, site.name(clusters.KIND, spec.resource.key), site.namespace, type_=clusters.KAMAJI,
        max_nodes=config.build.max_nodes, version=config.build.version,
        keepalived=keepalived(config, spec.locks.get(_ENDPOINT, "")),
    )  # fmt: skip
    return _expressible(site, manifest, Scope.BLUEPRINT) or manifest


def keepalived(config: Config, vip: str) -> Json | None:
    """Return the endpoint with an address as DPF writes it; None if the config has none."""
    found = next((one for one in (config.build.endpoints if config.build else ()) if str(one.vip) == vip), None)
    if found is None:
        return None
    made: Json = {"vip": vip, "interface": found.interface, "virtualRouterID": found.router}
    return made | ({"nodeSelector": dict(found.nodes)} if found.nodes else {})


def _expressible(site: Site, manifest: Json, scope: Scope) -> Failed | None:
    """Return the fields that the server does not have, or requires; None if it can store the manifest."""
    if wrong := site.dialect.missing(manifest):
        said = " ".join(wrong.sentences())[:1500]
        return Failed(scope=scope, code="cluster_fields", message=f"Nothing was written. {said}")
    return None


def _registered(site: Site, spec: Spec) -> Answer:
    """Create the registered cluster, or use the existing one. A bad secret is told before anything is written."""
    given = Registration.model_validate(spec.resource.registration)
    if problem := clusters.kubeconfig_problem(_secret(site, given.kubeconfig), given.kubeconfig):
        return Failed(scope=Scope.OPERATOR, code="cluster_credential", message=problem)
    found = site.find(clusters.KIND, given.name)
    if found is None:
        manifest = clusters.manifest(
            site.dialect, given.name, site.namespace, type_=clusters.STATIC, max_nodes=given.max_nodes,
            version=given.version, kubeconfig=given.kubeconfig, key=spec.resource.key,
        )  # fmt: skip
        if refused := _expressible(site, manifest, Scope.OPERATOR):
            return refused
        found = site.ensure(manifest)
    if problem := _unusable(site, found, given):
        return Failed(scope=Scope.OPERATOR, code="cluster_differs", message=problem)
    attributes = {"cluster": found.name, "manager": str(found.spec.get("type") or "")}
    return Ready(facts=clusters.facts(found), attributes=attributes)


def _unusable(site: Site, found: Object, given: Registration) -> str:
    """Return why an existing cluster is not the registered one; empty if it is."""
    if INSTALLATION in found.labels and not has_labels(site.proof)(found.labels):
        return f"DPUCluster {found.name} was created by Drydock for another resource. Lease that one."
    if found.deleting:
        return clusters.sentence(found)
    if (named := clusters.secret_of(found)) != given.kubeconfig:
        return (
            f"DPUCluster {found.name} exists and has its kubeconfig in secret {named or '(none)'}, not in "
            f"{given.kubeconfig}. Register it with that secret."
        )
    return ""


@kube_told
def wait(spec: Spec, memo: Json) -> Answer:
    """Wait until the cluster is ready. The percentage never falls. The discovery says how a discovered cluster is."""
    if spec.resource.origin == _DISCOVERED:
        return Ready()
    with opened(spec) as site:
        found = site.find(clusters.KIND, name_of(site, spec))
    scope = Scope.OPERATOR if spec.resource.origin == _REGISTERED else Scope.BLUEPRINT
    if found is None or found.deleting:
        message = "The DPUCluster was deleted before it was ready."
        return Failed(scope=Scope.STEP, code="cluster_gone", message=message)
    if found.phase == "Ready" and found.observed:
        return Ready(
            facts=clusters.facts(found), capacity=Amounts(slots=clusters.slots(found, DEFAULT_NODES)),
            identities=identities(found), health=Health(state="ok"),
        )  # fmt: skip
    if found.phase == "Failed":
        return Failed(scope=scope, code="cluster_failed", message=f"DPF failed. {clusters.sentence(found)}")
    percent = max(clusters.PERCENT.get(found.phase, 0), int(memo.get("percent", 0)))
    since = memo["since"] if memo.get("phase") == found.phase and "since" in memo else clock.now().isoformat()
    lasted = (clock.now() - dt.datetime.fromisoformat(since)).total_seconds()
    limit = spec.config.build_timeout
    if lasted > limit:
        message = f"After {lasted:.0f} s (the limit is {limit:.0f} s): {clusters.sentence(found)}"
        return Failed(scope=scope, code="cluster_timeout", message=message)
    memo = {"phase": found.phase, "since": since, "percent": percent}
    return Wait(after=_LOOK, memo=memo, percent=percent, sentence=f"{clusters.sentence(found)} Since {since[:19]}Z.")


@kube_told
def read_kubeconfig(spec: Spec, memo: Json) -> Answer:
    """Check that the kubeconfig of the cluster can be used. Nothing of it is stored."""
    if spec.resource.origin == _DISCOVERED:
        return Ready()
    name = str(spec.resource.facts.get("kubeconfig") or "")
    if not name:
        message = f"DPUCluster {spec.resource.facts.get('name')} is ready, but names no secret with its kubeconfig."
        return Failed(scope=Scope.OPERATOR, code="cluster_credential", message=message)
    with opened(spec) as site:
        problem = clusters.kubeconfig_problem(_secret(site, name), name)
    return Failed(scope=Scope.OPERATOR, code="cluster_credential", message=problem) if problem else Ready()


@kube_told
def look(spec: Spec, memo: Json) -> Answer:
    """Check that the cluster is there and ready. One that is not ready is degraded, because its DPUs go on running.

    The discovery says how a discovered cluster is.
    """
    if spec.resource.origin == _DISCOVERED:
        return Ready()
    with opened(spec) as site:
        found = site.find(clusters.KIND, name_of(site, spec))
    if found is None:
        return Failed(scope=Scope.STEP, code="cluster_gone", message="The DPUCluster does not exist any more.")
    if found.phase == "Ready":
        return Ready(health=Health(state="ok"))
    return Ready(health=Health(state="degraded", reason=f"DPUCluster {found.name} is {found.phase}. {why(found)}"))


@kube_told
def delete(spec: Spec, memo: Json) -> Answer:
    """Delete the DPUCluster until it does not exist, if its labels prove that it is ours. Others are left."""
    if spec.resource.origin == _DISCOVERED:
        return Ready()
    with opened(spec) as site:
        left = site.delete(clusters.KIND, name_of(site, spec))
    return Ready() if left is None else Wait(after=_LOOK, memo=memo, sentence=clusters.sentence(left))


def name_of(site: Site, spec: Spec) -> str:
    """Return the name of the DPUCluster of a resource, also before its creation was recorded."""
    if name := spec.resource.facts.get("name"):
        return str(name)
    if spec.resource.origin == _REGISTERED:
        return spec.resource.identity.rpartition("/")[2]
    return site.name(clusters.KIND, spec.resource.key)


def identities(found: Object) -> tuple[Identity, ...]:
    """Return the identity of a cluster, by which a second blueprint does not give its slots again."""
    return real({UID: found.uid})


def _secret(site: Site, name: str) -> Object | None:
    return site.cluster.find(SECRET, name, site.namespace)
