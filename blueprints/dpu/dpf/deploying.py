"""The steps of a DPU that is installed by a DPUDeployment, and the services that its blueprint has on it.

DPF makes the DPUSet. It selects nothing until it has the labels that prove whose it is, because its DPUs get their
labels when they are created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.dpf import SELDOM, Site, deployments, kube_told, opened
from blueprints.dpf import config as server
from blueprints.dpf.access import KEY
from blueprints.dpf.images import Image, kind_of
from blueprints.dpf.phases import LIMIT, why
from blueprints.dpu.dpf.actions import CARD, CLUSTER, image_of, kubeconfig_of, object_of, unselectable
from blueprints.dpu.dpf.config import Config
from blueprints.kube import (
    MANAGER,
    POD,
    Dialect,
    KubeError,
    Object,
    connect,
    has_labels,
    labelled,
    other_managers,
    selector,
)
from blueprints.kube import read as read_credential
from blueprints.specs import BlueprintView, LeaseView, Problem, Spec
from interfaces.dpu_services import Deployed, ServiceState
from interfaces.dpu_services.status import status_of

FACT = "deployment"
"""The fact of a DPU with the name of its DPUDeployment. It is stored before anything of it is written."""
READY_IN = LIMIT
"""Seconds in which the services of a new DPU must become ready."""
_LOOK = 3.0
_MOST_PODS = 250
_LONGEST = 500


def deploys(config: Config) -> bool:
    """Return whether the DPUs of a blueprint have a DPUDeployment."""
    return config.deployment is not None


def written(site: Site, spec: Spec, *, selects: bool = True) -> list[Json]:
    """Return our objects of the deployment of a DPU, in the order in which they are created."""
    name, config = site.name(deployments.KIND, spec.resource.key), spec.config
    layout = config.deployment.layout()
    made = deployments.parts(site.dialect, spec.resource.key, name, site.namespace, layout, site.proof)
    deployment = deployments.deployment(
        site.dialect, name, site.namespace, spec.parents[CARD].resource.facts, key=spec.resource.key,
        image=object_of(image_of(spec)), flavor=spec.resource.facts["flavor_object"],
        layout=layout, selects=selects,
    )  # fmt: skip
    made.append(labelled(deployment, {KEY: spec.resource.key}))
    return [labelled(one, site.proof) for one in made]


@kube_told
def create(spec: Spec, memo: Json) -> Answer:
    """Create the DPUDeployment with what it refers to. Its DPUSet selects nothing yet."""
    with opened(spec) as site:
        for manifest in written(site, spec, selects=False):
            site.ensure(manifest)
    return Ready()


@kube_told
def prove(spec: Spec, memo: Json) -> Answer:
    """Wait until DPF has made the DPUSet, and write what its DPUs get from it: the proof whose they are."""
    with opened(spec) as site:
        made = _deployment(site, spec)
        if made is None:
            return _gone(site, spec)
        found = site.find("DPUSet", deployments.set_name(made.name))
        if found is None:
            sentence = f"DPF has not made the DPUSet of DPUDeployment {made.name} yet. {why(made)}".strip()
            return Wait(after=_LOOK, memo=memo, sentence=sentence)
        if not deployments.is_made_of(found, made):
            message = f"DPUSet {found.name} was not made of DPUDeployment {made.name}. Nothing was written."
            return Failed(scope=Scope.OPERATOR, code="set_of_others", message=message)
        node = {**spec.config.node_labels, **site.proof}
        amendment = deployments.amendment(site.dialect, found, site.proof, node)
        if not amendment:
            return Ready(facts={"set": found.name})
        if others := _owners(found, amendment):
            message = f"{others} of DPUSet {found.name}, which Drydock must write."
            return Failed(scope=Scope.OPERATOR, code="set_of_others", message=message)
        site.cluster.amend(site.dialect.type("DPUSet"), found, amendment)
    return Ready(facts={"set": found.name})


def _owners(found: Object, amendment: Json) -> str:
    """Return which other field manager owns what an amendment would overwrite; empty if none does."""
    effects = ("spec.dpuTemplate.spec.nodeEffect", "spec.dpuTemplate.spec.automaticNodeReboot")
    template: Any = (((amendment.get("spec") or {}).get("dpuTemplate") or {}).get("spec")) or {}
    wanted = [one for one in effects if one.rpartition(".")[2] in template]
    for manager, paths in sorted(other_managers(found, MANAGER).items()):
        taken = [one for one in paths if any(one == path or one.startswith(f"{path}.") for path in wanted)]
        if taken:
            return f"{manager} owns {', '.join(taken[:5])}"
    return ""


@kube_told
def select(spec: Spec, memo: Json) -> Answer:
    """Let the DPUDeployment select exactly the leased card, so that DPF begins."""
    with opened(spec) as site:
        if (refused := unselectable(site, spec)) is not None:
            return refused
        made = _deployment(site, spec)
        if made is None:
            return _gone(site, spec)
        manifest = written(site, spec)[-1]
        site.cluster.apply(site.dialect.type(deployments.KIND), manifest, current=made)
    return Ready()


@kube_told
def wait_for_services(spec: Spec, memo: Json) -> Answer:
    """Wait until the pods of all services of the deployment are ready, whatever the DPU says."""
    with opened(spec) as site:
        left = unready(site, spec)
    if not left:
        return Ready()
    return Wait(after=_LOOK, memo=memo, percent=99, sentence=" ".join(left)[:_LONGEST])


def unready(site: Site, spec: Spec) -> list[str]:
    """Return a sentence for each service of the deployment that is not ready. Raises KubeError."""
    name = str(spec.resource.facts.get(FACT) or "")
    if not name:
        return []
    found = seen(site, name, spec.resource.parents.get(CLUSTER) or spec.parents.get(CLUSTER), spec.deadline * 0.4)
    states = [(one.service.name, status_of(one)) for one in found]
    wrong = [
        f"Service {of} is {one.state.value}. {' '.join(one.messages[:2])}".strip()
        for of, one in states
        if one.state is not ServiceState.READY
    ]
    return wrong if found else [f"The services of DPUDeployment {name} do not exist any more."]


def seen(site: Site, name: str, cluster: LeaseView | None, seconds: float) -> Sequence[Deployed]:
    """Return the services of a DPUDeployment with their pods, sorted by name. Raises KubeError."""
    templates = site.ours(deployments.TEMPLATE)
    if not templates:
        return ()
    labels = selector(deployments.parent(site.namespace, name))
    made = site.cluster.list(site.dialect.type("DPUService"), site.namespace, labels=labels)
    pods, unread = _pods(site, name, cluster, seconds)
    found = (deployments.deployed(one, made, pods, unread) for one in templates)
    return sorted((one for one in found if one is not None), key=lambda one: one.service.name)


def _pods(site: Site, name: str, cluster: LeaseView | None, seconds: float) -> tuple[Sequence[Object], str]:
    if cluster is None:
        return (), "The DPU has no lease on a DPU cluster any more."
    try:
        kubeconfig, problem = kubeconfig_of(site, cluster)
        if problem:
            return (), problem
        with connect(read_credential({"kubeconfig": kubeconfig}), deadline=min(10.0, seconds)) as there:
            labels = selector({**site.proof, deployments.OF: name})
            return there.page(POD, site.namespace, labels=labels, limit=_MOST_PODS).items, ""
    except KubeError as error:
        return (), error.message[:_LONGEST]


@kube_told
def delete(spec: Spec, memo: Json) -> Answer:
    """Delete the DPUDeployment, and wait until nothing of it exists: what DPF made of it, then what it refers to."""
    name = str(spec.resource.facts.get(FACT) or "")
    if not name:
        return Ready()
    with opened(spec) as site:
        if (left := site.delete(deployments.KIND, name)) is not None:
            sentence = f"DPUDeployment {name} is being deleted.{left.finalizer_sentence} {why(left)}".strip()
            return Wait(after=_LOOK, memo=memo, sentence=sentence)
        labels = selector(deployments.parent(site.namespace, name))
        for kind in deployments.CHILDREN:
            if children := site.cluster.list(site.dialect.type(kind), site.namespace, labels=labels):
                sentence = f"DPF removes {kind} {children[0].name} of DPUDeployment {name}."
                return Wait(after=_LOOK, memo=memo, sentence=sentence)
        deleted = [
            site.cluster.delete(site.dialect.type(kind), one.name, one.namespace, uid=one.uid)
            for kind in (deployments.TEMPLATE, deployments.CONFIGURATION)
            for one in site.ours(kind)
        ]
    if parts := [one for one in deleted if one is not None]:
        return Wait(
            after=_LOOK,
            watched=SELDOM,
            memo=memo,
            sentence=f"{parts[0].name} is being deleted.{parts[0].finalizer_sentence}",
        )
    return Ready()


def _deployment(site: Site, spec: Spec) -> Object | None:
    found = site.find(deployments.KIND, site.name(deployments.KIND, spec.resource.key))
    return found if found is not None and has_labels(site.proof)(found.labels) and not found.deleting else None


def _gone(site: Site, spec: Spec) -> Failed:
    name = site.name(deployments.KIND, spec.resource.key)
    message = f"The DPUDeployment {name} does not exist any more."
    return Failed(scope=Scope.STEP, code="deployment_gone", message=message)


def problems(blueprint: BlueprintView) -> list[Problem]:
    """Return what the server cannot express of the deployment, by the path of the field. Writes nothing."""
    config: Config = blueprint.config
    if config.deployment is None:
        return []
    return server.in_dialect(blueprint, lambda dialect, where: inexpressible(dialect, config, where))


def inexpressible(dialect: Dialect, config: Config, where: str) -> list[Problem]:
    """Return what servers of a dialect cannot express of the deployment."""
    assert config.deployment is not None
    card = {"card_labels": {"card": "x"}, "node_labels": {"node": "x"}}
    layout, proof = config.deployment.layout(), {"drydock-resource": "1"}
    made = deployments.parts(dialect, "d", "d", config.namespace, layout, proof)
    made.append(
        deployments.deployment(
            dialect,
            "d",
            config.namespace,
            card,
            key="d",
            image=Image(kind_of(config.image), "i"),
            flavor="f",
            layout=layout,
            selects=True,
        )
    )
    found = []
    for one in made:
        findings = dialect.missing(one)
        said = (("does not accept", (*findings.unknown, *findings.invalid)), ("requires", findings.missing))
        for verb, paths in said:
            for path in dict.fromkeys(map(str, paths)):
                message = f"The API server at {where} {verb} the field {path} of a {one['kind']}."
                found.append(Problem(message=message, field=_field(path)))
    return list(dict.fromkeys(found))


def _field(path: str) -> str:
    """Return the field of the config that decides about a field of our objects."""
    if path.startswith("spec.serviceChains"):
        return "deployment.chains"
    return "deployment.services" if not path.startswith("spec.dpus") else "deployment"
