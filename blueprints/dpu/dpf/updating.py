"""Changes of a DPU's config: those that disturb no lease on it, and those for which its card is installed anew.

Labels of its node, and what only steps of Drydock use, are changed while leases hold the DPU. Another image, flavor or
deployment waits until the DPU is idle, and then the DPU is replaced. If an operator forces it, the DPU keeps its
resource, its card and its place in the cluster: the host is vacated, DPF makes the DPU anew, and its leases go on.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from blueprints.answers import Answer, Failed, Json, Need, NeededLease, Ready, Scope, Wait
from blueprints.contract import Act, Plan, Step
from blueprints.dpf import SELDOM, Site, deployments, kube_told, opened
from blueprints.dpf.images import Image
from blueprints.dpf.phases import LIMIT, why
from blueprints.dpu.dpf import actions, deploying, provisioning
from blueprints.dpu.dpf.actions import IMAGE, IMAGE_NEED, IMAGE_TYPE, image_of, manifest_of_set, object_of
from blueprints.dpu.dpf.config import Config, flavor_problem
from blueprints.kube import Object, dropped, has_labels, labelled
from blueprints.specs import Spec

INSTALLED = ("image", "flavor", "deployment", "mode", "card", "cluster", "credential", "namespace")
"""Fields for which a DPU is installed anew if they change."""
_ELSEWHERE = ("card", "cluster", "credential", "namespace")
"""Fields that say where a DPU is. If they change, it is replaced by one that may be on another card."""
_LOOK = 2.0
_LONG = 7 * 86_400.0
_WRITTEN = "written"
_FLAVOR = "flavor_object"
_NEXT = "next"
"""Fact: the facts about image and flavor that hold once they are written. A failed update leaves the former ones."""


def disruption(before: Config | None, after: Config) -> str:
    """Return which fields change for which the DPU is installed anew, as a sentence, or an empty string."""
    if before is None:
        return "It is not known what changes, so the DPU is installed anew."
    changed = [name for name in INSTALLED if getattr(before, name) != getattr(after, name)]
    if "deployment" in changed and before.deployment is not None and after.deployment is not None:
        # Image and flavor of a deployment are those of the config.
        changed = [name for name in changed if name not in ("image", "flavor")]
        if changed == ["deployment"] and (before.image, before.flavor) == (after.image, after.flavor):
            return "The services of the deployment change."
    return f"The DPU is installed anew for another {', '.join(changed)}." if changed else ""


def unforcible(before: Config | None, after: Config) -> str:
    """Return why a DPU cannot be installed anew for a change while it is leased, or an empty string if it can."""
    if before is None:
        return "It is not known what changes."
    if changed := [name for name in _ELSEWHERE if getattr(before, name) != getattr(after, name)]:
        return f"With another {', '.join(changed)}, the DPU may have to move to another card."
    if (before.deployment is None) != (after.deployment is None):
        return "A DPU cannot change between a DPUSet and a DPUDeployment."
    return ""


def plan() -> Plan:
    """Return the steps of an update. All but the first do nothing if it disturbs no lease."""
    return (
        Step(name="labels", act=relabel),
        Step(name="image", act=have_image, deadline=_LONG),
        Step(name="compatible", act=_as_next(actions.check_compatible)),
        Step(name="flavor", act=create_flavor),
        Step(name="hold", act=_as_next(hold_host), deadline=_LONG),
        Step(name="proof", act=deploying.prove, deadline=LIMIT, applies=deploying.deploys),
        Step(name="set", act=_as_next(replace), deadline=actions.HANGS, interruptible=False),
        Step(name="provision", act=provisioning.provision, deadline=_LONG, interruptible=False),
        Step(name="join", act=actions.wait_for_node, deadline=LIMIT),
        Step(name="tidy", act=tidy, deadline=actions.HANGS),
        Step(name="deployed", act=deploying.wait_for_services, deadline=deploying.READY_IN, applies=deploying.deploys),
    )


def _as_next(act: Act) -> Act:
    """Wrap an act so that it sees the image and the flavor to which the DPU is brought."""

    @functools.wraps(act)
    def called(spec: Spec, memo: Json) -> Answer:
        facts = spec.resource.facts
        resource = dataclasses.replace(spec.resource, facts={**facts, **(facts.get(_NEXT) or {})})
        return act(dataclasses.replace(spec, resource=resource), memo)

    return called


def _if_undisturbed(act: Act) -> Act:
    """Wrap an act so that it does nothing in an update that disturbs leases."""

    @functools.wraps(act)
    def called(spec: Spec, memo: Json) -> Answer:
        return Ready() if spec.disruptive else act(spec, memo)

    return called


@_if_undisturbed
@kube_told
def relabel(spec: Spec, memo: Json) -> Answer:
    """Write the labels of the config into the DPUSet, and wait until DPF has copied them to the DPU.

    DPF copies new and changed labels to the node of the DPU, and disturbs nothing there.
    """
    with opened(spec) as site:
        if spec.resource.facts.get(deploying.FACT):
            return _relabelled(deploying.prove(spec, memo), site, spec, memo)
        type_, name = site.dialect.type("DPUSet"), site.name("DPUSet", spec.resource.key)
        found = site.find("DPUSet", name)
        if found is None or not has_labels(site.proof)(found.labels):
            return Failed(scope=Scope.STEP, code="set_gone", message=f"The DPUSet {name} does not exist any more.")
        wanted = labelled(manifest_of_set(site, spec, name, object_of(image_of(spec))), site.proof)
        site.cluster.apply(type_, wanted, current=found)
        return _relabelled(Ready(), site, spec, memo)


def _relabelled(answer: Answer, site: Site, spec: Spec, memo: Json) -> Answer:
    """Return whether the DPUs have the labels that were written into their DPUSet."""
    if not isinstance(answer, Ready):
        return answer
    asked = {**spec.config.node_labels, **site.proof}
    if not site.dialect.has("DPUSet", "spec.dpuTemplate.spec.cluster.nodeLabels"):
        asked = {}
    for dpu in site.ours("DPU"):
        there = (dpu.spec.get("cluster") or {}).get("nodeLabels") or {}
        if not asked.items() <= there.items():
            sentence = f"DPF has not copied the labels to DPU {dpu.name} yet."
            return Wait(after=_LOOK, watched=SELDOM, memo=memo, sentence=sentence)
    return Ready(attributes={"doca": spec.config.doca or None}, ends_phase=True)


def have_image(spec: Spec, memo: Json) -> Answer:
    """Lease the image of the config, beside the one that the DPU has."""
    config: Config = spec.config
    if image_of(spec).resource.attributes.get("url") == config.image:
        return Ready(facts={_NEXT: {}})
    name = f"{IMAGE}-{hashlib.sha256(config.image.encode()).hexdigest()[:10]}"
    if name not in spec.parents:
        return Need(leases=(NeededLease(name=name, type=IMAGE_TYPE, requirements={"url": config.image}),))
    return Ready(facts={_NEXT: {IMAGE_NEED: name}})


@kube_told
def create_flavor(spec: Spec, memo: Json) -> Answer:
    """Create the DPUFlavor of the config beside the one that the DPU has, unless they are the same.

    DPF lets nobody change a DPUFlavor.
    """
    config: Config = spec.config
    with opened(spec) as site:
        now = site.find("DPUFlavor", str(spec.resource.facts.get(_FLAVOR) or ""))
        if config.flavor_name:
            known = site.find("DPUFlavor", config.flavor_name)
            memory = spec.parents[actions.CARD].resource.attributes.get("memory_gib")
            missing = f"DPUFlavor {config.flavor_name} does not exist in namespace {site.namespace}."
            if problem := missing if known is None else flavor_problem(known.spec, memory, config.mode):
                return Failed(scope=Scope.BLUEPRINT, code="flavor_unfit", message=problem)
            return _with_flavor(spec, config.flavor_name)
        assert not isinstance(config.flavor, str)
        wanted = actions.flavor_hash(config.flavor)
        if now is not None and has_labels(site.proof)(now.labels) and _is_flavor(now, config.flavor, wanted):
            return Ready()
        made = site.ensure(actions.own_flavor(site, spec, f"{spec.resource.key}-{wanted[:8]}"))
    return _with_flavor(spec, made.name)


def _with_flavor(spec: Spec, name: str) -> Answer:
    return Ready(facts={_NEXT: {**(spec.resource.facts.get(_NEXT) or {}), _FLAVOR: name}})


def _is_flavor(found: Object, flavor: Mapping[str, Any], wanted: str) -> bool:
    """Return whether a DPUFlavor of ours is that of the config. Those of former versions have no hash."""
    known = found.annotations.get(actions.FLAVOR_HASH)
    if known is not None:
        return known == wanted
    return not dropped({"spec": dict(flavor)}, found.body) and not dropped(found.spec, dict(flavor))


@kube_told
def hold_host(spec: Spec, memo: Json) -> Answer:
    """Vacate the host while the card is installed anew. A change of services alone does not need that."""
    with opened(spec) as site:
        if site.ours("DPU") and not _outdated(site, spec):
            return Ready()
    return actions.hold_host(spec, memo)


def _outdated(site: Site, spec: Spec) -> list[Object]:
    """Return our DPUs with another image or flavor than they are brought to. Raises KubeError."""
    wanted = object_of(image_of(spec)), spec.resource.facts[_FLAVOR]
    return [one for one in site.ours("DPU") if (Image.named_in(one.spec), one.spec.get("dpuFlavor")) != wanted]


@kube_told
def replace(spec: Spec, memo: Json) -> Answer:
    """Change the DPUSet or the DPUDeployment, and delete the DPU if it is outdated. DPF then makes it anew.

    DPF does not replace a DPU by itself under the strategies that Drydock sets. DPF 24.10 does so for deployments.
    """
    with opened(spec) as site:
        if not memo.get(_WRITTEN):
            if (refused := actions.unselectable(site, spec)) is not None:
                return refused
            if (failed := _write(site, spec)) is not None:
                return failed
            memo = {**memo, _WRITTEN: True}
        made = _of_deployment(site, spec)
        outdated = _outdated(site, spec)
        for one in outdated:
            # Its DPUSet would make it with the former image again.
            if not one.deleting and made:
                site.cluster.delete(site.dialect.type("DPU"), one.name, one.namespace, uid=one.uid)
    if not made:
        return Wait(after=_LOOK, memo=memo, sentence="DPF has not changed the DPUSet of the deployment yet.")
    if outdated:
        sentence = f"DPF removes DPU {outdated[0].name} with the former image or flavor. {why(outdated[0])}".strip()
        return Wait(after=_LOOK, watched=SELDOM, memo=memo, sentence=sentence)
    return Ready(facts={**(spec.resource.facts.get(_NEXT) or {}), _NEXT: {}})


def _write(site: Site, spec: Spec) -> Failed | None:
    """Write our objects as the config has them now. Raises KubeError."""
    if deploying.deploys(spec.config):
        wanted = deploying.written(site, spec)
    else:
        name = site.name("DPUSet", spec.resource.key)
        set_ = manifest_of_set(site, spec, name, object_of(image_of(spec)))
        wanted = [labelled(set_, site.proof)]
    for manifest in wanted:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        found = site.find(kind, name)
        if found is not None and not has_labels(site.proof)(found.labels):
            return Failed(scope=Scope.OPERATOR, code="object_of_others", message=f"{kind} {name} is of somebody else.")
        if found is not None:
            site.cluster.apply(site.dialect.type(kind), manifest, current=found)
        elif kind in (deployments.TEMPLATE, deployments.CONFIGURATION):
            site.ensure(manifest)
        else:
            return Failed(scope=Scope.STEP, code="set_gone", message=f"The {kind} {name} does not exist any more.")
    return None


def _of_deployment(site: Site, spec: Spec) -> bool:
    """Return whether DPF has written the image and flavor into the DPUSet of a deployment. Drydock writes any other."""
    if not deploying.deploys(spec.config):
        return True
    found = site.find("DPUSet", deployments.set_name(site.name(deployments.KIND, spec.resource.key)))
    template = ((found.spec.get("dpuTemplate") or {}).get("spec") or {}) if found is not None else {}
    wanted = object_of(image_of(spec)), spec.resource.facts[_FLAVOR]
    return (Image.named_in(template), template.get("dpuFlavor")) == wanted


@kube_told
def tidy(spec: Spec, memo: Json) -> Answer:
    """Delete what the DPU does not need any more, and give back the lease of its former image."""
    with opened(spec) as site:
        kept = {spec.resource.facts[_FLAVOR]}
        if deploying.deploys(spec.config):
            kept |= {one["metadata"]["name"] for one in deploying.written(site, spec)}
        of_deployment = (deployments.TEMPLATE, deployments.CONFIGURATION) if deploying.deploys(spec.config) else ()
        kinds = ("DPUFlavor", *of_deployment)
        deleted = [
            site.cluster.delete(site.dialect.type(kind), one.name, one.namespace, uid=one.uid)
            for kind in kinds
            for one in site.ours(kind)
            if one.name not in kept
        ]
    if left := [one for one in deleted if one is not None]:
        return Wait(
            after=_LOOK,
            watched=SELDOM,
            memo=memo,
            sentence=f"{left[0].name} is being deleted.{left[0].finalizer_sentence}",
        )
    config: Config = spec.config
    now = spec.resource.facts.get(IMAGE_NEED) or IMAGE
    former = tuple(name for name in spec.resource.parents if name.partition("-")[0] == IMAGE and name != now)
    attributes = {
        "image": config.image, "doca": config.doca or image_of(spec).resource.attributes.get("doca"),
        "flavor": config.flavor_name or None, "mode": config.mode,
    }  # fmt: skip
    return Ready(attributes=attributes, gives_back=former)
